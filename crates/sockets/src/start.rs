//! What a server needs before its loops run, and why it may not have it.

use std::{io, net::SocketAddr, os::fd::OwnedFd};

use rustix::{
    event::epoll,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

/// Why the loops of a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {cause}; {}", advice(.cause))]
    Listen {
        /// The address.
        address: SocketAddr,
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
    Epoll(io::Error),
}

fn advice(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::AddrInUse => "another program listens there: stop it, or choose another port",
        io::ErrorKind::AddrNotAvailable => "no interface of this host has that address: choose one that has",
        io::ErrorKind::PermissionDenied => "ports below 1024 need privileges: choose another port",
        _ => "choose another address",
    }
}

/// The epoll instance of a loop.
///
/// # Errors
/// [`StartError::Epoll`].
pub fn event_loop() -> Result<OwnedFd, StartError> {
    epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|cause| StartError::Epoll(cause.into()))
}

/// Whether this process may use the processors asked for.
///
/// # Errors
/// [`StartError::Processors`].
pub fn check_processors(asked: &[u32]) -> Result<(), StartError> {
    if asked.is_empty() {
        return Ok(());
    }
    // Where the kernel does not tell, pinning itself will show.
    let Ok(set) = sched_getaffinity(None) else { return Ok(()) };
    let most = CpuSet::MAX_CPU as u32;
    let allowed: Vec<u32> = (0..most).filter(|&cpu| set.is_set(cpu as usize)).collect();
    let missing: Vec<u32> = asked.iter().copied().filter(|cpu| !allowed.contains(cpu)).collect();
    if missing.is_empty() { Ok(()) } else { Err(StartError::Processors { missing, allowed }) }
}

/// Pins this thread to the processor of loop `number`; they take `cpus` in turn. Without any, it is left to the kernel.
pub fn pin(cpus: &[u32], number: usize) {
    if !cpus.is_empty() {
        let mut set = CpuSet::new();
        set.set(cpus[number % cpus.len()] as usize);
        // Checked before the server was bound.
        let _ = sched_setaffinity(None, &set);
    }
}
