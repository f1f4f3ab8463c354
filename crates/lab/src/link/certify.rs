//! Measures a link and certifies whether it has the requested shape.
//!
//! Datagrams are sent in both directions at once: a few small ones to measure the delay, a stream slightly above the
//! rate to measure the rate, and many small ones at half the rate to measure the loss.

use std::{ops::Range, thread, time::Duration};

use clock::monotonic_ns;
use record::{Distribution, nearest_rank};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    LinkError,
    counters::Counters,
    emulator::Emulator,
    spec::{Direction, JitterOrder, LinkSpec, Shape},
    steal::StealWatch,
    text::show_rate,
    traffic::{Arrivals, Stream, StreamRun},
};

mod judge;
mod streams;

use judge::{judge, judge_counters};
use streams::{
    ExpectedDelay, RATE_PAYLOAD_BYTES, arrival_rate, drain_ns, header_bytes, loss_stream, max_payload_bytes,
    probe_stream, probe_wire_ns, rate_stream,
};

const NO_JITTER: Distribution = Distribution::Fixed { ns: 0 };
/// A probe counts as delayed by stolen processor time if time was stolen within this interval around its sending or
/// arrival, in nanoseconds.
const STEAL_MARGIN_NS: u64 = 10_000_000;
/// Minimum number of packets for a measured rate, unless fewer could be sent.
const MIN_RATE_PACKETS: u64 = 10;
/// Allowed difference of the number of lost packets from the expected one, in standard deviations.
const LOSS_DEVIATIONS: f64 = 4.0;

/// Durations and packet counts of a link's measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CertifyOptions {
    /// Duration of the measurement of the delay, in milliseconds. A probe is sent every 2 ms.
    pub delay_ms: u64,
    /// Duration of the measurement of the rate, in milliseconds.
    pub rate_ms: u64,
    /// Packets sent in each direction to measure the loss; fewer on slow links.
    pub loss_packets: u64,
    /// Maximum duration of the rate measurement and of the loss measurement, in milliseconds. Slow links send fewer
    /// packets.
    pub phase_ms: u64,
}

impl Default for CertifyOptions {
    fn default() -> Self {
        Self { delay_ms: 2_500, rate_ms: 1_000, loss_packets: 200_000, phase_ms: 15_000 }
    }
}

impl CertifyOptions {
    /// Options for a measurement of one or two seconds.
    pub fn short() -> Self {
        Self { delay_ms: 600, rate_ms: 300, loss_packets: 10_000, phase_ms: 1_000 }
    }

    /// [`phase_ms`](Self::phase_ms) as a duration.
    fn phase(&self) -> Duration {
        Duration::from_millis(self.phase_ms)
    }

    /// Maximum duration of a certification.
    pub fn max_duration(&self, spec: &LinkSpec) -> Duration {
        let phases = [&spec.a_to_b, &spec.b_to_a].map(|shape| {
            let rate_arrivals = rate_stream(shape, self, RATE_PAYLOAD_BYTES);
            // A sender may take twice its planned time plus a second.
            let max_ns = |stream: Stream| 2 * stream.duration_ns() + drain_ns(shape, &stream) + 1_020_000_000;
            [probe_stream(shape, self), rate_arrivals, Some(loss_stream(shape, self))]
                .map(|stream| stream.map_or(0, max_ns))
        });
        let [a_to_b, b_to_a] = phases;
        Duration::from_nanos(a_to_b.into_iter().zip(b_to_a).map(|(a_to_b, b_to_a)| a_to_b.max(b_to_a)).sum())
    }
}

/// The result of measuring a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Certificate {
    /// Whether the link has the requested shape.
    pub certified: bool,
    /// The reasons if it has not, each with figures.
    pub reasons: Vec<String>,
    /// Time of the measurement, in seconds since 1970.
    pub at_unix_s: u64,
    /// The kernel and the number of processors.
    pub machine: String,
    /// The requested shape.
    pub spec: LinkSpec,
    /// From the first host to the second.
    pub a_to_b: Measured,
    /// From the second host to the first.
    pub b_to_a: Measured,
}

/// The result of measuring one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// Delay of small packets on the idle link.
    pub delay: MeasuredDelay,
    /// Delay of the probes during which the hypervisor took processor time; not judged.
    pub delay_while_stolen: Option<MeasuredDelay>,
    /// What arrived per second under overload, in bits of the layer that the rate counts; none if no rate was requested.
    pub rate_bits_per_s: Option<f64>,
    /// What should have arrived per second: the rate less the loss on the wire.
    pub expected_rate_bits_per_s: Option<f64>,
    /// Packets from which the rate was computed.
    #[serde(default)]
    pub rate_packets: u64,
    /// Packets sent to measure the loss.
    pub loss_sent: u64,
    /// Share of `loss_sent` that did not arrive.
    pub loss_ratio: f64,
    /// The requested loss ratio.
    pub expected_loss_ratio: f64,
    /// By how much the loss ratio may differ by chance.
    pub loss_tolerance: f64,
    /// Share of `loss_sent` that arrived twice.
    pub duplicate_ratio: f64,
    /// Processor time of the emulator for this direction during the measurement of the rate, in cores per Gbit/s.
    pub cores_per_gbit: Option<f64>,
}

/// Measured and expected one-way delay.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeasuredDelay {
    /// Probes that arrived.
    pub probes: u64,
    /// Median, in nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile; the largest where there are fewer than 1,000.
    pub p999_ns: u64,
    /// Largest.
    pub max_ns: u64,
    /// Expected median.
    pub expected_p50_ns: u64,
    /// Expected 99.9th percentile.
    pub expected_p999_ns: u64,
}

/// Measures a link, which should carry no other traffic meanwhile.
///
/// # Errors
/// When the link cannot be measured.
pub(crate) fn certify(link: &mut Emulator, options: &CertifyOptions) -> Result<Certificate, LinkError> {
    let requested = link.spec().clone();
    // Each measurement uses a fresh random seed. The requested seed is restored afterwards.
    let seed = monotonic_ns();
    let reseeded = [&requested.a_to_b, &requested.b_to_a]
        .map(|shape| Shape { seed: shape.seed ^ seed, ..shape.clone() });
    let certificate = measure(link, &requested, &reseeded, options);
    set_both(link, [requested.a_to_b, requested.b_to_a])?;
    certificate
}

fn set_both(link: &mut Emulator, shapes: [Shape; 2]) -> Result<(), LinkError> {
    Direction::BOTH.into_iter().zip(shapes).try_for_each(|(direction, shape)| link.set(direction, shape))
}

fn measure(
    link: &mut Emulator,
    requested: &LinkSpec,
    shapes: &[Shape; 2],
    options: &CertifyOptions,
) -> Result<Certificate, LinkError> {
    set_both(link, shapes.clone())?;
    let before = link.counters()?;
    let watch = StealWatch::start();
    let probes = run_both(link, Direction::BOTH.map(|way| probe_stream(link.shape(way), options)))?;
    let stolen = watch.finish();

    // Jitter would hide when the first and the last packet left the wire.
    let without_jitter = |shape: &Shape| Shape { jitter: NO_JITTER, reorder: None, ..shape.clone() };
    set_both(link, shapes.each_ref().map(without_jitter))?;
    let before_rate = link.counters()?;
    let watch = StealWatch::start();
    let rate_streams =
        Direction::BOTH.map(|way| rate_stream(link.shape(way), options, max_payload_bytes(link.ends(way))));
    let rate_arrivals = run_both(link, rate_streams)?;
    let is_rate_stolen = !watch.finish().is_empty();
    let after_rate = link.counters()?;
    set_both(link, shapes.clone())?;
    let loss_arrivals =
        run_both(link, Direction::BOTH.map(|way| Some(loss_stream(link.shape(way), options))))?;
    let after = link.counters()?;

    let mut reasons = Vec::new();
    let mut measured = Vec::new();
    for (direction, (probes, (rate_arrivals, loss_arrivals))) in
        Direction::BOTH.into_iter().zip(probes.into_iter().zip(rate_arrivals.into_iter().zip(loss_arrivals)))
    {
        let shape = link.shape(direction);
        let name = if direction == Direction::AToB { "a to b" } else { "b to a" };
        let mut reasons_here = Vec::new();
        let mut direction_result = Measured {
            cores_per_gbit: None,
            ..measure_delay_and_loss(
                shape,
                &probes.unwrap_or_default(),
                &loss_arrivals.unwrap_or_default(),
                &stolen,
            )
        };
        let rate_stream = rate_streams[direction.index()];
        if let (Some(rate), Some(stream), Some(arrivals)) =
            (shape.rate_bits_per_s, rate_stream, rate_arrivals)
        {
            let ip_bytes = stream.payload_bytes as u64 + header_bytes(link.ends(direction)[1]);
            let (carried, packets) = arrival_rate(shape, &arrivals, options, ip_bytes);
            (direction_result.rate_bits_per_s, direction_result.rate_packets) = (Some(carried), packets);
            // Where at least twice the minimum was expected, fewer packets than the minimum are a fault, even on a slow
            // link.
            let expected = arrivals.sent as f64 * (1.0 - shape.loss.ratio());
            if packets < MIN_RATE_PACKETS && expected >= 2.0 * MIN_RATE_PACKETS as f64 {
                reasons_here.push(format!(
                    "only {packets} of {} packets of the rate measurement arrived in time: the processors are busy, or the link is down",
                    arrivals.sent
                ));
            }
            direction_result.expected_rate_bits_per_s =
                Some(rate as f64 * (1.0 - shape.loss.ratio()) * (1.0 + shape.duplicate_ratio));
            let index = direction.index();
            let cpu_ns = after_rate[index].cpu_ns - before_rate[index].cpu_ns;
            let bits = 8.0
                * (after_rate[index].pipe.delivered_bytes - before_rate[index].pipe.delivered_bytes) as f64;
            direction_result.cores_per_gbit = (bits > 0.0).then(|| cpu_ns as f64 / bits);
        }
        judge(&direction_result, shape, is_rate_stolen, &mut reasons_here);
        judge_counters(&before[direction.index()], &after[direction.index()], &mut reasons_here);
        reasons.extend(reasons_here.into_iter().map(|reason| format!("{name}: {reason}")));
        measured.push(direction_result);
    }
    let [a_to_b, b_to_a] = <[Measured; 2]>::try_from(measured).map_err(|_| LinkError::Ended)?;
    Ok(Certificate {
        certified: reasons.is_empty(),
        reasons,
        at_unix_s: clock::unix_s() as u64,
        machine: machine(),
        spec: requested.clone(),
        a_to_b,
        b_to_a,
    })
}

/// Runs the streams of both directions at once. A direction without a stream sends nothing.
fn run_both(link: &Emulator, streams: [Option<Stream>; 2]) -> Result<[Option<Arrivals>; 2], LinkError> {
    let (mut runs, mut rest) = (Vec::new(), Duration::ZERO);
    for (direction, stream) in Direction::BOTH.into_iter().zip(streams) {
        let [from, to] = link.ends(direction);
        runs.push(stream.map(|stream| StreamRun::start(from, to, stream)).transpose()?);
        let drain_ns = stream.map_or(0, |stream| drain_ns(link.shape(direction), &stream));
        rest = rest.max(Duration::from_nanos(drain_ns));
    }
    let mut arrivals = [None, None];
    // Both directions drain at the same time.
    while runs.iter().flatten().any(|run: &StreamRun| !run.is_sent()) {
        thread::sleep(Duration::from_millis(2));
    }
    thread::sleep(rest);
    for (run, slot) in runs.into_iter().zip(&mut arrivals) {
        *slot = run.map(StreamRun::finish).transpose()?;
    }
    // Packets left in a queue get this time to arrive.
    thread::sleep(Duration::from_millis(20));
    Ok(arrivals)
}

fn measure_delay_and_loss(
    shape: &Shape,
    probes: &Arrivals,
    loss_arrivals: &Arrivals,
    stolen: &[Range<u64>],
) -> Measured {
    // The delay line needs no processor, because departures are computed. Stolen time therefore matters only close to
    // sending and arrival.
    let is_stolen = |(sent, arrived_ns): &(u64, u64)| {
        let ends = [
            (*sent, (*arrived_ns).min(sent + STEAL_MARGIN_NS)),
            (arrived_ns.saturating_sub(STEAL_MARGIN_NS).max(*sent), *arrived_ns),
        ];
        stolen.iter().any(|range| ends.iter().any(|(from, to)| range.start < *to && *from < range.end))
    };
    let delays = |wanted: bool| -> Vec<u64> {
        let times = probes.times.iter().filter(|times| is_stolen(times) == wanted);
        times.map(|(sent, arrived_ns)| arrived_ns.saturating_sub(*sent)).collect()
    };
    let expected = ExpectedDelay::of(shape);
    let stolen_delays = delays(true);
    let ratio = shape.loss.ratio();
    let sent = loss_arrivals.sent.max(1) as f64;
    let deviation = (ratio * (1.0 - ratio) * shape.loss.dispersion() / sent).sqrt();
    Measured {
        delay: MeasuredDelay::of(delays(false), &expected),
        delay_while_stolen: (!stolen_delays.is_empty()).then(|| MeasuredDelay::of(stolen_delays, &expected)),
        rate_bits_per_s: None,
        expected_rate_bits_per_s: None,
        rate_packets: 0,
        loss_sent: loss_arrivals.sent,
        loss_ratio: 1.0 - loss_arrivals.unique as f64 / sent,
        expected_loss_ratio: ratio,
        // If few packets were sent, a single lost packet is a large share, so the tolerance includes one packet.
        loss_tolerance: LOSS_DEVIATIONS * deviation + if ratio > 0.0 { 1.0 / sent } else { 0.0 },
        duplicate_ratio: loss_arrivals.duplicates as f64 / sent,
        cores_per_gbit: None,
    }
}

impl MeasuredDelay {
    fn of(mut delays: Vec<u64>, expected: &ExpectedDelay) -> Self {
        delays.sort_unstable();
        let at = |quantile: f64| nearest_rank(&delays, quantile).unwrap_or_default();
        Self {
            probes: delays.len() as u64,
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: at(1.0),
            expected_p50_ns: expected.at(0.5),
            expected_p999_ns: expected.p999_ns,
        }
    }
}

fn machine() -> String {
    let processors = thread::available_parallelism().map_or(0, usize::from);
    format!("Linux {}, {processors} processors", kernel::release())
}

#[cfg(test)]
mod tests;
