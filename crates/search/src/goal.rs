//! The goals that a load must meet, in the terms of RFC 9971 section 4.6.

use serde::{Deserialize, Serialize};

use crate::mistake::Mistake;

/// A Search Goal of RFC 9971.
///
/// The *loss ratio* of a trial is the share of the planned requests that was lost to this goal: failed, later than
/// the goal allows, or never sent. The caller computes one loss ratio per goal, because each goal may have its own
/// time bound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchGoal {
    /// The goal's name.
    pub name: String,
    /// A trial with a larger loss ratio than this is a high-loss trial (0 to below 1).
    pub loss_ratio: f64,
    /// Largest share of the trial seconds at a load that may come from high-loss trials at a lower bound (0 to below
    /// 1). 0: a single bad trial decides; 0.5: the majority decides.
    pub exceed_ratio: f64,
    /// Smallest length of a full-length trial, in seconds.
    pub final_trial_duration_s: f64,
    /// Seconds of full-length trials that suffice to classify a load.
    pub duration_sum_s: f64,
    /// Length of the first trials, in seconds.
    pub initial_trial_duration_s: f64,
    /// The search ends when the distance between the bounds is at most this share of the upper bound (above 0, below
    /// 1).
    pub width: f64,
    /// Number of coarser targets before the final one. Each is twice as wide as the next one and needs fewer seconds.
    pub preceding_targets: u32,
    /// Factor by which each step away from a known bound grows (2 or more), in the logarithm of the load.
    pub expansion: u32,
    /// A stricter rule for upper bounds than a single bad trial. Loads at which trials disagree then lie between the
    /// bounds. Requires an `exceed_ratio` of 0.
    #[serde(default, rename = "surely_not", skip_serializing_if = "Option::is_none")]
    pub upper_bound_rule: Option<UpperBoundRule>,
}

/// When a load counts as an upper bound of a goal.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpperBoundRule {
    /// Smallest share of the trial seconds at the load that must come from high-loss trials (0 to below 1).
    pub exceed_ratio: f64,
    /// Seconds of full-length trials that suffice to classify the load.
    pub duration_sum_s: f64,
}

/// A rule that decides whether a load is a bound of a goal.
#[derive(Debug, Clone)]
pub(crate) struct BoundRule {
    /// The end of the loss ratio by which the rule judges trials.
    pub(crate) reading: Reading,
    /// The rule, written as a goal that uses it for both bounds.
    pub(crate) goal: SearchGoal,
}

/// The end of a trial's loss ratio that a rule uses. The loss ratio of a trial that leaves a goal undecided lies
/// between a better and a worse end. A load is a lower bound if the worse end meets the goal, and an upper bound if the
/// better end misses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Index of the goal in the plan.
    pub(crate) goal_index: usize,
    /// Whether the rule uses the better end.
    pub(crate) is_best: bool,
}

impl Reading {
    /// The worse end of the loss ratio.
    pub(crate) fn worst(goal_index: usize) -> Self {
        Self { goal_index, is_best: false }
    }
}

/// The rules of all goals, in the order of the goals. A goal has two rules, first that of its lower bound and then that
/// of its upper bound, if it has an [`UpperBoundRule`] or if there are `undecided` trials.
pub(crate) fn bound_rules(goals: &[SearchGoal], undecided: bool) -> Vec<BoundRule> {
    let mut rules = Vec::new();
    for (goal_index, goal) in goals.iter().enumerate() {
        rules.push(BoundRule { reading: Reading::worst(goal_index), goal: goal.clone() });
        let reading = Reading { goal_index, is_best: true };
        if let Some(UpperBoundRule { exceed_ratio, duration_sum_s }) = goal.upper_bound_rule {
            let goal = SearchGoal { exceed_ratio, duration_sum_s, ..goal.clone() };
            rules.push(BoundRule { reading, goal });
        } else if undecided {
            rules.push(BoundRule { reading, goal: goal.clone() });
        }
    }
    rules
}

impl SearchGoal {
    /// The mistakes in this goal.
    pub(crate) fn mistakes(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        let mut require = |is_met: bool, field: &str, message: String| {
            if !is_met {
                mistakes.push(Mistake { field: format!("goal {:?}: {field}", self.name), message });
            }
        };
        let is_share = |value: f64| (0.0..1.0).contains(&value);
        let is_length = |value: f64| value.is_finite() && value > 0.0;
        require(
            is_share(self.loss_ratio),
            "loss_ratio",
            format!("{} is not a share: use 0 to below 1", self.loss_ratio),
        );
        require(
            is_share(self.exceed_ratio),
            "exceed_ratio",
            format!("{} is not a share: use 0 to below 1", self.exceed_ratio),
        );
        require(
            self.width >= 1e-9 && self.width < 1.0,
            "width",
            format!("{} is not a relative width: use a value above 0 and below 1, such as 0.05", self.width),
        );
        require(
            is_length(self.initial_trial_duration_s),
            "initial_trial_duration_s",
            format!("{} s is not a length of a trial: use a positive one", self.initial_trial_duration_s),
        );
        require(
            is_length(self.final_trial_duration_s)
                && self.final_trial_duration_s >= self.initial_trial_duration_s,
            "final_trial_duration_s",
            format!(
                "{} s is shorter than the initial trials of {} s: use at least as much",
                self.final_trial_duration_s, self.initial_trial_duration_s
            ),
        );
        require(
            is_length(self.duration_sum_s) && self.duration_sum_s >= self.final_trial_duration_s,
            "duration_sum_s",
            format!(
                "{} s cannot hold one trial of {} s: use at least as much",
                self.duration_sum_s, self.final_trial_duration_s
            ),
        );
        require(
            self.upper_bound_rule.is_none_or(|rule| {
                let sums_s = self.final_trial_duration_s..=self.duration_sum_s;
                self.exceed_ratio == 0.0 && is_share(rule.exceed_ratio) && sums_s.contains(&rule.duration_sum_s)
            }),
            "surely_not",
            "the goal's exceed_ratio must be 0, its own 0 to below 1, and its duration_sum_s from the length of a \
             full trial to the goal's duration_sum_s"
                .to_owned(),
        );
        require(
            self.duration_sum_s / self.final_trial_duration_s <= 10_000.0,
            "duration_sum_s",
            format!(
                "{} s of trials of {} s are more than 10,000 trials at every load: use longer trials",
                self.duration_sum_s, self.final_trial_duration_s
            ),
        );
        require(
            self.preceding_targets >= 1 || self.initial_trial_duration_s >= self.duration_sum_s,
            "preceding_targets",
            "with 0, initial trials have no use: use 1 or more, or initial trials as long as duration_sum_s"
                .to_owned(),
        );
        require(
            self.preceding_targets <= 16,
            "preceding_targets",
            format!("{} are too many: use 16 or fewer", self.preceding_targets),
        );
        require(
            (2..=1_000).contains(&self.expansion),
            "expansion",
            format!("{} is not a useful expansion: use 2 to 1,000", self.expansion),
        );
        mistakes
    }
}
