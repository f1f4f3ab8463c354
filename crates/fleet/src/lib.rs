//! Runs one trial on several processes.
//!
//! The crate `processes` is the transport. `trial` runs a trial over it: every worker opens its connections, all workers start
//! at the same time, and their results are merged.

mod trial;

pub use trial::{FleetError, Workers, run, run_worker};
