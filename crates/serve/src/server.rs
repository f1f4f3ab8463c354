//! The target as a whole: bound first, then run.

use std::{
    io,
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use clock::Clock;
use rustix::{event::epoll, thread::sched_getaffinity};

use crate::{
    Config, Queue, Report,
    answer::Answers,
    engine::Shared,
    listener::{check_free, listeners},
    worker::{Crowd, Worker},
};

/// Why the target cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration has mistakes; all of them.
    #[error("the target's configuration is wrong:\n  {}", .0.join("\n  "))]
    Config(Vec<String>),
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

/// A target that listens. Connections wait in the kernel until [`Server::run`].
#[derive(Debug)]
pub struct Server {
    config: Config,
    answers: Answers,
    addresses: Vec<SocketAddr>,
    /// For each thread its epoll instance and its listeners.
    threads: Vec<(OwnedFd, Vec<OwnedFd>)>,
}

impl Server {
    /// Refuses addresses that somebody listens on. To be asked before several processes listen there with
    /// [`Config::reuse_port`], which would share connections with others unnoticed.
    ///
    /// # Errors
    /// [`Error::Listen`], with the address.
    pub fn check_free(addresses: &[SocketAddr]) -> Result<(), Error> {
        addresses.iter().try_for_each(|&address| check_free(address))
    }

    /// Listens on all addresses.
    ///
    /// # Errors
    /// See [`Error`]. Nothing listens then.
    pub fn bind(config: Config) -> Result<Self, Error> {
        config.validate().map_err(Error::Config)?;
        check_processors(&config.cpus)?;
        let (listeners, addresses) = listeners(&config)?;
        let threads = listeners.into_iter().map(|listeners| {
            let epoll =
                epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|cause| Error::Epoll(cause.into()))?;
            Ok((epoll, listeners))
        });
        let threads = threads.collect::<Result<_, _>>()?;
        Ok(Self { answers: Answers::new(&config), config, addresses, threads })
    }

    /// The addresses listened on, in the order asked for, with the ports as they are.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Serves until `stop` is set (seen within 50 ms) or the configured duration is over. Then nothing more
    /// is accepted, all connections are closed, and what was done is reported.
    pub fn run(self, stop: Arc<AtomicBool>) -> Report {
        let config = &self.config;
        let queue = config.capacity.as_ref().map(|c| Mutex::new(Queue::new(c.servers, c.queue)));
        let crowd = Crowd { open: AtomicU64::new(0), peak: AtomicU64::new(0) };
        let clock = Clock::start();
        let shared = Shared { config, answers: &self.answers, queue: queue.as_ref(), clock };
        let reports = std::thread::scope(|scope| {
            let threads = self.threads.into_iter().enumerate().map(|(number, (epoll, listeners))| {
                let (crowd, stop) = (&crowd, &*stop);
                let work = move || Worker::new(shared, number, epoll, listeners, crowd, stop).run();
                std::thread::Builder::new()
                    .name(format!("serve-{number}"))
                    .spawn_scoped(scope, work)
                    .expect("the kernel starts a thread")
            });
            // All must be started before the first is waited for.
            let threads: Vec<_> = threads.collect();
            let reports = threads.into_iter().map(|thread| thread.join().expect("a worker does not panic"));
            reports.collect::<Vec<Report>>()
        });
        let mut report = Report::new();
        reports.iter().for_each(|of_thread| report.merge(of_thread));
        let elapsed_ns = clock.now_ns();
        report.elapsed_s = elapsed_ns as f64 / 1e9;
        report.connections_peak = crowd.peak.load(Ordering::Relaxed);
        report.stalls = config.stall.map_or(0, |stall| stall.begun(elapsed_ns));
        if let Some(queue) = &queue {
            report.queue_peak = queue.lock().unwrap_or_else(PoisonError::into_inner).peak();
        }
        report
    }
}

fn check_processors(asked: &[u32]) -> Result<(), Error> {
    if asked.is_empty() {
        return Ok(());
    }
    // Where the kernel does not tell, pinning itself will show.
    let Ok(set) = sched_getaffinity(None) else { return Ok(()) };
    let most = rustix::thread::CpuSet::MAX_CPU as u32;
    let allowed: Vec<u32> = (0..most).filter(|&cpu| set.is_set(cpu as usize)).collect();
    let missing: Vec<u32> = asked.iter().copied().filter(|cpu| !allowed.contains(cpu)).collect();
    if missing.is_empty() { Ok(()) } else { Err(Error::Processors { missing, allowed }) }
}
