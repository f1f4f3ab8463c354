//! The listener. Binding and running are separate steps.

use std::{net::SocketAddr, os::fd::OwnedFd, sync::Arc};

use segments::{Port, Recovery, Store};
use sockets::{check_processors, event_loop};

use crate::{
    Config, Error, Report, Statistics,
    budget::Descriptors,
    engine::BodyReaderQueue,
    identity::Identity,
    listeners::{Listener, Listeners},
    shared::{Shared, State},
    worker::Worker,
};

/// A listener whose storage and listening sockets are open. Connections wait in the kernel until [`Server::run`].
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    admin: Option<SocketAddr>,
    recovery: Recovery,
    threads: Vec<Thread>,
}

#[derive(Debug)]
struct Thread {
    epoll: OwnedFd,
    listeners: Vec<Listener>,
    port: Port,
}

impl Server {
    /// Makes the checks of [`Server::bind`] that require neither storage nor sockets: those of the settings and the TLS
    /// files. `handed` is the number of listening sockets that the caller will pass to [`Server::bind`].
    ///
    /// # Errors
    /// [`Error::Config`], [`Error::Start`] or [`Error::Tls`].
    pub fn check(config: &Config, handed: usize) -> Result<(), Error> {
        config.check(handed).map_err(Error::Config)?;
        check_processors(&config.cpus)?;
        config.store.check()?;
        config.tls.as_ref().map(Identity::read).transpose()?;
        Ok(())
    }

    /// Opens the storage, which recovers the segments of an earlier run, and listens on all addresses and on the
    /// `handed` sockets, which must already be listening.
    ///
    /// # Errors
    /// See [`Error`]. After an error, nothing listens.
    pub fn bind(mut config: Config, handed: Vec<OwnedFd>) -> Result<Self, Error> {
        config.check(handed.len()).map_err(Error::Config)?;
        check_processors(&config.cpus)?;
        config.store.max_open = Descriptors::max_open_files(config.store.max_open);
        let Listeners { threads, addresses, admin } = Listeners::open(&config, handed)?;
        let (store, ports, recovery) = Store::open(config.store.clone(), config.threads as usize)?;
        let shared = Shared::new(config, store)?;
        let threads = threads
            .into_iter()
            .zip(ports)
            .map(|(listeners, port)| Ok(Thread { epoll: event_loop()?, listeners, port }));
        let threads = threads.collect::<Result<_, Error>>()?;
        Ok(Self { shared: Arc::new(shared), addresses, admin, recovery, threads })
    }

    /// The data addresses with their actual ports: first the configured ones in order, then those of the inherited
    /// sockets.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The admin address with its actual port.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// The result of recovering an earlier run's segments.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Maximum number of open files: the configured number, or less if the process's descriptor limit requires it.
    pub fn open_files(&self) -> usize {
        self.shared.config.store.max_open
    }

    /// A handle to control the listener from signals and other threads.
    pub fn handle(&self) -> Handle {
        Handle { shared: Arc::clone(&self.shared) }
    }

    /// Serves until [`Handle::stop`]. Then accepts no more connections, finishes the requests in flight, lets the
    /// storage write and sync everything, and returns the report.
    pub fn run(self) -> Report {
        let shared = &*self.shared;
        std::thread::scope(|scope| {
            for (number, Thread { epoll, listeners, port }) in self.threads.into_iter().enumerate() {
                let (body_reader_queue, helper) =
                    BodyReaderQueue::new(shared).expect("the kernel has a descriptor left");
                let work =
                    move || Worker::new(shared, number, epoll, listeners, port, body_reader_queue).run();
                for (name, work) in [
                    (
                        format!("read-{number}"),
                        Box::new(move || helper.run(number)) as Box<dyn FnOnce() + Send>,
                    ),
                    (format!("listen-{number}"), Box::new(work)),
                ] {
                    let spawned = std::thread::Builder::new().name(name).spawn_scoped(scope, work);
                    spawned.expect("the kernel starts a thread");
                }
            }
        });
        let close_error = shared.store.close().err().map(|error| error.to_string());
        Report::of(shared, close_error)
    }
}

/// Controls a running listener.
#[derive(Debug, Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

impl Handle {
    /// Stops the listener after the requests in flight, for which it waits at most [`crate::Timeouts::drain`].
    pub fn stop(&self) {
        self.shared.drain();
    }

    /// Stops the listener without waiting for requests in flight. Lines already submitted to the storage are still
    /// written.
    pub fn stop_now(&self) {
        self.shared.lifecycle.advance(State::Stopped);
    }

    /// Reopens all files, because other programs may have rotated them, and reads the certificate and key for later
    /// connections.
    ///
    /// # Errors
    /// [`Error::Tls`]; the old certificate remains in use.
    pub fn reload(&self) -> Result<(), Error> {
        self.shared.store.reopen();
        self.shared.identity.as_ref().map_or(Ok(()), |identity| identity.reload())
    }

    /// The current counters.
    pub fn statistics(&self) -> Statistics {
        Statistics::of(&self.shared)
    }

    /// Whether a storage thread has panicked. The listener must then be restarted.
    pub fn has_died(&self) -> bool {
        self.shared.store.has_panicked()
    }
}
