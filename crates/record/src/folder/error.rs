//! Why a result folder cannot be used.

use std::{io, path::PathBuf};

/// The result of an operation on a result folder.
pub(crate) type Result<T = (), E = FolderError> = std::result::Result<T, E>;

/// Why a result folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A file or folder could not be read, written or created.
    #[error("cannot {what} {path}: {cause}")]
    File {
        /// The verb: `read`, `write`, `make` or `continue in`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        cause: io::Error,
    },
    /// The folder is no result folder.
    #[error(
        "{path} is not a result folder: there is no {missing} in it; make one with `proofload run STUDY --out {path}`"
    )]
    NotAResultFolder {
        /// The folder.
        path: PathBuf,
        /// The missing file.
        missing: &'static str,
    },
    /// The folder already holds a result.
    #[error("{path} already holds a result; continue it with --resume, or choose another folder with --out")]
    AlreadyHoldsResult {
        /// The folder.
        path: PathBuf,
    },
    /// The folder holds files of others, which a result would replace.
    #[error(
        "{path} is not empty: {} is in it; give a new or an empty folder with --out",
        crate::printable(&name.to_string_lossy())
    )]
    NotEmpty {
        /// The folder.
        path: PathBuf,
        /// One of its entries.
        name: std::ffi::OsString,
    },
    /// Another user could have made the folder, or could change its content.
    #[error("{path} {why}; give another folder with --out, inside a folder that no other user can write to")]
    Shared {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A record is damaged, has another schema, or does not belong to the others.
    #[error(
        "{path}{}: {why}; restore the folder from a copy, or run the study again in another folder (--out)",
        line.map_or(String::new(), |line| format!(", line {line}"))
    )]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line, from 1, if the file holds several records.
        line: Option<usize>,
        /// What is wrong.
        why: String,
    },
}
