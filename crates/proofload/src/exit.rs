//! Exit statuses of the program, and errors that end a command.

use std::{fmt, process::ExitCode};

/// The exit statuses. Scripts rely on them.
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
    /// The reader of standard output closed it; the status is that of a program killed by SIGPIPE.
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

/// All mistakes that ended a command without a result. Empty if the reader closed standard output.
#[derive(Debug)]
pub(crate) struct Refusal {
    mistakes: Vec<String>,
}

/// The result of a command, or its mistakes.
pub(crate) type Result<T = (), E = Refusal> = std::result::Result<T, E>;

impl Refusal {
    pub(crate) fn new(mistakes: Vec<String>) -> Self {
        Self { mistakes }
    }

    /// A refusal with mistakes of any printable type.
    pub(crate) fn all(mistakes: impl IntoIterator<Item = impl fmt::Display>) -> Self {
        Self::new(mistakes.into_iter().map(|mistake| mistake.to_string()).collect())
    }

    pub(crate) fn one(mistake: impl fmt::Display) -> Self {
        Self { mistakes: vec![mistake.to_string()] }
    }

    /// The refusal after the reader has closed standard output.
    pub(crate) fn stdout_closed() -> Self {
        Self { mistakes: Vec::new() }
    }

    /// The mistakes; empty if the reader closed standard output.
    pub(crate) fn mistakes(&self) -> &[String] {
        &self.mistakes
    }
}
