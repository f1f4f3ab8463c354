//! A place for one connection: a user of a closed load, or a member of an open load's pool.

use std::collections::VecDeque;

use http1::ResponseReader;

use crate::book::InFlight;

/// What a slot's connection is doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// There is none; one may be opened.
    #[default]
    Vacant,
    /// Being made.
    Connecting,
    /// Made.
    Open,
    /// This machine could not open one: the slot takes no part any more.
    Retired,
}

/// Whole cycles of a user that thinks: request, answer, pause. Those of all its places (requests that it may have in
/// flight at once) together.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cycles {
    /// Up to the end of the pause after its last answer.
    answered_ns: u64,
    /// Since then: of requests that failed without one.
    failed_ns: u64,
}

impl Cycles {
    /// A request was answered, so long after it was due.
    #[inline]
    pub(crate) fn answered(&mut self, took_ns: u64) {
        self.answered_ns = self.answered_ns.saturating_add(self.failed_ns).saturating_add(took_ns);
        self.failed_ns = 0;
    }

    /// A request failed without an answer, so long after it was due.
    pub(crate) fn failed(&mut self, took_ns: u64) {
        self.failed_ns = self.failed_ns.saturating_add(took_ns);
    }

    /// The pause behind a request, answered or failed, was drawn.
    pub(crate) fn paused(&mut self, answered: bool, pause_ns: u64) {
        let part = if answered { &mut self.answered_ns } else { &mut self.failed_ns };
        *part = part.saturating_add(pause_ns);
    }

    /// From the start to when the next request was due after the last answer: the sum over all places; 0 if there was
    /// no answer.
    pub(crate) fn sum_ns(&self) -> u64 {
        self.answered_ns
    }
}

/// One connection and the requests on it.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// State of the connection.
    pub phase: Phase,
    /// Told apart from the slot's earlier connections by this.
    pub generation: u32,
    /// Requests given to the connection, oldest first. The last `unsent` of them are not wholly sent.
    pub requests: VecDeque<InFlight>,
    /// How many of `requests` are not wholly sent.
    pub unsent: u32,
    /// Bytes sent of the first of those.
    pub sent_bytes: u32,
    /// Reads the answers.
    pub reader: ResponseReader,
    /// When the connection attempt began.
    pub connecting_since_ns: u64,
    /// It began while requests might be delayed.
    pub connects_delayed: bool,
    /// Since when the slot could have taken a request.
    pub free_since_ns: u64,
    /// When the first byte of the current answer came.
    pub first_byte_ns: u64,
    /// When the last answer came.
    pub last_answer_ns: u64,
    /// Its user's whole cycles, if that thinks.
    pub cycles: Cycles,
    /// Requests that this user may still begin.
    pub loops_left: u64,
    /// It had a connection before.
    pub was_open: bool,
    /// Its connection ends with the current answer.
    pub closes: bool,
    /// When its connection is lost, it is opened again without waiting for a request.
    pub reopens: bool,
    /// A deadline for it stands among the timers.
    pub deadline_armed: bool,
    /// Room to write is being waited for.
    pub wants_room: bool,
    /// It stands among the free or the vacant slots of a pool.
    pub queued: bool,
    /// It stands among the slots of a pool with something in flight and room for more; not always still with room.
    pub queued_behind: bool,
    /// Its request failed and waits to be made again: it takes no other.
    pub awaits_retry: bool,
}

impl Slot {
    /// An empty slot whose user may send `loops` requests.
    pub(crate) fn new(loops: u64) -> Self {
        Self { loops_left: loops, ..Self::default() }
    }

    /// Forgets the connection; the requests are the caller's to account for first.
    pub(crate) fn vacate(&mut self, now_ns: u64) {
        debug_assert!(self.requests.is_empty());
        self.phase = Phase::Vacant;
        self.generation = self.generation.wrapping_add(1);
        self.unsent = 0;
        self.sent_bytes = 0;
        self.reader = ResponseReader::default();
        self.wants_room = false;
        self.closes = false;
        self.free_since_ns = now_ns;
    }

    /// Whether its connection has carried nothing yet: it has been free since it was made, not since an answer.
    pub(crate) fn is_unused(&self) -> bool {
        self.phase == Phase::Open && self.requests.is_empty() && self.last_answer_ns < self.free_since_ns
    }

    /// Whether its connection may be given a request behind those in flight, of which `depth` may be at once.
    pub(crate) fn has_room(&self, depth: usize) -> bool {
        self.phase == Phase::Open && !self.awaits_retry && self.requests.len() < depth
    }

    /// When the oldest thing it waits for was begun, if it waits.
    pub(crate) fn waiting_since_ns(&self) -> Option<u64> {
        match self.phase {
            Phase::Connecting => Some(self.connecting_since_ns),
            _ => self.requests.front().map(|request| request.started_ns),
        }
    }
}
