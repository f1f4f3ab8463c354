//! A machine that cannot open as many files as the plan needs. Either the plan is refused before the first packet, or the requests count as
//! never sent. They never count as errors of the target, and the load is never reduced silently.

use anyhow::Result;
use record::VoidRule;

use super::{Bar, By, Outcome, Scale};
use crate::{Proofload, Serve, proofload::adds_up};

pub(super) const BAR: Bar = Bar {
    name: "descriptors",
    what: "400 connections under a limit of 256 descriptors: more processes or a refusal; forced, void",
    full_seconds: 25,
    decided_by: By::Counts,
    run,
};

const LIMIT: u64 = 256;
const CONNECTIONS: u64 = 400;

fn run(scale: Scale) -> Result<Outcome> {
    let seconds = scale.pick(3, 10);
    let mut outcome = Outcome::default();
    let words = format!("-R 2000 -c {CONNECTIONS} -d {seconds}s -q");

    let serve = Serve::start("")?;
    let output = limited(&serve, &words)?.run()?;
    let report = serve.stop()?;
    match output.code {
        Some(2) => {
            outcome.equal("connections_after_refusal", report.connections_accepted, 0, "nothing was sent");
            outcome.holds(
                "refusal_names_the_limit",
                output.stderr.contains("descriptor") || output.stderr.contains("open files"),
                "descriptors are named",
            );
            outcome.note(format!("refused: {}", output.stderr.trim()));
        }
        _ => {
            let trial = output.counted(0)?;
            outcome.figure(
                "processes",
                trial.plan.processes,
                "> 1: raised by itself",
                trial.plan.processes > 1,
            );
            outcome.equal(
                "connections_opened",
                report.connections_peak,
                CONNECTIONS,
                "as planned, seen by serve",
            );
            outcome.equal("failed", trial.counts.failed, 0, "no failure");
        }
    }

    let serve = Serve::start("")?;
    let output = limited(&serve, &format!("{words} --force --processes 1"))?.run()?;
    let trial = output.trial_with_code(3)?;
    let report = serve.stop()?;
    let opened = trial.counts.connections_opened;
    outcome.equal("forced_opened", opened, report.connections_accepted, "accepted by serve");
    outcome.holds("forced_opened_below_limit", (1..LIMIT).contains(&opened), "1 to 255");
    outcome.equal(
        "forced_unopened",
        trial.counts.connections_unopened,
        CONNECTIONS.saturating_sub(opened),
        "the rest of the plan",
    );
    let share = trial.counts.never_sent as f64 / trial.counts.scheduled.max(1) as f64 * 100.0;
    let truth = (1.0 - opened as f64 / CONNECTIONS as f64) * 100.0;
    // A busy machine leaves more requests unsent, but never fewer.
    let bound = format!(">= {truth:.1} %, the share of the connections that were not opened");
    outcome.figure("forced_never_sent_percent", format!("{share:.1}"), bound, share >= truth - 1.0);
    if scale == Scale::Full {
        outcome.time().near("forced_never_sent_percent_exactly", share, truth, 1.0, "");
    }
    outcome.equal("forced_failed", trial.counts.failed, 0, "the target did nothing wrong");
    outcome.holds("forced_adds_up", adds_up(trial), "scheduled is the sum of the four ends");
    let evidence: Vec<_> = trial
        .validity
        .reasons()
        .iter()
        .filter(|reason| matches!(reason.rule, VoidRule::UnopenedConnections | VoidRule::LocalExhaustion))
        .map(|reason| reason.evidence.as_str())
        .collect();
    let named = evidence.iter().any(|text| text.contains("descriptor"));
    outcome.holds("forced_evidence", named, "void, and the evidence names descriptors");
    evidence.iter().for_each(|text| outcome.note(*text));
    Ok(outcome)
}

fn limited(serve: &Serve, words: &str) -> Result<Proofload> {
    Ok(Proofload::http(&serve.url(), words)?.with(|launch| launch.descriptors(LIMIT)))
}
