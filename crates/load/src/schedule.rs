//! When the requests of an open load are due: pure arithmetic on the plan, no clock.
//!
//! The schedule is one for the whole trial. A worker takes a share of it (every n-th arrival of a
//! constant schedule, an n-th of the rate of a Poisson process), so the sum over workers is the plan
//! whatever their number. Times come from the closed form, so that no rounding accumulates.

use rand::SeedableRng;
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64Mcg;
use record::{Arrivals, Stage};

use crate::share::Share;

/// The arrivals of one worker, in order.
#[derive(Debug, Clone)]
pub struct Schedule {
    curve: RateCurve,
    position: Position,
    next_ns: Option<u64>,
    issued: u64,
    most: u64,
}

#[derive(Debug, Clone)]
enum Position {
    /// Index of the next arrival and the step to the one after.
    Constant { next: u64, step: u64 },
    /// Expected arrivals, on this worker, up to the next one.
    Poisson { expected: f64, shares: f64, rng: Box<Pcg64Mcg> },
}

impl Schedule {
    /// A worker's share of a schedule of at most `most` arrivals in the whole trial.
    pub fn new(arrivals: Arrivals, stages: &[Stage], most: Option<u64>, seed: u64, share: Share) -> Self {
        let position = match arrivals {
            Arrivals::Constant => Position::Constant { next: share.index, step: share.of },
            Arrivals::Poisson => Position::Poisson {
                expected: 0.0,
                shares: share.of as f64,
                // Every worker draws from a stream of its own, the same in every run.
                rng: Box::new(Pcg64Mcg::seed_from_u64(
                    seed.wrapping_add(share.index.wrapping_mul(0x9e37_79b9)),
                )),
            },
        };
        let most = most.map_or(u64::MAX, |n| share.part_of(n));
        let mut schedule = Self { curve: RateCurve::new(stages), position, next_ns: None, issued: 0, most };
        schedule.find_next();
        schedule
    }

    /// When the next request is due, in nanoseconds after the start; `None` when there are no more.
    #[inline]
    pub fn peek_ns(&self) -> Option<u64> {
        self.next_ns
    }

    /// Takes the next arrival.
    #[inline]
    pub fn take(&mut self) -> Option<u64> {
        let due = self.next_ns?;
        self.issued += 1;
        self.find_next();
        Some(due)
    }

    /// How many arrivals were taken.
    pub fn issued(&self) -> u64 {
        self.issued
    }

    /// How many arrivals this worker's share has in all, where that is known beforehand.
    pub fn planned(&self) -> Option<u64> {
        match self.position {
            Position::Constant { step, .. } => {
                let first = self.first_index();
                let arrivals = self.curve.arrivals();
                let own = if arrivals > first { (arrivals - first).div_ceil(step) } else { 0 };
                Some(own.min(self.most))
            }
            Position::Poisson { .. } => None,
        }
    }

    fn first_index(&self) -> u64 {
        match self.position {
            Position::Constant { next, step } => next % step,
            Position::Poisson { .. } => 0,
        }
    }

    fn find_next(&mut self) {
        if self.issued >= self.most {
            self.next_ns = None;
            return;
        }
        self.next_ns = match &mut self.position {
            Position::Constant { next, step } => {
                let at = (*next < self.curve.arrivals()).then(|| self.curve.time_ns(*next as f64));
                *next += *step;
                at
            }
            Position::Poisson { expected, shares, rng } => {
                let gap: f64 = Exp1.sample(rng);
                *expected += gap;
                // A rate divided by n is a curve stretched by n.
                let whole = *expected * *shares;
                (whole < self.curve.total).then(|| self.curve.time_ns(whole))
            }
        };
    }
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
    fn new(stages: &[Stage]) -> Self {
        let mut pieces = Vec::with_capacity(stages.len());
        let (mut starts_s, mut before) = (0.0, 0.0);
        for stage in stages {
            let duration_s = stage.duration_ns as f64 / 1e9;
            let (from_per_s, to_per_s) = (stage.from_rate_per_s, stage.to_rate_per_s);
            pieces.push(Piece { starts_s, duration_s, before, from_per_s, to_per_s });
            starts_s += duration_s;
            before += (from_per_s + to_per_s) / 2.0 * duration_s;
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stage(seconds: f64, from: f64, to: f64) -> Stage {
        Stage { duration_ns: (seconds * 1e9) as u64, from_rate_per_s: from, to_rate_per_s: to }
    }

    fn all(mut schedule: Schedule) -> Vec<u64> {
        std::iter::from_fn(|| schedule.take()).collect()
    }

    #[test]
    fn a_constant_rate_is_evenly_spaced_from_the_start() {
        let times =
            all(Schedule::new(Arrivals::Constant, &[stage(2.0, 1_000.0, 1_000.0)], None, 1, Share::WHOLE));
        assert_eq!(times.len(), 2_000);
        assert!(times.iter().enumerate().all(|(k, &t)| t == k as u64 * 1_000_000));
    }

    #[test]
    fn a_ramp_has_as_many_arrivals_as_its_area_and_gets_denser() {
        let times =
            all(Schedule::new(Arrivals::Constant, &[stage(10.0, 0.0, 1_000.0)], None, 1, Share::WHOLE));
        assert_eq!(times.len(), 5_000);
        // Λ(t) = 50·t²: a quarter of the arrivals come in the first half.
        let first_half = times.iter().filter(|&&t| t < 5_000_000_000).count();
        assert_eq!(first_half, 1_250);
    }

    #[test]
    fn steps_follow_each_other_without_a_gap() {
        let stages = [stage(1.0, 100.0, 100.0), stage(1.0, 0.0, 0.0), stage(1.0, 200.0, 200.0)];
        let times = all(Schedule::new(Arrivals::Constant, &stages, None, 1, Share::WHOLE));
        assert_eq!(times.len(), 300);
        assert_eq!(times[99], 990_000_000);
        assert_eq!(times[100], 2_000_000_000);
        assert_eq!(times[101], 2_005_000_000);
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        let mut schedule =
            Schedule::new(Arrivals::Poisson, &[stage(100.0, 1_000.0, 1_000.0)], None, 7, Share::WHOLE);
        let times = all(schedule.clone());
        assert!((times.len() as f64 - 100_000.0).abs() < 5.0 * 100_000f64.sqrt(), "{}", times.len());
        let mean = 1e6;
        let longer_than_mean = times.windows(2).filter(|w| (w[1] - w[0]) as f64 > mean).count();
        let share = longer_than_mean as f64 / times.len() as f64;
        assert!((share - (-1f64).exp()).abs() < 0.01, "{share}");
        schedule.take();
        assert_eq!(schedule.planned(), None);
    }

    #[test]
    fn a_limit_on_requests_is_shared_out() {
        let counts: Vec<_> = (0..3)
            .map(|index| {
                let share = Share { index, of: 3 };
                all(Schedule::new(Arrivals::Constant, &[stage(10.0, 100.0, 100.0)], Some(10), 1, share)).len()
            })
            .collect();
        assert_eq!(counts, [4, 3, 3]);
    }

    proptest! {
        #[test]
        fn shares_together_are_the_whole(rate in 1.0f64..5_000.0, to in 0.0f64..5_000.0, of in 1u64..7, seconds in 0.01f64..3.0) {
            let stages = [stage(seconds, rate, to), stage(seconds / 2.0, to, rate)];
            let whole = all(Schedule::new(Arrivals::Constant, &stages, None, 1, Share::WHOLE));
            let mut parts: Vec<u64> = Vec::new();
            for index in 0..of {
                let schedule = Schedule::new(Arrivals::Constant, &stages, None, 1, Share { index, of });
                let planned = schedule.planned();
                let part = all(schedule);
                prop_assert_eq!(planned, Some(part.len() as u64));
                parts.extend(part);
            }
            parts.sort_unstable();
            prop_assert_eq!(whole, parts);
        }

        #[test]
        fn arrivals_come_in_order_and_inside_the_stages(seed in 0u64..1_000, rate in 1.0f64..2_000.0) {
            let stages = [stage(0.5, rate, 0.0), stage(0.5, 0.0, rate)];
            for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
                let times = all(Schedule::new(arrivals, &stages, None, seed, Share::WHOLE));
                prop_assert!(times.windows(2).all(|w| w[0] <= w[1]));
                prop_assert!(times.iter().all(|&t| t <= 1_000_000_000));
            }
        }
    }
}
