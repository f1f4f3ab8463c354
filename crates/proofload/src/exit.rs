//! How the program ends: the exit statuses of the command line, and refusals.

use std::{fmt, process::ExitCode};

/// The exit statuses that scripts may rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The goals were met.
    GoalsMet,
    /// They were not.
    GoalsNotMet,
    /// Wrong use, or a plan that does not fit the machine: nothing was started.
    WrongUse,
    /// The instrument may have been the limit: nothing may be concluded.
    Void,
    /// Interrupted; what was measured so far was written, marked so.
    Interrupted,
    /// Nobody reads standard output any more: as a program that SIGPIPE ended.
    NobodyReads,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::GoalsMet => 0,
            Exit::GoalsNotMet => 1,
            Exit::WrongUse => 2,
            Exit::Void => 3,
            Exit::Interrupted => 130,
            Exit::NobodyReads => 141,
        })
    }
}

/// Why nothing was done: every mistake at once; none if only nobody reads what was found.
#[derive(Debug)]
pub(crate) struct Refusal {
    mistakes: Vec<String>,
}

impl Refusal {
    /// Several mistakes.
    pub(crate) fn new(mistakes: Vec<String>) -> Self {
        Self { mistakes }
    }

    /// One mistake.
    pub(crate) fn one(mistake: impl fmt::Display) -> Self {
        Self { mistakes: vec![mistake.to_string()] }
    }

    /// The reader of standard output has left.
    pub(crate) fn nobody_reads() -> Self {
        Self { mistakes: Vec::new() }
    }

    /// What is wrong; empty if only nobody reads what was found.
    pub(crate) fn mistakes(&self) -> &[String] {
        &self.mistakes
    }
}
