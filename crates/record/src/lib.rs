//! What a trial leaves behind: its plan, counts, histograms, series, validity and warnings, with
//! the units they are written in.
//!
//! Everybody may use this room; it knows nobody. Names of quantities carry their unit
//! (`p99_us`, `rate_per_s`, `received_bytes`); a histogram counts nanoseconds.

pub mod audit;
mod diagnosis;
pub mod distribution;
pub mod environment;
pub mod errors;
pub mod folder;
pub mod goal;
pub mod histogram;
pub mod input;
pub mod plan;
pub mod quantity;
pub mod receipt;
pub mod study;
#[cfg(test)]
mod testing;
pub mod trial;
pub mod units;
pub mod validity;
pub mod visible;

pub use audit::{AuditExample, AuditFinding, AuditResult, EventCounts, PlaceCounts, ReadCounts};
pub use distribution::Distribution;
pub use environment::Environment;
pub use errors::{ErrorClass, ErrorCounts, Origin};
pub use folder::ResultFolder;
pub use goal::{Goal, GoalQuantity};
pub use histogram::{Censored, Histogram, Percentile, Summary};
pub use plan::{Arrivals, Connections, Decision, Fault, HttpPlan, LoadModel, Request, Stage, StatusSet};
pub use quantity::{GivenQuantity, Quantity, QuantityValue};
pub use receipt::{AckLevel, EventFraming, EventOutcome, EventPlan, ReceiptPlan};
pub use study::{
    AuditPlan, AuditTotals, Bound, BoundKind, BoundsAfter, BoundsSoFar, Confirmation, Ending, Factor,
    GoalOutcome, Knee, Level, LoadUnit, Purpose, QuantitySummary, SearchOutcome, SearchPlan, SecretPrint,
    SecretPrints, Setting, SettingOutcome, StudyPlan, StudyResult, TrialEntry,
};
pub use trial::{
    Away, CommandPlan, CommandRun, CommandTrial, Counts, CpuUse, Flow, HttpTrial, Interval, Kind, LittlesLaw,
    Measured, MovedBytes, NumberRead, OwnPercentile, Trial, Warning,
};
pub use validity::{Validity, VoidReason, VoidRule};
pub use visible::visible;
