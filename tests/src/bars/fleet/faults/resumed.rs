//! A study whose controller is killed, and goes on with another one.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use record::{Ending, ResultFolder};
use testing::PATIENCE;

use super::{
    Ended, FREE_BOUND, LOAD_BOUND, STUDY_TIME, Schedule, after_lease, judge, last_after, quiet,
    site::{Load, MACHINES, Site, url},
};
use crate::{held_target::ALL, process::Finished};

/// A study with a trial of its own for each tag.
const STUDY: &str = "title = \"faults\"\n[workload.http]\nurl = \"URL\"\nrate = 150\nconnections = 12\nduration = \"2s\"\ndrain = \"5s\"\n\
                     timeout = \"5s\"\n[factors]\ntag = [\"t1\", \"t2\", \"t3\", \"t4\"]\n[trial]\nrepeats = 1\nvoid_attempts = 0\n\
                     settle = \"100ms\"\n";

impl Schedule {
    /// A study whose controller is killed and resumed.
    pub(super) fn study(&self, site: &mut Site) -> Result<Ended> {
        let study = site.file("study.toml", &STUDY.replace("URL", &url("{tag}/{{counter}}")))?;
        let out = site.path("study");
        let words = format!("run {study} --out {out} -q {}", site.on(&[0]));
        site.target.begin(ALL);
        let mut first = Load::start(&site.control(&words)?, "run")?;
        first.pass(self.offset)?;
        let was_killed = first.kill()?;
        let killed = Instant::now();
        first.finish()?;
        thread::sleep(self.length);
        let plan = fs::read(format!("{out}/plan.json")).ok();
        let before = match &plan {
            Some(_) => ResultFolder::open(Path::new(&out))?.trials()?.len(),
            None => 0,
        };
        let resume = if plan.is_some() { " --resume" } else { "" };
        let launch = site.control(&format!("{words}{resume}"))?;
        let (mut wrong, mut late, mut tries) = (Vec::new(), Vec::new(), 0);
        // The agents may still be busy with the killed one.
        let (finished, resumed) = loop {
            let begun = Instant::now();
            let (finished, took) = Load::start(&launch, "run")?.finish()?;
            tries += 1;
            if took > LOAD_BOUND + STUDY_TIME {
                late.push(format!("the resumed study took {took:.1?}"));
            }
            if !is_too_early(&finished) {
                break (finished, begun);
            }
            ensure!(killed.elapsed() < PATIENCE, "the agents stay busy: {finished:?}");
            thread::sleep(Duration::from_millis(500));
        };
        if resumed.duration_since(killed) > FREE_BOUND {
            late.push(format!("the agents were busy for {:.1?}", resumed.duration_since(killed)));
        }
        wrong.extend(quiet(site, &mut late));
        let received = site.target.received();
        for machine in MACHINES.into_iter().filter(|_| was_killed) {
            late.extend(after_lease(&received, machine, killed, Some(resumed), 0));
        }
        let described = format!("{finished:?}");
        ensure!(matches!(finished.code, Some(0 | 3)), "the resumed study did not end well: {described}");
        let result = ResultFolder::open(Path::new(&out))?;
        if plan.is_some_and(|plan| fs::read(format!("{out}/plan.json")).ok() != Some(plan)) {
            wrong.push("the plan has changed".to_owned());
        }
        let (plan, entries) = (result.plan()?, result.trials()?);
        let written = result.result()?.context("no result was written")?;
        ensure!(written.ending == Ending::Finished, "it ended {:?}", written.ending);
        let numbers: Vec<u64> = entries.iter().map(|entry| entry.index).collect();
        let settings: Vec<usize> = entries.iter().map(|entry| entry.setting).collect();
        let mut each: Vec<usize> = settings.clone();
        each.sort_unstable();
        if numbers != [1, 2, 3, 4] || each != [0, 1, 2, 3] {
            wrong.push(format!("trials {numbers:?} of settings {settings:?}"));
        }
        let (mut ends, mut valid) = (Vec::new(), 0);
        for (index, entry) in entries.iter().enumerate() {
            let tag = plan.settings[entry.setting].name.trim_start_matches("tag=").to_owned();
            let own = received.iter().filter(|request| {
                (request.at < resumed) == (index < before) && request.path().starts_with(&format!("/{tag}/"))
            });
            let judged = judge::of_trial(
                entry.trial.http().context("no requests")?,
                &entry.trial.validity,
                &own.cloned().collect::<Vec<_>>(),
            );
            wrong.extend(judged.wrong.into_iter().map(|wrong| format!("{tag}: {wrong}")));
            valid += usize::from(judged.is_valid);
            ends.push(format!("{tag} {}", judged.end));
        }
        let latest =
            MACHINES.iter().filter_map(|machine| last_after(&received, machine, killed, Some(resumed))).max();
        let story = format!(
            "{}: killed ({was_killed}) at {:.1?} with {before} trials, the last request {latest:.1?} after that, resumed after {:.1?} in \
             {tries} tries: {}",
            self.name,
            self.offset,
            resumed.duration_since(killed),
            ends.join("; ")
        );
        Ok(Ended { fault: self.fault, story, is_valid: valid == entries.len(), wrong, late })
    }
}

/// Whether a command was refused because agents are still busy, or so slow that none was found.
fn is_too_early(finished: &Finished) -> bool {
    let said = &finished.stderr;
    finished.code == Some(2) && (said.contains("is idle") || said.contains("no agent is there"))
}
