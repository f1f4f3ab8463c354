//! What load to try next, and what the trials mean.
//!
//! A [`Search`] is a pure state machine: it names the next trial ([`Search::next`]), is told what came of it
//! ([`Search::tell`]), and ends with two bounds for each goal. It has no clock and does no I/O; the same plan
//! and the same outcomes give the same steps, so that a killed search, told its outcomes again, goes on where it
//! was.
//!
//! ```
//! use search::{Measured, Preset, Search, SearchPlan, Step, Unit};
//!
//! let goal = Preset::Mlrsearch.goal("no errors", 0.0);
//! let mut search = Search::new(SearchPlan::new(Unit::Whole, 1.0, 10_000.0, vec![goal]))?;
//! let outcome = loop {
//!     match search.next() {
//!         Step::Measure(trial) => {
//!             let loss_ratio = (1.0 - 640.0 / trial.load).max(0.0); // a target that carries 640
//!             search.tell(Measured::Valid { loss_ratios: vec![loss_ratio], effective_duration_s: trial.duration_s })?;
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
//! How it searches, and from which sources: `docs/search.md`.

pub mod classification;
pub mod statistics;

mod curve;
mod goal;
mod grid;
mod knee;
mod outcome;
mod plan;
mod preset;
mod progress;
mod search;
mod strategy;
mod threshold;
mod trials;

pub use goal::{SearchGoal, SurelyNot};
pub use knee::knee;
pub use outcome::{Dispute, Ended, Inversion, Outcome};
pub use plan::{Method, Midpoint, Mistake, Mistakes, SearchPlan, Start, Unit, VoidPolicy, WarmUp};
pub use preset::{Preset, UnknownPreset};
pub use progress::Progress;
pub use record::{Bound, BoundKind, GoalOutcome};
pub use search::{Measured, NextTrial, Search, Step, TellError};
