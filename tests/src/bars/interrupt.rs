//! An interrupted trial leaves what it measured so far, and says so.

use std::thread;

use anyhow::Result;
use rustix::process::Signal;

use super::{Bar, Outcome, Scale, seconds};
use crate::{Proofload, Serve, proofload::adds_up};

/// The bar.
pub(super) const BAR: Bar = Bar {
    name: "interrupt",
    what: "SIGINT in the middle: exit status 130, JSON written and marked, counts add up",
    full_seconds: 6,
    run,
};

fn run(_scale: Scale) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for (model, words) in [("open", "-R 1000 -c 32 -d 60s -q"), ("closed", "-u 32 -d 60s -q")] {
        let serve = Serve::start("--delay 20ms")?;
        let mut running = Proofload::http(&serve.url(), words)?.timeout(seconds(10)).start()?;
        thread::sleep(seconds(2));
        running.process.signal(Signal::INT);
        let output = running.finish()?;
        let trial = output.trial_with_code(130)?;
        let report = serve.stop()?;
        outcome.holds(&format!("{model}_marked"), trial.interrupted, "interrupted is true in the JSON");
        outcome.holds(
            &format!("{model}_adds_up"),
            adds_up(trial),
            "scheduled = completed + failed + in flight + never sent",
        );
        let in_time = trial.elapsed_s < 5.0 && trial.counts.completed > 500;
        outcome.holds(&format!("{model}_measured_so_far"), in_time, "about 2 s of completed requests");
        outcome.equal(
            &format!("{model}_sent"),
            trial.counts.sent,
            report.requests,
            "the requests that serve read",
        );
    }
    Ok(outcome)
}
