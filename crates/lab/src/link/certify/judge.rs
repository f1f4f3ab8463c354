//! Compares a measured link with the requested shape.

use super::{Counters, ExpectedDelay, JitterOrder, Measured, Shape, probe_wire_ns, show_rate};

/// Allowed difference of the median delay from the expected one, in nanoseconds.
const MEDIAN_TOLERANCE_NS: f64 = 150_000.0;
/// Allowed excess of the 99.9th percentile of the delay over the expected one, in nanoseconds.
const TAIL_TOLERANCE_NS: f64 = 1_000_000.0;
/// Both tolerances grow by this share of a probe's time on the wire. On slow links, probes are rare, and threads that
/// rarely wake up wake up late.
const WIRE_TOLERANCE: f64 = 0.02;
/// Allowed difference of the rate from the expected one, as a share.
const RATE_TOLERANCE: f64 = 0.005;
/// The same tolerance if the hypervisor took processor time: the packets that are missing because of that are not the
/// link's fault.
const STOLEN_RATE_TOLERANCE: f64 = 0.05;
/// Minimum number of probes for a judgement of the delay.
const MIN_PROBES: u64 = 10;
/// Maximum of the additional tolerance of the rate that allows for few packets, as a share.
const MAX_CHANCE_ERROR: f64 = 0.2;

/// Adds a reason for each difference between a direction's measured and requested shape.
pub(super) fn judge(measured: &Measured, shape: &Shape, is_rate_stolen: bool, reasons: &mut Vec<String>) {
    let ms = |ns: f64| ns / 1e6;
    let delay = &measured.delay;
    let expected = ExpectedDelay::of(shape);
    let spread_ns = expected.jitter_spread_ns as f64;
    // If the link keeps the order of packets, a late packet delays those behind it, so the delays are not independent.
    let alike = match shape.jitter_order {
        JitterOrder::Keep => 1.0 + spread_ns / 1e6,
        JitterOrder::Free => 1.0,
    };
    // Three standard deviations of the share of probes below the median.
    let chance_error = 1.5 * (alike / delay.probes.max(1) as f64).sqrt();
    let wire_ns = WIRE_TOLERANCE * probe_wire_ns(shape);
    let slack_ns = 2.0 * chance_error * spread_ns + wire_ns;
    let stolen = measured.delay_while_stolen.map_or(0, |delay| delay.probes);
    if delay.probes + stolen < MIN_PROBES {
        reasons.push(format!(
            "only {} probes arrived, and {MIN_PROBES} are needed to certify a link: it loses {:.4} % as requested; \
             request less loss, or check whether the link is down",
            delay.probes + stolen,
            measured.expected_loss_ratio * 100.0
        ));
    } else if delay.probes < MIN_PROBES || delay.probes * 10 < stolen {
        reasons.push(format!(
            "the hypervisor left only {} of {} probes undisturbed: measure again when the machine gets its \
             processor time",
            delay.probes,
            delay.probes + stolen
        ));
    } else {
        let [min_ns, max_ns] =
            [0.5 - chance_error, 0.5 + chance_error].map(|share| expected.at(share) as f64);
        let off_ns = (delay.p50_ns as f64 - max_ns).max(min_ns - delay.p50_ns as f64);
        if off_ns > MEDIAN_TOLERANCE_NS + wire_ns {
            reasons.push(format!(
                "the delay's median is {:.3} ms instead of {:.3} ms",
                ms(delay.p50_ns as f64),
                ms(delay.expected_p50_ns as f64)
            ));
        }
        // With fewer than 1,000 probes, the highest thousandth is at most one probe, which any interrupt may have
        // delayed, so the 99th percentile is judged instead.
        let (share, tail_ns) =
            if delay.probes >= 1_000 { ("1,000", delay.p999_ns) } else { ("100", delay.p99_ns) };
        if tail_ns as f64 > delay.expected_p999_ns as f64 + TAIL_TOLERANCE_NS + 2.0 * slack_ns {
            reasons.push(format!(
                "one packet in {share} takes {:.3} ms or longer instead of {:.3} ms: the processors are busy",
                ms(tail_ns as f64),
                ms(delay.expected_p999_ns as f64)
            ));
        }
    }
    let chance_error =
        measured.loss_tolerance + (2.0 / measured.rate_packets.max(1) as f64).min(MAX_CHANCE_ERROR);
    let tolerance = if is_rate_stolen { STOLEN_RATE_TOLERANCE } else { RATE_TOLERANCE } + chance_error;
    if let (Some(rate), Some(expected)) = (measured.rate_bits_per_s, measured.expected_rate_bits_per_s)
        && (rate / expected - 1.0).abs() > tolerance
    {
        reasons.push(format!(
            "it carries {} instead of {}: request a rate that this machine can carry",
            four_digits(rate),
            four_digits(expected)
        ));
    }
    // The tolerance is at least one packet in a million, because a full receive buffer may lose that many.
    let off = (measured.loss_ratio - measured.expected_loss_ratio).abs();
    if off > measured.loss_tolerance.max(1e-6) {
        reasons.push(format!(
            "{:.4} % of {} packets were lost instead of {:.4} % ± {:.4} %",
            measured.loss_ratio * 100.0,
            measured.loss_sent,
            measured.expected_loss_ratio * 100.0,
            measured.loss_tolerance * 100.0
        ));
    }
}

/// A rate in the units of lab files, rounded to four digits.
fn four_digits(rate: f64) -> String {
    let unit = 10_f64.powf(rate.max(1e3).log10().floor() - 3.0);
    show_rate(Some(((rate / unit).round() * unit) as u64))
}

/// Adds a reason for each counter that shows that the machine was too slow for a direction.
pub(super) fn judge_counters(before: &Counters, after: &Counters, reasons: &mut Vec<String>) {
    for (count, what) in [
        (
            after.overrun_packets - before.overrun_packets,
            "were dropped by the kernel before they could be read",
        ),
        (after.dropped_memory_packets - before.dropped_memory_packets, "found no memory"),
        (after.refused_writes - before.refused_writes, "were refused by the kernel when they were written"),
    ] {
        if count > 0 {
            reasons.push(format!("{count} packets {what}: this machine cannot carry the link"));
        }
    }
}
