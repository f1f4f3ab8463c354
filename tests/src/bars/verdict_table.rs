//! Bottlenecks that are built on purpose, with random parameters, must be named.

mod cases;
mod slow_disk;

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

pub(super) use cases::{CASES, COOKIES, SOUND, Web};
pub(super) use slow_disk::{Slow, SlowDisk};

use super::{Bar, By, Outcome, Scale, is_wanted};
use crate::{
    Proofload, lab::SshdFolder, machine::Cores, proofload::binary, random::Random, temporary::TemporaryFolder,
};

pub(super) const BAR: Bar = Bar {
    name: "verdict-table",
    what: "16 bottlenecks built with drawn parameters are each named in 5 of 5 trials; 20 sound trials name the offered load",
    full_seconds: 1_000,
    decided_by: By::Times,
    run,
};

/// Number of trials of each case.
const TRIALS: u64 = 5;

fn run(scale: Scale) -> Result<Outcome> {
    let _sshd = SshdFolder::made()?;
    let _slow_disk = if scale == Scale::Full { Some(SlowDisk::made(Slow::Writes(30))?) } else { None };
    let mut outcome = Outcome::default();
    let trials = scale.pick(1, TRIALS);
    for (number, case) in CASES[..scale.pick(1, CASES.len())].iter().enumerate() {
        if !is_wanted(case.cause) {
            continue;
        }
        let (mut named, mut void) = (0, 0);
        for trial in 0..trials {
            let study = (case.study)(&mut Random::new(1_000 * number as u64 + trial));
            let verdict = verdict_of(&study, scale).context(case.cause)?;
            let first = &verdict["bottlenecks"][0];
            let is_named = first["cause"] == case.cause;
            named += u64::from(is_named);
            // Other programs on this machine made all attempts void, and the verdict says so.
            void += u64::from(!is_named && first["cause"] == "generator");
            let sign = if is_named { "" } else { "  WRONG" };
            outcome.note(format!("{}: {} ({}){sign}", case.cause, first["cause"], first["evidence"]));
            if !is_named {
                outcome.note(format!("{verdict:#}\n{study}"));
            }
        }
        decide(&mut outcome, case.cause, [named, void, trials], "named rightly");
    }
    if !is_wanted("offered_load") {
        return Ok(outcome);
    }
    let sound = scale.pick(1, 20);
    let (mut named, mut void) = (0, 0);
    for trial in 0..sound {
        let verdict = verdict_of(&SOUND(&mut Random::new(50_000 + trial)), scale).context("sound")?;
        let is_named = verdict["bottlenecks"].as_array().is_some_and(|all| all.len() == 1)
            && verdict["bottlenecks"][0]["cause"] == "offered_load";
        named += u64::from(is_named);
        void += u64::from(cause_of(&verdict) == "generator");
        if !is_named {
            outcome.note(format!("sound: {verdict:#}"));
        }
    }
    decide(&mut outcome, "offered_load", [named, void, sound], "sound trials that name it, and nothing else");
    Ok(outcome)
}

/// Adds the figure of a case. It is undecided if other programs made the remaining trials void and the verdicts say so.
pub(super) fn decide(outcome: &mut Outcome, name: &str, [right, void, trials]: [u64; 3], what: &str) {
    if void > 0 && right + void == trials {
        let why = format!("{void} of {trials} trials were void for the generator");
        outcome.undecided(name, format!("{trials} {what}"), why);
    } else {
        outcome.time().equal(name, right, trials, what);
    }
}

/// Runs a study of one trial, shorter in a sample. Returns its verdict; if attempts were void, that of the last one.
pub(super) fn verdict_of(study: &str, scale: Scale) -> Result<Value> {
    let folder = TemporaryFolder::new()?;
    let (file, out) = (folder.file("study.toml"), folder.file("result"));
    let study = pinned(study)?.replace("\"4s\"", scale.pick("\"2s\"", "\"4s\""));
    fs::write(&file, &study)?;
    let output = Proofload::new("run")?.arg(&file).with(|launch| launch.args(["--out", &out, "-q"])).run()?;
    let trials = fs::read_to_string(format!("{out}/trials.jsonl"))
        .with_context(|| format!("{}\n{study}", output.described()))?;
    verdict_in(&trials)
}

/// The study, with processors of this machine in place of CLIENT and WEB.
pub(super) fn pinned(study: &str) -> Result<String> {
    let Cores { generator, server, .. } = Cores::of_this_process()?;
    let study = study.replace("PROOFLOAD", &binary()?.display().to_string());
    Ok(study.replace("CLIENT", &generator.to_string()).replace("WEB", &server.to_string()))
}

/// The verdict of the last trial in a journal.
pub(super) fn verdict_in(trials: &str) -> Result<Value> {
    let trial: Value = serde_json::from_str(trials.lines().last().context("a trial")?)?;
    Ok(trial["trial"]["verdict"].clone())
}

/// The cause that a verdict names first.
pub(super) fn cause_of(verdict: &Value) -> &str {
    verdict["bottlenecks"][0]["cause"].as_str().unwrap_or("not determined")
}
