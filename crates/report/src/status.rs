//! Whether a goal is met.

/// The status of a goal in a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The goal is met: at the workload's own load or, in a search, at the lower bound.
    Met,
    /// The goal is not met: at the workload's own load or, in a search, at any load.
    NotMet,
    /// A search found a load that meets the goal but no upper bound, because this machine could not test larger loads.
    Unfound,
    /// Nothing can be concluded: the trials are void or undecided.
    Void,
    /// Some or all trials for the goal were not run.
    Unfinished,
}

impl Status {
    /// The status in words.
    pub fn word(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::NotMet => "not met",
            Self::Unfound => "limit not found",
            Self::Void => "not decided",
            Self::Unfinished => "unfinished",
        }
    }

    /// A sign that can be recognised without colour.
    pub fn sign(self) -> &'static str {
        match self {
            Self::Met => "✓",
            Self::NotMet => "✗",
            Self::Unfound | Self::Void => "◇",
            Self::Unfinished => "…",
        }
    }
}
