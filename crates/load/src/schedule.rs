//! The schedule of an open load: when its requests are due. Pure arithmetic on the plan, without a clock.
//!
//! A trial has one schedule. Each worker takes its share: some arrivals of a constant schedule, or a part of the rate of a
//! Poisson process. The shares of all workers add up to the plan. Times come from a closed form, so that rounding errors do not
//! accumulate.

use rand::SeedableRng;
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64Mcg;
use record::{Arrivals, Stage};

use crate::share::ArrivalShare;

/// The arrivals of one worker, in order.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    curve: RateCurve,
    position: Position,
    next_ns: Option<u64>,
    issued: u64,
    max_arrivals: u64,
    planned: Option<u64>,
    end_ns: Option<u64>,
}

/// The limits that end a schedule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Number of arrivals in the whole trial.
    pub requests: Option<u64>,
    /// Whether the end of the stages ends the schedule. Otherwise a Poisson process continues at the last rate until it has
    /// produced its requests, which takes a random time.
    pub timed: bool,
}

#[derive(Debug, Clone)]
enum Position {
    Constant {
        share: ArrivalShare,
        /// Index of the first arrival of the current cycle.
        cycle_start: u64,
        /// Number of this worker's next arrival within the cycle.
        number: u64,
    },
    Poisson(Poisson),
}

/// One worker's share of a Poisson process.
#[derive(Debug, Clone)]
struct Poisson {
    /// Expected arrivals of this worker up to the next one.
    expected: f64,
    /// Ratio of all arrivals to this worker's arrivals.
    stretch: f64,
    rng: Box<Pcg64Mcg>,
}

impl Schedule {
    /// A worker's share of a schedule.
    pub(crate) fn new(
        arrivals: Arrivals,
        stages: &[Stage],
        bounds: Bounds,
        seed: u64,
        share: ArrivalShare,
    ) -> Self {
        let is_endless = arrivals == Arrivals::Poisson && !bounds.timed && bounds.requests.is_some();
        let curve = RateCurve::new(stages, is_endless);
        let count = count_of(arrivals, &curve, bounds, share);
        let (position, planned, end_ns) = match arrivals {
            Arrivals::Constant => {
                let last = constant_arrivals(&curve, bounds).checked_sub(1);
                let last_ns = last.map_or(0, |last| curve.time_ns(last as f64));
                (Position::Constant { share, cycle_start: 0, number: 0 }, count, Some(last_ns))
            }
            Arrivals::Poisson => {
                let drawn = bounds.requests.filter(|n| *n <= MAX_DRAWN);
                let last_ns = drawn.and_then(|n| last_of_poisson(&curve, n, seed, share));
                let process = Poisson::new(seed, share);
                (Position::Poisson(process), count.filter(|_| is_endless), last_ns)
            }
        };
        let max_arrivals = count.unwrap_or(u64::MAX);
        let mut schedule = Self { curve, position, next_ns: None, issued: 0, max_arrivals, planned, end_ns };
        schedule.find_next();
        schedule
    }

    /// Number of arrivals of each of the first `workers` workers of `share`, if they are known in advance.
    pub(crate) fn planned_of(
        arrivals: Arrivals,
        stages: &[Stage],
        bounds: Bounds,
        share: ArrivalShare,
        workers: u64,
    ) -> Option<Vec<u64>> {
        let curve = RateCurve::new(stages, false);
        (0..workers).map(|index| count_of(arrivals, &curve, bounds, share.of_worker(index))).collect()
    }

    /// When the next request is due, in nanoseconds after the start; `None` after the last.
    #[inline]
    pub(crate) fn peek_ns(&self) -> Option<u64> {
        self.next_ns
    }

    /// Takes the next arrival and returns its time.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<u64> {
        let due = self.next_ns?;
        self.issued += 1;
        self.find_next();
        Some(due)
    }

    /// Number of arrivals that were taken.
    pub(crate) fn issued(&self) -> u64 {
        self.issued
    }

    /// Total number of arrivals of this worker, if it is known in advance.
    pub(crate) fn planned(&self) -> Option<u64> {
        self.planned
    }

    /// When the last request of all workers is due, in nanoseconds after the start; `None` if only the end of the stages ends
    /// the schedule.
    pub(crate) fn end_ns(&self) -> Option<u64> {
        self.end_ns
    }

    fn find_next(&mut self) {
        if self.issued >= self.max_arrivals {
            self.next_ns = None;
            return;
        }
        self.next_ns = match &mut self.position {
            Position::Constant { share, cycle_start, number } => {
                let index = *cycle_start + share.position(*number);
                *number += 1;
                if *number == share.own() {
                    (*cycle_start, *number) = (*cycle_start + share.cycle(), 0);
                }
                Some(self.curve.time_ns(index as f64))
            }
            Position::Poisson(process) => {
                let expected = process.next();
                (expected < self.curve.total).then(|| self.curve.time_ns(expected))
            }
        };
    }
}

/// Number of arrivals of a constant schedule.
fn constant_arrivals(curve: &RateCurve, bounds: Bounds) -> u64 {
    bounds.requests.unwrap_or(u64::MAX).min(curve.arrivals())
}

/// Largest number of a worker's arrivals; `None` if only the stages end them.
fn count_of(arrivals: Arrivals, curve: &RateCurve, bounds: Bounds, share: ArrivalShare) -> Option<u64> {
    match arrivals {
        Arrivals::Constant => Some(share.count_of_first(constant_arrivals(curve, bounds))),
        // A worker without a connection has a rate of 0.
        Arrivals::Poisson if share.own() == 0 => Some(0),
        Arrivals::Poisson => bounds.requests.map(|n| share.part_of(n)),
    }
}

impl Poisson {
    fn new(seed: u64, share: ArrivalShare) -> Self {
        // Every worker has its own random stream, which is the same in every run.
        let stream = seed.wrapping_add(share.worker().wrapping_mul(0x9e37_79b9));
        Self {
            expected: 0.0,
            stretch: share.cycle() as f64 / share.own() as f64,
            rng: Box::new(Pcg64Mcg::seed_from_u64(stream)),
        }
    }

    /// Expected arrivals of the whole trial up to this worker's next arrival.
    #[inline]
    fn next(&mut self) -> f64 {
        let gap: f64 = Exp1.sample(&mut self.rng);
        self.expected += gap;
        // With 1/n of the rate, this worker expects one arrival per n expected arrivals of the trial.
        self.expected * self.stretch
    }
}

/// Maximum number of requests whose times are drawn in advance: more would take seconds. Above it, each worker ends with the
/// last request of its share.
const MAX_DRAWN: u64 = 10_000_000;

/// When the last of `n` requests of a Poisson process is due, in nanoseconds after the start; `None` if the stages end
/// before it. Every worker draws the random numbers of all workers, so that all know the same end.
fn last_of_poisson(curve: &RateCurve, n: u64, seed: u64, share: ArrivalShare) -> Option<u64> {
    let mut last = 0.0f64;
    for share in (0..share.workers()).map(|index| share.of_worker(index)).filter(|share| share.own() > 0) {
        let mut process = Poisson::new(seed, share);
        for _ in 0..share.part_of(n) {
            let expected = process.next();
            if expected >= curve.total {
                return None;
            }
            last = last.max(expected);
        }
    }
    Some(curve.time_ns(last))
}

/// A piecewise linear rate, with its integral and the inverse of the integral.
#[derive(Debug, Clone)]
struct RateCurve {
    pieces: Vec<Piece>,
    /// Expected number of arrivals of the whole curve.
    total: f64,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    starts_s: f64,
    duration_s: f64,
    /// Expected number of arrivals before this piece.
    before: f64,
    from_per_s: f64,
    to_per_s: f64,
}

impl RateCurve {
    /// The curve of `stages`. An endless curve keeps the last rate.
    fn new(stages: &[Stage], is_endless: bool) -> Self {
        let mut pieces = Vec::with_capacity(stages.len() + 1);
        let (mut starts_s, mut before) = (0.0, 0.0);
        for stage in stages {
            let duration_s = stage.duration_ns as f64 / 1e9;
            let (from_per_s, to_per_s) = (stage.from_rate_per_s, stage.to_rate_per_s);
            pieces.push(Piece { starts_s, duration_s, before, from_per_s, to_per_s });
            starts_s += duration_s;
            before += (from_per_s + to_per_s) / 2.0 * duration_s;
        }
        if let (true, Some(last)) = (is_endless, stages.last()) {
            let rate_per_s = last.to_rate_per_s;
            let duration_s = f64::INFINITY;
            pieces.push(Piece { starts_s, duration_s, before, from_per_s: rate_per_s, to_per_s: rate_per_s });
            before = f64::INFINITY;
        }
        Self { pieces, total: before }
    }

    /// Number of arrivals of a constant schedule: one at the start and one after each whole expected arrival.
    fn arrivals(&self) -> u64 {
        // The factor keeps rounding errors, such as 0.1 × 3 > 0.3, from adding an arrival.
        (self.total * (1.0 - 1e-12)).ceil() as u64
    }

    /// The time by which `expected` arrivals have come on average, in nanoseconds. A piece of slope a that starts at rate r
    /// has x = r·t + a·t²/2 arrivals; the formula for t avoids cancellation.
    fn time_ns(&self, expected: f64) -> u64 {
        let index = self.pieces.partition_point(|piece| piece.before <= expected).saturating_sub(1);
        let piece = &self.pieces[index];
        let x = (expected - piece.before).max(0.0);
        let slope = (piece.to_per_s - piece.from_per_s) / piece.duration_s;
        let root = (piece.from_per_s * piece.from_per_s + 2.0 * slope * x).max(0.0).sqrt();
        let divisor = piece.from_per_s + root;
        let within_s = if divisor > 0.0 { 2.0 * x / divisor } else { 0.0 };
        ((piece.starts_s + within_s.min(piece.duration_s)) * 1e9).round() as u64
    }
}

#[cfg(test)]
mod tests;
