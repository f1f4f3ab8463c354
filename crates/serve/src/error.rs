//! Why a target cannot start.

use std::{io, path::PathBuf};

use sockets::StartError;

/// Why a target cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// All mistakes of the configuration.
    #[error("the target's configuration is wrong:\n  {}", .0.join("\n  "))]
    Config(Vec<String>),
    /// The certificate, the key or another TLS file is unusable.
    #[error(transparent)]
    Tls(#[from] tls::ConfigError),
    /// The record's file cannot be written.
    #[error("{}: cannot be written: {cause}", path.display())]
    Record {
        /// Path of the record.
        path: PathBuf,
        /// Why it cannot be written.
        cause: io::Error,
    },
    /// A socket, a processor or an event loop is unavailable.
    #[error(transparent)]
    Start(#[from] StartError),
}
