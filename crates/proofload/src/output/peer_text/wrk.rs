//! The layouts of wrk and wrk2.

use std::fmt::{Result, Write};

use record::{CensoredTimes, ErrorClass, ErrorCounts, HttpTrial, Span, Trial};

use super::{connections, deviation};
use crate::output::marked;

/// Writes a trial in wrk's layout.
pub(super) fn write(out: &mut String, trial: &Trial, http: &HttpTrial, is_distribution: bool) -> Result {
    write_head(out, trial, http)?;
    if is_distribution {
        writeln!(out, "  Latency Distribution")?;
        for percent in [50, 75, 90, 99] {
            let time = shown(http.response_time.percentile(f64::from(percent) / 100.0));
            writeln!(out, "     {percent}% {time:>10}")?;
        }
    }
    write_foot(out, trial, http)
}

/// Writes a trial in wrk2's layout. The flags stand for wrk2's options `-L` and `-U`, which add latency spectra.
pub(super) fn write_wrk2(
    out: &mut String,
    trial: &Trial,
    http: &HttpTrial,
    is_distribution: bool,
    is_uncorrected: bool,
) -> Result {
    write_head(out, trial, http)?;
    if is_distribution {
        write_spectrum(out, "Recorded Latency", &http.response_time)?;
    }
    if is_uncorrected {
        let title = "Uncorrected Latency (measured without taking delayed starts into account)";
        write_spectrum(out, title, &http.service_time)?;
    }
    write_foot(out, trial, http)
}

fn write_head(out: &mut String, trial: &Trial, http: &HttpTrial) -> Result {
    let seconds = http.plan.duration_ns.map_or(trial.elapsed_s, |ns| ns as f64 / 1e9);
    let duration = match seconds.round() as u64 {
        0 => format!("{seconds:.2}s"),
        whole if whole % 3_600 == 0 => format!("{}h", whole / 3_600),
        whole if whole % 60 == 0 => format!("{}m", whole / 60),
        whole => format!("{whole}s"),
    };
    writeln!(out, "Running {duration} test @ {}", http.plan.url)?;
    writeln!(out, "  {} threads and {} connections", http.cpu.threads, connections(http))?;
    writeln!(out, "  Thread Stats   Avg      Stdev     Max   +/- Stdev")?;
    let times = http.response_time.lower_bound();
    let hdr = times.to_hdr();
    let (mean, stdev) = (hdr.mean(), hdr.stdev());
    let near = hdr.count_between((mean - stdev).max(0.0) as u64, (mean + stdev) as u64);
    let near = 100.0 * near as f64 / hdr.len().max(1) as f64;
    writeln!(
        out,
        "    Latency   {:>8}  {:>8}  {:>8}  {near:>6.2}%",
        shown(http.response_time.mean()),
        time(stdev),
        shown(http.response_time.percentile(1.0))
    )?;
    let rates = rates(http);
    let (mean, stdev) = deviation(&rates);
    let near = rates.iter().filter(|rate| (*rate - mean).abs() <= stdev).count();
    let most = rates.iter().copied().fold(0.0, f64::max);
    let near = 100.0 * near as f64 / rates.len().max(1) as f64;
    writeln!(
        out,
        "    Req/Sec   {:>8}  {:>8}  {:>8}  {near:>6.2}%",
        amount(mean),
        amount(stdev),
        amount(most)
    )
}

/// Requests per second per thread, for each complete interval.
fn rates(http: &HttpTrial) -> Vec<f64> {
    let threads = f64::from(http.cpu.threads.max(1));
    let interval_s = http.plan.interval_ns() as f64 / 1e9;
    let whole = http.series.iter().enumerate().filter(|(index, interval)| {
        let begin_s = if *index == 0 { 0.0 } else { http.series[index - 1].end_s };
        interval.end_s - begin_s > 0.9 * interval_s
    });
    let rates: Vec<f64> =
        whole.map(|(_, interval)| interval.completed as f64 / interval_s / threads).collect();
    if rates.is_empty() { vec![http.throughput_per_s / threads] } else { rates }
}

fn write_foot(out: &mut String, trial: &Trial, http: &HttpTrial) -> Result {
    writeln!(
        out,
        "  {} requests in {}, {} read",
        // The rate leaves out answers after the end of the measurement, so the request count must too.
        (http.throughput_per_s * http.measured_s).round(),
        time(http.measured_s * 1e9),
        size(http.counts.received_bytes as f64)
    )?;
    let (connect, broken, timeout) = socket_errors(http);
    if connect + broken + timeout > 0 {
        // proofload does not distinguish failures of sending and of reading.
        writeln!(out, "  Socket errors: connect {connect}, read {broken}, write 0, timeout {timeout}")?;
    }
    let unexpected = http.errors.of(ErrorClass::Status);
    if unexpected > 0 {
        writeln!(out, "  Non-2xx or 3xx responses: {unexpected}")?;
    }
    writeln!(
        out,
        "Requests/sec: {:>9}",
        http.throughput().in_words(|rate| format!("{rate:.2}")).replace("≥ ", "≥")
    )?;
    let per_s = http.counts.received_bytes as f64 / trial.elapsed_s.max(1e-9);
    writeln!(out, "Transfer/sec: {:>10}", size(per_s))
}

/// Failures to connect, failures during a request, and timeouts.
fn socket_errors(http: &HttpTrial) -> (u64, u64, u64) {
    let all = [&http.errors, &http.connection_errors];
    let sum = |count: fn(&ErrorCounts) -> u64| all.into_iter().map(count).sum::<u64>();
    let local = [ErrorClass::Descriptors, ErrorClass::Ports, ErrorClass::Buffers, ErrorClass::LocalOther];
    let local: u64 = all.into_iter().flat_map(|errors| local.map(|class| errors.of(class))).sum();
    let refused = sum(ErrorCounts::connect_failures) - sum(|errors| errors.of(ErrorClass::ClosedUnused));
    let timeout = sum(|errors| errors.of(ErrorClass::Timeout));
    let status = sum(|errors| errors.of(ErrorClass::Status));
    let unused = sum(|errors| errors.of(ErrorClass::ClosedUnused));
    let connect = refused + local + http.counts.connections_unopened;
    (connect, sum(ErrorCounts::total) - refused - local - timeout - status - unused, timeout)
}

/// Writes wrk2's percentiles, and its spectrum in the format that HdrHistogram's plotters read.
fn write_spectrum(out: &mut String, title: &str, times: &CensoredTimes) -> Result {
    writeln!(out, "  Latency Distribution (HdrHistogram - {title})")?;
    for quantile in [0.5, 0.75, 0.9, 0.99, 0.999, 0.9999, 0.99999, 1.0] {
        writeln!(out, " {:>7.3}% {:>9}", quantile * 100.0, shown(times.percentile(quantile)))?;
    }
    writeln!(out, "\n  Detailed Percentile spectrum:")?;
    writeln!(out, "{:>10} {:>12} {:>12} {:>14}\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)")?;
    let all = times.lower_bound();
    let hdr = all.to_hdr();
    let ms = |ns: f64| ns / 1e6;
    let mut counted = 0;
    for step in hdr.iter_quantiles(5) {
        counted += step.count_since_last_iteration();
        let (value, quantile) = (ms(step.value_iterated_to() as f64), step.quantile_iterated_to());
        match quantile < 1.0 {
            true => writeln!(
                out,
                "{value:>10.3} {quantile:>12.6} {counted:>12} {:>14.2}",
                1.0 / (1.0 - quantile)
            )?,
            false => writeln!(out, "{value:>10.3} {quantile:>12.6} {counted:>12} {:>14}", "inf")?,
        }
    }
    writeln!(out, "#[Mean    = {:>12.3}, StdDeviation   = {:>12.3}]", ms(hdr.mean()), ms(hdr.stdev()))?;
    writeln!(out, "#[Max     = {:>12.3}, Total count    = {:>12}]", ms(hdr.max() as f64), hdr.len())?;
    writeln!(out, "----------------------------------------------------------")
}

fn shown(percentile: Span) -> String {
    marked(percentile, |ns| time(ns as f64))
}

/// A time as wrk writes it: `635.91us`, `12.92ms`, `30.00s`.
fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e6 => format!("{:.2}us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.2}ms", ns / 1e6),
        ns if ns < 60e9 => format!("{:.2}s", ns / 1e9),
        ns => format!("{:.2}m", ns / 60e9),
    }
}

/// A number as wrk writes it, with two decimals and a decimal prefix: `56.20k`.
fn amount(value: f64) -> String {
    match value {
        value if value < 1e3 => format!("{value:.2}"),
        value if value < 1e6 => format!("{:.2}k", value / 1e3),
        value => format!("{:.2}M", value / 1e6),
    }
}

/// A size as wrk writes it, in powers of 1,024: `17.76GB`.
fn size(bytes: f64) -> String {
    let (mut value, mut units) = (bytes, ["B", "KB", "MB", "GB", "TB"].into_iter());
    let mut unit = units.next().unwrap_or_default();
    for next in units {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    format!("{value:.2}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_as_wrk_writes_them() {
        assert_eq!(
            [time(635_910.0), time(12.92e6), time(30e9), time(120e9)],
            ["635.91us", "12.92ms", "30.00s", "2.00m"]
        );
        assert_eq!([amount(12.0), amount(56_200.0), amount(2.5e6)], ["12.00", "56.20k", "2.50M"]);
        assert_eq!(
            [size(13.0), size(692_357.0), size(17.76 * 1024f64.powi(3))],
            ["13.00B", "676.13KB", "17.76GB"]
        );
    }
}
