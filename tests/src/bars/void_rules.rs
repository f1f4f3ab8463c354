//! Faults injected into the instrument. A fault that makes the counts inconsistent must make the trial void, by the rule for it. A fault
//! that disturbs must make it void, or its intervals must contain the truth. The same trials without a fault must be valid.

use crate::proofload::Trial;
use anyhow::{Context, Result};
use record::{CensoredTimes, VoidRule};

use super::{Bar, By, Outcome, Scale, generator_away::is_outside};
use crate::{
    Nginx, Output, Proofload,
    disturbance::{Awake, Witness},
    machine::Cores,
    nginx,
};

pub(super) const BAR: Bar = Bar {
    name: "void-rules",
    what: "a fault put into the instrument makes the trial void by its rule, or (late, burn) leaves intervals that contain the \
           truth; of 12 sound trials at most 2 are void",
    full_seconds: 60,
    decided_by: By::Both,
    run,
};

struct Case {
    name: &'static str,
    fault: &'static str,
    rules: &'static [VoidRule],
}

/// Any of a case's rules may catch its fault, and other rules may do so, too. The first three faults make counts inconsistent, so they must
/// be found. The intervals may cover the others.
const COUNTED: usize = 3;
const CASES: &[Case] = &[
    Case { name: "dropped-samples", fault: "drop:50", rules: &[VoidRule::Accounting] },
    Case { name: "double-count", fault: "double:50", rules: &[VoidRule::Accounting] },
    Case {
        name: "silently-not-sent",
        fault: "skip:50",
        rules: &[VoidRule::RateNotReached, VoidRule::Accounting],
    },
    Case { name: "late-sends", fault: "late:20,2ms", rules: &[VoidRule::Late] },
    Case {
        // If the stall delays a send, an answer that has not been read yet occupies its connection.
        name: "long-stalls",
        fault: "late:20,20ms",
        rules: &[VoidRule::Late, VoidRule::CpuExhausted, VoidRule::RateNotReached],
    },
    Case { name: "busy-generator", fault: "burn:1ms", rules: &[VoidRule::CpuExhausted] },
];

/// Number of sound trials beside each case, and how many of all sound trials may be void, because noise can rarely cause that.
const SOUND_TRIALS: usize = 2;
const MAX_SOUND_VOID: usize = 2;
/// A trial was disturbed if the generator or a witness of real-time priority was kept from the processor for more than this share of the
/// time (0 to 1).
const DISTURBED_SHARE: f64 = 0.01;

/// The results of the sound trials.
#[derive(Default)]
struct Sound {
    trials: usize,
    void: usize,
    /// Number of trials that are void because of inconsistent counts.
    miscounted: u64,
    /// Number of void trials that something else disturbed.
    disturbed_void: usize,
}

fn run(scale: Scale) -> Result<Outcome> {
    let seconds = scale.pick(1, 5);
    let cores = Cores::of_this_process()?;
    let _awake = Awake::keep(cores);
    let nginx = Nginx::start(&nginx::Options { core: Some(cores.server), ..Default::default() })?;
    let url = nginx.url("/");
    let words = format!("-R 2000 -c 64 -d {seconds}s --threads 1 --cpus {} -q", cores.generator);
    let mut outcome = Outcome::default();
    let mut sound = Sound::default();
    for (number, case) in CASES[..if scale.is_timed() { CASES.len() } else { COUNTED }].iter().enumerate() {
        let mut truths = Vec::new();
        for _ in 0..SOUND_TRIALS {
            truths.push(sound.add(&mut outcome, &url, &words, cores.generator).context(case.name)?);
        }
        let faulty = Proofload::http(&url, &words)?
            .with(|launch| launch.args(["--inject-fault", case.fault]))
            .run()?;
        let trial = faulty.trial().context(case.name)?;
        let caught = trial.validity.reasons().iter().any(|reason| case.rules.contains(&reason.rule));
        let is_void = faulty.code == Some(3) && caught;
        let is_bounded = number >= COUNTED && !trial.validity.is_void() && contains(trial, &truths);
        let wanted = if number < COUNTED { "" } else { ", or the truth within p50 and p90" };
        outcome.figure(
            case.name,
            verdict(&faulty, trial),
            format!("status 3, {:?}{wanted}", case.rules),
            is_void || is_bounded,
        );
    }
    outcome.equal("sound_miscounted", sound.miscounted, 0, "sound trials whose books are said to be wrong");
    if !scale.is_timed() {
        return Ok(outcome);
    }
    let bound = format!("<= {MAX_SOUND_VOID} of {} sound trials", sound.trials);
    if sound.void > MAX_SOUND_VOID && sound.void - sound.disturbed_void <= MAX_SOUND_VOID {
        let why = format!("{} void, {} of them disturbed", sound.void, sound.disturbed_void);
        outcome.undecided("sound_void", bound, why);
    } else {
        outcome.time().figure("sound_void", sound.void, bound, sound.void <= MAX_SOUND_VOID);
    }
    Ok(outcome)
}

impl Sound {
    /// Runs a trial without a fault, and counts its result.
    fn add(&mut self, outcome: &mut Outcome, url: &str, words: &str, core: u32) -> Result<CensoredTimes> {
        let witness = Witness::on(core)?;
        let output = Proofload::http(url, words)?.run()?;
        let gaps = witness.end()?;
        let trial = output.trial()?;
        let is_void = output.code != Some(0) || trial.validity.is_void();
        let is_disturbed = gaps.share + gaps.waited_share(trial) > DISTURBED_SHARE;
        self.trials += 1;
        self.void += usize::from(is_void);
        self.miscounted +=
            u64::from(trial.validity.reasons().iter().any(|reason| reason.rule == VoidRule::Accounting));
        self.disturbed_void += usize::from(is_void && is_disturbed);
        for reason in trial.validity.reasons() {
            outcome.note(format!(
                "void without a fault: {:?}: {}; witness: {gaps}",
                reason.rule, reason.evidence
            ));
        }
        Ok(trial.response_time.clone())
    }
}

/// Whether the intervals of a trial contain the percentiles of at least one sound trial, because sound trials differ from each other.
fn contains(trial: &Trial, truths: &[CensoredTimes]) -> bool {
    [0.5, 0.9].iter().all(|&quantile| {
        let shown = trial.response_time.percentile(quantile);
        truths.iter().any(|truth| !is_outside(shown, truth.percentile(quantile).value, 0.1, 250_000.0))
    })
}

fn verdict(output: &Output, trial: &Trial) -> String {
    let rules: Vec<_> = trial.validity.reasons().iter().map(|reason| reason.rule).collect();
    format!("status {:?} {rules:?}", output.code.unwrap_or(-1))
}
