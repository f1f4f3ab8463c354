//! What a search found.

pub use record::BoundKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a search found, at its end or so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// For each goal, in the order of the plan.
    pub goals: Vec<GoalOutcome>,
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

/// The bounds found for a goal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GoalOutcome {
    /// The goal's name.
    pub name: String,
    /// The relevant lower bound: the largest load that meets the goal, below all that do not.
    pub lower: Option<Bound>,
    /// The relevant upper bound: the smallest load that does not.
    pub upper: Option<Bound>,
    /// What kind of answer the bounds are.
    pub kind: BoundKind,
    /// Loads above the upper bound that met the goal all the same (loss inversion), smallest first. They are
    /// no part of the answer.
    pub inverted: Vec<f64>,
}

/// A load that a goal decides about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bound {
    /// The load.
    pub load: f64,
    /// What got through at this load (RFC 9971, conditional throughput), in units of load; of a lower bound
    /// only, and only where its own trials suffice to say so.
    pub conditional_throughput: Option<f64>,
    /// Valid trials at this load.
    pub trials: u64,
    /// Seconds of its full-length trials that were low-loss.
    pub good_s: f64,
    /// Seconds of its full-length trials that were high-loss.
    pub bad_s: f64,
}
