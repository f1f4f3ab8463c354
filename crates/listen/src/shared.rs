//! State that the threads of a listener share.

use std::{
    os::fd::OwnedFd,
    sync::atomic::{AtomicU8, Ordering},
};

use clock::Clock;
use rustix::event::{EventfdFlags, eventfd};
use segments::Store;
use sockets::{ConnectionLimit, StartError};

use crate::{
    Config, Error,
    answer::AnswerWriter,
    auth::Authenticator,
    breaker::CircuitBreaker,
    budget::{Budget, Descriptors},
    counters::Counters,
    idempotency::Idempotency,
    identity::Identity,
    refusal::Refusal,
    routes::Routes,
    stall::StallDetector,
};

/// Maximum number of open connections to the admin port.
const MAX_ADMIN_CONNECTIONS: u64 = 16;

/// State that the threads of a listener share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub config: Config,
    pub store: Store,
    pub breaker: CircuitBreaker,
    pub budget: Budget,
    pub connection_limit: ConnectionLimit,
    /// A separate limit for the admin port, so that it stays reachable when all other connections are taken.
    pub admin_connection_limit: ConnectionLimit,
    pub descriptors: Descriptors,
    pub idempotency: Idempotency,
    pub authenticator: Authenticator,
    pub routes: Routes,
    pub answer_writer: AnswerWriter,
    pub identity: Option<Identity>,
    /// One set of counters per thread.
    pub counters: Vec<Counters>,
    pub clock: Clock,
    pub lifecycle: Lifecycle,
    pub stall_detector: StallDetector,
}

impl Shared {
    /// Creates the state. `config` must be validated.
    pub(crate) fn new(config: Config, store: Store) -> Result<Self, Error> {
        let limits = &config.limits;
        let authenticator = Authenticator::new(&config.credentials);
        Ok(Self {
            breaker: CircuitBreaker::default(),
            budget: Budget::new(limits.budget_bytes),
            connection_limit: ConnectionLimit::new(limits.connections),
            admin_connection_limit: ConnectionLimit::new(Some(MAX_ADMIN_CONNECTIONS)),
            descriptors: Descriptors::new(config.store.max_open, config.threads),
            idempotency: Idempotency::new(
                limits.idempotency_keys,
                limits.idempotency_window.as_nanos() as u64,
            ),
            routes: Routes::new(&config.routes, config.level),
            answer_writer: AnswerWriter::new(&config, authenticator.challenge()),
            identity: config.tls.as_ref().map(Identity::read).transpose()?,
            counters: (0..config.threads).map(|_| Counters::default()).collect(),
            clock: Clock::start(),
            stall_detector: StallDetector::default(),
            lifecycle: Lifecycle::new().map_err(StartError::Epoll)?,
            authenticator,
            store,
            config,
        })
    }

    /// Starts draining: requests in flight are finished, and their syncs are not delayed.
    pub(crate) fn drain(&self) {
        self.lifecycle.advance(State::Draining);
        self.store.skip_sync_delay();
    }

    /// The refusal while nothing can be stored; `None` if the storage works.
    pub(crate) fn storage_refusal(&self) -> Option<Refusal> {
        let hangs = || self.stall_detector.is_stalled(self.clock.now_ns(), self.config.timeouts.store);
        Refusal::of_state(self.store.state()).or_else(|| hangs().then_some(Refusal::StoreTimeout))
    }
}

/// Whether the listener is running or stopping.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    state: AtomicU8,
    /// Readable once the listener must stop. It is never read, so it wakes all threads.
    wake: OwnedFd,
}

/// The states of a listener, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    /// Finishes requests in flight.
    Draining,
    /// Ends without finishing requests in flight.
    Stopped,
}

impl Lifecycle {
    fn new() -> std::io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { state: AtomicU8::new(0), wake })
    }

    #[inline]
    pub(crate) fn state(&self) -> State {
        match self.state.load(Ordering::Relaxed) {
            0 => State::Running,
            1 => State::Draining,
            _ => State::Stopped,
        }
    }

    /// Advances to a state. Never goes back.
    pub(crate) fn advance(&self, to: State) {
        let number = match to {
            State::Running => 0,
            State::Draining => 1,
            State::Stopped => 2,
        };
        if self.state.fetch_max(number, Ordering::Relaxed) < number {
            // Cannot fail: the counter would overflow only at 2⁶⁴.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }

    /// A descriptor that is readable after the state has advanced.
    pub(crate) fn wake(&self) -> &OwnedFd {
        &self.wake
    }
}
