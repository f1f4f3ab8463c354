//! What tests of several crates use. Crates name it among their dev-dependencies only, so it may use no crate but `record`:
//! one that depends on it would be compiled twice for its own unit tests.
//!
//! * [`http`]: a client that notices everything.
//! * [`plans`]: plans and trials of which nothing is known yet.
//! * [`until`] and [`find`]: waiting for what is about to happen; [`unread_bytes`]: whether a server has taken it.
//! * [`assert_published`], [`assert_part_published`]: files of the documentation that are made from the code.
//! * [`accepted_void`] and [`skipped`]: what a test that passes has not tested.

pub mod foreign_lines;
pub mod http;
mod notes;
pub mod plans;
mod published;
mod sockets;
mod wait;

pub use notes::{accepted_void, skipped};
pub use published::{assert_part_published, assert_published};
pub use sockets::unread_bytes;
pub use wait::{PATIENCE, find, until};
