//! Output for people and programs: progress, text, files.

pub(crate) mod comparison_text;
pub(crate) mod destination;
pub(crate) mod hlog;
pub(crate) mod peer_text;
pub(crate) mod progress;
pub(crate) mod standard;
pub(crate) mod trial_text;
mod wrap;

use record::Span;

/// A time in words for a table column. The `≥` of a lower bound is directly before the number, to save a column.
fn marked(time: Span, show: impl Fn(u64) -> String) -> String {
    time.in_words(|ns| show(ns as u64)).replace("≥ ", "≥")
}
