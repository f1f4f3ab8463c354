//! The shipped study of file copies and flows across an ocean.

use anyhow::{Result, ensure};
use record::{Level, ResultFolder, StudyPlan, StudyResult, TrialEntry, folder::Contents};

use super::{Bar, By, Outcome, Scale, seconds};
use crate::{Proofload, lab::SshdFolder, link::uncertified, temporary::TemporaryFolder};

pub(super) const BAR: Bar = Bar {
    name: "ocean-path",
    what: "1 Gbit/s and 228 ms by one command in 12 min: iperf3, scp, sftp and rsync, none failed or void; one flow with 64 MB fills the \
           link, and with less its goodput is 0.55 to 1.0 of buffer ÷ RTT, 1.8 to 2.2 times as much for twice the buffer",
    full_seconds: 800,
    decided_by: By::Times,
    run,
};

const STUDIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../studies");
const STUDY: &str = "ocean-path";
const RTT_S: f64 = 0.228;

fn run(scale: Scale) -> Result<Outcome> {
    let _sshd = SshdFolder::made()?;
    let mut outcome = Outcome::default();
    if scale == Scale::Full {
        whole(&mut outcome)?;
    }
    let buffers = scale.pick(&[8][..], &[2, 4, 8, 16][..]);
    let list: Vec<String> = buffers.iter().map(|mb| format!("{mb}MB")).collect();
    // For a sample, half the time is enough, because the window has grown within 2 s.
    let shorter = "workload.command.run=exec iperf3 --client {server} --json --time 10 # {program}";
    let words = format!("--set program=iperf3-1 --set buffer={} --set trial.repeats=1", list.join(","));
    let Studied { plan, trials, .. } = study(STUDY, &words, scale.pick(&["--set", shorter][..], &[]))?;
    // On a busy machine, the path may be longer or slower than requested, so it carries less, but never more.
    for &mb in buffers {
        let most =
            Quantity { program: "iperf3-1", mb, name: "goodput_bit_per_s", voids: true }.of(&plan, &trials);
        let share = most.into_iter().fold(0.0, f64::max) / (f64::from(mb) * 8e6 / RTT_S);
        let is_within = share > 0.0 && share <= 1.0;
        outcome.figure(
            &format!("most_at_{mb}MB"),
            format!("{share:.3}"),
            "<= 1.0 of buffer / RTT, > 0",
            is_within,
        );
    }
    if let Some(why) = uncertified(&trials)? {
        outcome.undecided("goodput", "0.5 to 1.0 of buffer / RTT", why);
        return Ok(outcome);
    }
    let mut before: Option<f64> = None;
    for &mb in buffers {
        let goodput = mean(&plan, &trials, "iperf3-1", mb, "goodput_bit_per_s")?;
        let share = goodput / (f64::from(mb) * 8e6 / RTT_S);
        let least = scale.pick(0.5, 0.55);
        let bound = format!("{least} to 1.0 of buffer / RTT");
        outcome.time().figure(
            &format!("share_at_{mb}MB"),
            format!("{share:.3}"),
            bound,
            (least..=1.0).contains(&share),
        );
        if let Some(before) = before {
            let ratio = goodput / before;
            let bound = "1.8 to 2.2 times that of half";
            outcome.time().figure(
                &format!("growth_at_{mb}MB"),
                format!("{ratio:.2}"),
                bound,
                (1.8..=2.2).contains(&ratio),
            );
        }
        before = Some(goodput);
    }
    Ok(outcome)
}

/// Runs the study as it is shipped.
fn whole(outcome: &mut Outcome) -> Result<()> {
    let Studied { plan, trials, took_s, .. } = study(STUDY, "", &[])?;
    outcome.time().figure("study_s", format!("{took_s:.0}"), "<= 720", took_s <= 720.0);
    outcome.equal("settings", plan.settings.len() as u64, 15, "five programs, three buffers");
    let lost =
        plan.settings.len() * 2 - trials.iter().filter(|entry| !entry.trial.validity.is_void()).count();
    outcome.time().equal("settings_short_of_two_valid_trials", lost as u64, 0, "all valid in the end");
    let failed =
        trials.iter().filter(|entry| entry.trial.command().is_none_or(|trial| trial.failed_ratio() > 0.0));
    outcome.time().equal("failed_trials", failed.count() as u64, 0, "every program ended with status 0");
    let full = mean(&plan, &trials, "iperf3-1", 64, "last_5_s_bit_per_s")? / 1e6;
    outcome.time().figure(
        "one_flow_64MB_mbit_per_s",
        format!("{full:.0}"),
        ">= 900 over the last 5 s",
        full >= 900.0,
    );
    for program in ["iperf3-1", "iperf3-8", "scp", "sftp", "rsync"] {
        let of = |mb| {
            mean(&plan, &trials, program, mb, "goodput_bit_per_s").map(|rate| format!("{:.1}", rate / 1e6))
        };
        outcome.note(format!("{program}: {} {} {} Mbit/s with 2, 8, 64 MB", of(2)?, of(8)?, of(64)?));
    }
    Ok(())
}

/// The results of a study.
pub(super) struct Studied {
    pub plan: StudyPlan,
    pub trials: Vec<TrialEntry>,
    pub result: Option<StudyResult>,
    /// Whether a goal was missed.
    pub is_missed: bool,
    pub took_s: f64,
    /// The folder that contains the folder `result`.
    pub folder: TemporaryFolder,
}

/// Runs a shipped study with further options.
pub(super) fn study(name: &str, words: &str, more: &[&str]) -> Result<Studied> {
    let studied = study_with_any_goals(name, words, more)?;
    ensure!(!studied.is_missed, "{name} missed a goal");
    Ok(studied)
}

/// Runs a shipped study, whether its goals are met or not.
pub(super) fn study_with_any_goals(name: &str, words: &str, more: &[&str]) -> Result<Studied> {
    let folder = TemporaryFolder::new()?;
    let out = folder.file("result");
    let line = format!("run {STUDIES}/{name}.toml --out {out} -q {words}");
    let command = more.iter().fold(Proofload::new(&line)?, |command, word| command.arg(word));
    let output = command.timeout(seconds(1_200)).run()?;
    ensure!([Some(0), Some(1), Some(3)].contains(&output.code), "{}", output.described());
    let Contents { plan, trials, result, .. } = ResultFolder::open(out.as_ref())?.read()?;
    Ok(Studied {
        is_missed: output.code == Some(1),
        plan,
        trials,
        result,
        took_s: output.wall.as_secs_f64(),
        folder,
    })
}

/// A quantity of a program with a given buffer.
struct Quantity<'a> {
    program: &'a str,
    mb: u32,
    name: &'a str,
    /// Whether void trials count, too.
    voids: bool,
}

impl Quantity<'_> {
    fn of(&self, plan: &StudyPlan, trials: &[TrialEntry]) -> Vec<f64> {
        let levels = [("program", self.program.to_owned()), ("buffer", format!("{}MB", self.mb))];
        let is_own = |entry: &&TrialEntry| {
            let own = &plan.settings[entry.setting].levels;
            levels.iter().all(|(factor, level)| own.get(*factor) == Some(&Level::Text(level.clone())))
                && (self.voids || !entry.trial.validity.is_void())
        };
        let own = trials.iter().filter(is_own);
        own.filter_map(|entry| entry.trial.quantities.get(self.name).copied()).collect()
    }
}

/// The mean of a quantity over the valid trials.
fn mean(plan: &StudyPlan, trials: &[TrialEntry], program: &str, mb: u32, name: &str) -> Result<f64> {
    let values = Quantity { program, mb, name, voids: false }.of(plan, trials);
    ensure!(!values.is_empty(), "no valid trial of {program} with {mb} MB has {name}");
    Ok(values.iter().sum::<f64>() / values.len() as f64)
}
