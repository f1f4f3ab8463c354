//! A slot holds at most one connection: that of a user of a closed load, or one of an open load's pool.

use std::collections::VecDeque;

use http1::ResponseReader;

use crate::recorder::InFlight;

/// State of a slot's connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The slot has no connection and may open one.
    #[default]
    Vacant,
    /// The connection is being opened.
    Connecting,
    /// The connection is established, and its own handshake is not done: see `Wire::HAS_HANDSHAKE`.
    Handshaking,
    /// The connection is open.
    Open,
    /// This machine could not open the connection: the slot is out of use.
    Retired,
}

/// Time in complete cycles (request, answer, pause) of a user that thinks. With pipelining, a user has several cycles at a
/// time, and this is their sum.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UserCycles {
    /// Time up to the end of the pause after the last answer.
    answered_ns: u64,
    /// Time since then, in requests that failed.
    failed_ns: u64,
}

impl UserCycles {
    /// Adds an answered request. `took_ns`: from the time it was due to the answer.
    #[inline]
    pub(crate) fn answered(&mut self, took_ns: u64) {
        self.answered_ns = self.answered_ns.saturating_add(self.failed_ns).saturating_add(took_ns);
        self.failed_ns = 0;
    }

    /// Adds a failed request. `took_ns`: from the time it was due to the failure.
    pub(crate) fn failed(&mut self, took_ns: u64) {
        self.failed_ns = self.failed_ns.saturating_add(took_ns);
    }

    /// Adds the pause after a request that was answered or failed.
    pub(crate) fn paused(&mut self, answered: bool, pause_ns: u64) {
        let sum = if answered { &mut self.answered_ns } else { &mut self.failed_ns };
        *sum = sum.saturating_add(pause_ns);
    }

    /// The sum of the complete cycles; 0 if there was no answer.
    pub(crate) fn sum_ns(&self) -> u64 {
        self.answered_ns
    }
}

/// One connection and the requests on it.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// State of the connection.
    pub phase: Phase,
    /// Tells the connection from earlier ones of the same slot.
    pub generation: u32,
    /// Requests assigned to the connection, oldest first. The last `unsent` of them are not completely sent.
    pub requests: VecDeque<InFlight>,
    /// Number of `requests` that are not completely sent.
    pub unsent: u32,
    /// Bytes already sent of the first unsent request.
    pub sent_bytes: u32,
    /// Reads the answers.
    pub reader: ResponseReader,
    /// When the connection attempt began.
    pub connecting_since_ns: u64,
    /// When the connection's own handshake began.
    pub handshake_since_ns: u64,
    /// For how long bytes of the handshake were unread, in nanoseconds.
    pub handshake_unread_ns: u64,
    /// The attempt began while requests might be delayed by an absence.
    pub connects_delayed: bool,
    /// Since when the slot could have taken a request.
    pub free_since_ns: u64,
    /// When the first byte of the current answer arrived.
    pub first_byte_ns: u64,
    /// When the last answer arrived.
    pub last_answer_ns: u64,
    /// Complete cycles of the user, if it thinks.
    pub cycles: UserCycles,
    /// Requests that the user may still begin.
    pub loops_left: u64,
    /// The slot had a connection before.
    pub was_open: bool,
    /// The connection closes after the current answer.
    pub closes: bool,
    /// A lost connection is opened again at once, without waiting for a request.
    pub reopens: bool,
    /// The timers hold a deadline of this slot.
    pub deadline_armed: bool,
    /// The loop waits until the connection is writable.
    pub awaits_writable: bool,
    /// The slot is in the pool's queue of idle or vacant slots.
    pub queued: bool,
    /// The slot is in the pool's queue of pipelinable slots; it may have become full since.
    pub queued_pipelinable: bool,
    /// A failed request waits for its retry: the slot takes no other request.
    pub awaits_retry: bool,
    /// The slot's user is within an iteration, which only its own steps continue.
    pub in_iteration: bool,
}

impl Slot {
    /// An empty slot whose user may send `loops` requests.
    pub(crate) fn new(loops: u64) -> Self {
        Self { loops_left: loops, ..Self::default() }
    }

    /// Drops the state of the connection. The caller has taken the requests out before.
    pub(crate) fn vacate(&mut self, now_ns: u64) {
        debug_assert!(self.requests.is_empty());
        self.phase = Phase::Vacant;
        self.generation = self.generation.wrapping_add(1);
        self.unsent = 0;
        self.sent_bytes = 0;
        self.reader = ResponseReader::default();
        self.awaits_writable = false;
        self.closes = false;
        self.free_since_ns = now_ns;
    }

    /// Whether the connection is open and has carried no request yet.
    pub(crate) fn is_unused(&self) -> bool {
        self.phase == Phase::Open && self.requests.is_empty() && self.last_answer_ns < self.free_since_ns
    }

    /// Whether the connection takes another request. `depth`: most requests in flight.
    pub(crate) fn has_room(&self, depth: usize) -> bool {
        self.phase == Phase::Open && !self.awaits_retry && self.requests.len() < depth
    }

    /// When the connection attempt or the oldest request in flight began, if there is one.
    pub(crate) fn waiting_since_ns(&self) -> Option<u64> {
        match self.phase {
            Phase::Connecting | Phase::Handshaking => Some(self.connecting_since_ns),
            _ => self.requests.front().map(|request| request.started_ns),
        }
    }
}
