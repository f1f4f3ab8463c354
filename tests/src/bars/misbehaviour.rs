//! Each kind of misbehaviour of a target is counted in its own error class, as often as it happened.

use crate::proofload::Trial;
use anyhow::{Context, Result};
use record::ErrorClass;

use super::{Bar, By, Outcome, Scale, unanswered_connects};
use crate::{
    Output, Proofload, Serve, ServeReport,
    nginx::free_address,
    proofload::{adds_up, failures},
};

pub(super) const BAR: Bar = Bar {
    name: "misbehaviour",
    what: "each misbehaviour of a target is counted in its class, exactly as often as it happened",
    full_seconds: 40,
    decided_by: By::Counts,
    run,
};

/// A misbehaving `serve`, and the error classes that must add up to the count in its report.
struct Case {
    name: &'static str,
    serve: &'static str,
    client: &'static str,
    classes: &'static [ErrorClass],
    truth: fn(&ServeReport) -> u64,
}

const CASES: &[Case] = &[
    Case {
        name: "error",
        serve: "--misbehave error=20% --seed 1",
        client: "-c 8 -n 1000",
        classes: &[ErrorClass::Status],
        truth: |report| report.misbehaved("error"),
    },
    Case {
        name: "reset",
        serve: "--misbehave reset=20% --seed 2",
        client: "-c 8 -n 1000",
        classes: &[ErrorClass::Reset],
        truth: |report| report.misbehaved("reset"),
    },
    Case {
        name: "close",
        serve: "--misbehave close=20% --seed 3",
        client: "-c 8 -n 1000",
        classes: &[ErrorClass::ClosedEarly],
        truth: |report| report.misbehaved("close"),
    },
    Case {
        name: "truncate",
        serve: "--misbehave truncate=20% --seed 4",
        client: "-c 8 -n 1000",
        classes: &[ErrorClass::Truncated],
        truth: |report| report.misbehaved("truncate"),
    },
    Case {
        name: "truncate-chunked",
        serve: "--misbehave truncate=20% --seed 5 --body 20000 --chunked 1000",
        client: "-c 8 -n 1000",
        classes: &[ErrorClass::Truncated],
        truth: |report| report.misbehaved("truncate"),
    },
    Case {
        name: "malformed",
        serve: "--misbehave malformed=20% --seed 6",
        client: "-c 8 -n 1000",
        classes: &[ErrorClass::Malformed],
        truth: |report| report.misbehaved("malformed"),
    },
    Case {
        name: "bad-framing",
        serve: "--misbehave bad-framing=20% --seed 7",
        client: "-c 8 -n 1000",
        classes: &[ErrorClass::Framing],
        truth: |report| report.misbehaved("bad-framing"),
    },
    Case {
        name: "huge-head",
        serve: "--misbehave huge-head=20% --seed 8",
        client: "-c 8 -n 1000",
        classes: &[ErrorClass::TooLarge],
        truth: |report| report.misbehaved("huge-head"),
    },
    Case {
        name: "silent",
        serve: "--misbehave silent=5% --seed 9",
        client: "-c 8 -n 100 --timeout 10s",
        classes: &[ErrorClass::Timeout],
        truth: |report| report.misbehaved("silent"),
    },
    Case {
        name: "unsolicited",
        serve: "--misbehave unsolicited=20% --seed 10",
        client: "-c 8 -n 1000",
        classes: &[ErrorClass::Unsolicited],
        truth: |report| report.misbehaved("unsolicited"),
    },
    Case {
        // The client may or may not have noticed that a refused connection was open before the reset.
        name: "max-connections",
        serve: "--max-connections 8 --delay 5ms",
        client: "-u 16 --loops 25",
        classes: &[ErrorClass::Reset, ErrorClass::ConnectReset],
        truth: |report| report.connections_refused,
    },
    Case {
        name: "queue-full-reject",
        serve: "--capacity 1 --service-time 5ms --queue 2 --queue-full reject",
        client: "-u 8 --loops 50",
        classes: &[ErrorClass::Status],
        truth: |report| report.rejected,
    },
    Case {
        name: "queue-full-close",
        serve: "--capacity 1 --service-time 5ms --queue 2 --queue-full close",
        client: "-u 8 --loops 50",
        classes: &[ErrorClass::ClosedEarly],
        truth: |report| report.rejected,
    },
    Case {
        name: "queue-full-reset",
        serve: "--capacity 1 --service-time 5ms --queue 2 --queue-full reset",
        client: "-u 8 --loops 50",
        classes: &[ErrorClass::Reset],
        truth: |report| report.rejected,
    },
    Case {
        name: "queue-full-ignore",
        serve: "--capacity 1 --service-time 1s --queue 2 --queue-full ignore",
        client: "-u 8 --loops 1 --timeout 15s",
        classes: &[ErrorClass::Timeout],
        truth: |report| report.rejected,
    },
    Case {
        name: "slow-head",
        serve: "--slow-head 60s",
        client: "-u 4 --loops 2 --timeout 1s",
        classes: &[ErrorClass::Timeout],
        truth: |report| report.requests,
    },
];

fn run(_scale: Scale) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for case in CASES {
        check(case, &mut outcome).with_context(|| format!("case {}", case.name))?;
    }
    nobody_listens(&mut outcome).context("case connect-refused")?;
    unanswered_connects::check(&mut outcome)?;
    Ok(outcome)
}

fn check(case: &Case, outcome: &mut Outcome) -> Result<()> {
    let serve = Serve::start(case.serve)?;
    let output = Proofload::http(&serve.url(), case.client)?.arg("-q").run()?;
    let report = serve.stop()?;
    let trial = output.trial()?;
    let truth = (case.truth)(&report);
    let counted = failures(trial, case.classes);
    let others = trial.errors.total() + trial.connection_errors.total() - counted;
    outcome.equal(case.name, counted, truth, "serve's count");
    let sound = truth > 0 && others == 0 && accounted(&output, trial);
    let bound = "it happened, no other error, counts and exit status agree";
    outcome.holds(&format!("{}-nothing-else", case.name), sound, bound);
    if counted != truth || !sound {
        outcome.note(output.described());
    }
    Ok(())
}

/// Whether the counts add up and the exit status fits. Bytes after a complete answer are an error of the connection, not of a request, but
/// they miss the goal, too.
fn accounted(output: &Output, trial: &Trial) -> bool {
    let missed = trial.counts.failed + trial.connection_errors.total() > 0;
    adds_up(trial) && output.counted(i32::from(missed)).is_ok()
}

fn nobody_listens(outcome: &mut Outcome) -> Result<()> {
    let url = format!("http://{}/", free_address()?);
    let output = Proofload::http(&url, "-c 4 -n 50 -q --force")?.run()?;
    let trial = output.unanswered()?;
    outcome.equal("connect-refused", trial.errors.of(ErrorClass::ConnectRefused), 50, "every request");
    outcome.equal("connect-refused-unsent", trial.counts.failed_unsent, 50, "nothing was sent");
    Ok(())
}
