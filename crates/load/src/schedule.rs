//! When the requests of an open load are due: pure arithmetic on the plan, no clock.
//!
//! The schedule is one for the whole trial. A worker takes a share of it (its turns of a constant schedule, its
//! share of the rate of a Poisson process), so the sum over workers is the plan whatever their number. Times come
//! from the closed form, so that no rounding accumulates.

use rand::SeedableRng;
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64Mcg;
use record::{Arrivals, Stage};

use crate::share::Turns;

/// The arrivals of one worker, in order.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    curve: RateCurve,
    position: Position,
    next_ns: Option<u64>,
    issued: u64,
    most: u64,
    planned: Option<u64>,
    ends_ns: Option<u64>,
}

/// What ends a schedule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// So many arrivals in the whole trial.
    pub requests: Option<u64>,
    /// The end of its stages. A Poisson process that is not bounded by them goes on at the last rate until it has its
    /// requests: how long that takes is chance.
    pub timed: bool,
}

#[derive(Debug, Clone)]
enum Position {
    /// The cycle that the next arrival is in, by its first index, and which of the worker's own in it.
    Constant {
        turns: Turns,
        cycle: u64,
        number: u64,
    },
    Poisson(Poisson),
}

/// One worker's part of a Poisson process.
#[derive(Debug, Clone)]
struct Poisson {
    /// Expected arrivals of this worker up to the next one.
    expected: f64,
    /// Of how many in the whole trial one is this worker's.
    stretch: f64,
    rng: Box<Pcg64Mcg>,
}

impl Schedule {
    /// A worker's share of a schedule.
    pub(crate) fn new(arrivals: Arrivals, stages: &[Stage], bounds: Bounds, seed: u64, turns: Turns) -> Self {
        let goes_on = arrivals == Arrivals::Poisson && !bounds.timed && bounds.requests.is_some();
        let curve = RateCurve::new(stages, goes_on);
        let (position, most, planned, ends_ns) = match arrivals {
            Arrivals::Constant => {
                let all = bounds.requests.unwrap_or(u64::MAX).min(curve.arrivals());
                let own = turns.among(all);
                let last_ns = all.checked_sub(1).map_or(0, |last| curve.time_ns(last as f64));
                (Position::Constant { turns, cycle: 0, number: 0 }, own, Some(own), Some(last_ns))
            }
            Arrivals::Poisson => {
                let own = match bounds.requests {
                    // Without a connection there is no rate to draw from.
                    _ if turns.own() == 0 => 0,
                    Some(n) => turns.part_of(n),
                    None => u64::MAX,
                };
                let drawn = bounds.requests.filter(|n| *n <= MOST_DRAWN);
                let last_ns = drawn.and_then(|n| last_of_poisson(&curve, n, seed, turns));
                let process = Poisson::new(seed, turns);
                (Position::Poisson(process), own, goes_on.then_some(own), last_ns)
            }
        };
        let mut schedule = Self { curve, position, next_ns: None, issued: 0, most, planned, ends_ns };
        schedule.find_next();
        schedule
    }

    /// When the next request is due, in nanoseconds after the start; `None` when there are no more.
    #[inline]
    pub(crate) fn peek_ns(&self) -> Option<u64> {
        self.next_ns
    }

    /// Takes the next arrival.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<u64> {
        let due = self.next_ns?;
        self.issued += 1;
        self.find_next();
        Some(due)
    }

    /// How many arrivals were taken.
    pub(crate) fn issued(&self) -> u64 {
        self.issued
    }

    /// How many arrivals this worker's share has in all, where that is known beforehand.
    pub(crate) fn planned(&self) -> Option<u64> {
        self.planned
    }

    /// When the last request of all workers is due, in nanoseconds after the start; `None` where only the end of the
    /// stages ends the schedule.
    pub(crate) fn ends_ns(&self) -> Option<u64> {
        self.ends_ns
    }

    fn find_next(&mut self) {
        if self.issued >= self.most {
            self.next_ns = None;
            return;
        }
        self.next_ns = match &mut self.position {
            Position::Constant { turns, cycle, number } => {
                let index = *cycle + turns.place(*number);
                *number += 1;
                if *number == turns.own() {
                    (*cycle, *number) = (*cycle + turns.cycle(), 0);
                }
                Some(self.curve.time_ns(index as f64))
            }
            Position::Poisson(process) => {
                let whole = process.next();
                (whole < self.curve.total).then(|| self.curve.time_ns(whole))
            }
        };
    }
}

impl Poisson {
    fn new(seed: u64, turns: Turns) -> Self {
        // Every worker draws from a stream of its own, the same in every run.
        let stream = seed.wrapping_add(turns.worker().wrapping_mul(0x9e37_79b9));
        Self {
            expected: 0.0,
            stretch: turns.cycle() as f64 / turns.own() as f64,
            rng: Box::new(Pcg64Mcg::seed_from_u64(stream)),
        }
    }

    /// Expected arrivals of the whole trial up to the next of this worker's.
    #[inline]
    fn next(&mut self) -> f64 {
        let gap: f64 = Exp1.sample(&mut self.rng);
        self.expected += gap;
        // A rate divided by n is a curve stretched by n.
        self.expected * self.stretch
    }
}

/// Of more requests the end is not drawn beforehand, which would take seconds: each worker ends with its own last one.
const MOST_DRAWN: u64 = 10_000_000;

/// When the last of `n` requests of a Poisson process is due, in nanoseconds after the start; `None` if the stages end
/// before. The streams of the other workers are drawn for it as they will draw them: all know the same end.
fn last_of_poisson(curve: &RateCurve, n: u64, seed: u64, turns: Turns) -> Option<u64> {
    let mut last = 0.0f64;
    for turns in (0..turns.workers()).map(|index| turns.of_worker(index)).filter(|turns| turns.own() > 0) {
        let mut process = Poisson::new(seed, turns);
        for _ in 0..turns.part_of(n) {
            let whole = process.next();
            if whole >= curve.total {
                return None;
            }
            last = last.max(whole);
        }
    }
    Some(curve.time_ns(last))
}

/// A rate that changes piecewise linearly, its integral and the inverse of that.
#[derive(Debug, Clone)]
struct RateCurve {
    pieces: Vec<Piece>,
    /// Expected arrivals in all.
    total: f64,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    starts_s: f64,
    duration_s: f64,
    /// Expected arrivals before it.
    before: f64,
    from_per_s: f64,
    to_per_s: f64,
}

impl RateCurve {
    /// The curve of some stages; one that goes on keeps the last rate for ever.
    fn new(stages: &[Stage], goes_on: bool) -> Self {
        let mut pieces = Vec::with_capacity(stages.len() + 1);
        let (mut starts_s, mut before) = (0.0, 0.0);
        for stage in stages {
            let duration_s = stage.duration_ns as f64 / 1e9;
            let (from_per_s, to_per_s) = (stage.from_rate_per_s, stage.to_rate_per_s);
            pieces.push(Piece { starts_s, duration_s, before, from_per_s, to_per_s });
            starts_s += duration_s;
            before += (from_per_s + to_per_s) / 2.0 * duration_s;
        }
        if let (true, Some(last)) = (goes_on, stages.last()) {
            let rate_per_s = last.to_rate_per_s;
            let duration_s = f64::INFINITY;
            pieces.push(Piece { starts_s, duration_s, before, from_per_s: rate_per_s, to_per_s: rate_per_s });
            before = f64::INFINITY;
        }
        Self { pieces, total: before }
    }

    /// Arrivals of a constant schedule: one at the start and one after each whole expected arrival.
    fn arrivals(&self) -> u64 {
        // 0.1 × 3 is a little more than 0.3: a hair's breadth must not make another arrival.
        (self.total * (1.0 - 1e-12)).ceil() as u64
    }

    /// When `expected` arrivals are expected to have come. In a stage of slope a that starts at rate r,
    /// x = r·t + a·t²/2, solved for t in the form that does not cancel.
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
