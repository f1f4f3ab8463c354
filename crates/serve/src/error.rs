//! Why a target cannot start.

use std::{io, path::PathBuf};

use sockets::StartError;

/// Why the target cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// All mistakes of the configuration.
    #[error("the target's configuration is wrong:\n  {}", .0.join("\n  "))]
    Config(Vec<String>),
    /// The certificate, its key or another file of TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] tls::ConfigError),
    /// The file of the record cannot be written.
    #[error("{}: cannot be written: {cause}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The error.
        cause: io::Error,
    },
    /// A socket, processor or event loop is not available.
    #[error(transparent)]
    Start(#[from] StartError),
}
