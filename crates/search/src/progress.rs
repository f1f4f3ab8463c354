//! The progress of a search, and an estimate of the time left.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use record::BoundKind;

use crate::{
    curve::{Curve, normalize_weights},
    goal::Reading,
    outcome::Outcome,
    plan::{SearchPlan, Unit},
    search::Search,
    step::{Step, TrialOutcome},
    trials::Trials,
};

/// The progress of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// Reported trials, including void trials and the warm-up.
    pub trials: u64,
    /// Seconds of trials so far.
    pub trial_seconds: f64,
    /// Estimated seconds of trials to come.
    pub remaining_s: f64,
    /// Estimated number of trials to come.
    pub remaining_trials: f64,
}

/// Largest number of trials in a simulated search.
const MAX_SIMULATED_TRIALS: usize = 5_000;
/// Largest factor by which void trials lengthen the estimate.
const MAX_VOID_FACTOR: f64 = 3.0;
/// Simulated searches per estimate.
const SIMULATIONS: u32 = 15;
/// Simulated searches per estimate if each step is expensive.
const SIMULATIONS_WITH_NOISE: u32 = 1;
/// Distance by which a target's limit may lie outside the provisional bounds, in the logarithm of the load.
const MARGIN: f64 = 0.05;
/// Without an upper bound, the probability of a limit falls by a factor of e for each step of this size above the smallest possible
/// limit, in the logarithm of the load.
const DECAY: f64 = 1.0;
/// Number of medians of the simulated targets.
const MEDIANS: u32 = 80;
/// Spreads of the simulated targets, in the logarithm of the load, each with its prior probability.
const SPREAD_PRIORS: [(f64, f64); 5] =
    [(0.0001, 0.8), (0.002, 0.09), (0.006, 0.06), (0.015, 0.03), (0.04, 0.02)];
/// Factor for the priors of noisy targets at whole-numbered loads, such as users: repeats seldom disagree there.
const NOISE_PRIOR_FACTOR: f64 = 0.1;

impl Search {
    /// The progress of this search.
    pub fn progress(&self) -> Progress {
        let outcome = self.outcome();
        let (remaining_s, remaining_trials) = self.remaining(&outcome);
        Progress {
            trials: outcome.trials,
            trial_seconds: outcome.trial_seconds,
            remaining_s,
            remaining_trials,
        }
    }

    /// Like [`Search::outcome`], but trials of any length give a bound of an unfinished goal if full-length trials do
    /// not: the smallest load that missed the goal in all trials, and the largest load below it that met the goal in
    /// all trials.
    pub fn so_far(&self) -> Outcome {
        let mut outcome = self.outcome();
        let rules = self.rules.chunk_by(|a, b| a.reading.goal_index == b.reading.goal_index);
        for (goal, rules) in outcome.goals.iter_mut().zip(rules) {
            if goal.kind == BoundKind::Unfinished && !self.trials.uses_threshold(&rules[0]) {
                [goal.lower, goal.upper] = self.trials.so_far([&rules[0], &rules[rules.len() - 1]]);
            }
        }
        outcome
    }

    /// Mean seconds and mean number of trials until the end. Clones of this search run against simulated targets that
    /// fit the trials so far.
    fn remaining(&self, now: &Outcome) -> (f64, f64) {
        let goals = 0..self.plan().goals.len();
        let targets: Vec<LikelyTargets> =
            goals.map(|goal| LikelyTargets::of(self.plan(), &self.trials, goal)).collect();
        // With noise, a step costs a thousand times as much, and the search's effort is limited anyway.
        let simulations = if self.trials.expects_noise { SIMULATIONS_WITH_NOISE } else { SIMULATIONS };
        let costs = (0..simulations).map(|index| self.simulate_rest(now, &targets, index, simulations));
        let (seconds, trials) = costs.fold((0.0, 0.0), |sum, cost| (sum.0 + cost.0, sum.1 + cost.1));
        // Assumes that the share of void trials stays the same.
        let valid = (now.trials - now.void_trials).max(1) as f64;
        let void_factor = (now.trials as f64 / valid).clamp(1.0, MAX_VOID_FACTOR);
        let factor = void_factor / f64::from(simulations);
        (seconds * factor, trials * factor)
    }

    /// Runs the simulation `index` of `simulations` to its end. Returns the seconds and the number of its further
    /// trials.
    fn simulate_rest(
        &self,
        now: &Outcome,
        targets: &[LikelyTargets],
        index: u32,
        simulations: u32,
    ) -> (f64, f64) {
        let mut rng = Pcg64Mcg::seed_from_u64(u64::from(index));
        // All goals use the same quantile, because they concern the same target.
        let quantile = (f64::from(index) + 0.5) / f64::from(simulations);
        let targets: Vec<&Curve> = targets.iter().map(|targets| targets.at_quantile(quantile)).collect();
        let mut simulated = self.clone();
        for _ in 0..MAX_SIMULATED_TRIALS {
            let Step::Measure(trial) = simulated.next_step() else { break };
            let draw: f64 = rng.random();
            let goals = simulated.plan().goals.iter().zip(&targets);
            let loss_ratios = goals.map(|(goal, target)| {
                if draw >= target.bad_probability(trial.load.ln()) {
                    return 0.0;
                }
                // An overloaded target loses the load above its capacity, and at least slightly more than the goal
                // allows.
                let lost = 1.0 - target.median.exp() / trial.load * (1.0 - goal.loss_ratio);
                lost.clamp((goal.loss_ratio * 1.01 + 1e-6).min(1.0), 1.0)
            });
            let outcome = TrialOutcome::Valid {
                loss_ratios: loss_ratios.collect(),
                effective_duration_s: trial.duration_s,
            };
            simulated.report(outcome).expect("one share per goal, and the planned length");
        }
        let end = simulated.outcome();
        (end.trial_seconds - now.trial_seconds, (end.trials - now.trials) as f64)
    }
}

/// Targets that fit the trials so far, for one goal, in ascending order of median.
struct LikelyTargets {
    targets: Vec<Curve>,
    weight_sum: f64,
}

impl LikelyTargets {
    fn of(plan: &SearchPlan, trials: &Trials, goal_index: usize) -> Self {
        let grid = &trials.grid;
        let longest_s = plan.goals.iter().map(|goal| goal.final_trial_duration_s).fold(0.0, f64::max);
        let end = trials.unavailable_from(longest_s).unwrap_or(grid.last());
        let (lower, upper) = provisional_bounds(plan, trials, goal_index);
        let min = lower.unwrap_or(grid.load(0)).ln() - MARGIN;
        let max = upper.map_or(grid.load(end).ln(), |upper| upper.ln() + MARGIN).max(min);
        let mut targets = Vec::with_capacity(MEDIANS as usize * SPREAD_PRIORS.len());
        for index in 0..MEDIANS {
            let median = min + (max - min) * (f64::from(index) + 0.5) / f64::from(MEDIANS);
            for (spread, prior) in SPREAD_PRIORS {
                let mut target = Curve { median, spread, weight: 0.0 };
                let measured = trials.all(Reading::worst(goal_index), plan.goals[goal_index].loss_ratio);
                let measured = measured.map(|(position, is_bad)| (grid.load(position).ln(), is_bad));
                let is_noisy = spread > SPREAD_PRIORS[0].0;
                let prior =
                    if is_noisy && plan.unit == Unit::Whole { prior * NOISE_PRIOR_FACTOR } else { prior };
                let decay = if upper.is_none() { (median - min) / DECAY } else { 0.0 };
                target.weight = target.log_likelihood(measured) + prior.ln() - decay;
                targets.push(target);
            }
        }
        normalize_weights(&mut targets);
        let weight_sum = targets.iter().map(|target| target.weight).sum();
        Self { targets, weight_sum }
    }

    /// The target at a quantile (0 to 1) of the cumulative weights.
    fn at_quantile(&self, quantile: f64) -> &Curve {
        let mut sum = 0.0;
        let is_reached = |target: &&Curve| {
            sum += target.weight;
            sum >= quantile * self.weight_sum
        };
        self.targets.iter().find(is_reached).unwrap_or(&self.targets[self.targets.len() - 1])
    }
}

/// A goal's bounds according to the last trial at each load.
fn provisional_bounds(plan: &SearchPlan, trials: &Trials, goal_index: usize) -> (Option<f64>, Option<f64>) {
    let allowed = plan.goals[goal_index].loss_ratio;
    let mut lower = None;
    for (position, trial) in trials.last_trials() {
        let load = trials.grid.load(position);
        if trial.loss_ratio(Reading::worst(goal_index)) > allowed {
            return (lower, Some(load));
        }
        lower = Some(load);
    }
    (lower, None)
}
