//! The shipped study of programs that copy files across an ocean.

use std::path::Path;

use anyhow::{Context, Result};
use record::{Cause, Level, StudyPlan, TrialEntry};

use super::{
    Bar, By, Outcome, Scale,
    ocean_path::{Studied, study},
    report_browser::Browser,
};
use crate::{lab::SshdFolder, link::uncertified};

pub(super) const BAR: Bar = Bar {
    name: "ocean-copy",
    what: "scp, sftp, rsync, rclone, lftp and ours over 1 Gbit/s and 228 ms by one command in 15 min: none failed or void, ours 10 times \
           scp on each set of files, SSH's window named for scp and not for sftp, rates over buffers and time, and advice on the page",
    full_seconds: 900,
    decided_by: By::Times,
    run,
};

const STUDY: &str = "ocean-copy";
const STEADY: &str = "last_5_s_bit_per_s";
const GOODPUT: &str = "goodput_bit_per_s";

fn run(scale: Scale) -> Result<Outcome> {
    let _sshd = SshdFolder::made()?;
    let mut outcome = Outcome::default();
    let sample = "--set program=scp,proofload --set files=large --set buffer=32MB --set workload.command.stop_after=12s";
    let studied = study(STUDY, scale.pick(sample, ""), &[])?;
    let (most_s, settings) = scale.pick((40.0, 2), (900.0, 29));
    outcome.time().figure(
        "study_s",
        format!("{:.0}", studied.took_s),
        format!("<= {most_s}"),
        studied.took_s <= most_s,
    );
    let Studied { plan, trials, folder, .. } = &studied;
    outcome.equal("settings", plan.settings.len() as u64, settings, "as the study file says");
    if let Some(why) = uncertified(trials)? {
        outcome.undecided("rates", "ours 10 times scp", why);
        return Ok(outcome);
    }
    let is_valid =
        |number: usize| trials.iter().any(|entry| entry.setting == number && !entry.trial.validity.is_void());
    let void = (0..plan.settings.len()).filter(|number| !is_valid(*number)).count();
    outcome.time().equal("settings_without_a_valid_trial", void as u64, 0, "all valid in the end");
    let failed =
        trials.iter().filter(|entry| entry.trial.command().is_none_or(|trial| trial.failed_ratio() > 0.0));
    outcome.time().equal("failed_trials", failed.count() as u64, 0, "every program ran until it was stopped");
    let unknown = trials.iter().filter(|entry| !entry.trial.quantities.contains_key(GOODPUT));
    outcome.time().equal("trials_without_goodput", unknown.count() as u64, 0, "what arrived is known");
    // Large files are compared by the rate after the start, because logins would take a third of the time.
    let sets = [("large", STEADY), ("set", STEADY), ("small", GOODPUT)];
    for &(files, quantity) in scale.pick(&sets[..1], &sets[..]) {
        let of = |program| value(plan, trials, program, files, quantity);
        let times = of("proofload")? / of("scp")?;
        // With files of 50 MB, the study ends before the copy reaches its steady rate. A sample runs beside other programs, on as few as
        // two processors. Both have lower bounds.
        let least = if files == "set" { 5.0 } else { scale.pick(7.0, 10.0) };
        outcome.time().figure(
            &format!("times_scp_{files}"),
            format!("{times:.1}"),
            format!(">= {least}"),
            times >= least,
        );
    }
    // sftp waits for answers to its own requests long before SSH's window is full, and no counter shows that. So no cause is expected for
    // it.
    let programs = [("scp", Some(Cause::SshWindow)), ("sftp-64k", None), ("sftp-128k", None)];
    for (program, expected) in &programs[..scale.pick(1, 3)] {
        let entry = own(plan, trials, program, "large").context("no valid trial")?;
        let cause = entry.trial.verdict.as_ref().and_then(record::Verdict::first_cause);
        let words = expected.map_or("nothing known", Cause::words);
        outcome.time().holds(&format!("verdict_{program}"), cause == *expected, &format!("bound by {words}"));
    }
    for entry in trials.iter().filter(|entry| !entry.trial.validity.is_void()) {
        let rate = |name| entry.trial.quantities.get(name).map_or(f64::NAN, |rate| rate / 1e6);
        let bound = entry.trial.verdict.as_ref().and_then(|verdict| verdict.bottlenecks.first());
        let bound = bound.map_or("nothing known", |first| first.cause.words());
        let (goodput, steady) = (rate(GOODPUT), rate(STEADY));
        let name = &plan.settings[entry.setting].name;
        outcome.note(format!("{name}: {goodput:.2} Mbit/s, at the end {steady:.1}; bound by {bound}"));
    }
    if scale == Scale::Full {
        page(&mut outcome, &folder.path().join("result/report.html"))?;
    }
    Ok(outcome)
}

/// Checks the content of the page, and the page in a browser.
fn page(outcome: &mut Outcome, page: &Path) -> Result<()> {
    let text = std::fs::read_to_string(page)?;
    for part in [
        "goodput at each level of buffer",
        "Rate over time",
        "buffer ÷ round trip",
        "What bounded each setting",
        "What to change",
        "net.ipv4.tcp_rmem = 4096 131072 ",
        "on client and server",
    ] {
        outcome.holds(&format!("page_has '{part}'"), text.contains(part), "on the page");
    }
    outcome.take_in("page", Browser::new()?.check(page)?);
    Ok(())
}

/// The valid trial of a program with buffers of 32 MB, if there is one.
fn own<'t>(plan: &StudyPlan, trials: &'t [TrialEntry], program: &str, files: &str) -> Option<&'t TrialEntry> {
    let wanted = [("program", program), ("files", files), ("buffer", "32MB")];
    trials.iter().find(|entry| {
        let levels = &plan.settings[entry.setting].levels;
        let has = |(factor, level): (&str, &str)| levels.get(factor) == Some(&Level::Text(level.to_owned()));
        wanted.into_iter().all(has) && !entry.trial.validity.is_void()
    })
}

fn value(plan: &StudyPlan, trials: &[TrialEntry], program: &str, files: &str, name: &str) -> Result<f64> {
    let entry = own(plan, trials, program, files);
    let value = entry.and_then(|entry| entry.trial.quantities.get(name)).copied();
    value.with_context(|| format!("no valid trial of {program} with {files} has {name}"))
}
