//! What a search found.

use record::{BoundKind, GoalOutcome};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a search found, at its end or so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// The bounds of each goal, in the order of the plan.
    pub goals: Vec<GoalOutcome>,
    /// Goals that larger loads met all the same. These loads are no part of the answer.
    pub inversions: Vec<Inversion>,
    /// Goals whose answer is the generator's limit although trials disagree well below it.
    pub disputes: Vec<Dispute>,
    /// How the search ended.
    pub ended: Ended,
    /// Trials told of, the void and the warm-up included.
    pub trials: u64,
    /// The void ones.
    pub void_trials: u64,
    /// Seconds of trials, the void and the warm-up included.
    pub trial_seconds: f64,
}

/// How a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum Ended {
    /// There was nothing left to measure.
    Complete,
    /// The next trial would have gone over the budget.
    OutOfBudget,
    /// Trials were void too often at a load the generator had shown it can make: the instrument cannot be
    /// trusted.
    Void {
        /// The load of the last one.
        at: f64,
    },
    /// It has not ended.
    Unfinished,
}

/// Loads above a goal's upper bound that met it (loss inversion): the smaller load is believed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Inversion {
    /// The goal's name.
    pub goal: String,
    /// The upper bound.
    pub missed: f64,
    /// The larger loads, smallest first.
    pub met: Vec<f64>,
}

/// A goal of which it is not told whether the target or the busy generator is the limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Dispute {
    /// The goal's name.
    pub goal: String,
    /// A load at which not every trial met it.
    pub missed: f64,
    /// The least load that the generator could not make.
    pub not_made: f64,
}

/// What is said of a goal whose lower bound is by one rule, and its upper one by another.
pub(crate) fn both(meets: GoalOutcome, misses: GoalOutcome) -> GoalOutcome {
    let kind = kind(meets.kind, misses.kind);
    // What lies beyond the generator's limit is not called the target's.
    let upper = misses.upper.filter(|_| !matches!(kind, BoundKind::GeneratorBound { .. }));
    // The trials that disagree lie between the two, as they do in any answer of two rules.
    let has_both = kind == BoundKind::Disputed && meets.lower.is_some() && upper.is_some();
    let kind = if has_both { BoundKind::Regular } else { kind };
    GoalOutcome { upper, kind, ..meets }
}

fn kind(meets: BoundKind, misses: BoundKind) -> BoundKind {
    match (meets, misses) {
        (BoundKind::Unfinished, _) | (_, BoundKind::Unfinished) => BoundKind::Unfinished,
        // What a generator that cannot make more has caused below that is not told apart from the target's doing.
        (_, BoundKind::GeneratorBound { at }) | (BoundKind::GeneratorBound { at }, _) => {
            BoundKind::GeneratorBound { at }
        }
        (same, other) if same == other => same,
        (BoundKind::Regular | BoundKind::AtLeast, BoundKind::Regular | BoundKind::Below) => {
            BoundKind::Regular
        }
        // One of them found its bound, the other none: between it and the end of the range trials disagree.
        _ => BoundKind::Disputed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_has_one_answer_of_the_two_rules_for_its_bounds() {
        use BoundKind::{AtLeast, Below, Disputed, GeneratorBound, Regular, Unfinished};
        let void = GeneratorBound { at: 9.0 };
        for (meets, misses, answer) in [
            (Regular, Regular, Regular),
            (AtLeast, AtLeast, AtLeast),
            (Below, Below, Below),
            (void, void, void),
            (Unfinished, Regular, Unfinished),
            // At the largest load some trials are good and some are bad: neither bound of the goal is there.
            (Regular, AtLeast, Disputed),
            (Below, AtLeast, Disputed),
            (Below, Regular, Disputed),
            (Regular, void, void),
        ] {
            assert_eq!(kind(meets, misses), answer, "{meets:?} and {misses:?}");
        }
    }
}
