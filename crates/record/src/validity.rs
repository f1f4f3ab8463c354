//! Whether a trial may be believed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A trial's validity. A void trial is never a result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Validity {
    /// Nothing says that the instrument was the limit.
    Valid,
    /// The instrument was, or may have been, the limit.
    Void {
        /// Every rule that was broken.
        reasons: Vec<VoidReason>,
    },
}

impl Validity {
    /// Valid if there are no reasons against it.
    pub fn from_reasons(reasons: Vec<VoidReason>) -> Self {
        if reasons.is_empty() { Self::Valid } else { Self::Void { reasons } }
    }

    /// Whether the trial is void.
    pub fn is_void(&self) -> bool {
        matches!(self, Self::Void { .. })
    }

    /// The reasons; none if valid.
    pub fn reasons(&self) -> &[VoidReason] {
        match self {
            Self::Valid => &[],
            Self::Void { reasons } => reasons,
        }
    }
}

/// One broken rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VoidReason {
    /// Which rule.
    pub rule: VoidRule,
    /// The evidence with its figures, and what to do.
    pub evidence: String,
}

/// The rules; `docs/validity.md` gives the bound and the reason of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VoidRule {
    /// Requests left later than planned, through no fault of the target.
    Late,
    /// Planned requests were never sent, through no fault of the target.
    RateNotReached,
    /// A worker thread had no processor time left.
    CpuExhausted,
    /// The generator's threads waited for a processor that something else had, and a goal was not met.
    ProcessorShared,
    /// Planned connections could not be opened for want of something on this machine.
    UnopenedConnections,
    /// This machine ran out of descriptors, ports or memory.
    LocalExhaustion,
    /// Connections on demand were as many as this machine gives, all busy, and more might have carried more.
    PoolLimited,
    /// What was counted does not add up.
    Accounting,
    /// Concurrency, rate and time contradict Little's law.
    LittlesLaw,
    /// A worker process was lost.
    WorkerLost,
    /// What the target stored could not be held against what it acknowledged.
    Unaudited,
    /// An emulated link was not what it was asked to be.
    Link,
}
