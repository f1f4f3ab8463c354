//! The instrument's faults, put in on purpose: every one makes the trial void, by the rule made for
//! it, and the same trial without the fault is valid.

use crate::proofload::Trial;
use anyhow::{Context, Result};
use record::VoidRule;

use super::{Bar, Outcome, Scale};
use crate::{
    Nginx, Output, Proofload,
    disturbance::{Awake, Witness},
    machine::Cores,
    nginx,
};

/// The bar.
pub(super) const BAR: Bar = Bar {
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

/// Attempts at a valid trial while nothing disturbs the generator, and all together.
const ATTEMPTS: usize = 2;
const MOST_ATTEMPTS: usize = 8;
/// An attempt was disturbed if a witness of real-time priority, or the generator, was kept from the processor for
/// more of the time (0 to 1).
const DISTURBED_SHARE: f64 = 0.01;

fn run(scale: Scale) -> Result<Outcome> {
    let seconds = scale.pick(2, 5);
    let cores = Cores::of_this_process()?;
    let _awake = Awake::keep(cores);
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
        without_fault(&mut outcome, case, &url, &words, cores.generator).context(case.name)?;
    }
    Ok(outcome)
}

fn without_fault(outcome: &mut Outcome, case: &Case, url: &str, words: &str, core: u32) -> Result<()> {
    let mut verdicts = Vec::new();
    let (mut valid, mut disturbed) = (false, 0);
    while !valid && verdicts.len() < (ATTEMPTS + disturbed).min(MOST_ATTEMPTS) {
        let witness = Witness::on(core)?;
        let output = Proofload::http(url, words)?.run()?;
        let gaps = witness.end()?;
        let trial = output.trial()?;
        valid = output.code == Some(0) && !trial.validity.is_void();
        verdicts.push(verdict(&output, trial));
        disturbed += usize::from(gaps.share + gaps.waited_share(trial) > DISTURBED_SHARE);
        for reason in trial.validity.reasons() {
            outcome.note(format!("void without a fault: {:?}: {}", reason.rule, reason.evidence));
        }
    }
    let name = format!("without-{}", case.name);
    let bound = format!("status 0, valid, at the latest in undisturbed attempt {ATTEMPTS}");
    if !valid && disturbed + ATTEMPTS > MOST_ATTEMPTS {
        let why =
            format!("a witness was kept from the processor in {disturbed} of {} attempts", verdicts.len());
        outcome.undecided(&name, bound, why);
    } else {
        outcome.figure(&name, verdicts.join(", then "), bound, valid);
    }
    Ok(())
}

fn verdict(output: &Output, trial: &Trial) -> String {
    let rules: Vec<_> = trial.validity.reasons().iter().map(|reason| reason.rule).collect();
    format!("status {:?} {rules:?}", output.code.unwrap_or(-1))
}
