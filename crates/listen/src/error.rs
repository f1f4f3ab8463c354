//! Why the listener cannot start, or not reload.

use std::{io, net::SocketAddr, path::PathBuf};

/// Why the listener cannot start, or not reload.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration has mistakes; all of them.
    #[error("the listener's configuration is wrong:\n  {}", .0.join("\n  "))]
    Config(Vec<String>),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {cause}; {}", advice(.cause))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The kernel's refusal.
        cause: io::Error,
    },
    /// A socket handed in is not one that listens on an Internet address.
    #[error("socket {number} handed in cannot be listened on: {cause}; hand in TCP sockets that listen")]
    Handed {
        /// Its place among those handed in, from 0.
        number: usize,
        /// The kernel's refusal.
        cause: io::Error,
    },
    /// Threads were to be pinned to processors that this process may not use.
    #[error("processors {missing:?} are not there or not allowed; this process may use {allowed:?}")]
    Processors {
        /// Those asked for in vain.
        missing: Vec<u32>,
        /// Those it may use.
        allowed: Vec<u32>,
    },
    /// The kernel has no room for the event loops.
    #[error(
        "cannot make an epoll instance: {0}; raise the limit of open files (ulimit -n) or use fewer threads"
    )]
    Loop(io::Error),
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

fn advice(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::AddrInUse => "another program listens there: stop it, or choose another port",
        io::ErrorKind::AddrNotAvailable => "no interface of this host has that address: choose one that has",
        io::ErrorKind::PermissionDenied => "ports below 1024 need privileges: choose another port",
        _ => "choose another address",
    }
}
