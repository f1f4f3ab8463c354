//! Why a study ends before its plan does.

/// Why a study ends before its plan does.
pub(crate) enum StopReason {
    /// Somebody wished it.
    Stopped,
    /// No time is left.
    OutOfBudget,
    /// Something failed, in words.
    Failed(String),
    /// The journal of an earlier run is not one of this plan: nothing is written to it.
    OtherJournal(String),
}
