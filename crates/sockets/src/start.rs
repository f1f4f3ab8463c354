//! Preparation of a server before its event loops run, and its errors.

use std::{io, net::SocketAddr, os::fd::OwnedFd};

use rustix::{
    event::epoll,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

/// Reason why the event loops of a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The server cannot listen on an address.
    #[error("cannot listen on {address}: {cause}; {}", advice(.cause))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error from the kernel.
        cause: io::Error,
    },
    /// Threads cannot be pinned to processors that this process may not use.
    #[error("processors {missing:?} do not exist or are not allowed; this process may use {allowed:?}")]
    Processors {
        /// The processors that cannot be used.
        missing: Vec<u32>,
        /// The processors that this process may use.
        allowed: Vec<u32>,
    },
    /// The kernel cannot create the event loops.
    #[error(
        "cannot make an epoll instance: {0}; raise the limit of open files (ulimit -n) or use fewer threads"
    )]
    Epoll(io::Error),
}

fn advice(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::AddrInUse => "another program listens there: stop it, or choose another port",
        io::ErrorKind::AddrNotAvailable => {
            "no interface of this host has that address: choose one of `ip addr`"
        }
        io::ErrorKind::PermissionDenied => "ports below 1024 need privileges: choose another port",
        _ => "choose another address",
    }
}

/// Creates the epoll instance of an event loop.
///
/// # Errors
/// [`StartError::Epoll`].
pub fn event_loop() -> Result<OwnedFd, StartError> {
    epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|cause| StartError::Epoll(cause.into()))
}

/// Checks that this process may use the processors.
///
/// # Errors
/// [`StartError::Processors`].
pub fn check_processors(wanted: &[u32]) -> Result<(), StartError> {
    if wanted.is_empty() {
        return Ok(());
    }
    // If the kernel does not tell the allowed processors, this check passes, and pinning may fail later.
    let Ok(set) = sched_getaffinity(None) else { return Ok(()) };
    let allowed: Vec<u32> = (0..CpuSet::MAX_CPU as u32).filter(|&cpu| set.is_set(cpu as usize)).collect();
    let missing: Vec<u32> = wanted.iter().copied().filter(|cpu| !allowed.contains(cpu)).collect();
    if missing.is_empty() { Ok(()) } else { Err(StartError::Processors { missing, allowed }) }
}

/// Pins this thread, which runs event loop number `number`, to a processor. The loops use `cpus` in turn. Does nothing
/// if `cpus` is empty.
pub fn pin(cpus: &[u32], number: usize) {
    if !cpus.is_empty() {
        let mut set = CpuSet::new();
        set.set(cpus[number % cpus.len()] as usize);
        // `check_processors` has already checked the processors, so an error is ignored.
        let _ = sched_setaffinity(None, &set);
    }
}
