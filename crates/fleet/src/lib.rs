//! One trial from many processes.
//!
//! [`processes`] is the in-machine transport: copies of this program that talk JSON lines over their
//! standard streams and die with their parent. [`trial`] runs a trial over it: every worker makes its
//! connections, all start at the same instant, and what they found is merged.

pub mod processes;
pub mod trial;

pub use trial::{FleetError, Workers, run, work};
