//! The instrument's faults, put in on purpose: every one makes the trial void, by the rule made for
//! it, and the same trial without the fault is valid.

use anyhow::{Context, Result};
use record::{Trial, VoidRule};

use super::{Bar, Outcome, Scale};
use crate::{Nginx, Output, Proofload, machine::Cores, nginx, proofload::is_crowded};

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

/// Attempts at a valid trial: on a machine that others use too, a trial may be late in truth.
const ATTEMPTS: u32 = 12;

fn run(scale: Scale) -> Result<Outcome> {
    let seconds = scale.pick(2, 5);
    let cores = Cores::of_this_process()?;
    let nginx = Nginx::start(&nginx::Options { core: Some(cores.server), ..Default::default() })?;
    let url = nginx.url("/");
    let words = format!("-R 2000 -c 64 -d {seconds}s --threads 1 --cpus {} -q", cores.generator);
    let mut outcome = Outcome::default();
    for case in CASES {
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
        without_fault(&mut outcome, case, &url, &words).context(case.name)?;
    }
    Ok(outcome)
}

fn without_fault(outcome: &mut Outcome, case: &Case, url: &str, words: &str) -> Result<()> {
    let mut verdicts = Vec::new();
    let (mut valid, mut disturbed) = (false, 0);
    while !valid && verdicts.len() < ATTEMPTS as usize {
        let output = Proofload::http(url, words)?.run()?;
        let trial = output.trial()?;
        valid = output.code == Some(0) && !trial.validity.is_void();
        verdicts.push(verdict(&output, trial));
        disturbed += u32::from(is_crowded(trial) && trial.away.total_s > 0.005 * trial.elapsed_s);
        for reason in trial.validity.reasons() {
            outcome.note(format!("void without a fault: {:?}: {}", reason.rule, reason.evidence));
        }
    }
    let bound = format!("status 0, valid, within {ATTEMPTS} attempts");
    // A machine that takes half a hundredth of the time from the generator in every attempt decides nothing.
    let undecided = !valid && disturbed == ATTEMPTS;
    if undecided {
        outcome.note(format!(
            "without-{}: not decided, the machine took the processor in every attempt",
            case.name
        ));
    }
    outcome.figure(&format!("without-{}", case.name), verdicts.join(", then "), bound, valid || undecided);
    Ok(())
}

fn verdict(output: &Output, trial: &Trial) -> String {
    let rules: Vec<_> = trial.validity.reasons().iter().map(|reason| reason.rule).collect();
    format!("status {:?} {rules:?}", output.code.unwrap_or(-1))
}
