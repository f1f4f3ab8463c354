//! What the threads of a listener share.

use std::{
    os::fd::OwnedFd,
    sync::atomic::{AtomicU8, Ordering},
};

use clock::Clock;
use rustix::event::{EventfdFlags, eventfd};
use segments::Store;
use sockets::{Crowd, StartError};

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

/// Connections of the admin port at once.
const MAX_ADMIN_CONNECTIONS: u64 = 16;

/// What the threads of a listener share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub config: Config,
    pub store: Store,
    pub breaker: CircuitBreaker,
    pub budget: Budget,
    pub connection_limit: Crowd,
    /// Connections of the admin port, which must be there when all other seats are taken.
    pub admin_connection_limit: Crowd,
    pub descriptors: Descriptors,
    pub idempotency: Idempotency,
    pub authenticator: Authenticator,
    pub routes: Routes,
    pub answer_writer: AnswerWriter,
    pub identity: Option<Identity>,
    /// Of each thread.
    pub counters: Vec<Counters>,
    pub clock: Clock,
    pub lifecycle: Lifecycle,
    pub stall_detector: StallDetector,
}

impl Shared {
    /// Of a configuration without mistakes and its open storage.
    pub(crate) fn new(config: Config, store: Store) -> Result<Self, Error> {
        let limits = &config.limits;
        let authenticator = Authenticator::new(&config.credentials);
        Ok(Self {
            breaker: CircuitBreaker::default(),
            budget: Budget::new(limits.budget_bytes),
            connection_limit: Crowd::new(limits.connections),
            admin_connection_limit: Crowd::new(Some(MAX_ADMIN_CONNECTIONS)),
            descriptors: Descriptors::new(config.store.open_most, config.threads),
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

    /// Why nothing can be stored now; none if it can.
    pub(crate) fn storage_refusal(&self) -> Option<Refusal> {
        let hangs = || self.stall_detector.is_stalled(self.clock.now_ns(), self.config.timeouts.store);
        Refusal::of_state(self.store.state()).or_else(|| hangs().then_some(Refusal::StoreTimeout))
    }
}

/// Whether to go on.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    state: AtomicU8,
    /// Readable, and never read, once it is to end: that wakes all threads.
    wake: OwnedFd,
}

/// Whether to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    /// Requests in flight are finished.
    Draining,
    /// Nothing is finished.
    Stopped,
}

impl Lifecycle {
    fn new() -> std::io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { state: AtomicU8::new(0), wake })
    }

    /// Where it stands.
    #[inline]
    pub(crate) fn state(&self) -> State {
        match self.state.load(Ordering::Relaxed) {
            0 => State::Running,
            1 => State::Draining,
            _ => State::Stopped,
        }
    }

    /// Goes on to that state, never back.
    pub(crate) fn advance(&self, to: State) {
        let number = match to {
            State::Running => 0,
            State::Draining => 1,
            State::Stopped => 2,
        };
        if self.state.fetch_max(number, Ordering::Relaxed) < number {
            // It cannot fail: the counter would have to be written 2⁶⁴ times.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }

    /// Becomes readable with every turn.
    pub(crate) fn wake(&self) -> &OwnedFd {
        &self.wake
    }
}
