//! A result, for people and for other tools: one file for each format, all behind [`Export`].
//!
//! This room reads results and decides nothing: whether a goal is met stands in them. What it computes for a
//! figure (a path of bounds, a merged histogram) is written down in `docs/report.md`.

mod answer;
mod bounds;
mod confirmed;
mod export;
mod format;
mod loads;
mod plot;
mod reading;
mod results;
mod sentence;
mod setting;
mod summary;
mod text;
mod trial;
mod warnings;

pub use answer::{Answer, Bounds, Status, answers};
pub use export::Export;
pub use format::{Format, Options, UnknownFormat, render, write};
pub use results::Results;
pub use trial::trial_answer;
