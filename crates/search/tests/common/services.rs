//! Simulates services whose behaviour changes with the clock, request by request in virtual time, and their true
//! limits.
//!
//! This file does not depend on the search, so that the search's rules cannot influence the true limits.

use std::fmt;

use super::{splitmix, uniform};

/// The bound of a goal on response times, in seconds.
pub(crate) const BOUND_S: f64 = 0.05;
/// Longest wait for answers after a trial, in seconds: the default of `--drain`.
const DRAIN_S: f64 = 2.0;
/// Longest wait for an answer, in seconds: the default of `--timeout`.
const TIMEOUT_S: f64 = 30.0;
/// The range of loads in which the true limit is searched for.
pub(crate) const LOADS: (f64, f64) = (10.0, 2_000.0);
/// Number of periods over which a load must meet the goal.
const PERIODS: f64 = 10.0;

/// The goals of `proofload limit rate` with `--p99 50ms`, and with its defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    P99,
    Errors,
}

impl Goal {
    pub(crate) fn allowed(self) -> f64 {
        if self == Self::P99 { 0.01 } else { 0.0 }
    }
}

/// How a service changes with the clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Change {
    /// Serves requests one after the other, and stands still at the beginning of each period.
    Pauses { period_s: f64, pause_s: f64 },
    /// The capacity falls to the share `to` within each period, and then returns to its full value.
    Tires { period_s: f64, to: f64 },
    /// The capacity falls to the share `to` within this time, permanently.
    Degrades { within_s: f64, to: f64 },
    /// The capacity begins at the share `from` and reaches its full value after this time, at once or steadily.
    Warms { until_s: f64, from: f64, at_once: bool },
    /// Accepts a limited number of requests in each window of the clock, and refuses the others.
    Window { period_s: f64 },
    /// Stores permits for this time at full rate, and refuses requests without a permit.
    Bucket { store_s: f64 },
    /// Does not change; serves requests one after the other.
    Sound,
    /// Does not change; refuses a request that arrives earlier after the previous one than its capacity allows.
    SoundRefusing,
}

/// A service, and the goal of its search.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Service {
    pub(crate) capacity: f64,
    pub(crate) change: Change,
    pub(crate) goal: Goal,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:.0}/s {:.2?}", self.goal, self.capacity, self.change)
    }
}

/// The figures of one second of a trial, or of a tenth of a second if the trial is shorter than 4 s.
#[derive(Debug, Clone, Default)]
pub(crate) struct Second {
    pub(crate) sent: f64,
    pub(crate) completed: f64,
    pub(crate) failed: f64,
    /// Response times of the requests that were completed in it, in seconds, in ascending order.
    pub(crate) times_s: Vec<f64>,
}

impl Second {
    /// A percentile of the response times, in seconds.
    pub(crate) fn percentile_s(&self, share: f64) -> Option<f64> {
        self.times_s.get(((self.times_s.len() as f64 * share).ceil() as usize).saturating_sub(1)).copied()
    }
}

/// The result of a trial.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    /// The share of requests that was lost to the goal; 1 if response times grew steadily.
    pub(crate) loss_ratio: f64,
    pub(crate) grows: bool,
    pub(crate) seconds: Vec<Second>,
    /// Time for which the service continued to work on requests after the trial, in seconds. The next trial waits for
    /// it.
    pub(crate) drained_s: f64,
}

/// A running service. Its clock starts with it.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    service: Service,
    permits: f64,
    permits_at_s: f64,
    window: (f64, f64),
    free_s: f64,
}

impl Service {
    pub(crate) fn family(&self) -> &'static str {
        match (self.change, self.goal) {
            (Change::Pauses { .. }, Goal::P99) => "pauses, p99",
            (Change::Pauses { .. }, Goal::Errors) => "pauses, errors",
            (Change::Tires { .. } | Change::Degrades { .. }, _) => "degrades",
            (Change::Warms { .. }, _) => "warms up",
            (Change::Window { .. }, _) => "window",
            (Change::Bucket { .. }, _) => "bucket",
            (Change::Sound | Change::SoundRefusing, _) => "sound",
        }
    }

    /// Time after which the service's behaviour has been seen completely, in seconds.
    pub(crate) fn period_s(&self) -> f64 {
        match self.change {
            Change::Pauses { period_s, .. }
            | Change::Tires { period_s, .. }
            | Change::Window { period_s } => period_s,
            Change::Degrades { within_s, .. } => within_s,
            Change::Warms { until_s, .. } => until_s,
            Change::Bucket { store_s } => store_s,
            Change::Sound | Change::SoundRefusing => 1.0,
        }
    }

    /// Requests that the service can complete per second at this time.
    fn speed(&self, at_s: f64) -> f64 {
        self.capacity
            * match self.change {
                Change::Tires { period_s, to } => 1.0 - (1.0 - to) * at_s.rem_euclid(period_s) / period_s,
                Change::Degrades { within_s, to } => 1.0 - (1.0 - to) * (at_s / within_s).min(1.0),
                Change::Warms { until_s, from, .. } if at_s < until_s * 1e-3 => from,
                Change::Warms { until_s, from, at_once: true } if at_s < until_s => from,
                Change::Warms { until_s, from, at_once: false } => {
                    from + (1.0 - from) * (at_s / until_s).min(1.0)
                }
                _ => 1.0,
            }
    }

    /// The mean capacity of a queue in the long run, per second. At a larger load, the queue grows without limit.
    fn mean_capacity(&self) -> f64 {
        self.capacity
            * match self.change {
                Change::Pauses { period_s, pause_s } => 1.0 - pause_s / period_s,
                Change::Tires { to, .. } => (1.0 + to) / 2.0,
                Change::Degrades { to, .. } => to,
                Change::Window { .. } | Change::Bucket { .. } => f64::INFINITY,
                _ => 1.0,
            }
    }

    /// The true limit, as two loads. All loads below the first one meet the goal over ten periods, from the worst start
    /// of four; the second one is the largest load that meets it from the best start. 0 if no load meets the goal.
    /// Services that warm up or degrade permanently have already done so.
    pub(crate) fn truth(&self) -> (f64, f64) {
        let settled_s = match self.change {
            Change::Degrades { within_s, .. } => within_s,
            Change::Warms { until_s, .. } => until_s,
            _ => 0.0,
        };
        let length_s = match self.change {
            Change::Degrades { .. } | Change::Warms { .. } => 20.0,
            _ => (PERIODS * self.period_s()).max(5.0),
        };
        let of_phase = |phase: f64| {
            let begin_s = settled_s + phase * self.period_s();
            let meets = |load: f64| {
                let mut running = Running::new(*self);
                running.free_s = begin_s;
                (running.permits, running.permits_at_s) = (self.capacity * self.period_s() * phase, begin_s);
                let requests = (length_s * load) as u64;
                let lost = (1..=requests).filter(|number| {
                    let response_s = running.serve(begin_s + *number as f64 / load, 1.0);
                    let longest_s = if self.goal == Goal::P99 { BOUND_S } else { TIMEOUT_S };
                    response_s.is_none_or(|time_s| time_s > longest_s)
                });
                lost.count() as f64 <= self.goal.allowed() * requests as f64 && load <= self.mean_capacity()
            };
            // Requests at a constant rate are in step with a period at some loads only, so all loads are tried.
            let above = |load: f64| std::iter::successors(Some(load), |load| Some(load * 1.01));
            let first_missed = above(LOADS.0).find(|load| !meets(*load)).unwrap_or(f64::INFINITY);
            let below = std::iter::successors(Some(self.capacity * 1.3), |load| Some(load / 1.01));
            let last_met = below.take_while(|load| *load >= LOADS.0).find(|load| meets(*load));
            (
                if first_missed > LOADS.0 { first_missed / 1.01 } else { 0.0 },
                last_met.map_or(0.0, |load| load * 1.01),
            )
        };
        let of_phases = [0.02, 0.37, 0.71, 1.0].map(of_phase);
        (
            of_phases.iter().fold(f64::INFINITY, |least, (worst, _)| least.min(*worst)),
            of_phases.iter().fold(0.0, |most, (_, best)| most.max(*best)),
        )
    }
}

impl Running {
    pub(crate) fn new(service: Service) -> Self {
        let permits = service.capacity * service.period_s();
        Self { service, permits, permits_at_s: 0.0, window: (-1.0, 0.0), free_s: 0.0 }
    }

    /// The response time of a request that needs `work`, in seconds; `None` if it is refused.
    fn serve(&mut self, at_s: f64, work: f64) -> Option<f64> {
        let Service { capacity, change, .. } = self.service;
        match change {
            Change::Window { period_s } => {
                let window = (at_s / period_s).floor();
                if self.window.0 != window {
                    self.window = (window, 0.0);
                }
                self.window.1 += 1.0;
                return (self.window.1 <= (capacity * period_s).floor().max(1.0)).then_some(0.001);
            }
            Change::Bucket { store_s } => {
                let gained = (at_s - self.permits_at_s) * capacity;
                (self.permits, self.permits_at_s) =
                    ((self.permits + gained).min((store_s * capacity).max(1.0)), at_s);
                let has_permit = self.permits >= 1.0 - 1e-6;
                self.permits -= f64::from(has_permit);
                return has_permit.then_some(0.001);
            }
            Change::SoundRefusing if self.free_s > at_s + 1e-9 => return None,
            _ => {}
        }
        let mut begin_s = self.free_s.max(at_s);
        if let Change::Pauses { period_s, pause_s } = change {
            begin_s += (pause_s - begin_s.rem_euclid(period_s)).max(0.0);
        }
        self.free_s = begin_s + work / self.service.speed(begin_s);
        if matches!(change, Change::SoundRefusing) { Some(0.001) } else { Some(self.free_s - at_s) }
    }

    /// A trial of an open load as the generator would record it: it waits for answers, and the work of the previous
    /// trial is complete. With `draws`, arrivals and work are random.
    pub(crate) fn trial(
        &mut self,
        from_s: f64,
        load: f64,
        duration_s: f64,
        draws: &mut Option<u64>,
    ) -> Measured {
        let seconds = if duration_s < 4.0 { duration_s * 10.0 } else { duration_s };
        let width_s = if duration_s < 4.0 { 0.1 } else { 1.0 };
        let mut parts = vec![Second::default(); seconds.round().max(1.0) as usize];
        let (mut sent, mut lost, mut drained_s) = (0.0, 0.0, 0.0_f64);
        let mut due_s = 0.0;
        self.free_s = from_s;
        let mut draw = || {
            draws.as_mut().map_or(1.0, |state| {
                *state = splitmix(*state);
                -(1.0 - uniform(*state)).ln()
            })
        };
        loop {
            due_s += draw() / load;
            if due_s >= duration_s {
                break;
            }
            sent += 1.0;
            let last = parts.len() - 1;
            parts[((due_s / width_s) as usize).min(last)].sent += 1.0;
            let response_s = self.serve(from_s + due_s, draw());
            let answered_s =
                response_s.filter(|time_s| *time_s <= TIMEOUT_S && due_s + time_s <= duration_s + DRAIN_S);
            let is_late = self.service.goal == Goal::P99 && response_s.is_some_and(|time_s| time_s > BOUND_S);
            lost += f64::from(answered_s.is_none() || is_late);
            drained_s = drained_s.max(response_s.map_or(0.0, |time_s| due_s + time_s - duration_s));
            let ended_s = due_s + answered_s.unwrap_or(if response_s.is_some() { TIMEOUT_S } else { 0.0 });
            if let Some(part) = parts.get_mut((ended_s / width_s) as usize) {
                part.completed += f64::from(answered_s.is_some());
                part.failed += f64::from(answered_s.is_none());
                part.times_s.extend(answered_s);
            }
        }
        parts.iter_mut().for_each(|part| part.times_s.sort_by(f64::total_cmp));
        // Growth does not decide exploratory trials.
        let grows = duration_s >= 4.0 && grows(&parts, duration_s, self.service.goal);
        Measured {
            loss_ratio: if grows { 1.0 } else { lost / f64::max(sent, 1.0) },
            grows,
            seconds: parts,
            drained_s,
        }
    }
}

/// The rule of `docs/limit.md` against growing backlogs.
fn grows(seconds: &[Second], duration_s: f64, goal: Goal) -> bool {
    let medians: Vec<(f64, f64)> = (1..)
        .zip(seconds)
        .filter_map(|(number, second)| Some((f64::from(number), second.percentile_s(0.5)?)))
        .collect();
    let mut slopes = Vec::new();
    let mut concordant = 0_i64;
    for (index, (earlier_s, earlier)) in medians.iter().enumerate() {
        for (later_s, later) in &medians[index + 1..] {
            slopes.push((later - earlier) / (later_s - earlier_s));
            let difference = later - earlier;
            concordant += i64::from(difference > 1e-9) - i64::from(difference < -1e-9);
        }
    }
    slopes.sort_by(f64::total_cmp);
    let bound_s = if goal == Goal::P99 { BOUND_S } else { DRAIN_S };
    let Some(slope) = slopes.get(slopes.len() / 2).filter(|_| medians.len() >= 4) else { return false };
    let last = medians.last().map_or(0.0, |(_, last)| *last);
    concordant as f64 >= 0.8 * slopes.len() as f64 && last + slope * (10.0 * duration_s).max(50.0) > bound_s
}

/// Random services for a seed, in the ranges for which the search must be right.
pub(crate) fn drawn(seed: u64) -> Vec<Service> {
    let mut state = seed;
    let mut uniform = || {
        state = splitmix(state);
        uniform(state)
    };
    let mut services = Vec::new();
    let families = [
        ("pauses, p99", 16),
        ("pauses, errors", 8),
        ("window", 12),
        ("bucket", 10),
        ("warms", 7),
        ("degrades", 7),
    ];
    for (family, count) in families {
        for number in 0..count {
            let mut log = |low: f64, high: f64| low * (high / low).powf(uniform());
            let capacity = log(30.0, 400.0);
            let period_s = log(1.0, 30.0);
            let goal = if number % 2 == 0 { Goal::P99 } else { Goal::Errors };
            let (goal, change) = match family {
                "window" => (Goal::Errors, Change::Window { period_s }),
                "bucket" => (Goal::Errors, Change::Bucket { store_s: log(0.1, 10.0) }),
                "warms" => {
                    let from = log(0.01, 0.2);
                    (goal, Change::Warms { until_s: period_s, from, at_once: number % 3 != 0 })
                }
                "degrades" if number % 3 == 0 => {
                    (goal, Change::Degrades { within_s: 2.0 * period_s, to: log(0.3, 0.8) })
                }
                "degrades" => (Goal::P99, Change::Tires { period_s, to: log(0.3, 0.8) }),
                _ => {
                    let pause_s = log(0.05, (period_s / 2.0).min(5.0));
                    let goal = if family == "pauses, p99" { Goal::P99 } else { Goal::Errors };
                    (goal, Change::Pauses { period_s, pause_s })
                }
            };
            services.push(Service { capacity, change, goal });
        }
    }
    services
}
