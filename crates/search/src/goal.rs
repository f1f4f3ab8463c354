//! What a load must satisfy, in the terms of RFC 9971 section 4.6.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::plan::Mistake;

/// A Search Goal of RFC 9971.
///
/// A trial's *loss ratio* is the share of what was planned that was lost to this goal: failed, later than the
/// goal allows, or never sent. The caller computes it, one for each goal, since every goal may have its own
/// bound on time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchGoal {
    /// What it is called.
    pub name: String,
    /// A trial with a larger loss ratio than this is a high-loss trial (0 to below 1).
    pub loss_ratio: f64,
    /// Share of the trial seconds at a load that may come from high-loss trials while the load still meets
    /// the goal (0 to below 1): 0 when one bad trial decides, 0.5 for a majority.
    pub exceed_ratio: f64,
    /// Trials at least this long count in full, in seconds.
    pub final_trial_duration_s: f64,
    /// Seconds of full-length trials that decide about a load.
    pub duration_sum_s: f64,
    /// Length of the first, searching trials, in seconds.
    pub initial_trial_duration_s: f64,
    /// The search ends when the bounds are this near to each other, relative to the upper one (above 0, below
    /// 1).
    pub width: f64,
    /// How many coarser targets come before the final one; each is twice as wide and needs fewer seconds.
    pub preceding_targets: u32,
    /// Steps away from a known bound grow by this factor (2 or more), in the logarithm of the load.
    pub expansion: u32,
    /// What a load must show to be an upper bound, where that is more than one bad trial: loads at which trials disagree
    /// then lie between the bounds. It takes an `exceed_ratio` of 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surely_not: Option<SurelyNot>,
}

/// When a load surely does not meet a goal.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SurelyNot {
    /// Share of the trial seconds at the load that must at least come from high-loss trials (0 to below 1).
    pub exceed_ratio: f64,
    /// Seconds of full-length trials that decide about the load.
    pub duration_sum_s: f64,
}

/// One rule by which loads are bounds of a goal.
#[derive(Debug, Clone)]
pub(crate) struct Side {
    /// The goal's place in the plan, and among the loss ratios of a trial.
    pub(crate) goal: usize,
    /// The rule, as a goal whose bounds are both by it.
    pub(crate) rule: SearchGoal,
}

/// The rules of all goals, in their order: one for each; two where a load must surely not meet it to be an upper bound,
/// that of the lower bound first.
pub(crate) fn sides(goals: &[SearchGoal]) -> Vec<Side> {
    let of_goal =
        |(index, goal): (usize, &SearchGoal)| goal.rules().map(move |rule| Side { goal: index, rule });
    goals.iter().enumerate().flat_map(of_goal).collect()
}

impl SearchGoal {
    fn rules(&self) -> impl Iterator<Item = Self> + use<> {
        let upper = self.surely_not.map(|SurelyNot { exceed_ratio, duration_sum_s }| Self {
            exceed_ratio,
            duration_sum_s,
            ..self.clone()
        });
        std::iter::once(self.clone()).chain(upper)
    }

    /// What is wrong with it, if anything.
    pub(crate) fn mistakes(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        let mut check = |fine: bool, field: &str, message: String| {
            if !fine {
                mistakes.push(Mistake { field: format!("goal {:?}: {field}", self.name), message });
            }
        };
        let ratio = |value: f64| (0.0..1.0).contains(&value);
        let length = |value: f64| value.is_finite() && value > 0.0;
        check(
            ratio(self.loss_ratio),
            "loss_ratio",
            format!("{} is no share: use 0 to below 1", self.loss_ratio),
        );
        check(
            ratio(self.exceed_ratio),
            "exceed_ratio",
            format!("{} is no share: use 0 to below 1", self.exceed_ratio),
        );
        check(
            self.width >= 1e-9 && self.width < 1.0,
            "width",
            format!("{} is no relative width: use a value above 0 and below 1, such as 0.05", self.width),
        );
        check(
            length(self.initial_trial_duration_s),
            "initial_trial_duration_s",
            format!("{} s is no length of a trial: use a positive one", self.initial_trial_duration_s),
        );
        check(
            length(self.final_trial_duration_s)
                && self.final_trial_duration_s >= self.initial_trial_duration_s,
            "final_trial_duration_s",
            format!(
                "{} s is shorter than the initial trials of {} s: use at least as much",
                self.final_trial_duration_s, self.initial_trial_duration_s
            ),
        );
        check(
            length(self.duration_sum_s) && self.duration_sum_s >= self.final_trial_duration_s,
            "duration_sum_s",
            format!(
                "{} s cannot hold one trial of {} s: use at least as much",
                self.duration_sum_s, self.final_trial_duration_s
            ),
        );
        check(
            self.surely_not.is_none_or(|rule| {
                let sums_s = self.final_trial_duration_s..=self.duration_sum_s;
                self.exceed_ratio == 0.0 && ratio(rule.exceed_ratio) && sums_s.contains(&rule.duration_sum_s)
            }),
            "surely_not",
            "it wants exceed_ratio 0 beside a share from 0 to below 1, of one trial to duration_sum_s"
                .to_owned(),
        );
        check(
            self.duration_sum_s / self.final_trial_duration_s <= 10_000.0,
            "duration_sum_s",
            format!(
                "{} s of trials of {} s are more than 10,000 trials at every load: use longer trials",
                self.duration_sum_s, self.final_trial_duration_s
            ),
        );
        check(
            self.preceding_targets >= 1 || self.initial_trial_duration_s >= self.duration_sum_s,
            "preceding_targets",
            "0 leaves no use for initial trials: use 1 or more, or initial trials as long as the sum"
                .to_owned(),
        );
        check(
            self.preceding_targets <= 16,
            "preceding_targets",
            format!("{} are too many: use 16 or fewer", self.preceding_targets),
        );
        check(
            (2..=1_000).contains(&self.expansion),
            "expansion",
            format!("{} does not expand usefully: use 2 to 1,000", self.expansion),
        );
        mistakes
    }
}
