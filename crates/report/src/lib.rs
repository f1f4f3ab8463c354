//! Renders a result for people and for other tools, with one file per output format.
//!
//! This crate judges nothing: the results already say whether a goal is met. `docs/report.md` describes the figures
//! that the crate computes, such as the path of a search or merged histograms.

mod advice;
mod answer;
mod bounded;
mod bounds;
mod confirmed;
mod export;
mod format;
mod headline;
mod loads;
mod machines;
mod plot;
mod proofs;
mod reading;
mod results;
mod sentence;
mod setting;
mod status;
mod summary;
mod text;
mod trial;
mod warnings;

pub use answer::{Answer, Bounds, answers};
pub use export::{render, write};
pub use format::{Format, Options};
pub use machines::{MACHINE_COLUMNS, machine_rows};
pub use results::Results;
pub use status::Status;
pub use text::quantity as show_quantity;
pub use trial::trial_answer;
