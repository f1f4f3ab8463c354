//! A target that freezes for a tenth of the time. Times from the actual send hardly show this (coordinated omission). Times from the
//! intended send have a known distribution: a request due in a stall of length S waits for the rest of it, so P(R > x) = 0.1 · (1 − x/S).

use anyhow::Result;

use super::{Bar, By, Outcome, Scale, ms};
use crate::{Proofload, Serve};

pub(super) const BAR: Bar = Bar {
    name: "known-stalls",
    what: "1,000/s against a stall of 1 s in 10: p95 0.5 s and p99 0.9 s, each within 5 %",
    full_seconds: 42,
    decided_by: By::Times,
    run,
};

fn run(scale: Scale) -> Result<Outcome> {
    // Use whole periods, so that the share of stalled time is exactly a tenth wherever the trial begins. The end of the trial cuts no
    // stall, because serve starts its first period just before the trial.
    let (seconds, stall_ms) = scale.pick((5, 500.0), (40, 1_000.0));
    let serve = Serve::start(&format!("--stall {}ms,{stall_ms}ms", 10.0 * stall_ms))?;
    let output = Proofload::http(&serve.url(), &format!("-R 1000 -c 64 -d {seconds}s -q"))?.run()?;
    let trial = output.counted(0)?;
    let report = serve.stop()?;
    let mut outcome = Outcome::default();
    for (name, quantile) in [("response_p95_ms", 0.95), ("response_p99_ms", 0.99)] {
        let truth = stall_ms * (1.0 - (1.0 - quantile) / 0.1);
        let measured = trial.response_time.percentile(quantile);
        outcome.time().near(name, ms(measured.value as u64), truth, truth * 0.05, "");
    }
    outcome.time().holds("uncensored", trial.response_time.censored.is_empty(), "every request was answered");
    outcome.note(format!(
        "the misleading view, from the actual send: p95 {:.3} ms, p99 {:.3} ms ({} stalls)",
        ms(trial.service_time.percentile(0.95).value as u64),
        ms(trial.service_time.percentile(0.99).value as u64),
        report.stalls
    ));
    Ok(outcome)
}
