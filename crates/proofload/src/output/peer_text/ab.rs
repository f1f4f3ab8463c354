//! The layout of ab.

use std::fmt::{Result, Write};

use record::{CensoredTimes, ErrorClass, Histogram, HttpTrial, Trial};

use super::connections;
use crate::output::marked;

pub(super) fn write(out: &mut String, trial: &Trial, http: &HttpTrial) -> Result {
    let plan = &http.plan;
    let counts = &http.counts;
    let done = counts.completed;
    let host = plan.request.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
    let host = host.map_or("", |(_, host)| host.as_str());
    let name =
        host.rsplit_once(':').map_or(host, |(name, port)| if port.ends_with(']') { host } else { name });
    let mut row = |name: &str, value: String| {
        let (gap, name) = name.strip_prefix('\n').map_or(("", name), |name| ("\n", name));
        writeln!(out, "{gap}{:<24}{value}", format!("{name}:"))
    };
    row("Server Hostname", name.to_owned())?;
    row("Server Port", plan.targets.first().map_or(0, std::net::SocketAddr::port).to_string())?;
    row("\nDocument Path", plan.request.target.clone())?;
    // ab shows the length of the first answer; proofload only has the mean of all.
    let answers = http.statuses.values().sum::<u64>().max(1);
    row("Document Length", format!("{} bytes", counts.received_body_bytes / answers))?;
    row("\nConcurrency Level", connections(http).to_string())?;
    row("Time taken for tests", format!("{:.3} seconds", trial.elapsed_s))?;
    row("Complete requests", done.to_string())?;
    row("Failed requests", (counts.failed + counts.never_sent + counts.in_flight).to_string())?;
    let unexpected = http.errors.of(ErrorClass::Status);
    if unexpected > 0 {
        row("Non-2xx responses", unexpected.to_string())?;
    }
    if plan.keepalive {
        row("Keep-Alive requests", done.to_string())?;
    }
    row("Total transferred", format!("{} bytes", counts.received_bytes))?;
    if !plan.request.body.is_empty() {
        row("Total body sent", counts.sent_bytes.to_string())?;
    }
    row("HTML transferred", format!("{} bytes", counts.received_body_bytes))?;
    row(
        "Requests per second",
        format!("{} [#/sec] (mean)", http.throughput().in_words(|rate| format!("{rate:.2}"))),
    )?;
    let mean = marked(http.response_time.mean(), |ns| format!("{:.3}", ms(ns)));
    row("Time per request", format!("{mean} [ms] (mean)"))?;
    if http.throughput_per_s > 0.0 {
        let across = 1e3 / http.throughput_per_s;
        row("Time per request", format!("{across:.3} [ms] (mean, across all concurrent requests)"))?;
    }
    let kb_per_s = |bytes: u64| bytes as f64 / 1024.0 / trial.elapsed_s.max(1e-9);
    row("Transfer rate", format!("{:.2} [Kbytes/sec] received", kb_per_s(counts.received_bytes)))?;
    if done > 0 {
        write_times(out, http)?;
    }
    Ok(())
}

fn write_times(out: &mut String, http: &HttpTrial) -> Result {
    writeln!(out, "\nConnection Times (ms)")?;
    writeln!(out, "{:<12} {:>9} {:>9} {:>9} {:>9} {:>9}", "", "min", "mean", "[+/-sd]", "median", "max")?;
    write_row(out, "Connect:", &http.connect_time)?;
    write_row(out, "Processing:", &http.service_time.lower_bound())?;
    write_row(out, "Waiting:", &http.first_byte_time)?;
    write_row(out, "Total:", &http.response_time.lower_bound())?;
    writeln!(out, "\nPercentage of the requests served within a certain time (ms)")?;
    let total = &http.response_time;
    for percent in [50, 66, 75, 80, 90, 95, 98, 99] {
        writeln!(out, "  {percent:>3}%  {:>10}", within(total, f64::from(percent) / 100.0))?;
    }
    writeln!(out, "  100%  {:>10} (longest request)", within(total, 1.0))
}

fn write_row(out: &mut String, name: &str, times: &Histogram) -> Result {
    let hdr = times.to_hdr();
    writeln!(
        out,
        "{name:<12} {:>9.3} {:>9.3} {:>9.3} {:>9.3} {:>9.3}",
        ms(times.min_ns()),
        times.mean_ns() / 1e6,
        hdr.stdev() / 1e6,
        ms(times.quantile_ns(0.5)),
        ms(times.max_ns())
    )
}

/// The time within which this share of the requests was answered.
fn within(times: &CensoredTimes, quantile: f64) -> String {
    marked(times.percentile(quantile), |ns| format!("{:.3}", ms(ns)))
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}
