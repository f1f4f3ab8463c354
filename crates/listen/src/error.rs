//! Errors of starting and reloading the listener.

use std::{io, path::PathBuf};

use sockets::StartError;

/// Errors of starting and reloading the listener.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// All mistakes of the configuration.
    #[error("the listener's configuration is wrong:\n  {}", .0.join("\n  "))]
    Config(Vec<String>),
    /// A socket, processor or event loop is not available.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A socket handed in does not listen on an Internet address.
    #[error("socket {number} handed in is not usable: {cause}; hand in listening TCP sockets")]
    Handed {
        /// Its index among the sockets handed in, from 0.
        number: usize,
        /// The error.
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
        /// The problem with the file, and what to do.
        cause: String,
    },
}
