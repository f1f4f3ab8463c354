//! Why a store does not open or close.

use std::{io, path::PathBuf, time::Duration};

/// Why a store does not open or close.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Settings that do not go together.
    #[error("{0}")]
    Config(String),
    /// Another process has the journal.
    #[error("{folder} is used by process {pid}; stop it, or choose another folder for the journal")]
    Locked {
        /// The folder of the journal.
        folder: PathBuf,
        /// The process, as it has written itself down.
        pid: String,
    },
    /// A file or a folder cannot be read or written.
    #[error("cannot {what} {path}: {cause}")]
    File {
        /// What was tried.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The kernel's reason.
        cause: io::Error,
    },
    /// Threads cannot be started.
    #[error("cannot start a thread for writing: {0}; is there a limit of processes?")]
    Thread(io::Error),
    /// Something was not stored after closing had begun, or is not known to be on the disk.
    #[error("not all is on the disk: {}", incomplete(.failed_parts, .unsynced, .panicked))]
    Incomplete {
        /// Parts that failed, or that nobody knows of.
        failed_parts: u64,
        /// Segments that could not be synced; the next start reads what the disk has of them.
        unsynced: Vec<PathBuf>,
        /// A thread has panicked.
        panicked: bool,
    },
    /// The disk did not answer in time.
    #[error("the disk has not taken all lines within {0:?}; what was not answered may not be stored")]
    Hung(Duration),
}

impl Error {
    pub(crate) fn file(what: &'static str, path: impl Into<PathBuf>, cause: impl Into<io::Error>) -> Self {
        Self::File { what, path: path.into(), cause: cause.into() }
    }
}

fn incomplete(failed_parts: &u64, unsynced: &[PathBuf], panicked: &bool) -> String {
    let mut reasons = Vec::new();
    if *panicked {
        reasons.push("a thread has panicked, see the log".to_owned());
    }
    if *failed_parts > 0 {
        reasons.push(format!("{failed_parts} parts were not stored"));
    }
    match unsynced {
        [] => {}
        [one] => reasons.push(format!("{} could not be synced; look at the disk", one.display())),
        [first, others @ ..] => reasons.push(format!(
            "{} and {} other files could not be synced; look at the disk",
            first.display(),
            others.len()
        )),
    }
    reasons.join("; ")
}
