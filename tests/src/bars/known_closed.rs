//! A closed load against a fixed delay: users ÷ delay, by Little's law.

use anyhow::Result;

use super::{Bar, Outcome, Scale, ms};
use crate::{Proofload, Serve};

/// The bar.
pub const BAR: Bar = Bar {
    name: "known-closed",
    what: "200 users against a delay of 300 ms: 666.7/s within 1 %, median 300 ms within 1 ms",
    full_seconds: 20,
    run,
};

fn run(scale: Scale) -> Result<Outcome> {
    let seconds = scale.pick(6, 15);
    let serve = Serve::start("--delay 300ms")?;
    let output = Proofload::http(&serve.url(), &format!("-u 200 -d {seconds}s -q"))?.run()?;
    let trial = output.trial_with_code(0)?;
    let report = serve.stop()?;
    let mut outcome = Outcome::default();
    let truth = 200.0 / 0.3;
    outcome.near("throughput_per_s", trial.throughput_per_s, truth, truth * 0.01, "");
    outcome.near("response_p50_ms", ms(trial.response_time.percentile(0.5).ns), 300.0, 1.0, "");
    outcome.equal("requests_sent", trial.counts.sent, report.requests, "the requests that serve read");
    outcome.note(format!(
        "serve's own delay p50 {:.3} ms, p99 {:.3} ms",
        ms(report.delay_applied.quantile_ns(0.5)),
        ms(report.delay_applied.quantile_ns(0.99))
    ));
    Ok(outcome)
}
