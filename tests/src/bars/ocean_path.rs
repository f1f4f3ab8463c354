//! Files and flows across an ocean, by the shipped study.

use anyhow::{Context, Result, ensure};
use record::{Level, ResultFolder, StudyPlan, TrialEntry};

use super::{Bar, Outcome, Scale, seconds};
use crate::{Proofload, lab::SshdFolder, temporary::TemporaryFolder};

/// The bar.
pub const BAR: Bar = Bar {
    name: "ocean-path",
    what: "1 Gbit/s and 228 ms by one command in 12 min: iperf3, scp, sftp and rsync, none failed or void; one flow with 64 MB fills the \
           link, and with less its goodput is 0.55 to 1.0 of buffer ÷ RTT, 1.8 to 2.2 times as much for twice the buffer",
    full_seconds: 800,
    run,
};

const STUDY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../studies/ocean-path.toml");
const RTT_S: f64 = 0.228;

fn run(scale: Scale) -> Result<Outcome> {
    let _sshd = SshdFolder::made()?;
    let mut outcome = Outcome::default();
    if scale == Scale::Full {
        whole(&mut outcome)?;
    }
    let buffers = scale.pick(&[8][..], &[2, 4, 8, 16][..]);
    let list: Vec<String> = buffers.iter().map(|mb| format!("{mb}MB")).collect();
    // Half the time is enough of a sample: the window has grown within 2 s.
    let shorter = "workload.command.run=exec iperf3 --client {server} --json --time 10 # {program}";
    let words = format!("--set program=iperf3-1 --set buffer={} --set trial.repeats=1", list.join(","));
    let Some((plan, trials, _)) = study(&words, scale.pick(&["--set", shorter][..], &[]))? else {
        // The link's own certificate says that this machine is too busy for it now.
        outcome.undecided("goodput", "0.5 to 1.0 of buffer / RTT", "the link is not certified, four times");
        return Ok(outcome);
    };
    let mut before: Option<f64> = None;
    for &mb in buffers {
        let goodput = quantity(&plan, &trials, "iperf3-1", mb, "goodput_bit_per_s")?;
        let share = goodput / (f64::from(mb) * 8e6 / RTT_S);
        let least = scale.pick(0.5, 0.55);
        let bound = format!("{least} to 1.0 of buffer / RTT");
        outcome.figure(
            &format!("share_at_{mb}MB"),
            format!("{share:.3}"),
            bound,
            (least..=1.0).contains(&share),
        );
        if let Some(before) = before {
            let ratio = goodput / before;
            let bound = "1.8 to 2.2 times that of half";
            outcome.figure(
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

/// The study as it is shipped.
fn whole(outcome: &mut Outcome) -> Result<()> {
    let (plan, trials, took_s) = study("", &[])?.context("all trials are void")?;
    outcome.figure("study_s", format!("{took_s:.0}"), "<= 720", took_s <= 720.0);
    outcome.equal("settings", plan.settings.len() as u64, 15, "five programs, three buffers");
    let lost =
        plan.settings.len() * 2 - trials.iter().filter(|entry| !entry.trial.validity.is_void()).count();
    outcome.equal("settings_short_of_two_valid_trials", lost as u64, 0, "all valid in the end");
    let failed =
        trials.iter().filter(|entry| entry.trial.programs().is_none_or(|trial| trial.failed_ratio() > 0.0));
    outcome.equal("failed_trials", failed.count() as u64, 0, "every program ended with status 0");
    let full = quantity(&plan, &trials, "iperf3-1", 64, "last_5_s_bit_per_s")? / 1e6;
    outcome.figure(
        "one_flow_64MB_mbit_per_s",
        format!("{full:.0}"),
        ">= 900 over the last 5 s",
        full >= 900.0,
    );
    for program in ["iperf3-1", "iperf3-8", "scp", "sftp", "rsync"] {
        let of = |mb| {
            quantity(&plan, &trials, program, mb, "goodput_bit_per_s")
                .map(|rate| format!("{:.1}", rate / 1e6))
        };
        outcome.note(format!("{program}: {} {} {} Mbit/s with 2, 8, 64 MB", of(2)?, of(8)?, of(64)?));
    }
    Ok(())
}

/// The plan, the trials, and how long it took in seconds; none if all trials are void.
fn study(words: &str, more: &[&str]) -> Result<Option<(StudyPlan, Vec<TrialEntry>, f64)>> {
    let folder = TemporaryFolder::new()?;
    let out = folder.file("result");
    let line = format!("run {STUDY} --out {out} -q {words}");
    let command = more.iter().fold(Proofload::new(&line)?, |command, word| command.arg(word));
    let output = command.timeout(seconds(1_200)).run()?;
    ensure!([Some(0), Some(3)].contains(&output.code), "{}", output.described());
    let read = ResultFolder::open(out.as_ref())?.read()?;
    let is_valid = read.trials.iter().any(|entry| !entry.trial.validity.is_void());
    Ok(is_valid.then_some((read.plan, read.trials, output.wall.as_secs_f64())))
}

/// The mean of a quantity over the valid trials of a program with a buffer.
fn quantity(plan: &StudyPlan, trials: &[TrialEntry], program: &str, mb: u32, name: &str) -> Result<f64> {
    let levels = [("program", program.to_owned()), ("buffer", format!("{mb}MB"))];
    let is_own = |entry: &&TrialEntry| {
        let own = &plan.settings[entry.setting].levels;
        levels.iter().all(|(factor, level)| own.get(*factor) == Some(&Level::Text(level.clone())))
            && !entry.trial.validity.is_void()
    };
    let values: Vec<f64> =
        trials.iter().filter(is_own).filter_map(|entry| entry.trial.quantities.get(name).copied()).collect();
    ensure!(!values.is_empty(), "no valid trial of {program} with {mb} MB has {name}");
    Ok(values.iter().sum::<f64>() / values.len() as f64)
}
