//! The records of trials and studies: plans, counts, histograms, series, validity and warnings, and their units.
//!
//! Every other crate may use this one; it uses only `files` and `schema`. Names of quantities end with their unit
//! (`p99_us`, `rate_per_s`, `received_bytes`). Histograms count nanoseconds.

pub mod audit;
pub mod counters;
mod diagnosis;
mod distribution;
pub mod environment;
mod errors;
pub mod folder;
mod goal;
mod histogram;
pub mod input;
mod named;
mod noise;
pub mod percentile;
pub mod plan;
pub mod printable;
pub mod quantity;
pub mod receipt;
mod span;
pub mod study;
#[cfg(test)]
mod testing;
pub mod text;
pub mod trial;
pub mod units;
mod validity;
mod verdict;

pub use audit::{AuditExample, AuditFinding, AuditResult, EventCounts, PlaceCounts, ReadCounts};
pub use counters::{
    Counters, HostCounters, ListenerUse, ProgramUse, SenderUse, TrialCounters, WorkingThreads,
};
pub use distribution::Distribution;
pub use environment::Environment;
pub use errors::{ErrorClass, ErrorCounts, Origin};
pub use folder::ResultFolder;
pub use goal::{Goal, GoalQuantity};
pub use histogram::{CensoredTimes, Histogram, Summary, nearest_rank};
pub use noise::{Noise, OnNoise};
pub use plan::{
    AbortRule, Arrivals, ConnectionPlan, Connections, Decision, Fault, FeederPlan, HttpPlan, LoadModel,
    LogPlan, NamePlan, Request, RequestPlan, RowOrder, ScriptPlan, Stage, StatusSet, StepAction, StepPlan,
    TextRequest, TlsPlan, TunnelPlan,
};
pub use printable::printable;
pub use quantity::Quantity;
pub use receipt::{AckLevel, EventFraming, EventOutcome, EventPlan, ReceiptPlan};
pub use span::Span;
pub use study::{
    ActionRecord, AuditPlan, AuditTotals, Bound, BoundKind, Bounding, BoundsAfterTrial, Confirmation,
    CurrentBounds, DeclaredQuantity, Ending, Factor, GoalOutcome, Knee, Level, LoadUnit, Proof, ProofFigure,
    Proven, Purpose, QuantitySummary, SearchOutcome, SearchPlan, SecretFingerprint, SecretFingerprints,
    Setting, SettingOutcome, StudyPlan, StudyResult, TrialEntry,
};
pub use text::{Text, TextPart};
pub use trial::{
    Away, ByteSource, CommandPlan, CommandRun, CommandTrial, Counts, CpuUse, Flow, HttpTrial, Interval,
    Iterations, Kind, LinkStall, LittlesLaw, MachineTrial, Measured, OutputNumber, OwnPercentile,
    ScriptResult, SoundTime, StepResult, Trial, UsersTime, Warning,
};
pub use validity::{Validity, VoidReason, VoidRule};
pub use verdict::{Bottleneck, Cause, Certainty, Excluded, TimePart, TimeState, Verdict};
