//! The trials that a search requests, and the outcomes that it receives.

use serde::{Deserialize, Serialize};

use crate::outcome::Outcome;

/// The next step of a search.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Run this trial, then call [`Search::report`](crate::Search::report).
    Measure(NextTrial),
    /// The search has ended.
    Done(Outcome),
}

/// A trial to run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NextTrial {
    /// Its load, in the unit of the plan.
    pub load: f64,
    /// Its length, in seconds.
    pub duration_s: f64,
    /// Whether it is a warm-up: its outcome must be reported too, but does not influence the bounds.
    pub is_warm_up: bool,
    /// Number of consecutive void trials at this step before this one.
    pub attempt: u32,
    /// Time to wait before the trial, in seconds: up to half its length.
    pub gap_s: f64,
}

/// The outcome of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "measured", rename_all = "snake_case")]
pub enum TrialOutcome {
    /// The trial ran as planned.
    Valid {
        /// The share of the requests that was lost to each goal (0 to 1), in the order of the plan.
        loss_ratios: Vec<f64>,
        /// The seconds for which the trial counts: its planned length, or more to include overhead (CSIT adds 0.5 s). A
        /// slightly smaller value counts as the planned length, because clocks differ a little.
        effective_duration_s: f64,
    },
    /// The trial ran as planned, but the disturbances that were measured during it leave goals undecided.
    Undecided {
        /// As for a valid trial. The loss ratios of undecided goals have no meaning.
        loss_ratios: Vec<f64>,
        /// The undecided goals, by their indices in the plan.
        goals: Vec<usize>,
        /// Whether the generator was exhausted or late. The trial is then void if the generator has not made its load
        /// before.
        is_exhausted: bool,
    },
    /// The trial says nothing about the target, for example because the generator was late, an agent was lost, or a
    /// clock was bad.
    Void {
        /// Whether the generator was exhausted, so that a repeat will hardly be better.
        is_exhausted: bool,
    },
}

/// Why a reported outcome was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum OutcomeError {
    /// The search has not asked for a trial.
    #[error("the search has not asked for a trial: call `next_step` and run the trial that it returns")]
    NoTrial,
    /// The number of loss ratios differs from the number of goals.
    #[error("{reported} loss ratios for {goals} goals: report one for each goal, in the order of the plan")]
    Ratios {
        /// Number of reported ratios.
        reported: usize,
        /// Number of goals.
        goals: usize,
    },
    /// A loss ratio is not between 0 and 1.
    #[error("the loss ratio {loss_ratio} of goal {goal:?} is not a share: report 0 to 1, or a void trial")]
    Ratio {
        /// The goal.
        goal: String,
        /// The reported ratio.
        loss_ratio: f64,
    },
    /// The trial was far shorter than planned.
    #[error(
        "a trial of {duration_s} s was reported with {effective_duration_s} s: report its planned length, or a void trial if it was cut short"
    )]
    Duration {
        /// Its planned length, in seconds.
        duration_s: f64,
        /// The reported length, in seconds.
        effective_duration_s: f64,
    },
}
