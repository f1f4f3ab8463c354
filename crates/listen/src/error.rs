//! Errors that occur when the listener starts or reloads.

use std::{io, path::PathBuf};

use sockets::StartError;

/// Why the listener cannot start or reload.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// All mistakes of the configuration.
    #[error("the listener's configuration is wrong:\n  {}", .0.join("\n  "))]
    Config(Vec<String>),
    /// A socket, a processor or an event loop is unavailable.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A passed-in socket does not listen on an Internet address.
    #[error("socket {number} handed in is not usable: {cause}; hand in listening TCP sockets")]
    Handed {
        /// The socket's index among those passed in, from 0.
        number: usize,
        /// Why the socket cannot be used.
        cause: io::Error,
    },
    /// The storage cannot be opened.
    #[error(transparent)]
    Store(#[from] segments::Error),
    /// A certificate or its key cannot be used.
    #[error("{}: {cause}", path.display())]
    Tls {
        /// The unusable file.
        path: PathBuf,
        /// The problem with the file, and how to solve it.
        cause: String,
    },
}
