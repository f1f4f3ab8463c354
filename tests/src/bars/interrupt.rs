//! An interrupted trial stores what it has measured so far, and says that it was interrupted.

use std::fs;

use anyhow::Result;
use rustix::process::Signal;
use testing::until;

use super::{Bar, By, Outcome, Scale, seconds};
use crate::{Proofload, Serve, proofload::adds_up, temporary::TemporaryFolder};

pub(super) const BAR: Bar = Bar {
    name: "interrupt",
    what: "SIGINT in the middle: exit status 130, JSON written and marked, counts add up",
    full_seconds: 6,
    decided_by: By::Counts,
    run,
};

fn run(_scale: Scale) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for (model, words) in [("open", "-R 1000 -c 32 -d 600s -q"), ("closed", "-u 32 -d 600s -q")] {
        let folder = TemporaryFolder::new()?;
        let record = folder.file("record.jsonl");
        let serve = Serve::start(&format!("--delay 20ms --record {record}"))?;
        let mut running = Proofload::http(&serve.url(), words)?.timeout(seconds(600)).start()?;
        until("500 requests have come", || {
            fs::read_to_string(&record).is_ok_and(|lines| lines.lines().count() > 500)
        });
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
        let is_cut = trial.elapsed_s < 600.0 && trial.counts.completed > 400;
        outcome.holds(&format!("{model}_measured_so_far"), is_cut, "what was completed until then");
        outcome.equal(
            &format!("{model}_sent"),
            trial.counts.sent,
            report.requests,
            "the requests that serve read",
        );
    }
    Ok(outcome)
}
