//! The reasons why a study ends.

/// The result of a step of a study; the error says why the study ends.
pub(crate) type Result<T = (), E = StopReason> = std::result::Result<T, E>;

/// The reason why a study ends before its whole plan has been run.
pub(crate) enum StopReason {
    /// The user stopped it.
    Stopped,
    /// The budget is used up.
    OutOfBudget,
    /// An error, for users.
    Failed(String),
    /// The journal in the result folder belongs to another plan; nothing is written to it.
    OtherJournal(String),
}
