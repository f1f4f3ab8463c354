//! The instrument's faults, put in on purpose: every one makes the trial void, by the rule made for
//! it, and the same trial without the fault is valid.

use anyhow::{Context, Result};
use record::{Trial, VoidRule};

use super::{Bar, Outcome, Scale};
use crate::{Nginx, Output, Proofload, nginx};

/// The bar.
pub const BAR: Bar = Bar {
    name: "void-rules",
    what: "every fault put into the instrument makes the trial void by its rule; without it, valid",
    full_seconds: 60,
    run,
};

struct Case {
    name: &'static str,
    fault: &'static str,
    rules: &'static [VoidRule],
}

/// Any of the rules may be the one that catches it; others may speak up beside it.
const CASES: &[Case] = &[
    Case { name: "late-sends", fault: "late:20,2ms", rules: &[VoidRule::Late] },
    Case {
        // Every send that the stall holds up finds its connection taken by an answer not yet read.
        name: "long-stalls",
        fault: "late:20,20ms",
        rules: &[VoidRule::Late, VoidRule::CpuExhausted, VoidRule::RateNotReached],
    },
    Case { name: "dropped-samples", fault: "drop:50", rules: &[VoidRule::Accounting] },
    Case { name: "double-count", fault: "double:50", rules: &[VoidRule::Accounting] },
    Case {
        name: "silently-not-sent",
        fault: "skip:50",
        rules: &[VoidRule::RateNotReached, VoidRule::Accounting],
    },
    Case { name: "busy-generator", fault: "burn:1ms", rules: &[VoidRule::CpuExhausted] },
];

fn run(scale: Scale) -> Result<Outcome> {
    let seconds = scale.pick(2, 5);
    let nginx = Nginx::start(&nginx::Options::default())?;
    let url = nginx.url("/");
    let mut outcome = Outcome::default();
    for case in CASES {
        let words = format!("-R 2000 -c 64 -d {seconds}s --threads 1 -q");
        let sound = Proofload::http(&url, &words)?.run()?;
        let faulty = Proofload::http(&url, &words)?
            .with(|launch| launch.args(["--inject-fault", case.fault]))
            .run()?;
        let trial = faulty.trial().context(case.name)?;
        let caught = trial.validity.reasons().iter().any(|reason| case.rules.contains(&reason.rule));
        outcome.figure(
            case.name,
            verdict(&faulty, trial),
            format!("status 3, {:?}", case.rules),
            faulty.code == Some(3) && caught,
        );
        let trial = sound.trial().context(case.name)?;
        outcome.figure(
            &format!("without-{}", case.name),
            verdict(&sound, trial),
            "status 0, valid",
            sound.code == Some(0) && !trial.validity.is_void(),
        );
        for reason in trial.validity.reasons() {
            outcome.note(format!("void without a fault: {:?}: {}", reason.rule, reason.evidence));
        }
    }
    Ok(outcome)
}

fn verdict(output: &Output, trial: &Trial) -> String {
    let rules: Vec<_> = trial.validity.reasons().iter().map(|reason| reason.rule).collect();
    format!("status {:?} {rules:?}", output.code.unwrap_or(-1))
}
