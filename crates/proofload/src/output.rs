//! What people and programs read: progress, text, files.

pub mod comparison_text;
pub mod destination;
pub mod hlog;
pub mod progress;
pub mod standard;
pub mod study_progress;
pub mod trial_text;
mod wrap;
