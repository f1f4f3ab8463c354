//! How the users' time divides, against targets that keep a log of what they did with each request.
//!
//! Each mixture is a target that sleeps, holds a lock and computes for each request, in parts drawn from a seed, on one processor; some
//! stand behind another service. What a request did there besides sleeping, it computed, or waited for the processor. Pauses of users are
//! as long as they were asked to be. The account of the verdict must say the same.

use std::{fmt, thread, time::Duration};

use anyhow::{Context, Result};
use record::{TimePart, TimeState};

use super::{
    Bar, By, Outcome, Scale,
    cause_table::{
        draws,
        stage::{Load, Stage},
    },
};
use crate::disturbance::Witness;

pub(super) const BAR: Bar = Bar {
    name: "cause-account",
    what: "of targets that sleep, hold a lock and compute, the account says within 0.10 of the users' time what they did, in ≥ 95 % of \
           the mixtures",
    full_seconds: 1_500,
    decided_by: By::Times,
    run,
};

/// Mixtures of a full run.
const DRAWS: u64 = 200;
/// Seconds of each load.
const LOAD_S: u64 = 3;
/// An account may be as far from the truth, as a share of the users' time.
const NEAR: f64 = 0.10;
/// Mixtures that are told again at the end, because the account was farthest from the truth.
const WORST: usize = 5;

/// What a target does for each request, and who asks it.
#[derive(Debug)]
struct Mixture {
    sleep_ms: u64,
    lock_ms: u64,
    burn_us: u64,
    users: u64,
    pause_ms: u64,
    front: Front,
}

/// What requests meet first.
#[derive(Debug)]
enum Front {
    /// The target, with a thread for each connection.
    Target,
    /// The target, with so many threads, each of which serves one request of a connection, and then accepts the next one.
    Pool(u64),
    /// A program that asks the target, on the same processor.
    Proxy,
    /// An nginx that asks the target, on the generator's processor, where it seldom waits for one: nobody logs what it does.
    Nginx,
}

/// Shares of the users' time.
#[derive(Debug, Clone, Copy)]
struct Shares {
    asleep: f64,
    computing: f64,
    paused: f64,
    other: f64,
}

/// The result of a mixture.
struct Compared {
    truth: Shares,
    told: Shares,
    account: Vec<TimePart>,
    is_void: bool,
    /// All that is known of it, in one line.
    line: String,
}

fn run(scale: Scale) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let all = (0..scale.pick(6, draws(DRAWS))).map(|seed| {
        let compared = compared(seed, scale).with_context(|| format!("mixture {seed}"))?;
        outcome.note(compared.line.clone());
        Ok(compared)
    });
    let (void, mut judged): (Vec<_>, Vec<_>) =
        all.collect::<Result<Vec<_>>>()?.into_iter().partition(|compared| compared.is_void);
    let count = |is: fn(&Compared) -> bool| judged.iter().filter(|compared| is(compared)).count();
    let (right, whole, known) =
        (count(Compared::is_right), count(Compared::is_whole), count(Compared::is_known));
    let (all, least) = (judged.len(), (judged.len() * 95).div_ceil(100));
    if all < void.len() {
        outcome.undecided("right", "≥ 95 %", format!("{} trials were void", void.len()));
    } else {
        let bound = format!("≥ {least} of {all}; {} void", void.len());
        outcome.time().figure("right", right, bound, right >= least);
    }
    outcome.time().equal("whole", whole as u64, all as u64, "parts add up to 100 ± 3 % in all");
    outcome.time().equal("known", known as u64, all as u64, "at most 10 % are unknown in all");
    judged.sort_by(|one, other| other.distance().total_cmp(&one.distance()));
    for compared in judged.iter().take(WORST) {
        outcome.note(format!("off by {:.3}: {}", compared.distance(), compared.line));
    }
    Ok(outcome)
}

/// Runs a mixture, and compares what the target logged with what the verdict tells.
fn compared(seed: u64, scale: Scale) -> Result<Compared> {
    let ((mixture, trial, witnessed), gaps) = Witness::of_all(|| {
        let mut stage = Stage::new(seed)?;
        let mixture = Mixture::drawn(&mut stage);
        let load = mixture.set_up(&mut stage)?;
        let trial = stage.run(&load, scale)?;
        // Targets print their logs once a second.
        thread::sleep(Duration::from_millis(1_100));
        Ok((mixture, trial, stage.witnessed()))
    })?;
    let account = trial.verdict.as_ref().map_or_else(Vec::new, |verdict| verdict.account.clone());
    let shown = account.iter().map(|part| {
        let TimePart { state, program, share, .. } = part;
        format!("{:.1} % {} {program}", share * 100.0, state.words()).trim_end().to_owned()
    });
    let shown: Vec<String> = shown.collect();
    let (truth, told) = (mixture.truth(&witnessed)?, Shares::told(&account));
    let mut compared =
        Compared { truth, told, account, is_void: trial.validity.is_void(), line: String::new() };
    compared.line = format!(
        "{seed} {}: truth {truth}, told {told}; {mixture:?}; account: {}; {:.0}/s, {:?}, witness without a processor {gaps}; logged: \
         {witnessed}",
        match compared.is_right() {
            _ if compared.is_void => "VOID",
            true => "right",
            false => "WRONG",
        },
        shown.join(", "),
        trial.throughput_per_s,
        trial.validity.reasons().iter().map(|reason| reason.rule.words()).collect::<Vec<_>>(),
    );
    Ok(compared)
}

impl Mixture {
    fn drawn(stage: &mut Stage) -> Self {
        let without = stage.draw(0, 3);
        let mut unless = |left_out: u64, least: u64, most: u64| {
            let drawn = stage.draw(least, most);
            if without == left_out { 0 } else { drawn }
        };
        let (sleep_ms, lock_ms, burn_us) = (unless(0, 5, 40), unless(1, 2, 10), unless(2, 500, 4_000));
        let users = stage.draw(4, 24);
        let pause_ms = if stage.draw(0, 1) == 0 { 0 } else { stage.draw(5, 40) };
        let front = match stage.draw(0, 9) {
            0 => Front::Proxy,
            1 => Front::Nginx,
            2 | 3 => Front::Pool(stage.draw(users / 2, users)),
            _ => Front::Target,
        };
        Self { sleep_ms, lock_ms, burn_us, users, pause_ms, front }
    }

    /// Starts the programs, and returns the load.
    fn set_up(&self, stage: &mut Stage) -> Result<Load> {
        let Self { sleep_ms, lock_ms, burn_us, users, pause_ms, .. } = self;
        let log = format!("--log-s {LOAD_S}");
        let words = format!("mix {sleep_ms} {lock_ms} {burn_us} {log}");
        let address = match self.front {
            Front::Target => stage.target(&words)?,
            Front::Pool(workers) => stage.target(&format!("{words} --close --workers {workers}"))?,
            Front::Proxy => {
                let behind = stage.target(&words)?;
                stage.target(&format!("proxy {behind} {log}"))?
            }
            Front::Nginx => {
                let behind = stage.target(&words)?;
                stage.cores.server = stage.cores.generator;
                let upstream = format!("upstream behind {{ server {behind}; keepalive 64; }}");
                stage.nginx("location / { proxy_pass http://behind; }", &upstream)?
            }
        };
        let pause = if *pause_ms > 0 { format!("--think-time {pause_ms}ms") } else { String::new() };
        Ok(Load::Http(format!("http://{address}/"), format!("-u {users} -d {LOAD_S}s {pause}")))
    }

    /// Shares of the users' time, from the lines that the programs printed.
    fn truth(&self, witnessed: &str) -> Result<Shares> {
        let sum = |name: &str| -> Result<f64> {
            let lines = witnessed.split("; ").map(|line| {
                let mut words = line.split(' ').skip_while(|word| *word != name);
                words
                    .nth(1)
                    .with_context(|| format!("no {name}: {line}"))?
                    .parse::<f64>()
                    .context("no number")
            });
            lines.sum()
        };
        let users_s = (self.users * LOAD_S) as f64;
        let asleep = sum("asleep_s")? / users_s;
        let computing = (sum("inside_s")? - sum("asked_s")?) / users_s - asleep;
        // A program before the target counts the same answers again.
        let programs = witnessed.split("; ").count() as f64;
        let paused = sum("in_time")? / programs * self.pause_ms as f64 / 1e3 / users_s;
        Ok(Shares { asleep, computing, paused, other: 1.0 - asleep - computing - paused })
    }
}

impl Shares {
    /// What an account says, by state, wherever it was.
    fn told(account: &[TimePart]) -> Self {
        let [mut asleep, mut computing, mut paused, mut other] = [0.0; 4];
        for part in account {
            *match part.state {
                TimeState::Asleep => &mut asleep,
                TimeState::Running | TimeState::Ready => &mut computing,
                TimeState::Paused => &mut paused,
                _ => &mut other,
            } += part.share;
        }
        Self { asleep, computing, paused, other }
    }

    /// The largest difference of a part.
    fn distance(&self, other: &Self) -> f64 {
        let parts = |one: &Self| [one.asleep, one.computing, one.paused, one.other];
        parts(self).into_iter().zip(parts(other)).map(|(one, two)| (one - two).abs()).fold(0.0, f64::max)
    }
}

impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asleep, computing, paused, other } = self;
        write!(f, "asleep {asleep:.3} computing {computing:.3} paused {paused:.3} other {other:.3}")
    }
}

impl Compared {
    fn is_right(&self) -> bool {
        self.distance() <= NEAR
    }

    fn is_whole(&self) -> bool {
        (self.account.iter().map(|part| part.share).sum::<f64>() - 1.0).abs() <= 0.03
    }

    fn is_known(&self) -> bool {
        let unknown = self.account.iter().filter(|part| part.state == TimeState::Unknown);
        unknown.map(|part| part.share).sum::<f64>() <= 0.10
    }

    fn distance(&self) -> f64 {
        self.truth.distance(&self.told)
    }
}
