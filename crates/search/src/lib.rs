//! Chooses the load of the next trial and evaluates the trials.
//!
//! A [`Search`] is a pure state machine: [`Search::next_step`] returns the next trial, [`Search::report`] takes its
//! outcome, and at the end there are two bounds for each goal. It has no clock and does no I/O. The same plan and the
//! same outcomes give the same steps, so a killed search continues at the same step after its outcomes are reported
//! again.
//!
//! ```
//! use search::{Preset, Search, SearchPlan, Step, TrialOutcome, Unit};
//!
//! let goal = Preset::Mlrsearch.goal("no errors", 0.0);
//! let mut search = Search::new(SearchPlan::new(Unit::Whole, 1.0, 10_000.0, vec![goal]))?;
//! let outcome = loop {
//!     match search.next_step() {
//!         Step::Measure(trial) => {
//!             let loss_ratio = (1.0 - 640.0 / trial.load).max(0.0); // a target with a capacity of 640
//!             search.report(TrialOutcome::Valid { loss_ratios: vec![loss_ratio], effective_duration_s: trial.duration_s })?;
//!         }
//!         Step::Done(outcome) => break outcome,
//!     }
//! };
//! let goal = &outcome.goals[0];
//! assert!(goal.lower.as_ref().is_some_and(|bound| bound.load <= 640.0));
//! assert!(goal.upper.as_ref().is_some_and(|bound| bound.load > 640.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The methods and their sources: `docs/search.md`.

pub mod classification;
pub mod statistics;
pub mod steadiness;

mod curve;
mod goal;
mod grid;
mod knee;
mod mistake;
mod outcome;
mod plan;
mod preset;
mod progress;
mod search;
mod step;
mod strategy;
mod threshold;
mod trials;

pub use goal::{SearchGoal, UpperBoundRule};
pub use knee::knee;
pub use mistake::{Mistake, Mistakes};
pub use outcome::{Dispute, Ending, Inversion, Outcome, UndecidedBetween};
pub use plan::{Method, Midpoint, SearchPlan, Start, Unit, VoidPolicy, WarmUp};
pub use preset::{Preset, UnknownPreset};
pub use progress::Progress;
pub use record::{Bound, BoundKind, GoalOutcome};
pub use search::Search;
pub use step::{NextTrial, OutcomeError, Step, TrialOutcome};
