//! Helpers for the tests of several crates. Crates use this crate only as a dev-dependency. It may use no crate but
//! `record`, because a crate that it uses would be compiled twice for its own unit tests.
//!
//! * [`http`]: a client that distinguishes all outcomes of a request.
//! * [`plans`]: plans and trials with neutral values.
//! * [`until`] and [`find`]: wait for a condition; [`unread_bytes`]: shows whether a server has read its input.
//! * [`assert_published`], [`assert_part_published`]: check files of the documentation that the code generates.
//! * [`accepted_void`] and [`skipped`]: note what a passing test could not check.

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
