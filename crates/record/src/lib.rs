//! What a trial leaves behind: its plan, counts, histograms, series, validity and warnings, with
//! the units they are written in.
//!
//! Everybody may use this room; it knows nobody. Names of quantities carry their unit
//! (`p99_us`, `rate_per_s`, `received_bytes`); a histogram counts nanoseconds.

pub mod distribution;
pub mod errors;
pub mod histogram;
pub mod plan;
pub mod trial;
pub mod units;
pub mod validity;

pub use distribution::Distribution;
pub use errors::{ErrorClass, ErrorCounts, Origin};
pub use histogram::{Censored, Histogram, Percentile, Summary};
pub use plan::{Arrivals, Connections, Fault, HttpPlan, LoadModel, Request, Stage, StatusSet};
pub use trial::{Counts, CpuUse, Interval, LittlesLaw, Trial, Warning};
pub use validity::{Validity, VoidReason, VoidRule};
