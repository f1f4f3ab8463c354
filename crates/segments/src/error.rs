//! Errors of opening and closing a store.

use std::{io, path::PathBuf, time::Duration};

/// Why a store could not be opened or closed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is wrong.
    #[error("{0}")]
    Config(String),
    /// Another process uses the journal.
    #[error("{folder} is used by process {pid}; stop it, or choose another folder for the journal")]
    Locked {
        /// The folder of the journal.
        folder: PathBuf,
        /// Its process ID, from the lock file.
        pid: String,
    },
    /// A file or a folder cannot be read or written.
    #[error("cannot {what} {path}: {cause}")]
    File {
        /// The action.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The kernel's error.
        cause: io::Error,
    },
    /// Threads cannot be started.
    #[error("cannot start a thread for writing: {0}; check the limit of processes (ulimit -u)")]
    Thread(io::Error),
    /// Some lines were not stored while the store was closing, or may not be on the disk.
    #[error("some lines may not be on the disk: {}", incomplete(.failed_parts, .unsynced, .panicked))]
    Incomplete {
        /// Parts that failed since closing began.
        failed_parts: u64,
        /// Segments that could not be synced. The next start recovers them.
        unsynced: Vec<PathBuf>,
        /// Whether a thread has panicked.
        panicked: bool,
    },
    /// The disk did not answer in time.
    #[error("the disk has not stored all lines within {0:?}; lines without an answer may be lost")]
    Hung(Duration),
}

impl Error {
    pub(crate) fn file(what: &'static str, path: impl Into<PathBuf>, cause: impl Into<io::Error>) -> Self {
        Self::File { what, path: path.into(), cause: cause.into() }
    }

    /// An error of the journal's folder. Errors of the crate `files` have no error number of the kernel.
    pub(crate) fn state(what: &'static str, path: impl Into<PathBuf>, cause: io::Error) -> Self {
        let path = path.into();
        if cause.raw_os_error().is_some() || cause.kind() != io::ErrorKind::PermissionDenied {
            return Self::file(what, path, cause);
        }
        Self::Config(format!(
            "{} {cause}: recovery changes the files that the journal names, so the journal's folder must belong to this user \
             alone. Check its content and move it away, or name another folder with --state",
            path.display()
        ))
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
        [one] => reasons.push(format!("{} could not be synced; check the disk", one.display())),
        [first, others @ ..] => reasons.push(format!(
            "{} and {} other files could not be synced; check the disk",
            first.display(),
            others.len()
        )),
    }
    reasons.join("; ")
}
