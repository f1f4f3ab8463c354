//! When targets are started again, counted by the targets themselves.

use std::fs;

use anyhow::{Context, Result, ensure};
use record::{Ending, ResultFolder};

use super::{Bar, By, Outcome, Scale};
use crate::{Proofload, proofload::binary, temporary::TemporaryFolder};

pub(super) const BAR: Bar = Bar {
    name: "study-fresh",
    what: "targets start anew when the setting changes, or for every trial, as `fresh` says: by their own log, for each of its \
           values, with blocks, factors, a search and a study gone on with",
    full_seconds: 90,
    decided_by: By::Counts,
    run,
};

/// The target logs each start with its level. Trials are short, because their figures are not judged.
const STUDY: &str = r#"
title = "fresh"
seed = 11
[targets.own]
command = ["sh", "-c", "echo START >> LOG; exec PROOFLOAD serve --listen 0.0.0.0:80"]
port = 80
[workload.http]
path = "/"
WORKLOAD
[factors]
users = [1, 2]
level = ["a", "b"]
[trial]
settle = "0s"
void_attempts = 0
"#;

/// Factors and workload of a study, and the value by which the target knows its setting.
struct Shape {
    name: &'static str,
    /// The text that replaces the two factors.
    factors: &'static str,
    /// The text by which the target can distinguish settings.
    start: &'static str,
    workload: &'static str,
    repeats: u32,
    /// Further tables of the study file.
    more: &'static str,
}

const SHAPES: [Shape; 5] = [
    Shape { name: "no_factor", factors: "", start: "-", workload: "requests = 5", repeats: 3, more: "" },
    // The target is the same in all settings, but it keeps state, so it must be started again.
    Shape {
        name: "workload",
        factors: "users = [1, 2, 3]",
        start: "-",
        workload: "requests = 5",
        repeats: 3,
        more: "",
    },
    Shape {
        name: "target",
        factors: "level = [\"a\", \"b\"]",
        start: "{level}",
        workload: "requests = 5",
        repeats: 3,
        more: "",
    },
    Shape {
        name: "both",
        factors: "users = [1, 2]\nlevel = [\"a\", \"b\"]",
        start: "{level}",
        workload: "requests = 5",
        repeats: 2,
        more: "",
    },
    Shape {
        name: "search",
        factors: "level = [\"a\", \"b\"]",
        start: "{level}",
        workload: "connections = 4",
        repeats: 2,
        more: "[search]\nvary = \"rate\"\nmin = 50\nmax = 100\nwidth = \"40%\"\ntrial = \"100ms\"\nrepeats = 1\nconfirm = 2\n\
               [[goals]]\nerrors = \"50%\"",
    },
];

fn run(scale: Scale) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    // The default, its explicit name, and both names of the other value.
    let values = ["", "setting", "trial", "hosts"];
    for shape in &SHAPES {
        for fresh in values.into_iter().filter(|fresh| scale == Scale::Full || !["", "hosts"].contains(fresh))
        {
            compare(&mut outcome, shape, fresh, false)?;
        }
    }
    compare(&mut outcome, &SHAPES[1], "", true)?;
    compare(&mut outcome, &SHAPES[2], "hosts", true)?;
    Ok(outcome)
}

/// Compares the target's log with the trials. If `cut`, the budget ends the study early, and it is resumed with a larger one.
fn compare(outcome: &mut Outcome, shape: &Shape, fresh: &str, cut: bool) -> Result<()> {
    let folder = TemporaryFolder::new()?;
    let (file, out, log) = (folder.file("study.toml"), folder.file("result"), folder.file("log"));
    let own = match fresh {
        "" => String::new(),
        fresh => format!("fresh = \"{fresh}\"\n"),
    };
    let text = STUDY
        .replace("PROOFLOAD", &binary()?.display().to_string())
        .replace("LOG", &log)
        .replace("START", shape.start)
        .replace("WORKLOAD", shape.workload)
        .replace("users = [1, 2]\nlevel = [\"a\", \"b\"]", shape.factors)
        + &format!("repeats = {}\n{own}{}\n", shape.repeats, shape.more);
    fs::write(&file, text)?;
    let run = |words: &str| -> Result<_> {
        let output = Proofload::new(&format!("run {file} --out {out} -q {words}"))?.run()?;
        let read = ResultFolder::open(out.as_ref())?.read().with_context(|| output.described())?;
        let ending = read.result.context("it has a result")?.ending;
        Ok((read.plan, read.trials, ending, output))
    };
    let started = || -> Vec<String> {
        fs::read_to_string(&log).unwrap_or_default().lines().map(str::to_owned).collect()
    };
    let (mut begun, mut before) = (0, 0);
    if cut {
        let (_, trials, ending, output) = run("--set budget=300ms --set trial.pause=50ms")?;
        ensure!(ending == Ending::OutOfBudget, "{}", output.described());
        // The last target may have started for a trial that did not begin any more.
        (begun, before) = (trials.len(), started().len());
    }
    let words = if cut { "--set budget=50s --set trial.pause=50ms --resume" } else { "" };
    let (plan, trials, ending, output) = run(words)?;
    ensure!(ending == Ending::Finished, "{}", output.described());
    let level = |setting: usize| match plan.settings[setting].levels.get("level") {
        Some(level) if shape.start != "-" => level.to_string(),
        _ => "-".to_owned(),
    };
    let is_new = |number: usize| {
        number == begun
            || !["", "setting"].contains(&fresh)
            || trials[number].setting != trials[number - 1].setting
    };
    let due: Vec<String> = (begun..trials.len())
        .filter(|number| is_new(*number))
        .map(|number| level(trials[number].setting))
        .collect();
    let started = started().split_off(before);
    let name = format!(
        "{}_{}{}",
        shape.name,
        if fresh.is_empty() { "default" } else { fresh },
        if cut { "_cut" } else { "" }
    );
    outcome.figure(
        &name,
        started.len(),
        format!("= {} of {} trials, each for its level", due.len(), trials.len() - begun),
        started == due,
    );
    Ok(())
}
