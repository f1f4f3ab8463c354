//! A disturbance and a load, drawn from a seed, and the results.

use std::{
    fmt,
    time::{Duration, Instant},
};

use anyhow::Result;

use crate::{
    Proofload, Trial,
    disturbance::{Quota, Witness, stop_for},
    hog::{Bursts, Hog},
    machine::Cores,
    proofload::Running,
    random::Random,
    witnessed_target::{Delay, Served, WitnessedTarget},
};

/// Duration of a trial, in seconds.
pub(super) const SECONDS: u64 = 3;
/// Number of kinds of disturbances.
pub(super) const DISTURBANCES: u64 = 5;
const LOADS: u64 = 4;
const SHARES: [f64; 2] = [0.01, 0.3];
const BURSTS_MS: [f64; 2] = [0.2, 50.0];
/// The quota starts this late, because a throttled program would take seconds to start.
const STARTING: Duration = Duration::from_millis(400);

/// On an undisturbed machine, the generator needs less time per cycle than this: a few calls, and one or two wake-ups.
const MAX_CYCLE: Duration = Duration::from_micros(500);

/// The disturbance.
#[derive(Debug, Clone)]
enum Disturbance {
    /// A hog on the generator's processor.
    HogOfGenerator(Bursts),
    /// A hog on the target's processor.
    HogOfTarget(Bursts),
    /// Hogs on both processors.
    Hogs([Bursts; 2]),
    /// SIGSTOP and SIGCONT.
    Stops(Bursts),
    /// The generator may run for the first time in each period of the second.
    Quota([Duration; 2]),
}

/// The load that the generator makes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Load {
    /// This many users, who keep their connections.
    Users(u64),
    /// This many users, who open a connection for each request.
    NewConnections(u64),
    /// A rate per second, over this many connections that are already open.
    Pool(f64, u64),
    /// A rate per second, with connections opened on demand.
    OnDemand(f64),
}

/// A disturbance and a load.
#[derive(Debug)]
pub(super) struct Case {
    seed: u64,
    disturbance: Disturbance,
    load: Load,
    delay: Delay,
    shown: String,
}

impl Case {
    /// The case of a seed. Seeds go through each disturbance with each load in turn.
    pub(super) fn drawn(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let share = random.log_uniform(SHARES[0], SHARES[1]);
        // In some cases, all bursts are short.
        let longest_ms = random.log_uniform(2.0 * BURSTS_MS[0], BURSTS_MS[1]);
        let shown = format!("{:.1} % in bursts of at most {longest_ms:.1} ms", share * 100.0);
        let mut bursts = || Bursts::new(random.any(), share, [BURSTS_MS[0], longest_ms]);
        let (disturbance, shown) = match seed % DISTURBANCES {
            0 => (Disturbance::HogOfGenerator(bursts()), format!("hog of the generator, {shown}")),
            1 => (Disturbance::HogOfTarget(bursts()), format!("hog of the target, {shown}")),
            2 => (Disturbance::Hogs([bursts(), bursts()]), format!("hogs of both, {shown}")),
            3 => (Disturbance::Stops(bursts()), format!("stops, {shown}")),
            _ => {
                let period_ms = random.log_uniform(20.0, 100.0);
                // The kernel requires at least a millisecond.
                let time_ms = (period_ms * random.log_uniform(0.01, 0.08)).max(1.0);
                let shown = format!("quota of {time_ms:.1} of {period_ms:.1} ms");
                (Disturbance::Quota([time_ms, period_ms].map(|ms| Duration::from_secs_f64(ms / 1e3))), shown)
            }
        };
        let mean_ms = random.log_uniform(4.0, 20.0);
        let mean = Duration::from_secs_f64(mean_ms / 1e3);
        let is_exponential = random.below(2) == 0;
        let delay = match is_exponential {
            true => Delay::Exponential(mean, Random::new(random.any())),
            false => Delay::Fixed(mean),
        };
        let rate_per_s = random.log_uniform(400.0, 2_000.0).round();
        // Twice the number that the mean delay, a burst and its backlog keep busy.
        let connections = (rate_per_s * 2.0 * (8.0 * mean_ms + 2.0 * BURSTS_MS[1]) / 1e3).ceil() as u64;
        let load = match seed / DISTURBANCES % LOADS {
            0 => Load::Users(16),
            1 => Load::Pool(rate_per_s, connections),
            2 => Load::OnDemand(rate_per_s),
            _ => Load::NewConnections(8),
        };
        let kind = if is_exponential { "exponential" } else { "fixed" };
        let shown = format!("{shown}; {load:?}; {kind} delay of {mean_ms:.1} ms");
        Self { seed, disturbance, load, delay, shown }
    }

    /// The rate of an open load, per second; none for a closed load.
    pub(super) fn open_rate_per_s(&self) -> Option<f64> {
        match self.load {
            Load::Pool(rate_per_s, _) | Load::OnDemand(rate_per_s) => Some(rate_per_s),
            Load::Users(_) | Load::NewConnections(_) => None,
        }
    }

    /// The users of a closed load; 0 for an open load.
    pub(super) fn users(&self) -> u64 {
        match self.load {
            Load::Users(users) | Load::NewConnections(users) => users,
            Load::Pool(..) | Load::OnDemand(_) => 0,
        }
    }

    /// Runs the case.
    pub(super) fn run(&self, cores: Cores) -> Result<Ran> {
        let hog = match &self.disturbance {
            Disturbance::HogOfGenerator(bursts) => vec![(cores.generator, bursts.clone())],
            Disturbance::HogOfTarget(bursts) => vec![(cores.server, bursts.clone())],
            Disturbance::Hogs([first, second]) => {
                vec![(cores.generator, first.clone()), (cores.server, second.clone())]
            }
            Disturbance::Stops(_) | Disturbance::Quota(_) => Vec::new(),
        };
        let target = WitnessedTarget::start(self.delay.clone(), cores.server)?;
        // The witness starts before the hog, so it gets the processor first and only sees delays by this machine.
        let witness = Witness::on(cores.generator)?;
        let mut running = self.load.start(&target, cores)?;
        let hog = Hog::start(hog)?;
        // Drop the quota after the generator has ended, because the generator is in its control group.
        let mut quota = None;
        let disturbed = match &self.disturbance {
            Disturbance::Stops(bursts) => stopped(&mut running, bursts.clone(), Duration::from_secs(SECONDS)),
            Disturbance::Quota(times) => throttled(&running, *times, &mut quota)?,
            _ => 0.0,
        };
        let output = running.finish()?;
        drop(quota);
        let of_hogs = hog.end()?.iter().map(|taken| taken.share()).fold(0.0, f64::max);
        let (trial, gaps) = (output.trial()?.clone(), witness.end()?);
        // The kernel's account of waiting includes the hog, but other programs, too.
        let disturbed = (disturbed.max(of_hogs) + gaps.share).max(gaps.waited_share(&trial));
        Ok(Ran { trial, served: target.stop()?, disturbed })
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "case {}: {}", self.seed, self.shown)
    }
}

impl Load {
    fn start(self, target: &WitnessedTarget, cores: Cores) -> Result<Running> {
        let load = match self {
            Self::Users(users) => format!("-u {users}"),
            Self::NewConnections(users) => format!("-u {users} --no-keepalive"),
            Self::Pool(rate_per_s, connections) => format!("-R {rate_per_s} -c {connections}"),
            Self::OnDemand(rate_per_s) => format!("-R {rate_per_s}"),
        };
        let words = format!(
            "{load} -d {SECONDS}s --timeout 30s --drain 2s --threads 1 --cpus {} -q",
            cores.generator
        );
        Proofload::http(&target.url(), &words)?.start()
    }
}

/// Stops a generator in bursts until its trial is over. Returns the share of the time for which it was stopped (0 to 1).
pub(in crate::bars) fn stopped(running: &mut Running, bursts: Bursts, end: Duration) -> f64 {
    let began = Instant::now();
    let mut total = Duration::ZERO;
    for [pause, burst] in bursts {
        std::thread::sleep(pause.min(end.saturating_sub(began.elapsed())));
        if began.elapsed() >= end {
            break;
        }
        let from = Instant::now();
        stop_for(&mut running.process, burst);
        total += from.elapsed();
    }
    total.as_secs_f64() / began.elapsed().as_secs_f64()
}

/// Throttles a generator until its trial is over. Returns the share of the time for which it was throttled (0 to 1).
fn throttled(running: &Running, times: [Duration; 2], quota: &mut Option<Quota>) -> Result<f64> {
    let duration = Duration::from_secs(SECONDS);
    std::thread::sleep(STARTING);
    let quota = quota.insert(Quota::of(running.process.pid(), times)?);
    std::thread::sleep(duration - STARTING);
    let share = quota.throttled()?.as_secs_f64() / duration.as_secs_f64();
    quota.lift()?;
    Ok(share)
}

/// The result of a case.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) trial: Trial,
    /// The target's log.
    pub(super) served: Vec<Served>,
    /// The share of the time for which something was disturbed (0 to 1), the larger of two figures: first, the disturbance of the generator
    /// or the target, plus the time for which a witness of real-time priority had no processor; second, the time for which the generator
    /// waited for its processor.
    pub(super) disturbed: f64,
}

impl Ran {
    /// The trial's absences and counts in words.
    pub(super) fn shown(&self) -> String {
        let Trial { elapsed_s, .. } = self.trial;
        let (away, counts) = (&self.trial.away, &self.trial.counts);
        format!(
            "{} answers in {elapsed_s:.2} s, away {} times for {:.0} ms, at most {:.1} ms, {} connections opened",
            counts.completed,
            away.times,
            away.total_s * 1e3,
            away.longest_s * 1e3,
            counts.connections_opened
        )
    }
}

/// The time that a user's undisturbed cycle takes in addition to the target's time: with a kept connection, and with a new one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cycle {
    kept: Duration,
    new: Duration,
}

impl Cycle {
    /// The minimum of five undisturbed trials, because other disturbances only lengthen a cycle.
    pub(super) fn measured(cores: Cores) -> Result<Self> {
        let of = |load: Load, users: u64| -> Result<Duration> {
            let mut least_s = f64::INFINITY;
            for _ in 0..5 {
                let target = WitnessedTarget::start(Duration::from_millis(8), cores.server)?;
                let output = load.start(&target, cores)?.finish()?;
                let served = target.stop()?;
                let mean_ns = |end: usize| {
                    served.iter().map(|served| served.times_ns()[end]).sum::<u64>() as f64
                        / served.len() as f64
                };
                let cycle_s = users as f64 / output.trial()?.throughput_per_s;
                least_s = (cycle_s - mean_ns(0) / 1e9).min(least_s);
            }
            Ok(Duration::from_secs_f64(least_s.max(0.0)))
        };
        Ok(Self { kept: of(Load::Users(16), 16)?, new: of(Load::NewConnections(8), 8)? })
    }

    /// Why the cycle says nothing about the throughput, if so.
    pub(super) fn fault(self) -> Option<String> {
        (self.kept.max(self.new) > MAX_CYCLE).then(|| format!("something else took {self} of each cycle"))
    }

    /// The cycle of a case's users. Time beyond that of an undisturbed machine counts as a disturbance, so it is left out.
    pub(super) fn of(self, case: &Case) -> Duration {
        let measured = match case.load {
            Load::NewConnections(_) => self.new,
            Load::Users(_) | Load::Pool(..) | Load::OnDemand(_) => self.kept,
        };
        measured.min(MAX_CYCLE)
    }
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0} us, with a new connection {:.0} us",
            self.kept.as_secs_f64() * 1e6,
            self.new.as_secs_f64() * 1e6
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_repeat_and_have_every_disturbance_with_every_load() {
        assert_eq!(Case::drawn(7).to_string(), Case::drawn(7).to_string());
        let all: std::collections::BTreeSet<(u64, u64)> = (0..DISTURBANCES * LOADS)
            .map(|seed| {
                let case = Case::drawn(seed);
                let disturbance = match case.disturbance {
                    Disturbance::HogOfGenerator(_) => 0,
                    Disturbance::HogOfTarget(_) => 1,
                    Disturbance::Hogs(_) => 2,
                    Disturbance::Stops(_) => 3,
                    Disturbance::Quota(_) => 4,
                };
                let load = match case.load {
                    Load::Users(_) => 0,
                    Load::NewConnections(_) => 1,
                    Load::Pool(..) => 2,
                    Load::OnDemand(_) => 3,
                };
                (disturbance, load)
            })
            .collect();
        assert_eq!(all.len() as u64, DISTURBANCES * LOADS);
    }
}
