//! Compares one accept queue per thread with a shared one: how evenly connections are distributed over the listener's
//! threads, and the 99th percentile of response time.

use std::fs;

use anyhow::{Context, Result};
use proofload_tests::{
    Proofload,
    listen::ListenCall,
    stats::{median, spread},
    temporary::TemporaryFolder,
};

/// The name of the figure.
pub(crate) const NAME: &str = "listen-accept";

/// Number of threads of the listener.
const THREADS: u32 = 4;
/// Requests per second in all runs; far below the limit of two processors.
const RATE_PER_S: u32 = 6_000;
const FEW: u32 = 16;
const MANY: u32 = 1_000;

/// Measures both kinds of queues in turn. Returns whether all runs are usable.
///
/// # Errors
/// If a listener cannot be started.
pub(crate) fn measure(rounds: u32, seconds: u32) -> Result<bool> {
    println!("\n== {NAME}: {THREADS} threads, {RATE_PER_S} requests per second");
    let mut all_used = true;
    for connections in [FEW, MANY] {
        let mut runs = [("reuseport", Vec::new(), Vec::new()), ("shared", Vec::new(), Vec::new())];
        for round in 0..rounds {
            for (accept, p99s, shares) in &mut runs {
                match one_run(accept, connections, seconds) {
                    Ok((p99_us, per_thread)) => {
                        let total: u64 = per_thread.iter().sum();
                        let busiest = per_thread.iter().copied().max().unwrap_or(0) as f64;
                        let share = busiest * f64::from(THREADS) / total.max(1) as f64;
                        println!(
                            "   round {} {connections} connections {accept:<9} p99 {p99_us:.0} us, per thread {per_thread:?}",
                            round + 1
                        );
                        p99s.push(p99_us);
                        shares.push(share);
                    }
                    Err(error) => {
                        println!("   round {} {connections} connections {accept} void: {error:#}", round + 1);
                        all_used = false;
                    }
                }
            }
        }
        for (accept, p99s, shares) in &runs {
            let (low, high) = spread(p99s);
            println!(
                "bench {NAME}-{connections}-{accept} p99={:.0}us spread={low:.0}-{high:.0} busiest_thread={:.2} times its share",
                median(p99s),
                median(shares)
            );
        }
    }
    Ok(all_used)
}

/// The 99th percentile of response time in microseconds, and the connections of each thread.
fn one_run(accept: &str, connections: u32, seconds: u32) -> Result<(f64, Vec<u64>)> {
    let folder = TemporaryFolder::new()?;
    let store = folder.path().join("store");
    fs::create_dir(&store)?;
    let words = format!("--threads {THREADS} --accept {accept} --log-level warn");
    let listen = ListenCall::new(&store, &words)?.start()?;
    let words = format!("-R {RATE_PER_S} -c {connections} -d {seconds}s --threads 1 -q --events");
    let output = Proofload::http(&listen.url("/accept"), &words)?.run()?;
    let trial = output.trial.as_ref().with_context(|| output.described())?;
    let p99_us = trial.response_time.percentile(0.99).value / 1e3;
    Ok((p99_us, listen.stop()?.connections_per_thread))
}
