//! The bounds of a goal whose trials are random samples.
//!
//! Near the limit of a noisy target, the probability of a bad trial rises with the load. It is estimated as a
//! psychometric function: logistic curves over the logarithm of the load, one for each pair of a median and a spread,
//! weighted by their likelihood given the trials. The next trial is at the load that is expected to bring the bounds
//! nearest to each other (L. L. Kontsevich, C. W. Tyler, "Bayesian adaptive estimation of psychometric slope and
//! threshold", Vision Research 39, 1999).
//!
//! The lower bound is a load at which almost certainly less than one trial in ten is bad, the upper bound a load at
//! which almost certainly at least half are bad. The confidence follows from the number of trials that the goal needs
//! at a load: `n` trials that agree exclude a fair coin with the confidence 1 − 2⁻ⁿ.

use record::GoalOutcome;

use crate::{
    classification::Requirement,
    curve::{Curve, normalize_weights},
    goal::BoundRule,
    trials::{Bounds, Trials},
};

/// Largest share of bad trials at a lower bound. At an upper bound, at least half of the trials are bad.
const MAX_BAD_SHARE_AT_LOWER: f64 = 0.1;
/// Smallest spread of the curves, relative to the goal's width.
const MIN_SPREAD_RATIO: f64 = 1.0 / 64.0;
/// Largest spread of the curves, in the logarithm of the load; the goal's width if that is more.
const MAX_SPREAD: f64 = 0.1;
/// Number of spreads of the curves.
const SPREADS: u32 = 12;
/// Largest number of medians of the curves.
const MAX_MEDIANS: f64 = 400.0;
/// Largest number of bins in which a bound is searched for.
const MAX_BINS: f64 = 1e5;
/// Distance from the smallest full-length trial down to the smallest median, in the logarithm of the load.
const MARGIN_BELOW: f64 = 0.35;
/// Distance from the largest full-length trial up to the largest median, in the logarithm of the load.
const MARGIN_ABOVE: f64 = 0.1;
/// Number of intervals between the bounds; their ends are candidates for the next trial.
const CANDIDATE_INTERVALS: i64 = 8;
/// Largest number of agreeing trials needed for the bound that the goal's exceed ratio does not concern.
const MAX_REPEATS_OTHER_BOUND: f64 = 4.0;
/// Distance added if a bound is estimated but not measured, in the logarithm of the load.
const UNMEASURED_PENALTY: f64 = 0.1;
/// Weight of the distance between the measured bounds, relative to that between the estimated ones.
const MEASURED_WEIGHT: f64 = 0.3;
/// The search ends when full-length trials have taken this many times the goal's duration sum.
const MAX_EFFORT: f64 = 3.5;
/// Curves with a smaller weight than this are dropped; the largest weight is 1.
const MIN_WEIGHT: f64 = 1e-7;

/// The estimate for one goal.
pub(crate) struct Threshold<'a> {
    trials: &'a Trials,
    rule: &'a BoundRule,
    curves: Vec<Curve>,
    /// Logarithm of the load at which the bins begin.
    bins_start: f64,
    /// Width of a bin, in the logarithm of the load.
    bin_width: f64,
    /// Allowed probabilities that the lower bound and the upper bound are wrong.
    error_probability: (f64, f64),
}

impl<'a> Threshold<'a> {
    /// The estimate from the full-length trials; `None` if there are no such trials.
    pub(crate) fn of(trials: &'a Trials, rule: &'a BoundRule) -> Option<Self> {
        let goal = &rule.goal;
        let measured: Vec<(f64, bool)> = trials
            .full_length(rule)
            .map(|(position, is_bad)| (trials.grid.load(position).ln(), is_bad))
            .collect();
        let ends = (measured.first()?.0, measured.last()?.0);
        let lowest_median = ends.0 - MARGIN_BELOW;
        let range = ends.1 + MARGIN_ABOVE - lowest_median;
        let width = -(-goal.width).ln_1p();
        let step = (width / 8.0).max(range / MAX_MEDIANS);
        let (min_spread, max_spread) = (width * MIN_SPREAD_RATIO, MAX_SPREAD.max(width));
        let repeats = goal.duration_sum_s / goal.final_trial_duration_s;
        let error_probability = |repeats: f64| (-repeats).exp2();
        let (strict, relaxed) =
            (error_probability(repeats), error_probability(repeats.min(MAX_REPEATS_OTHER_BOUND)));
        let mut threshold = Self {
            trials,
            rule,
            curves: Vec::new(),
            bins_start: lowest_median - 3.0 * MAX_SPREAD,
            bin_width: (width / 16.0).max(range / MAX_BINS),
            error_probability: if goal.exceed_ratio < 0.5 { (strict, relaxed) } else { (relaxed, strict) },
        };
        let medians = (range / step) as u32;
        for median in (0..=medians).map(|index| lowest_median + f64::from(index) * step) {
            for index in 0..SPREADS {
                let ratio: f64 = max_spread / min_spread;
                let spread = min_spread * ratio.powf(f64::from(index) / f64::from(SPREADS - 1));
                let mut curve = Curve { median, spread, weight: 0.0 };
                curve.weight = curve.log_likelihood(measured.iter().copied());
                threshold.curves.push(curve);
            }
        }
        normalize_weights(&mut threshold.curves);
        threshold.curves.retain(|curve| curve.weight > MIN_WEIGHT);
        Some(threshold)
    }

    /// The largest load with only good trials at or below the estimated lower bound, and the smallest load with only bad
    /// trials at or above the estimated upper bound.
    pub(crate) fn bounds(&self) -> Bounds {
        let grid = &self.trials.grid;
        let (lower, upper) = self.estimated_bounds(|curve| curve.weight);
        let mut bounds = Bounds::default();
        for (position, is_bad) in self.trials.unanimous(self.rule.reading, self.rule.goal.loss_ratio) {
            let load = grid.load(position).ln();
            if !is_bad && load <= lower && self.is_available(position) {
                bounds.lower = Some(position);
            } else if is_bad && load >= upper && bounds.upper.is_none() {
                bounds.upper = Some(position);
            }
        }
        bounds
    }

    /// The position of the trial that is expected to bring the bounds nearest to each other. `None` if they are near
    /// enough or the effort is used up.
    pub(crate) fn next_position(&self) -> Option<i64> {
        let grid = &self.trials.grid;
        let bounds = self.bounds();
        let width = grid.width(self.rule.goal.width);
        // Shorter trials may give an upper bound above the generator's limit, which full-length trials cannot refine.
        let is_done = match (bounds.lower, bounds.upper.filter(|upper| self.is_available(*upper))) {
            (Some(lower), Some(upper)) => grid.is_narrow(lower, upper, width),
            // The generator's limit replaces the upper bound.
            (Some(lower), None) => {
                self.unavailable_from().is_some_and(|first| grid.is_narrow(lower, first, width))
            }
            _ => false,
        };
        let spent_s = self.trials.full_length_s(&self.rule.goal);
        if is_done || spent_s >= MAX_EFFORT * self.rule.goal.duration_sum_s * (1.0 - 1e-9) {
            return None;
        }
        if let Some(position) = self.halfway_to_unavailable() {
            return Some(position);
        }
        let known: Vec<(f64, bool)> = self
            .trials
            .unanimous(self.rule.reading, self.rule.goal.loss_ratio)
            .map(|(position, is_bad)| (grid.load(position).ln(), is_bad))
            .collect();
        let (lower, upper) = self.estimated_bounds(|curve| curve.weight);
        let largest = self.unavailable_from().map_or(grid.last(), |first| first - 1);
        let ends = (grid.at_most(lower.exp()).min(largest), grid.at_most(upper.exp()).min(largest));
        let mut candidates: Vec<i64> = (0..=CANDIDATE_INTERVALS)
            .map(|index| grid.snap(ends.0 + (ends.1 - ends.0) * index / CANDIDATE_INTERVALS))
            .filter(|position| *position <= largest)
            .collect();
        candidates.dedup();
        let expected = |position: i64| self.expected_width(grid.load(position).ln(), &known);
        let scored = candidates.into_iter().map(|position| (position, expected(position)));
        scored.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(position, _)| position)
    }

    /// The middle between the largest measured load and the smallest load that the generator cannot make, if all
    /// full-length trials are good and far below that load. The curves do not help there, because they reach only
    /// little beyond the measured loads.
    fn halfway_to_unavailable(&self) -> Option<i64> {
        let grid = &self.trials.grid;
        let unavailable = self.unavailable_from()?;
        let mut largest = None;
        for (position, is_bad) in self.trials.full_length(self.rule) {
            if is_bad {
                return None;
            }
            largest = Some(position);
        }
        let largest = largest?;
        if (grid.load(unavailable) / grid.load(largest)).ln() <= MARGIN_ABOVE {
            return None;
        }
        grid.snap_between(largest + (unavailable - largest) / 2, largest, unavailable)
    }

    fn is_available(&self, position: i64) -> bool {
        self.trials.is_available(position, self.rule.goal.final_trial_duration_s)
    }

    fn unavailable_from(&self) -> Option<i64> {
        self.trials.unavailable_from(self.rule.goal.final_trial_duration_s)
    }

    /// The expected distance of the bounds after one more trial at `load`, in the logarithm of the load. `known`: the
    /// loads at which all trials agree, and whether those trials are bad.
    fn expected_width(&self, load: f64, known: &[(f64, bool)]) -> f64 {
        let weight_sum: f64 = self.curves.iter().map(|curve| curve.weight).sum();
        let bad = self.curves.iter().map(|curve| curve.weight * curve.bad_probability(load)).sum::<f64>()
            / weight_sum;
        let width = |is_bad: bool| {
            let (lower, upper) = self.estimated_bounds(|curve| {
                let bad = curve.bad_probability(load);
                curve.weight * if is_bad { bad } else { 1.0 - bad }
            });
            let known = || known.iter().copied().chain([(load, is_bad)]);
            let good = known().filter(|(at, is_bad)| !is_bad && *at <= lower).map(|(at, _)| at);
            let bad = known().filter(|(at, is_bad)| *is_bad && *at >= upper).map(|(at, _)| at);
            let lower_at = good.fold(lower - UNMEASURED_PENALTY, f64::max);
            let upper_at = bad.fold(upper + UNMEASURED_PENALTY, f64::min);
            // The estimated bounds count most, because the next trials may confirm them.
            MEASURED_WEIGHT * (upper_at - lower_at) + (upper - lower)
        };
        bad * width(true) + (1.0 - bad) * width(false)
    }

    /// The logarithms of the estimated lower and upper bound with these weights of the curves.
    fn estimated_bounds(&self, weight: impl Fn(&Curve) -> f64) -> (f64, f64) {
        let lower_offset = (MAX_BAD_SHARE_AT_LOWER / (1.0 - MAX_BAD_SHARE_AT_LOWER)).ln();
        let mut lower: Vec<f64> = Vec::new();
        let mut upper: Vec<f64> = Vec::new();
        let mut weight_sum = 0.0;
        let add = |bins: &mut Vec<f64>, load: f64, weight: f64| {
            let bin = ((load - self.bins_start) / self.bin_width).max(0.0) as usize;
            if bins.len() <= bin {
                bins.resize(bin + 1, 0.0);
            }
            bins[bin] += weight;
        };
        for curve in &self.curves {
            let weight = weight(curve);
            weight_sum += weight;
            add(&mut lower, curve.median + lower_offset * curve.spread, weight);
            add(&mut upper, curve.median, weight);
        }
        let quantile = |bins: &[f64], share: f64| {
            let mut sum = 0.0;
            bins.iter().position(|weight| {
                sum += weight;
                sum >= share * weight_sum
            })
        };
        let lower = quantile(&lower, self.error_probability.0).unwrap_or(0);
        let upper = quantile(&upper, 1.0 - self.error_probability.1).unwrap_or(upper.len());
        (
            self.bins_start + lower as f64 * self.bin_width,
            self.bins_start + (upper + 1) as f64 * self.bin_width,
        )
    }
}

/// Like [`Trials::outcome`], for trials that may be random samples. Their [`Threshold`] gives the bounds, or only the
/// missing ones if a search that expects no noise ends early.
pub(crate) fn noisy_outcome(trials: &Trials, rule: &BoundRule, complete: bool) -> GoalOutcome {
    let mut bounds = trials.relevant_bounds(rule.reading, &Requirement::from(&rule.goal));
    if let Some(threshold) = Threshold::of(trials, rule) {
        if trials.uses_threshold(rule) {
            bounds = threshold.bounds();
        } else if !complete && (bounds.lower.is_none() || bounds.upper.is_none()) {
            let estimated = threshold.bounds();
            let Bounds { lower, upper } = bounds;
            let below = |position: &i64| upper.is_none_or(|upper| *position < upper);
            let above = |position: &i64| lower.is_none_or(|lower| lower < *position);
            bounds.lower = lower.or(estimated.lower.filter(below));
            bounds.upper = upper.or(estimated.upper.filter(above));
        }
    }
    trials.outcome_with(bounds, rule, complete)
}
