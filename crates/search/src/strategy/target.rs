//! The coarser targets that precede a goal.

use crate::{classification::Requirement, goal::SearchGoal, grid::Grid};

/// A goal, or a coarser version of it that needs less time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Target {
    pub(crate) requirement: Requirement,
    /// Width in steps of the grid.
    pub(crate) width: i64,
    pub(crate) expansion: i64,
}

/// The targets of a goal, coarsest first. Each width is half of the preceding one. The duration sums grow by a constant
/// factor from the length of one initial trial to the goal's own sum.
pub(crate) fn targets(goal: &SearchGoal, grid: &Grid) -> Vec<Target> {
    let last = Target {
        requirement: Requirement::from(goal),
        width: grid.width(goal.width),
        expansion: i64::from(goal.expansion),
    };
    let steps = goal.preceding_targets;
    let factor = (goal.initial_trial_duration_s / goal.duration_sum_s).powf(1.0 / f64::from(steps.max(1)));
    let mut targets = vec![last];
    for step in 1..=steps {
        let duration_sum_s = if step == steps {
            goal.initial_trial_duration_s
        } else {
            goal.duration_sum_s * factor.powi(step as i32)
        };
        let trial_duration_s = goal.final_trial_duration_s.min(duration_sum_s);
        let requirement = Requirement { trial_duration_s, duration_sum_s, ..last.requirement };
        targets.push(Target { requirement, width: last.width << step, ..last });
    }
    targets.reverse();
    targets
}
