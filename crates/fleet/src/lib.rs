//! Runs one trial on several processes.
//!
//! [`processes`] is the transport: copies of this program that exchange JSON lines over their standard streams and die with
//! their parent. `trial` runs a trial over it: every worker opens its connections, all workers start at the same time, and
//! their results are merged.

pub mod processes;
mod trial;

pub use trial::{FleetError, Workers, run, run_worker};
