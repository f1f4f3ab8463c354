//! Why the listener cannot start, or not reload.

use std::{io, path::PathBuf};

use sockets::StartError;

/// Why the listener cannot start, or not reload.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration has mistakes; all of them.
    #[error("the listener's configuration is wrong:\n  {}", .0.join("\n  "))]
    Config(Vec<String>),
    /// The kernel does not let it listen, or run where it is to.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A socket handed in is not one that listens on an Internet address.
    #[error("socket {number} handed in cannot be listened on: {cause}; hand in TCP sockets that listen")]
    Handed {
        /// Its place among those handed in, from 0.
        number: usize,
        /// The kernel's refusal.
        cause: io::Error,
    },
    /// The storage cannot be opened.
    #[error(transparent)]
    Store(#[from] segments::Error),
    /// A certificate or its key cannot be used.
    #[error("{}: {cause}", path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        cause: String,
    },
}
