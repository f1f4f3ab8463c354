//! How far the response times that proofload and wrk2 print are from the truth, beside each other. wrk2 is measured where its user
//! has built it: no distribution packages it.
//!
//! The target is `proofload serve`, which waits a known time before each answer and reports how long it really waited. What a
//! generator prints beyond that is the way there and back over loopback, some 50 µs, and its own error: wrk2 sends when its
//! millisecond timer fires, up to 1 ms late, and counts that as the target's time.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use proofload_tests::{Proofload, Serve, machine::Cores, process::Launch};
use record::units::parse_time;

use crate::{figure::Figure, tool::peer};

/// The name of the figures.
pub(crate) const NAME: &str = "open-rate";

const RATE_PER_S: u32 = 2_000;
const CONNECTIONS: u32 = 32;
/// wrk2 calibrates for its first 10 s, and discards them.
const WRK2_SECONDS: u32 = 14;
const OUR_SECONDS: u32 = 4;
const QUANTILES: [(&str, f64); 2] = [("p50", 0.5), ("p99", 0.99)];

/// Measures both in turn, each against a target of its own, and prints how much more than the truth each says. Returns whether all
/// runs are usable; a missing wrk2 is no failure.
///
/// # Errors
/// If the target cannot be started.
pub(crate) fn measure(cores: Cores, rounds: u32) -> Result<bool> {
    println!(
        "\n== {NAME}: {RATE_PER_S} requests per second on {CONNECTIONS} connections, answered after 500 us"
    );
    let wrk2 = peer("wrk2");
    if wrk2.is_none() {
        println!(
            "   wrk2: not measured; build it (https://github.com/giltene/wrk2), and put it into the PATH or to target/peers/bin/wrk2"
        );
    }
    let mut figures = QUANTILES.map(|(name, _)| Figure::new(format!("{NAME}-{name}-beyond-truth"), "us"));
    let mut all_used = true;
    for round in 0..rounds {
        let mut tools = vec![("ours", None)];
        tools.extend(wrk2.as_ref().map(|path| ("wrk2", Some(path))));
        let first = round as usize % tools.len();
        tools.rotate_left(first);
        for (tool, path) in tools {
            let run = one_run(cores, path);
            match &run {
                Ok([p50, p99]) => println!(
                    "   round {} {tool:<5} says {p50:.0} us too much at p50, {p99:.0} at p99",
                    round + 1
                ),
                Err(error) => println!("   round {} {tool:<5} void: {error:#}", round + 1),
            }
            all_used &= run.is_ok();
            for (index, figure) in figures.iter_mut().enumerate() {
                figure.push(tool, run.as_ref().ok().map(|errors| errors[index]));
            }
        }
    }
    for figure in &figures {
        print!("{}", figure.lines());
    }
    Ok(all_used)
}

/// By how much the quantiles that a run prints exceed those of the target's own waits, in microseconds.
fn one_run(cores: Cores, wrk2: Option<&PathBuf>) -> Result<[f64; 2]> {
    let serve = Serve::start_on("--delay 500us", cores.server)?;
    let said_us = match wrk2 {
        None => {
            let words = format!(
                "-R {RATE_PER_S} -c {CONNECTIONS} -d {OUR_SECONDS}s -t 1 --cpus {} -q",
                cores.generator
            );
            let output = Proofload::http(&serve.url(), &words)?.run()?;
            let times = &output.trial()?.response_time;
            QUANTILES.map(|(_, quantile)| times.percentile(quantile).value / 1e3)
        }
        Some(path) => {
            let words =
                format!("-t1 -c{CONNECTIONS} -d{WRK2_SECONDS}s -R{RATE_PER_S} --latency {}", serve.url());
            let launch = Launch::new(path.display().to_string()).words(&words).on_core(cores.generator);
            let finished = launch.run(Duration::from_secs(u64::from(WRK2_SECONDS) + 20))?;
            ensure!(finished.code == Some(0), "wrk2 ended with {:?}: {}", finished.code, finished.stderr);
            printed_us(&finished.stdout)?
        }
    };
    let waited = serve.stop()?.delay_applied;
    let truth_us = QUANTILES.map(|(_, quantile)| waited.quantile_ns(quantile) as f64 / 1e3);
    Ok([said_us[0] - truth_us[0], said_us[1] - truth_us[1]])
}

/// The median and the 99th percentile that wrk2 prints, in microseconds.
fn printed_us(output: &str) -> Result<[f64; 2]> {
    let of = |quantile: &str| -> Result<f64> {
        let line = output.lines().find_map(|line| line.trim().strip_prefix(quantile));
        let value = line.with_context(|| format!("wrk2 printed no {quantile}: {output}"))?.trim();
        Ok(parse_time(value)?.as_secs_f64() * 1e6)
    };
    Ok([of("50.000%")?, of("99.000%")?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_percentiles_of_wrk2_are_parsed() {
        let text = "  Latency Distribution (HdrHistogram - Recorded Latency)\n 50.000%    1.05ms\n 75.000%    1.46ms\n \
                    99.000%  899.00us\n100.000%    2.03s\n";
        assert_eq!(printed_us(text).unwrap(), [1_050.0, 899.0]);
        assert!(printed_us("Running 5s test").is_err());
    }
}
