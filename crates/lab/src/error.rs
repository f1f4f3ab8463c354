//! Errors of creating a lab, and failures of its processes.

use std::{fmt, io};

use crate::link::LinkError;

/// The reason why a lab could not be created. Everything created so far has been removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An action failed.
    #[error("cannot {what}: {cause}")]
    Failed {
        /// The action.
        what: String,
        /// The error from the kernel.
        cause: io::Error,
    },
    /// A link could not be created.
    #[error("link {name}: {cause}")]
    Link {
        /// Name of the link.
        name: String,
        /// The reason.
        cause: LinkError,
    },
    /// A process failed.
    #[error("{0}")]
    Process(ProcessFailure),
    /// A change could not be recorded in the journal, or could not be undone.
    #[error(transparent)]
    Undo(#[from] undo::Error),
    /// This machine lacks something that the lab needs.
    #[error("this machine cannot run this lab: {}", .0.join("; "))]
    Unsupported(Vec<String>),
    /// [`Options::stop`](crate::Options::stop) was set.
    #[error("cancelled while the lab was being brought up")]
    Cancelled,
}

impl Error {
    pub(crate) fn failed(what: impl Into<String>, cause: io::Error) -> Self {
        Self::Failed { what: what.into(), cause }
    }
}

/// A process that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessFailure {
    /// Name of the process.
    pub name: String,
    /// The failure, as a predicate of the process's name.
    pub why: String,
    /// The last lines of its output.
    pub last_lines: Vec<String>,
}

impl fmt::Display for ProcessFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.why)?;
        if self.last_lines.is_empty() {
            return write!(f, "; it wrote nothing");
        }
        write!(f, "; the end of its output:")?;
        self.last_lines.iter().try_for_each(|line| write!(f, "\n    | {line}"))
    }
}
