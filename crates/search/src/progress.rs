//! How far a search is, and how long it may still take.

use serde::{Deserialize, Serialize};

use crate::{
    outcome::BoundKind,
    plan::SearchPlan,
    search::{Measured, Search, Step},
    trials::Trials,
};

/// How far a search is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// For each goal, in the order of the plan.
    pub goals: Vec<GoalProgress>,
    /// Trials told of, the void and the warm-up included.
    pub trials: u64,
    /// Seconds of trials so far.
    pub trial_seconds: f64,
    /// Seconds of trials that are still to come, if the target carries the middle of what is known and
    /// nothing is void.
    pub remaining_s: f64,
}

/// What is known about a goal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GoalProgress {
    /// Its name.
    pub name: String,
    /// Largest load that meets it so far.
    pub lower: Option<f64>,
    /// Smallest load that does not, so far.
    pub upper: Option<f64>,
    /// Largest load whose last trial was low-loss, below `probed_upper`: a hint long before there are bounds.
    pub probed_lower: Option<f64>,
    /// Smallest load whose last trial was high-loss.
    pub probed_upper: Option<f64>,
    /// What kind of answer this is by now.
    pub kind: BoundKind,
}

/// More trials than this are not foreseen.
const FORESEEN: usize = 5_000;

impl Search {
    /// How far it is.
    pub fn progress(&self) -> Progress {
        let outcome = self.outcome();
        let goals = outcome.goals.into_iter().enumerate().map(|(index, goal)| {
            let (probed_lower, probed_upper) = probed(self.plan(), self.trials(), index);
            GoalProgress {
                name: goal.name,
                lower: goal.lower.map(|bound| bound.load),
                upper: goal.upper.map(|bound| bound.load),
                probed_lower,
                probed_upper,
                kind: goal.kind,
            }
        });
        Progress {
            goals: goals.collect(),
            trials: outcome.trials,
            trial_seconds: outcome.trial_seconds,
            remaining_s: self.remaining_s(),
        }
    }

    /// The search is pure, so that a copy of it can be run to its end against an imagined target.
    fn remaining_s(&self) -> f64 {
        let grid = &self.trials().grid;
        let longest_s = self.plan().goals.iter().map(|goal| goal.final_trial_duration_s).fold(0.0, f64::max);
        let end = self.trials().unavailable_from(longest_s).unwrap_or(grid.last());
        let capacities: Vec<f64> = (0..self.plan().goals.len())
            .map(|goal| {
                let (lower, upper) = probed(self.plan(), self.trials(), goal);
                let (lower, upper) = (lower.unwrap_or(grid.load(0)), upper.unwrap_or(grid.load(end)));
                (lower * upper).sqrt()
            })
            .collect();
        let mut imagined = self.clone();
        for _ in 0..FORESEEN {
            let Step::Measure(trial) = imagined.next() else { break };
            let goals = imagined.plan().goals.iter().zip(&capacities);
            let loss_ratios = goals.map(|(goal, capacity)| match trial.load <= *capacity {
                true => 0.0,
                false => (1.0 - capacity / trial.load * (1.0 - goal.loss_ratio)).clamp(0.0, 1.0),
            });
            let measured = Measured::Valid {
                loss_ratios: loss_ratios.collect(),
                effective_duration_s: trial.duration_s,
            };
            imagined.tell(measured).expect("one share for each goal, and the planned length");
        }
        imagined.outcome().trial_seconds - self.outcome().trial_seconds
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
