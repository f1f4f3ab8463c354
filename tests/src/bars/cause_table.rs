//! What bounded a trial, judged by a table that was written from what was built, not from the rules of the verdict.
//!
//! Each row sets up a target, what stands before and beside it, and a load, with parameters drawn from a seed. Its truth says which causes
//! may be named first, and what may not be said at all.

mod bottlenecks;
mod healthy;
mod languages;
pub(super) mod stage;
mod strangers;

use anyhow::{Context, Result};
use record::{
    Bottleneck,
    Cause::{self, *},
    Certainty, Verdict,
};

use super::{Bar, By, Outcome, Scale, is_wanted};
use crate::{Trial, disturbance::Witness};
use stage::{Load, Stage};

pub(super) const BAR: Bar = Bar {
    name: "cause-table",
    what: "60 bottlenecks built on purpose are named first in ≥ 95 % of the trials and in ≥ 4 of 5 of each; 4 limits of the instrument \
           and 47 services with time to spare blame no target; what is counted is never wrong",
    full_seconds: 3_400,
    decided_by: By::Times,
    run,
};

/// Trials of each row.
const DRAWS: u64 = 5;
/// The rows of a sample.
const SAMPLE: [&str; 3] = ["lock", "bimodal", "healthy_nginx_rate"];

/// A row of the table.
struct Row {
    name: &'static str,
    truth: Truth,
    scene: fn(&mut Stage) -> Result<Load>,
}

/// What is right to say about a row.
#[derive(Debug, Clone, Copy)]
struct Truth {
    kind: Kind,
    /// The causes that may be named first.
    first: &'static [Cause],
    /// Whether it is also right to name nothing.
    may_be_open: bool,
    /// Causes that must be among the bottlenecks, at any place.
    named: &'static [Cause],
    /// A part of the first one's place, unless that is empty.
    place: &'static str,
    /// Causes that may be suspected, but are not counted here.
    uncounted: &'static [Cause],
    /// Causes that may not be among the bottlenecks.
    absent: &'static [Cause],
    /// A program or host that no bottleneck may blame.
    stranger: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Something bounds the load.
    Bound,
    /// The target has time to spare: no cause at the target is right.
    Healthy,
    /// The instrument is the limit: the trial is void, or no cause at the target is named.
    Instrument,
}

impl Truth {
    const BOUND: Self = Self {
        kind: Kind::Bound,
        first: &[],
        may_be_open: false,
        named: &[],
        place: "",
        uncounted: &[OfferedLoad],
        absent: &[OfferedLoad],
        stranger: "",
    };
    /// The service waits for something of its own, and needs nothing that the kernel counts.
    const SERVICE: Self = Self {
        first: &[SlowHandler],
        uncounted: &[
            HotCore,
            CpuQuota,
            AcceptQueue,
            SynQueue,
            PacketQueue,
            PacketLoss,
            ReceiveWindow,
            SendBuffer,
            LinkRate,
            LinkQueue,
            CongestionWindow,
            ConnectionLimit,
            Descriptors,
            Disk,
            Stopped,
            DelayedAck,
            RateLimiter,
        ],
        ..Self::BOUND
    };
    const HEALTHY: Self = Self { kind: Kind::Healthy, uncounted: &[], absent: &[], ..Self::BOUND };
    const INSTRUMENT: Self = Self { kind: Kind::Instrument, uncounted: &[], absent: &[], ..Self::BOUND };
}

/// What a trial's verdict is worth.
#[derive(Debug, PartialEq, Eq)]
enum Judged {
    Right,
    /// The machine disturbed the generator, and the verdict says so.
    Void,
    Wrong {
        why: String,
        is_counted: bool,
    },
}

/// The sums over rows.
#[derive(Debug, Default)]
struct Sums {
    right: u64,
    wrong: u64,
    void: u64,
    counted_wrong: u64,
    healthy_false: u64,
    healthy: u64,
}

fn run(scale: Scale) -> Result<Outcome> {
    let (mut outcome, mut sums) = (Outcome::default(), Sums::default());
    let rows = [strangers::ROWS, bottlenecks::ROWS, languages::ROWS, healthy::ROWS].concat_rows();
    let draws = scale.pick(1, draws(DRAWS));
    for (number, row) in rows.enumerate() {
        if is_wanted(row.name) && (scale == Scale::Full || SAMPLE.contains(&row.name)) {
            let (mut right, mut void) = (0, 0);
            for draw in 0..draws {
                let judged = trial_of(row, 1_000 * number as u64 + draw, scale, &mut outcome)?;
                sums.add(row, &judged);
                right += u64::from(judged == Judged::Right);
                void += u64::from(judged == Judged::Void);
            }
            decide(&mut outcome, row.name, [right, void, draws]);
        }
    }
    let judged = sums.right + sums.wrong;
    outcome.note(format!("{sums:?}"));
    let least = (judged * 95).div_ceil(100);
    outcome.time().figure(
        "right_first",
        sums.right,
        format!("≥ {least} of {judged}; {} void", sums.void),
        sums.right >= least,
    );
    outcome.time().equal("counted_wrong", sums.counted_wrong, 0, "what is counted is true");
    let healthy = format!("of {} trials of a service with time to spare", sums.healthy);
    outcome.time().equal("healthy_blamed", sums.healthy_false, 0, &healthy);
    Ok(outcome)
}

/// The number of draws; the environment may ask for fewer, to look at all rows quickly.
pub(super) fn draws(all: u64) -> u64 {
    std::env::var("PROVE_DRAWS").ok().and_then(|draws| draws.parse().ok()).unwrap_or(all)
}

trait Rows {
    fn concat_rows(self) -> impl Iterator<Item = &'static Row>;
}

impl<const N: usize> Rows for [&'static [Row]; N] {
    fn concat_rows(self) -> impl Iterator<Item = &'static Row> {
        self.into_iter().flatten()
    }
}

/// Runs a row once, and says what its verdict is worth.
fn trial_of(row: &Row, seed: u64, scale: Scale, outcome: &mut Outcome) -> Result<Judged> {
    let mut witnessed = String::new();
    let (trial, gaps) = Witness::of_all(|| {
        let mut stage = Stage::new(seed)?;
        let load = (row.scene)(&mut stage)?;
        let trial = stage.run(&load, scale)?;
        witnessed = stage.witnessed();
        Ok(trial)
    })
    .with_context(|| format!("{}, seed {seed}", row.name))?;
    let judged = row.truth.judge(&trial);
    let shown = trial.verdict.as_ref().map_or_else(|| "none".to_owned(), shown);
    // What is said of the machine is no error while the machine was really taken away.
    let judged = match judged {
        Judged::Wrong { ref why, .. } if gaps.disturb() && why.contains(LACKS) => Judged::Void,
        judged => judged,
    };
    let figures = format!(
        "{:.0}/s, p50 {:.2} ms, void {:?}, witness without a processor {gaps}",
        trial.throughput_per_s,
        super::ms(trial.response_time.percentile(0.5).value as u64),
        trial.validity.reasons().iter().map(|reason| reason.rule.words()).collect::<Vec<_>>(),
    );
    outcome.note(match &judged {
        Judged::Right => format!("{}: right: {shown}", row.name),
        Judged::Void => format!("{}: VOID: {shown}\n{figures}", row.name),
        Judged::Wrong { why, .. } => format!("{}: WRONG: {why}: {shown}\n{figures}", row.name),
    });
    outcome.note(format!("{} seed {seed}: {figures}; it counted: {witnessed}", row.name));
    Ok(judged)
}

const LACKS: &str = "LacksProcessor";

impl Truth {
    fn judge(&self, trial: &Trial) -> Judged {
        let all = trial.verdict.as_ref().map_or(&[][..], |verdict| &verdict.bottlenecks);
        let wrong = |why: String, is_counted: bool| Judged::Wrong { why, is_counted };
        let first = all.first();
        let is_void = trial.validity.is_void() && first.is_none_or(|first| is_of_instrument(first.cause));
        let is_counted = |one: &Bottleneck| one.certainty == Certainty::Counted;
        let blamed = all.iter().find(|one| !is_of_instrument(one.cause) && one.cause != OfferedLoad);
        let is_strange = |one: &&Bottleneck| {
            !self.stranger.is_empty() && (one.place.clone() + &one.evidence).contains(self.stranger)
        };
        if let Some(one) = all.iter().find(is_strange) {
            return wrong(format!("{} is no part of the target", self.stranger), is_counted(one));
        }
        match self.kind {
            Kind::Healthy | Kind::Instrument => {
                if let Some(one) = blamed {
                    return wrong(format!("the target is blamed: {:?}", one.cause), is_counted(one));
                }
                let is_carried = first.is_some_and(|first| first.cause == OfferedLoad);
                match self.kind {
                    Kind::Healthy if is_void => Judged::Void,
                    Kind::Instrument if is_carried && !trial.validity.is_void() => {
                        wrong("the generator was the limit, and carried all".to_owned(), true)
                    }
                    _ => Judged::Right,
                }
            }
            Kind::Bound if is_void && !self.first.contains(&Generator) => Judged::Void,
            Kind::Bound => {
                if let Some(one) =
                    all.iter().find(|one| is_counted(one) && self.uncounted.contains(&one.cause))
                {
                    return wrong(format!("{:?} is counted", one.cause), true);
                }
                if let Some(one) = all.iter().find(|one| self.absent.contains(&one.cause)) {
                    return wrong(format!("{:?} is named", one.cause), is_counted(one));
                }
                let missed = self.named.iter().find(|cause| all.iter().all(|one| one.cause != **cause));
                match first {
                    None if self.may_be_open => Judged::Right,
                    None => wrong(format!("nothing is named, and it is {:?}", self.first), false),
                    Some(one) if !self.first.contains(&one.cause) => {
                        wrong(format!("{:?} is first, not {:?}", one.cause, self.first), is_counted(one))
                    }
                    Some(one) if !one.place.is_empty() && !one.place.contains(self.place) => {
                        wrong(format!("it is on {:?}, not on {}", one.place, self.place), is_counted(one))
                    }
                    Some(_) => match missed {
                        Some(cause) => wrong(format!("{cause:?} is not named"), false),
                        None => Judged::Right,
                    },
                }
            }
        }
    }
}

impl Sums {
    fn add(&mut self, row: &Row, judged: &Judged) {
        let is_healthy = row.truth.kind == Kind::Healthy;
        match judged {
            Judged::Right => self.right += 1,
            Judged::Void => self.void += 1,
            Judged::Wrong { is_counted, .. } => {
                self.wrong += 1;
                self.counted_wrong += u64::from(*is_counted);
                self.healthy_false += u64::from(is_healthy);
            }
        }
        self.healthy += u64::from(is_healthy);
    }
}

/// Adds the figure of a row: at least four of five. Void trials do not count, unless less than half of the trials are left.
fn decide(outcome: &mut Outcome, name: &str, [right, void, draws]: [u64; 3]) {
    let judged = draws - void;
    let least = (judged * 4).div_ceil(5);
    let bound = format!("≥ {least} of {judged} right; {void} void");
    if 2 * judged < draws {
        outcome.undecided(name, bound, format!("{void} of {draws} trials were void"));
    } else {
        outcome.time().figure(name, right, bound, right >= least);
    }
}

/// Whether a cause lies where the load is made.
fn is_of_instrument(cause: Cause) -> bool {
    matches!(cause, Generator | SourcePorts)
}

/// The causes of a verdict with their evidence, in one line.
fn shown(verdict: &Verdict) -> String {
    let one = |one: &Bottleneck| {
        format!("{:?} ({:?}) of {:?}: {}", one.cause, one.certainty, one.place, one.evidence)
    };
    let all: Vec<String> = verdict.bottlenecks.iter().map(one).collect();
    if all.is_empty() { format!("not determined; missing {:?}", verdict.missing) } else { all.join(" | ") }
}

/// A closed load on the target's first page.
fn users(address: std::net::SocketAddr, users: u64) -> Load {
    Load::Http(format!("http://{address}/"), format!("-u {users} -d 4s"))
}

/// An open load on this page.
fn rate(url: impl Into<String>, per_s: u64) -> Load {
    Load::Http(url.into(), format!("-R {per_s} -d 4s"))
}
