//! How far a search is, and how long it may still take.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use record::BoundsSoFar;
use serde::{Deserialize, Serialize};

use crate::{
    curve::{Curve, weigh},
    plan::{SearchPlan, Unit},
    search::{Measured, Search, Step},
    trials::Trials,
};

/// How far a search is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// For each goal, in the order of the plan, its bounds so far; before there are any, what the last trial at each load
    /// hints at.
    pub goals: Vec<BoundsSoFar>,
    /// Trials told of, the void and the warm-up included.
    pub trials: u64,
    /// Seconds of trials so far.
    pub trial_seconds: f64,
    /// Seconds of trials that are still to come, by what is known of the target and how many were void.
    pub remaining_s: f64,
    /// How many trials these are.
    pub remaining_trials: f64,
}

/// More trials than this are not foreseen.
const FORESEEN: usize = 5_000;
/// Void trials are not foreseen to make a search longer than by this factor.
const MOST_AGAIN: f64 = 3.0;
/// So many ends of a search are imagined.
const COPIES: u32 = 15;
/// Where they cost much.
const FEW_COPIES: u32 = 1;
/// So far beyond what trials have shown a target's limit may lie, in the logarithm of the load.
const BEYOND: f64 = 0.05;
/// Where no load was too much yet, limits farther up by so much, in the logarithm of the load, are less likely by a factor
/// of e.
const FARTHER: f64 = 1.0;
/// Limits that are considered between these ends.
const MEDIANS: u32 = 80;
/// And over how much of the logarithm of the load trials may disagree, with what speaks for it before any trial.
const SPREADS: [(f64, f64); 5] = [(0.0001, 0.8), (0.002, 0.09), (0.006, 0.06), (0.015, 0.03), (0.04, 0.02)];
/// Trials at whole-numbered loads, users and connections, disagree so much less often.
const SELDOM_NOISY: f64 = 0.1;

impl Search {
    /// How far it is.
    pub fn progress(&self) -> Progress {
        let outcome = self.outcome();
        let goals = outcome.goals.into_iter().enumerate().map(|(index, goal)| {
            let (lower, upper) = probed(self.plan(), self.trials(), index);
            BoundsSoFar {
                lower: goal.lower.map(|bound| bound.load).or(lower),
                upper: goal.upper.map(|bound| bound.load).or(upper),
            }
        });
        let (remaining_s, remaining_trials) = self.remaining();
        Progress {
            goals: goals.collect(),
            trials: outcome.trials,
            trial_seconds: outcome.trial_seconds,
            remaining_s,
            remaining_trials,
        }
    }

    /// The search is pure, so that copies of it can be run to their end, each against a target that the trials so far may
    /// have been of: what these take on average, in seconds and in trials.
    fn remaining(&self) -> (f64, f64) {
        let goals = 0..self.plan().goals.len();
        let possible: Vec<Possible> =
            goals.map(|goal| Possible::of(self.plan(), self.trials(), goal)).collect();
        // Where trials are draws a step costs a thousand times as much, and the effort is bounded anyway.
        let copies = if self.trials().is_cautious() { FEW_COPIES } else { COPIES };
        let ends = (0..copies).map(|copy| self.imagined_end(&possible, (copy, copies)));
        let (seconds, trials) = ends.fold((0.0, 0.0), |sum, end| (sum.0 + end.0, sum.1 + end.1));
        // As many of the trials to come are void as of those that were.
        let valid = (self.told() - self.void()).max(1) as f64;
        let again = (self.told() as f64 / valid).clamp(1.0, MOST_AGAIN) / f64::from(copies);
        (seconds * again, trials * again)
    }

    /// What one copy of so many takes to its end, in seconds and in trials.
    fn imagined_end(&self, possible: &[Possible], (copy, copies): (u32, u32)) -> (f64, f64) {
        let mut rng = Pcg64Mcg::seed_from_u64(u64::from(copy));
        // Spread evenly over what is possible, in an order of no meaning: all goals are of the same target.
        let place = (f64::from(copy) + 0.5) / f64::from(copies);
        let targets: Vec<&Curve> = possible.iter().map(|possible| possible.at(place)).collect();
        let mut imagined = self.clone();
        for _ in 0..FORESEEN {
            let Step::Measure(trial) = imagined.next() else { break };
            let luck: f64 = rng.random();
            let goals = imagined.plan().goals.iter().zip(&targets);
            let loss_ratios = goals.map(|(goal, target)| {
                if luck >= target.bad(trial.load.ln()) {
                    return 0.0;
                }
                // What a target loses that is given more than it carries; more than is allowed, if little.
                let lost = 1.0 - target.median.exp() / trial.load * (1.0 - goal.loss_ratio);
                lost.clamp((goal.loss_ratio * 1.01 + 1e-6).min(1.0), 1.0)
            });
            let measured = Measured::Valid {
                loss_ratios: loss_ratios.collect(),
                effective_duration_s: trial.duration_s,
            };
            imagined.tell(measured).expect("one share for each goal, and the planned length");
        }
        let (then, now) = (imagined.outcome(), self.outcome());
        (then.trial_seconds - now.trial_seconds, (then.trials - now.trials) as f64)
    }
}

/// The targets that the trials so far may have been of, to one goal, smallest first.
struct Possible {
    targets: Vec<Curve>,
    weight: f64,
}

impl Possible {
    fn of(plan: &SearchPlan, trials: &Trials, goal: usize) -> Self {
        let grid = &trials.grid;
        let longest_s = plan.goals.iter().map(|goal| goal.final_trial_duration_s).fold(0.0, f64::max);
        let end = trials.unavailable_from(longest_s).unwrap_or(grid.last());
        let (lower, upper) = probed(plan, trials, goal);
        let least = lower.unwrap_or(grid.load(0)).ln() - BEYOND;
        let most = upper.map_or(grid.load(end).ln(), |upper| upper.ln() + BEYOND).max(least);
        let mut targets = Vec::with_capacity(MEDIANS as usize * SPREADS.len());
        for index in 0..MEDIANS {
            let median = least + (most - least) * (f64::from(index) + 0.5) / f64::from(MEDIANS);
            for (spread, prior) in SPREADS {
                let mut target = Curve { median, spread, weight: 0.0 };
                let seen = trials.all(goal, plan.goals[goal].loss_ratio);
                let seen = seen.map(|(position, is_bad)| (grid.load(position).ln(), is_bad));
                let doubt = if plan.unit == Unit::Whole { SELDOM_NOISY } else { 1.0 };
                let prior = if spread > SPREADS[0].0 { prior * doubt } else { prior };
                let far = if upper.is_none() { (median - least) / FARTHER } else { 0.0 };
                target.weight = target.log_likelihood(seen) + prior.ln() - far;
                targets.push(target);
            }
        }
        weigh(&mut targets);
        let weight = targets.iter().map(|target| target.weight).sum();
        Self { targets, weight }
    }

    /// The target at a place (0 to 1) among all of them.
    fn at(&self, place: f64) -> &Curve {
        let mut sum = 0.0;
        let reached = |target: &&Curve| {
            sum += target.weight;
            sum >= place * self.weight
        };
        self.targets.iter().find(reached).unwrap_or(&self.targets[self.targets.len() - 1])
    }
}

/// The interval that the last trial at each load leaves for a goal's answer.
fn probed(plan: &SearchPlan, trials: &Trials, goal: usize) -> (Option<f64>, Option<f64>) {
    let allowed = plan.goals[goal].loss_ratio;
    let mut lower = None;
    for (position, trial) in trials.last_trials() {
        let load = trials.grid.load(position);
        if trial.loss_ratios[goal] > allowed {
            return (lower, Some(load));
        }
        lower = Some(load);
    }
    (lower, None)
}
