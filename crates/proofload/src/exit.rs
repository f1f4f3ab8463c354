//! Exit statuses of the program, and refusals.

use std::{fmt, process::ExitCode};

/// The exit statuses that scripts may rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The goals are met.
    GoalsMet,
    /// The goals are not met.
    GoalsNotMet,
    /// Wrong use, a plan that does not fit the machine, or an operation that failed.
    WrongUse,
    /// Nothing can be concluded: the instrument may have been the limit.
    Void,
    /// Interrupted; the results so far are written and marked as interrupted.
    Interrupted,
    /// The reader of standard output has closed it; the status is that of a program killed by SIGPIPE.
    StdoutClosed,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::GoalsMet => 0,
            Exit::GoalsNotMet => 1,
            Exit::WrongUse => 2,
            Exit::Void => 3,
            Exit::Interrupted => 130,
            Exit::StdoutClosed => 141,
        })
    }
}

/// Why a command ends without a result: all mistakes at once. It has no mistakes if standard output was closed.
#[derive(Debug)]
pub(crate) struct Refusal {
    mistakes: Vec<String>,
}

/// The result of a command, or why it was refused.
pub(crate) type Result<T = (), E = Refusal> = std::result::Result<T, E>;

impl Refusal {
    /// A refusal with several mistakes.
    pub(crate) fn new(mistakes: Vec<String>) -> Self {
        Self { mistakes }
    }

    /// The same for mistakes of any type.
    pub(crate) fn all(mistakes: impl IntoIterator<Item = impl fmt::Display>) -> Self {
        Self::new(mistakes.into_iter().map(|mistake| mistake.to_string()).collect())
    }

    /// A refusal with one mistake.
    pub(crate) fn one(mistake: impl fmt::Display) -> Self {
        Self { mistakes: vec![mistake.to_string()] }
    }

    /// The refusal for a standard output that its reader has closed.
    pub(crate) fn stdout_closed() -> Self {
        Self { mistakes: Vec::new() }
    }

    /// The mistakes; empty if standard output was closed.
    pub(crate) fn mistakes(&self) -> &[String] {
        &self.mistakes
    }
}
