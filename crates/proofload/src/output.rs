//! What people and programs read: progress, text, files.

pub mod progress;
pub mod trial_files;
pub mod trial_text;
