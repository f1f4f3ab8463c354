//! A slot holds at most one connection: of a user of a closed load, or of an open load's pool.

use std::collections::VecDeque;

use http1::ResponseReader;
use record::{ConnectionPlan, HttpPlan};

use crate::recorder::InFlight;

/// First and longest pause of a user after a failed connection attempt, in nanoseconds.
const FIRST_PAUSE_NS: u64 = 1_000_000;
const MAX_PAUSE_NS: u64 = 100_000_000;
/// Longest time of a user's cycles, in nanoseconds: 146 years. So sums of such times cannot overflow.
const MAX_CYCLES_NS: u64 = u64::MAX / 4;

/// State of a slot's connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The slot has no connection and may open one.
    #[default]
    Vacant,
    /// The connection is being opened.
    Connecting,
    /// The connection is established, and its preface is not complete: see [`Wire::has_preface`].
    ///
    /// [`Wire::has_preface`]: crate::wire::Wire::has_preface
    Preface,
    /// The connection is established, and its further handshake is not complete: see `Wire::HAS_HANDSHAKE`.
    Handshaking,
    /// The connection is open.
    Open,
    /// This machine could not open the connection: the slot is out of use.
    Retired,
}

/// Time in complete cycles (request, answer, pause) of a user with think time. With pipelining, cycles overlap, and this is
/// their sum.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UserCycles {
    /// Time up to the end of the pause after the last answer.
    answered_ns: u64,
    /// Time in failed requests since then.
    failed_ns: u64,
    /// Number of answered requests.
    answers: u64,
}

impl UserCycles {
    /// Adds an answered request. `took_ns`: time from when it was due to the answer.
    #[inline]
    pub(crate) fn answered(&mut self, took_ns: u64) {
        self.answered_ns += self.failed_ns + took_ns;
        self.failed_ns = 0;
        self.answers += 1;
    }

    /// The end of the cycles that count for the rate of a user without pauses, which began at `start_ns` and had its last answer at
    /// `last_answer_ns`. The time of a request that the end at `end_ns` cut off does not count, up to the mean time of the others: a longer
    /// one is a slow answer, not a cut-off usual one.
    pub(crate) fn counts_until_ns(&self, start_ns: u64, last_answer_ns: u64, end_ns: u64) -> u64 {
        let mean_ns = last_answer_ns.saturating_sub(start_ns) / self.answers.max(1);
        last_answer_ns.max(end_ns.saturating_sub(mean_ns))
    }

    /// Adds a failed request. `took_ns`: time from when it was due to the failure.
    pub(crate) fn failed(&mut self, took_ns: u64) {
        self.failed_ns = self.failed_ns.saturating_add(took_ns).min(MAX_CYCLES_NS);
    }

    /// Adds the pause after a request that was answered or failed.
    pub(crate) fn paused(&mut self, answered: bool, pause_ns: u64) {
        let sum = if answered { &mut self.answered_ns } else { &mut self.failed_ns };
        *sum = sum.saturating_add(pause_ns).min(MAX_CYCLES_NS);
    }

    /// The sum of the cycles, including those of failed requests; 0 if there was no answer.
    pub(crate) fn sum_ns(&self) -> u64 {
        if self.answered_ns == 0 { 0 } else { self.answered_ns.saturating_add(self.failed_ns) }
    }
}

/// Limits on the use of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lifetime {
    max_requests: u64,
    max_age_ns: u64,
}

impl Lifetime {
    /// The lifetime of a plan's connections, if it is limited.
    pub(crate) fn of(plan: &HttpPlan) -> Option<Self> {
        let ConnectionPlan { max_requests, max_age_ns, .. } = plan.connection;
        (max_requests.is_some() || max_age_ns.is_some()).then(|| Self {
            max_requests: max_requests.unwrap_or(u64::MAX),
            max_age_ns: max_age_ns.unwrap_or(u64::MAX),
        })
    }

    /// Whether the connection of a slot takes no further request after an answer at `now_ns`.
    pub(crate) fn has_ended(&self, slot: &Slot, now_ns: u64) -> bool {
        let age_ns = now_ns.saturating_sub(slot.opened_ns);
        slot.answers >= self.max_requests || age_ns >= self.max_age_ns
    }
}

/// Timeouts for the parts of a request, in nanoseconds; `u64::MAX` for parts without a separate limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    /// The whole request, including its connection.
    pub whole_ns: u64,
    /// The TCP handshake.
    pub connect_ns: u64,
    /// The TLS handshake.
    pub handshake_ns: u64,
    /// From sending to the end of the answer.
    pub answer_ns: u64,
}

impl Timeouts {
    /// The timeouts of a plan.
    pub(crate) fn of(plan: &HttpPlan) -> Self {
        let HttpPlan { connection, timeout_ns, .. } = plan;
        Self {
            whole_ns: *timeout_ns,
            connect_ns: connection.connect_timeout_ns.unwrap_or(u64::MAX),
            handshake_ns: connection.handshake_timeout_ns.unwrap_or(u64::MAX),
            answer_ns: connection.answer_timeout_ns.unwrap_or(u64::MAX),
        }
    }
}

/// One connection and the requests on it.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// State of the connection.
    pub phase: Phase,
    /// Distinguishes the connection from earlier ones of the same slot.
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
    /// When the connection's further handshake began.
    pub handshake_since_ns: u64,
    /// Time for which handshake bytes were unread, in nanoseconds.
    pub handshake_unread_ns: u64,
    /// The attempt began while requests might be delayed by an absence.
    pub connects_delayed: bool,
    /// Time from which the slot could have taken a request.
    pub free_since_ns: u64,
    /// When the first byte of the current answer arrived.
    pub first_byte_ns: u64,
    /// When the last answer arrived.
    pub last_answer_ns: u64,
    /// The earliest time at which the last answer may have arrived, and the user was ready for its next request.
    pub ready_ns: u64,
    /// When a request last failed without an answer.
    pub last_failure_ns: u64,
    /// Complete cycles of the user, if it has a think time.
    pub cycles: UserCycles,
    /// Requests that the user may still begin.
    pub loops_left: u64,
    /// The slot's previous connection had answered, and this side did not close it.
    pub was_open: bool,
    /// Consecutive failed connection attempts.
    pub refusals: u32,
    /// The connection is closed after the current answer.
    pub closes: bool,
    /// When the connection began to take requests.
    pub opened_ns: u64,
    /// Number of answers that the connection has received, if its lifetime is limited.
    pub answers: u64,
    /// A lost connection is opened again at once, without waiting for a request.
    pub reopens: bool,
    /// When a timer checks this slot's deadline; 0 if no timer does.
    pub deadline_armed_ns: u64,
    /// Time of a later deadline timer that an earlier one replaced; 0 if there is none.
    pub deadline_later_ns: u64,
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

    /// Drops the state of the connection. The caller must have taken the requests out.
    pub(crate) fn vacate(&mut self, now_ns: u64) {
        debug_assert!(self.requests.is_empty());
        self.phase = Phase::Vacant;
        self.generation = self.generation.wrapping_add(1);
        self.unsent = 0;
        self.sent_bytes = 0;
        self.reader = ResponseReader::default();
        self.awaits_writable = false;
        self.closes = false;
        self.answers = 0;
        self.free_since_ns = now_ns;
    }

    /// When the first byte of the answer came that is not complete; `u64::MAX` if there is none.
    pub(crate) fn answer_began_ns(&self) -> u64 {
        if self.reader.in_message() { self.first_byte_ns } else { u64::MAX }
    }

    /// Pause of the slot's user after consecutive failed attempts, in nanoseconds: one millisecond at first, doubled after each
    /// further failure.
    pub(crate) fn refused_pause_ns(&self) -> u64 {
        let doubled = self.refusals.saturating_sub(1).min(16);
        if self.refusals == 0 { 0 } else { (FIRST_PAUSE_NS << doubled).min(MAX_PAUSE_NS) }
    }

    /// Whether the connection is open and has carried no request yet.
    pub(crate) fn is_unused(&self) -> bool {
        self.phase == Phase::Open && self.requests.is_empty() && self.last_answer_ns < self.free_since_ns
    }

    /// Whether the connection takes another request. `depth`: maximum number of requests in flight.
    pub(crate) fn has_room(&self, depth: usize) -> bool {
        self.phase == Phase::Open && !self.awaits_retry && self.requests.len() < depth
    }

    /// When the connection attempt or the oldest request in flight times out, if there is one.
    #[inline]
    pub(crate) fn deadline_ns(&self, timeouts: &Timeouts) -> Option<u64> {
        let whole_ns = |since_ns: u64| since_ns.saturating_add(timeouts.whole_ns);
        let of_attempt_ns = |since_ns: u64, most_ns: u64| {
            Some(whole_ns(self.connecting_since_ns).min(since_ns.saturating_add(most_ns)))
        };
        match self.phase {
            Phase::Connecting => of_attempt_ns(self.connecting_since_ns, timeouts.connect_ns),
            Phase::Preface => of_attempt_ns(self.connecting_since_ns, u64::MAX),
            // The deadline excludes the time for which handshake bytes were unread, because this machine caused it.
            Phase::Handshaking => {
                of_attempt_ns(self.handshake_since_ns + self.handshake_unread_ns, timeouts.handshake_ns)
            }
            Phase::Vacant | Phase::Open | Phase::Retired => {
                let request = self.requests.front()?;
                let answer_ns = match request.sent_ns {
                    0 => u64::MAX,
                    sent_ns => sent_ns.saturating_add(timeouts.answer_ns),
                };
                Some(whole_ns(request.started_ns).min(answer_ns))
            }
        }
    }
}
