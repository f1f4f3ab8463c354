//! A study that was killed at any moment can be resumed where it stopped.

use std::{collections::BTreeSet, fs, thread, time::Duration};

use anyhow::{Context, Result, ensure};
use record::{Ending, ResultFolder};
use rustix::process::Signal;
use testing::PATIENCE;

use super::{Bar, By, Outcome, Scale};
use crate::{Proofload, temporary::TemporaryFolder};

pub(super) const BAR: Bar = Bar {
    name: "study-resume",
    what: "kill -9 at 50 moments of studies: --resume ends with the same plan, no trial lost or doubled",
    full_seconds: 420,
    decided_by: By::Counts,
    run,
};

/// Every trial takes 200 ms, so that kills fall into trials, between them, and into the setup.
const STUDY: &str = r#"
title = "killed"
seed = 7

[targets.serve]
run = "serve"
args = ["--delay", "{delay}"]

[workload.http]
path = "/"
duration = "200ms"

[factors]
users = [1, 2]
delay = ["1ms", "2ms"]

[trial]
repeats = 3
"#;

fn run(scale: Scale) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let kills_wanted = scale.pick(6, 50);
    let (mut kills, mut studies, mut trials, mut torn) = (0, 0, 0, 0);
    let mut moment = Moments(1);
    while kills < kills_wanted {
        let folder = TemporaryFolder::new()?;
        let file = folder.file("killed.toml");
        fs::write(&file, STUDY)?;
        let out = folder.file("result");
        studies += 1;
        let mut begun = false;
        let mut first_plan = None;
        // Kill each study a few times, then let it finish.
        for _ in 0..3.min(kills_wanted - kills) {
            let mut running = call(&file, &out, begun)?.start()?;
            thread::sleep(moment.next());
            running.process.signal(Signal::KILL);
            running.process.wait(PATIENCE)?;
            // A kill after the end of the study does not count.
            kills += u64::from(!fs::exists(format!("{out}/result.json"))?);
            begun = fs::exists(format!("{out}/plan.json"))?;
            if begun && first_plan.is_none() {
                first_plan = Some(fs::read(format!("{out}/plan.json"))?);
            }
            let journal = fs::read(format!("{out}/trials.jsonl")).unwrap_or_default();
            torn += u64::from(journal.last().is_some_and(|&byte| byte != b'\n'));
        }
        let output = call(&file, &out, begun)?.run()?;
        let described = output.described();
        ensure!(matches!(output.code, Some(0 | 3)), "a resumed study did not end well: {described}");
        let result = ResultFolder::open(out.as_ref())?;
        if let Some(first) = &first_plan {
            ensure!(fs::read(format!("{out}/plan.json"))? == *first, "the plan has changed");
        }
        let (plan, entries) = (result.plan()?, result.trials()?);
        let written = result.result()?.context("no result was written")?;
        ensure!(written.ending == Ending::Finished, "it ended {:?}", written.ending);
        // On a busy machine, all trials of a setting may be void.
        let mut warnings = written.outcomes.iter().flat_map(|outcome| &outcome.warnings);
        let nothing_measured = warnings.any(|warning| warning.code == "all_void");
        ensure!(output.code == Some(if nothing_measured { 3 } else { 0 }), "{described}");
        let planned: usize = plan.blocks.iter().map(Vec::len).sum();
        let places: BTreeSet<_> = entries.iter().map(|entry| (entry.block, entry.setting)).collect();
        let valid = entries.iter().filter(|entry| !entry.trial.validity.is_void()).count();
        let indices: Vec<u64> = entries.iter().map(|entry| entry.index).collect();
        ensure!(places.len() == planned, "of {planned} places {} were run", places.len());
        ensure!(valid <= planned, "{valid} valid trials at {planned} places: one was doubled");
        ensure!(indices == (1..=entries.len() as u64).collect::<Vec<_>>(), "the numbers are {indices:?}");
        trials += entries.len();
    }
    outcome.equal("kills", kills, kills_wanted, "asked for");
    outcome.holds("studies_ended_whole", true, "same plan, every place run once, numbers without a gap");
    outcome.note(format!("{studies} studies, {trials} trials, {torn} torn last lines"));
    Ok(outcome)
}

fn call(file: &str, out: &str, resume: bool) -> Result<Proofload> {
    let words = format!("run {file} --out {out} -q{}", if resume { " --resume" } else { "" });
    Proofload::new(&words)
}

/// Moments from 0 to 2.5 s, uniformly distributed, the same in every run.
struct Moments(u64);

impl Moments {
    fn next(&mut self) -> Duration {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Duration::from_micros((self.0 >> 33) % 2_500_000)
    }
}
