//! The target server. Binding and running are separate steps.

use std::{
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
};

use clock::Clock;
use sockets::{ConnectionLimit, check_free, check_processors, event_loop, listening_each};

use crate::{
    Config, Error, Queue, Report, answer::Answers, engine::Shared, pages::Pages, recording::Recorder,
    security::Security, worker::Worker,
};

/// A target whose listening sockets are open. Connections wait in the kernel until [`Server::run`].
#[derive(Debug)]
pub struct Server {
    config: Config,
    answers: Answers,
    security: Option<Security>,
    recorder: Option<Recorder>,
    addresses: Vec<SocketAddr>,
    /// The epoll instance and the listeners of each thread.
    threads: Vec<(OwnedFd, Vec<OwnedFd>)>,
}

impl Server {
    /// Fails if another program listens on one of the addresses. Call this before several processes use
    /// [`Config::reuse_port`], with which they would silently share connections with the other program.
    ///
    /// # Errors
    /// [`StartError::Listen`](crate::StartError::Listen), with the address.
    pub fn check_free(addresses: &[SocketAddr]) -> Result<(), Error> {
        Ok(addresses.iter().try_for_each(|&address| check_free(address))?)
    }

    /// Listens on all addresses.
    ///
    /// # Errors
    /// See [`Error`]. After an error, nothing listens.
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
        let security = config.tls.as_ref().map(|tls| Security::new(tls, &addresses)).transpose()?.flatten();
        let recorder = config.record.as_ref().map(Recorder::open).transpose()?;
        Ok(Self { answers: Answers::new(&config), security, recorder, config, addresses, threads })
    }

    /// The addresses in the configured order, with their actual ports.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Serves until `stop` is set (noticed within 50 ms) or the configured duration is over. Then closes all connections
    /// and returns the report.
    pub fn run(self, stop: Arc<AtomicBool>) -> Report {
        let config = &self.config;
        let queue = config.capacity.as_ref().map(|c| Mutex::new(Queue::new(c.servers, c.queue)));
        let connection_limit = ConnectionLimit::new(config.max_connections);
        let clock = Clock::start();
        let pages = config.pages.as_ref().map(|pages| Pages::new(pages.token_lifetime_ns));
        let shared = Shared {
            config,
            answers: &self.answers,
            queue: queue.as_ref(),
            security: self.security.as_ref(),
            pages: pages.as_ref(),
            recorder: self.recorder.as_ref(),
            clock,
        };
        let reports = std::thread::scope(|scope| {
            let threads = self.threads.into_iter().enumerate().map(|(number, (epoll, listeners))| {
                let (connection_limit, stop) = (&connection_limit, &*stop);
                let work =
                    move || Worker::new(shared, number, epoll, listeners, connection_limit, stop).run();
                std::thread::Builder::new()
                    .name(format!("serve-{number}"))
                    .spawn_scoped(scope, work)
                    .expect("the kernel starts a thread")
            });
            // Collects first, because the iterator is lazy: all threads must start before the first is joined.
            let threads: Vec<_> = threads.collect();
            let reports = threads.into_iter().map(|thread| thread.join().expect("a worker does not panic"));
            reports.collect::<Vec<Report>>()
        });
        let mut report = Report::new();
        reports.iter().for_each(|thread_report| report.merge(thread_report));
        let elapsed_ns = clock.now_ns();
        report.elapsed_s = elapsed_ns as f64 / 1e9;
        report.record_failure = self.recorder.as_ref().and_then(Recorder::failure);
        report.connections_peak = connection_limit.peak();
        report.stalls = config.stall.map_or(0, |stall| stall.count_until(elapsed_ns));
        if let Some(queue) = &queue {
            report.queue_peak = queue.lock().unwrap_or_else(PoisonError::into_inner).peak();
        }
        report
    }
}
