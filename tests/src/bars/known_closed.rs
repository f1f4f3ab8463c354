//! A closed load against a fixed delay: users ÷ delay, by Little's law.

use anyhow::Result;

use super::{Bar, By, Outcome, Runs, Scale, ms};
use crate::{Proofload, Serve, machine::Cores};

pub(super) const BAR: Bar = Bar {
    name: "known-closed",
    what: "200 users against a delay of 300 ms: 666.7/s within 1 %, median 300 ms within 1 ms",
    full_seconds: 78,
    decided_by: By::Times,
    run,
};

const TRUTH_PER_S: f64 = 200.0 / 0.3;

fn run(scale: Scale) -> Result<Outcome> {
    let (repeats, seconds) = scale.pick((3, 2), (5, 15));
    // Users that begin at the same moment would stay in step and wait until each other's answers are written, so they start over one cycle.
    // Each side has a processor, because otherwise they would queue for one.
    let cores = Cores::of_this_process()?;
    let mut outcome = Outcome::default();
    let (mut throughput, mut p50) = (Runs::default(), Runs::default());
    for _repeat in 0..repeats {
        let serve = Serve::start_on("--delay 300ms", cores.server)?;
        let words = format!("-u 200 --ramp-up 300ms -d {seconds}s --threads 1 --cpus {} -q", cores.generator);
        let output = Proofload::http(&serve.url(), &words)?.run()?;
        let trial = output.counted(0)?;
        let report = serve.stop()?;
        throughput.push(trial.throughput_per_s);
        p50.push(ms(trial.response_time.percentile(0.5).value as u64));
        outcome.equal("requests_sent", trial.counts.sent, report.requests, "the requests that serve read");
        outcome.note(format!(
            "{:.1}/s, response p50 {:.3} p99 {:.3} ms; serve's own delay p50 {:.3} p99 {:.3} ms",
            trial.throughput_per_s,
            ms(trial.response_time.percentile(0.5).value as u64),
            ms(trial.response_time.percentile(0.99).value as u64),
            ms(report.delay_applied.quantile_ns(0.5)),
            ms(report.delay_applied.quantile_ns(0.99)),
        ));
    }
    outcome.time().runs_near("throughput_per_s", &throughput, TRUTH_PER_S, TRUTH_PER_S * 0.01);
    outcome.time().runs_near("response_p50_ms", &p50, 300.0, 1.0);
    Ok(outcome)
}
