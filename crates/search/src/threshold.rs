//! Where a goal's threshold lies when trials are draws.
//!
//! Near the limit of a noisy target a trial is a draw: bad with a probability that rises with the load. This is
//! the psychometric function of another field, and its method is taken: a logistic curve over the logarithm of
//! the load, all pairs of a median and a spread weighed by the trials so far, and the next trial where it is
//! expected to bring the bounds nearest (L. L. Kontsevich, C. W. Tyler, "Bayesian adaptive estimation of
//! psychometric slope and threshold", Vision Research 39, 1999).
//!
//! The lower bound is a load at which surely fewer than one trial in ten is bad, the upper one a load at which
//! surely every other one is. How sure follows from the trials that a goal wants at a load: `n` that agree
//! exclude a toss with the confidence 1 − 2⁻ⁿ.

use crate::{
    curve::{Curve, weigh},
    goal::SearchGoal,
    trials::{Bounds, Trials},
};

/// Share of bad trials that a lower bound may have; an upper bound has at least half.
const BAD_AT_LOWER: f64 = 0.1;
/// Spreads that are weighed, from this share of the goal's width ...
const LEAST_SPREAD: f64 = 1.0 / 64.0;
/// ... to this, in the logarithm of the load.
const LARGEST_SPREAD: f64 = 0.1;
const SPREADS: u32 = 12;
/// Most medians that are weighed.
const MEDIANS: f64 = 400.0;
/// Most places at which a bound is looked for.
const PLACES: f64 = 1e5;
/// Loads are weighed this far below and above all full-length trials, in the logarithm of the load.
const BELOW: f64 = 0.35;
const ABOVE: f64 = 0.1;
/// Loads between the bounds that are considered for the next trial.
const CONSIDERED: i64 = 8;
/// So many trials that agree are enough on the side that a goal is not about.
const OTHER_SIDE: f64 = 4.0;
/// What a bound counts for that was not measured: so much beyond the load that is sure, in the logarithm.
const UNMEASURED: f64 = 0.1;
/// Weight of the distance between measured bounds, beside that between the loads that are sure.
const MEASURED_SHARE: f64 = 0.3;
/// The search ends when the full-length trials have taken this many times the goal's duration sum.
const EFFORT: f64 = 3.5;
/// What weighs less than this, beside the heaviest, is left out.
const NEGLIGIBLE: f64 = 1e-7;

/// What the trials say about one goal.
pub(crate) struct Threshold<'a> {
    trials: &'a Trials,
    goal: usize,
    wanted: &'a SearchGoal,
    /// Possible thresholds.
    curves: Vec<Curve>,
    least: f64,
    step: f64,
    /// Chances that the bounds are wrong.
    doubt: (f64, f64),
}

impl<'a> Threshold<'a> {
    /// Weighs the trials; none if there are no full-length ones.
    pub(crate) fn of(trials: &'a Trials, goal: usize, wanted: &'a SearchGoal) -> Option<Self> {
        let seen: Vec<(f64, bool)> = trials
            .full_length(goal, wanted)
            .map(|(position, is_bad)| (trials.grid.load(position).ln(), is_bad))
            .collect();
        let ends = (seen.first()?.0, seen.last()?.0);
        let least = ends.0 - BELOW;
        let range = ends.1 + ABOVE - least;
        let width = -(-wanted.width).ln_1p();
        let step = (width / 8.0).max(range / MEDIANS);
        let spreads = (width * LEAST_SPREAD, LARGEST_SPREAD.max(width));
        let repeats = wanted.duration_sum_s / wanted.final_trial_duration_s;
        let doubt = |repeats: f64| (-repeats).exp2();
        let (sure, enough) = (doubt(repeats), doubt(repeats.min(OTHER_SIDE)));
        let mut threshold = Self {
            trials,
            goal,
            wanted,
            curves: Vec::new(),
            least: least - 3.0 * LARGEST_SPREAD,
            // However narrow the goal's width, no more places than this.
            step: (width / 16.0).max(range / PLACES),
            doubt: if wanted.exceed_ratio < 0.5 { (sure, enough) } else { (enough, sure) },
        };
        let medians = (range / step) as u32;
        for median in (0..=medians).map(|index| least + f64::from(index) * step) {
            for index in 0..SPREADS {
                let ratio: f64 = spreads.1 / spreads.0;
                let spread = spreads.0 * ratio.powf(f64::from(index) / f64::from(SPREADS - 1));
                let mut curve = Curve { median, spread, weight: 0.0 };
                curve.weight = curve.log_likelihood(seen.iter().copied());
                threshold.curves.push(curve);
            }
        }
        weigh(&mut threshold.curves);
        threshold.curves.retain(|curve| curve.weight > NEGLIGIBLE);
        Some(threshold)
    }

    /// The largest load with only good trials that is surely below the threshold, and the smallest one with only
    /// bad trials that is surely above.
    pub(crate) fn bounds(&self) -> Bounds {
        let grid = &self.trials.grid;
        let (lower, upper) = self.sure(|curve| curve.weight);
        let mut bounds = Bounds::default();
        for (position, is_bad) in self.trials.unanimous(self.goal, self.wanted.loss_ratio) {
            let load = grid.load(position).ln();
            if !is_bad && load <= lower && self.is_available(position) {
                bounds.lower = Some(position);
            } else if is_bad && load >= upper && bounds.upper.is_none() {
                bounds.upper = Some(position);
            }
        }
        bounds
    }

    /// The load whose trial is expected to bring the bounds nearest; none when they are near enough, or so much
    /// was measured that more would not tell much.
    pub(crate) fn next(&self) -> Option<i64> {
        let grid = &self.trials.grid;
        let bounds = self.bounds();
        let width = grid.width(self.wanted.width);
        // An upper bound of shorter trials beyond what the generator can make comes no nearer.
        let is_done = match (bounds.lower, bounds.upper.filter(|upper| self.is_available(*upper))) {
            (Some(lower), Some(upper)) => grid.is_narrow(lower, upper, width),
            // What the generator cannot make is as near as a bound can come.
            (Some(lower), None) => {
                self.unavailable_from().is_some_and(|least| grid.is_narrow(lower, least, width))
            }
            _ => false,
        };
        let spent_s = self.trials.full_length_s(self.wanted);
        if is_done || spent_s >= EFFORT * self.wanted.duration_sum_s * (1.0 - 1e-9) {
            return None;
        }
        if let Some(position) = self.far_below_unavailable() {
            return Some(position);
        }
        let known: Vec<(f64, bool)> = self
            .trials
            .unanimous(self.goal, self.wanted.loss_ratio)
            .map(|(position, is_bad)| (grid.load(position).ln(), is_bad))
            .collect();
        let (lower, upper) = self.sure(|curve| curve.weight);
        let largest = self.unavailable_from().map_or(grid.last(), |least| least - 1);
        let ends = (grid.at_most(lower.exp()).min(largest), grid.at_most(upper.exp()).min(largest));
        let mut considered: Vec<i64> = (0..=CONSIDERED)
            .map(|part| grid.settle(ends.0 + (ends.1 - ends.0) * part / CONSIDERED))
            .filter(|position| *position <= largest)
            .collect();
        considered.dedup();
        let expected = |position: i64| self.expected_width(grid.load(position).ln(), &known);
        let scored = considered.into_iter().map(|position| (position, expected(position)));
        scored.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(position, _)| position)
    }

    /// Halfway to what the generator cannot make, where all full-length trials are good and far below it: the weights
    /// reach little beyond the loads that were measured.
    fn far_below_unavailable(&self) -> Option<i64> {
        let grid = &self.trials.grid;
        let least = self.unavailable_from()?;
        let mut largest = None;
        for (position, is_bad) in self.trials.full_length(self.goal, self.wanted) {
            if is_bad {
                return None;
            }
            largest = Some(position);
        }
        let largest = largest?;
        let is_far = (grid.load(least) / grid.load(largest)).ln() > ABOVE;
        is_far.then(|| grid.settle_between(largest + (least - largest) / 2, largest, least)).flatten()
    }

    fn is_available(&self, position: i64) -> bool {
        self.trials.is_available(position, self.wanted.final_trial_duration_s)
    }

    fn unavailable_from(&self) -> Option<i64> {
        self.trials.unavailable_from(self.wanted.final_trial_duration_s)
    }

    /// How far apart the bounds will be, by what is known, after one more trial at a load.
    fn expected_width(&self, load: f64, known: &[(f64, bool)]) -> f64 {
        let whole: f64 = self.curves.iter().map(|curve| curve.weight).sum();
        let bad = self.curves.iter().map(|curve| curve.weight * curve.bad(load)).sum::<f64>() / whole;
        let width = |is_bad: bool| {
            let (lower, upper) = self.sure(|curve| {
                let bad = curve.bad(load);
                curve.weight * if is_bad { bad } else { 1.0 - bad }
            });
            let known = || known.iter().copied().chain([(load, is_bad)]);
            let good = known().filter(|(at, is_bad)| !is_bad && *at <= lower).map(|(at, _)| at);
            let bad = known().filter(|(at, is_bad)| *is_bad && *at >= upper).map(|(at, _)| at);
            let lower_at = good.fold(lower - UNMEASURED, f64::max);
            let upper_at = bad.fold(upper + UNMEASURED, f64::min);
            // What is sure counts most: it may be measured next.
            MEASURED_SHARE * (upper_at - lower_at) + (upper - lower)
        };
        bad * width(true) + (1.0 - bad) * width(false)
    }

    /// The logarithms of the loads that are surely below and surely above the threshold, by these weights.
    fn sure(&self, weight: impl Fn(&Curve) -> f64) -> (f64, f64) {
        let below = (BAD_AT_LOWER / (1.0 - BAD_AT_LOWER)).ln();
        let mut lower: Vec<f64> = Vec::new();
        let mut upper: Vec<f64> = Vec::new();
        let mut whole = 0.0;
        let add = |bins: &mut Vec<f64>, load: f64, weight: f64| {
            let bin = ((load - self.least) / self.step).max(0.0) as usize;
            if bins.len() <= bin {
                bins.resize(bin + 1, 0.0);
            }
            bins[bin] += weight;
        };
        for curve in &self.curves {
            let weight = weight(curve);
            whole += weight;
            add(&mut lower, curve.median + below * curve.spread, weight);
            add(&mut upper, curve.median, weight);
        }
        let quantile = |bins: &[f64], share: f64| {
            let mut sum = 0.0;
            bins.iter().position(|weight| {
                sum += weight;
                sum >= share * whole
            })
        };
        let lower = quantile(&lower, self.doubt.0).unwrap_or(0);
        let upper = quantile(&upper, 1.0 - self.doubt.1).unwrap_or(upper.len());
        (self.least + lower as f64 * self.step, self.least + (upper + 1) as f64 * self.step)
    }
}
