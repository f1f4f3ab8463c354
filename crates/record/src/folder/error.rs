//! Why a result folder cannot be used.

use std::{io, path::PathBuf};

/// Why a result folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A file could not be read or written.
    #[error("cannot {what} {path}: {cause}")]
    File {
        /// `read`, `write` or `make`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        cause: io::Error,
    },
    /// It is no result folder.
    #[error(
        "{path} is no result folder: there is no {missing} in it; `proofload run STUDY --out {path}` makes one"
    )]
    NotAResultFolder {
        /// The folder.
        path: PathBuf,
        /// What is not there.
        missing: &'static str,
    },
    /// There is a result in it already.
    #[error(
        "{path} already holds a result; take it up again with --resume, or choose another folder with --out"
    )]
    AlreadyHoldsResult {
        /// The folder.
        path: PathBuf,
    },
    /// A file does not hold what it should, or not what belongs to the others.
    #[error(
        "{path}{}: {why}; take the folder from a copy, or run the study anew in another folder (--out)",
        line.map_or(String::new(), |line| format!(", line {line}"))
    )]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line, from 1, in a file of several records.
        line: Option<usize>,
        /// What is wrong with it.
        why: String,
    },
}
