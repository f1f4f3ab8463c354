//! What the threads of a listener share.

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
    answer::Dress,
    auth::Guard,
    budget::{Budget, Descriptors},
    counters::Counters,
    debt::Debt,
    gate::Gate,
    idempotency::Idempotency,
    identity::Identity,
    refusal::Refusal,
    routes::Routes,
};

/// Connections of the admin port at once.
const ADMINS_MOST: u64 = 16;

/// What the threads of a listener share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub config: Config,
    pub store: Store,
    pub gate: Gate,
    pub budget: Budget,
    pub crowd: ConnectionLimit,
    /// Connections of the admin port, which must be there when all other seats are taken.
    pub admins: ConnectionLimit,
    pub descriptors: Descriptors,
    pub idempotency: Idempotency,
    pub guard: Guard,
    pub routes: Routes,
    pub dress: Dress,
    pub identity: Option<Identity>,
    /// Of each thread.
    pub counters: Vec<Counters>,
    pub clock: Clock,
    pub course: Course,
    pub debt: Debt,
}

impl Shared {
    /// Of a configuration without mistakes and its open storage.
    pub(crate) fn new(config: Config, store: Store) -> Result<Self, Error> {
        let limits = &config.limits;
        let guard = Guard::new(&config.credentials);
        Ok(Self {
            gate: Gate::default(),
            budget: Budget::new(limits.budget_bytes),
            crowd: ConnectionLimit::new(limits.connections),
            admins: ConnectionLimit::new(Some(ADMINS_MOST)),
            descriptors: Descriptors::new(config.store.max_open, config.threads),
            idempotency: Idempotency::new(
                limits.idempotency_keys,
                limits.idempotency_window.as_nanos() as u64,
            ),
            routes: Routes::new(&config.routes, config.level),
            dress: Dress::new(&config, guard.challenge()),
            identity: config.tls.as_ref().map(Identity::read).transpose()?,
            counters: (0..config.threads).map(|_| Counters::default()).collect(),
            clock: Clock::start(),
            debt: Debt::default(),
            course: Course::new().map_err(StartError::Epoll)?,
            guard,
            store,
            config,
        })
    }

    /// Why nothing can be stored now; none if it can.
    pub(crate) fn storage_refusal(&self) -> Option<Refusal> {
        let hangs = || self.debt.is_overdue(self.clock.now_ns(), self.config.timeouts.store);
        Refusal::of_state(self.store.state()).or_else(|| hangs().then_some(Refusal::StoreTimeout))
    }
}

/// Whether to go on.
#[derive(Debug)]
pub(crate) struct Course {
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
    Over,
}

impl Course {
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
            _ => State::Over,
        }
    }

    /// Goes on to that state, never back.
    pub(crate) fn turn(&self, to: State) {
        let number = match to {
            State::Running => 0,
            State::Draining => 1,
            State::Over => 2,
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
