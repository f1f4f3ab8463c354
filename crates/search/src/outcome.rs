//! The result of a search.

use record::{BoundKind, GoalOutcome};

/// The final or current result of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The bounds of each goal, in the order of the plan.
    pub goals: Vec<GoalOutcome>,
    /// Goals that were met at loads above their upper bound. Those loads are not part of the answer.
    pub inversions: Vec<Inversion>,
    /// Goals with the generator's limit as their answer although trials disagree far below that limit.
    pub disputes: Vec<Dispute>,
    /// Goals whose bounds are farther apart than requested because trials between them were undecided.
    pub undecided: Vec<UndecidedBetween>,
    /// How the search ended.
    pub ended: Ending,
    /// Reported trials, including void trials and the warm-up.
    pub trials: u64,
    /// Reported void trials.
    pub void_trials: u64,
    /// Seconds of trials, including void trials and the warm-up.
    pub trial_seconds: f64,
}

/// How a search ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Ending {
    /// Nothing was left to measure.
    Complete,
    /// The next trial would have exceeded the budget.
    OutOfBudget,
    /// Too many trials were void at loads that the generator had shown it can make, so its measurements cannot be
    /// trusted.
    Void {
        /// The load of the last void trial.
        at: f64,
    },
    /// The search has not ended.
    Unfinished,
}

/// Loads above a goal's upper bound that met the goal (loss inversion). The search trusts the smaller load.
#[derive(Debug, Clone, PartialEq)]
pub struct Inversion {
    /// The goal's name.
    pub goal: String,
    /// The upper bound.
    pub missed: f64,
    /// The larger loads, smallest first.
    pub met: Vec<f64>,
}

/// Loads between a goal's bounds at which trials left the goal undecided.
#[derive(Debug, Clone, PartialEq)]
pub struct UndecidedBetween {
    /// The goal's name.
    pub goal: String,
    /// The loads, smallest first.
    pub loads: Vec<f64>,
    /// The requested distance of the bounds, relative to the upper bound.
    pub width: f64,
}

/// A goal whose limit may be that of the target or that of the busy generator.
#[derive(Debug, Clone, PartialEq)]
pub struct Dispute {
    /// The goal's name.
    pub goal: String,
    /// A load at which not every trial met the goal.
    pub missed: f64,
    /// The smallest load that the generator could not make.
    pub not_made: f64,
}

/// The answer for a goal, combined from the outcomes of its rules for the lower and the upper bound.
pub(crate) fn combine(lower: GoalOutcome, upper: GoalOutcome) -> GoalOutcome {
    let kind = combine_kinds(lower.kind, upper.kind);
    // An upper bound above the generator's limit is not a limit of the target.
    let upper = upper.upper.filter(|_| !matches!(kind, BoundKind::GeneratorBound { .. }));
    // If both bounds exist, the disputed loads lie between them. That is normal if the two bounds have different rules.
    let has_both = kind == BoundKind::Disputed && lower.lower.is_some() && upper.is_some();
    let kind = if has_both { BoundKind::Regular } else { kind };
    GoalOutcome { upper, kind, ..lower }
}

fn combine_kinds(lower: BoundKind, upper: BoundKind) -> BoundKind {
    match (lower, upper) {
        (BoundKind::Unfinished, _) | (_, BoundKind::Unfinished) => BoundKind::Unfinished,
        // Losses just below the generator's limit may be caused by the generator or by the target.
        (_, BoundKind::GeneratorBound { at }) | (BoundKind::GeneratorBound { at }, _) => {
            BoundKind::GeneratorBound { at }
        }
        (same, other) if same == other => same,
        (BoundKind::Regular | BoundKind::AtLeast, BoundKind::Regular | BoundKind::Below) => {
            BoundKind::Regular
        }
        // Only one rule found its bound: trials disagree between that bound and the end of the range.
        _ => BoundKind::Disputed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_has_one_answer_of_the_two_rules_for_its_bounds() {
        use BoundKind::{AtLeast, Below, Disputed, GeneratorBound, Regular, Unfinished};
        let limited = GeneratorBound { at: 9.0 };
        for (meets, misses, answer) in [
            (Regular, Regular, Regular),
            (AtLeast, AtLeast, AtLeast),
            (Below, Below, Below),
            (limited, limited, limited),
            (Unfinished, Regular, Unfinished),
            // Trials at the largest load disagree, so that load is neither a lower nor an upper bound.
            (Regular, AtLeast, Disputed),
            (Below, AtLeast, Disputed),
            (Below, Regular, Disputed),
            (Regular, limited, limited),
        ] {
            assert_eq!(combine_kinds(meets, misses), answer, "{meets:?} and {misses:?}");
        }
    }
}
