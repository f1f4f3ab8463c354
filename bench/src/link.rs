//! The cost and the largest rate of the link emulator. It is not compared with peers: netem is not in every kernel, and
//! user-space emulators do not reach a gigabit.

use std::time::Duration;

use anyhow::Result;
use proofload_tests::{
    link::{LinkedHosts, cores_per_gbit},
    stats::{median, spread},
};
use serde_json::Value;

/// The figures at 1 Gbit/s: processor time of the emulator for both directions, per Gbit of data.
pub(crate) const CPU: &str = "link-cpu";
/// The figure at 10 Gbit/s and 0.1 ms: rate of one flow in Gbit/s, with all processes on this machine.
pub(crate) const FAST: &str = "link-10g";

/// Name, delay, iperf3 options, and bound in core-seconds per Gbit of each case.
const CASES: [(&str, &str, &str, f64); 4] = [
    ("114ms", "114ms", "--congestion cubic --time 14", 0.35),
    ("5ms", "5ms", "--congestion cubic --time 8", 0.5),
    ("udp", "5ms", "--udp --length 1400 --bitrate 800M --time 8", 0.6),
    // Many wake-ups for little data, so the cost has no bound; instead, the lateness of its packets has one.
    ("udp-300m", "5ms", "--udp --length 1400 --bitrate 300M --time 8", f64::INFINITY),
];
/// The figure of a stream of 300 Mbit/s: the 99th percentile of how late packets leave the link.
const LATE: &str = "link-late";
const MAX_LATE_US: f64 = 100.0;

const MIN_GBIT_PER_S: f64 = 4.0;

/// Measures the processor time. Returns whether it is within its bounds.
///
/// # Errors
/// If a link or iperf3 cannot be run.
pub(crate) fn measure_cpu(rounds: u32) -> Result<bool> {
    println!(
        "\n== {CPU}: 1 Gbit/s, one flow, processor time of the emulator, both directions, for the flow's data"
    );
    let mut within = true;
    for (name, delay, options, bound) in CASES {
        let (mut costs, mut late) = (Vec::new(), Vec::new());
        for round in 1..=rounds {
            let link = LinkedHosts::start(&format!("--rate 1gbit --delay {delay} --queue 2bdp"))?;
            link.tune()?;
            let result = link.iperf3(options, Duration::from_secs(60))?;
            let report = link.stop()?;
            let field = |value: &Value| value.as_f64().unwrap_or(0.0);
            let (sum, received) = (&result["end"]["sum"], &result["end"]["sum_received"]["bytes"]);
            // For datagrams, the sum counts the sent ones.
            let bytes = match sum["lost_packets"].as_f64() {
                Some(lost) => field(&sum["bytes"]) - lost * 1_400.0,
                None => field(received),
            };
            let cpu_ns: f64 = (0..2).map(|index| field(&report["counters"][index]["cpu_ns"])).sum();
            let cost = cpu_ns / (bytes * 8.0).max(1.0);
            let late_us = field(&report["counters"][0]["lateness"]["p99_ns"]) / 1e3;
            println!(
                "   {name} round {round}: {cost:.3} core-seconds per Gbit; 1 % left more than {late_us:.0} µs late"
            );
            late.push(late_us);
            costs.push(cost);
        }
        let ((low, high), value) = (spread(&costs), median(&costs));
        println!("bench {CPU}-{name} ours={value:.3}core-s/Gbit bound={bound} spread={low:.3}-{high:.3}");
        within &= value <= bound;
        if name == "udp-300m" {
            let value = median(&late);
            println!("bench {LATE} ours={value:.0}us bound={MAX_LATE_US}");
            within &= value <= MAX_LATE_US;
        }
    }
    Ok(within)
}

/// Measures the rate of the fastest flow. Returns whether it is within its bound.
///
/// # Errors
/// If a link or iperf3 cannot be run.
pub(crate) fn measure_fast(rounds: u32) -> Result<bool> {
    println!("\n== {FAST}: 10 Gbit/s, 0.1 ms, one iperf3 flow");
    let mut rates = Vec::new();
    for round in 0..rounds {
        let link = LinkedHosts::start("--rate 10gbit --delay 0.1ms")?;
        link.tune()?;
        let result = link.iperf3("--time 6", Duration::from_secs(30))?;
        let report = link.stop()?;
        let rate = result["end"]["sum_received"]["bits_per_second"].as_f64().unwrap_or(0.0) / 1e9;
        let counters = &report["counters"][0];
        println!(
            "   round {} {rate:.2} Gbit/s, {:.3} cores per Gbit/s, {} packets not emulated",
            round + 1,
            cores_per_gbit(counters),
            counters["overrun_packets"]
        );
        rates.push(rate);
    }
    let (low, high) = spread(&rates);
    let value = median(&rates);
    println!("bench {FAST} ours={value:.2}Gbit/s bound={MIN_GBIT_PER_S} spread={low:.2}-{high:.2}");
    Ok(value >= MIN_GBIT_PER_S)
}
