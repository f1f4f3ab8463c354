//! The target as a whole: bound first, then run.

use std::{
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
};

use clock::Clock;
use sockets::{ConnectionLimit, StartError, check_free, check_processors, event_loop, listening_each};

use crate::{Config, Queue, Report, answer::Answers, engine::Shared, worker::Worker};

/// Why the target cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration has mistakes; all of them.
    #[error("the target's configuration is wrong:\n  {}", .0.join("\n  "))]
    Config(Vec<String>),
    /// The kernel does not let it listen, or run where it is to.
    #[error(transparent)]
    Start(#[from] StartError),
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
    /// [`StartError::Listen`], with the address.
    pub fn check_free(addresses: &[SocketAddr]) -> Result<(), Error> {
        Ok(addresses.iter().try_for_each(|&address| check_free(address))?)
    }

    /// Listens on all addresses.
    ///
    /// # Errors
    /// See [`Error`]. Nothing listens then.
    pub fn bind(config: Config) -> Result<Self, Error> {
        config.validate().map_err(Error::Config)?;
        check_processors(&config.cpus)?;
        let mut addresses = Vec::with_capacity(config.listen.len());
        let mut threads = Vec::with_capacity(config.threads as usize);
        for _ in 0..config.threads {
            threads.push((event_loop()?, Vec::new()));
        }
        for &asked in &config.listen {
            let (sockets, address) = listening_each(asked, threads.len(), config.reuse_port, config.backlog)?;
            threads.iter_mut().zip(sockets).for_each(|((_, listeners), socket)| listeners.push(socket));
            addresses.push(address);
        }
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
        let crowd = ConnectionLimit::new(config.max_connections);
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
        report.connections_peak = crowd.peak();
        report.stalls = config.stall.map_or(0, |stall| stall.begun(elapsed_ns));
        if let Some(queue) = &queue {
            report.queue_peak = queue.lock().unwrap_or_else(PoisonError::into_inner).peak();
        }
        report
    }
}
