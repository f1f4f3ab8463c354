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

/// Maximum number of connections to the admin port.
const MAX_ADMIN_CONNECTIONS: u64 = 16;

/// State that the threads of a listener share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub config: Config,
    pub store: Store,
    pub breaker: CircuitBreaker,
    pub budget: Budget,
    pub connection_limit: ConnectionLimit,
    /// Connections to the admin port have a limit of their own, so that they work when all others are taken.
    pub admin_connection_limit: ConnectionLimit,
    pub descriptors: Descriptors,
    pub idempotency: Idempotency,
    pub authenticator: Authenticator,
    pub routes: Routes,
    pub answer_writer: AnswerWriter,
    pub identity: Option<Identity>,
    /// The counters of each thread.
    pub counters: Vec<Counters>,
    pub clock: Clock,
    pub lifecycle: Lifecycle,
    pub stall_detector: StallDetector,
}

impl Shared {
    /// `config` must have passed its check.
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

    /// Begins to finish the requests in flight, without the delay before their sync.
    pub(crate) fn drain(&self) {
        self.lifecycle.advance(State::Draining);
        self.store.skip_sync_delay();
    }

    /// Why nothing can be stored now; None if the storage works.
    pub(crate) fn storage_refusal(&self) -> Option<Refusal> {
        let hangs = || self.stall_detector.is_stalled(self.clock.now_ns(), self.config.timeouts.store);
        Refusal::of_state(self.store.state()).or_else(|| hangs().then_some(Refusal::StoreTimeout))
    }
}

/// Whether the listener runs or stops.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    state: AtomicU8,
    /// Becomes readable when the listener must stop. No thread reads it, so it wakes all threads.
    wake: OwnedFd,
}

/// Whether the listener runs or stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    /// Finishing requests in flight.
    Draining,
    /// Stopped without finishing requests in flight.
    Stopped,
}

impl Lifecycle {
    fn new() -> std::io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { state: AtomicU8::new(0), wake })
    }

    /// The current state.
    #[inline]
    pub(crate) fn state(&self) -> State {
        match self.state.load(Ordering::Relaxed) {
            0 => State::Running,
            1 => State::Draining,
            _ => State::Stopped,
        }
    }

    /// Advances to a state, never back.
    pub(crate) fn advance(&self, to: State) {
        let number = match to {
            State::Running => 0,
            State::Draining => 1,
            State::Stopped => 2,
        };
        if self.state.fetch_max(number, Ordering::Relaxed) < number {
            // Cannot fail: the counter would have to reach 2⁶⁴.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }

    /// Becomes readable when the state advances.
    pub(crate) fn wake(&self) -> &OwnedFd {
        &self.wake
    }
}
