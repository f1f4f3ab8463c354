//! The validity of a trial.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A trial's validity. A void trial is never a result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Validity {
    /// No rule indicates that the instrument was the limit.
    Valid,
    /// The instrument was, or may have been, the limit.
    Void {
        /// All violated rules.
        reasons: Vec<VoidReason>,
    },
}

impl Validity {
    /// Valid if `reasons` is empty, otherwise void.
    pub fn from_reasons(reasons: Vec<VoidReason>) -> Self {
        if reasons.is_empty() { Self::Valid } else { Self::Void { reasons } }
    }

    /// Whether the trial is void.
    pub fn is_void(&self) -> bool {
        matches!(self, Self::Void { .. })
    }

    /// The reasons; empty if valid.
    pub fn reasons(&self) -> &[VoidReason] {
        match self {
            Self::Valid => &[],
            Self::Void { reasons } => reasons,
        }
    }
}

/// A violated rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VoidReason {
    /// The rule.
    pub rule: VoidRule,
    /// The evidence with its figures, and what to do about it.
    pub evidence: String,
}

crate::named_enum! {
    /// The validity rules; `docs/validity.md` explains each with its bound.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum VoidRule {
        /// Requests were sent late, and the target was not the cause.
        Late "generator late",
        /// Planned requests were never sent, and the target was not the cause.
        RateNotReached "rate not reached",
        /// A worker thread had no processor time left.
        CpuExhausted "generator's processor fully used",
        /// The generator's threads waited for a processor that other processes used, and a goal was not met.
        ProcessorShared "generator's processor shared",
        /// Planned connections could not be opened because this machine lacked a resource.
        UnopenedConnections "connections not opened",
        /// This machine ran out of descriptors, ports or memory.
        LocalExhaustion "this machine exhausted",
        /// The connections on demand reached this machine's limit and were all busy: more connections might have given a better
        /// result.
        PoolLimited "too few connections on this machine",
        /// The counts are inconsistent.
        Accounting "counts do not add up",
        /// Concurrency, rate and time contradict Little's law.
        LittlesLaw "Little's law broken",
        /// A worker process was lost.
        WorkerLost "worker lost",
        /// A quantity that a goal bounds could not be measured.
        Unmeasured "quantity not measured",
        /// The stored events could not be compared with the acknowledged ones.
        Unaudited "not audited",
        /// An emulated link did not have its requested properties.
        Link "emulated link",
        /// An action of the study failed.
        Action "action failed",
        /// The target stopped answering during a search.
        TargetGone "target gone",
        /// Nothing answered, as far as the protocol goes: there was no load on anything.
        NoAnswer "nothing answered",
    }
    /// The rule in words.
    pub fn words;
}
