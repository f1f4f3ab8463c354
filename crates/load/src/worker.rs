//! The measuring loop: one thread, its connections, its share of the plan.
//!
//! The loop owns no clock and no socket (see [`crate::wire`]), so that the same code runs on the kernel's
//! TCP and on a simulated network of virtual time.

mod connecting;
mod dispatching;
mod ending;
mod gathering;
mod reading;
mod retrying;
mod sending;

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use http1::KnownHead;
use record::HttpPlan;

use crate::{
    absence::{Absences, SHORTEST_NS, UnderWay},
    book::Book,
    events::{Events, Ledger},
    part::Part,
    request::RequestBytes,
    share::Share,
    slot::{Phase, Slot},
    source::Source,
    wire::{Event, SlotId, Waited, Wake, Wire},
};

/// Connections of a pool being made at once before the start: fewer than any listener's accept queue
/// (nginx has 511, old kernels 128), because overflowing that would cost a second per lost SYN.
const OPENING_AT_ONCE: usize = 100;
/// One receive buffer per worker: connections have none.
const BUFFER_BYTES: usize = 256 * 1024;

/// A worker: a wire, slots, and what it has written down.
pub struct Worker<W: Wire> {
    wire: W,
    plan: Arc<HttpPlan>,
    request: RequestBytes,
    to_head: bool,
    source: Source,
    slots: Vec<Slot>,
    /// Boxed: most loads have none.
    events: Option<Box<Events>>,
    /// Index of this worker's first slot among all workers', to spread the routes.
    first_slot: u64,
    absences: Absences,
    /// By how much requests were delayed at the most since sending was to end.
    delay_at_end_ns: u64,
    /// When the clock was read last.
    seen_ns: u64,
    /// When the last wait began: what had happened by then was told by the waits before.
    polled_ns: u64,
    has_answers: bool,
    /// Which slot something was sent on since the clock was read.
    just_sent: Option<SlotId>,
    /// Whether it is known when the last bytes arrived.
    is_stamped: bool,
    /// How many events the last wait told.
    batch: u64,
    /// How long answers took of late: an exponentially weighted mean, in nanoseconds.
    usual_ns: u64,
    timers: BinaryHeap<Reverse<(u64, SlotId, Timer)>>,
    /// Slots whose next step was put off, so that failures at once cannot recurse.
    later: Vec<SlotId>,
    book: Book,
    buffer: Vec<u8>,
    known: KnownHead,
    stop: Arc<AtomicBool>,
    sending: bool,
    /// Requests given to slots and not ended.
    assigned: u64,
    connecting: usize,
    long_bodies: bool,
    early_send_failures: u32,
    /// A user is beginning anew after a closed connection: another failure at once must not nest.
    reconnecting: bool,
    t0_ns: u64,
    sends: u64,
}

/// What a worker leaves.
pub struct Finished<W> {
    /// What it wrote down.
    pub part: Part,
    /// What it knows of every event, if there were any.
    pub ledger: Option<Ledger>,
    /// Its wire, for what that knows of its own time.
    pub wire: W,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A user begins its next request.
    Begin,
    /// What a slot waits for may have taken too long.
    Deadline,
    /// A slot's request is made again.
    Retry,
}

impl<W: Wire> Worker<W> {
    /// A worker for a share of the plan. `wire` makes the wire for a number of slots.
    ///
    /// # Errors
    /// Whatever `wire` fails with.
    pub fn new<E>(
        plan: Arc<HttpPlan>,
        share: Share,
        book: Book,
        stop: Arc<AtomicBool>,
        wire: impl FnOnce(usize) -> Result<W, E>,
    ) -> Result<Self, E> {
        let (source, slots) = Source::new(&plan, share);
        let loops = match &plan.load {
            record::LoadModel::Closed { loops, .. } => loops.unwrap_or(u64::MAX),
            record::LoadModel::Open { .. } => u64::MAX,
        };
        let first_slot = share.range_of(plan.connections()).start;
        let events = plan.events.as_ref();
        Ok(Self {
            wire: wire(slots as usize)?,
            events: events.map(|events| Box::new(Events::new(events, share, first_slot, slots, plan.seed))),
            request: RequestBytes::new(&plan),
            to_head: plan.request.method == "HEAD",
            source,
            slots: (0..slots).map(|_| Slot::new(loops)).collect(),
            first_slot,
            absences: Absences::default(),
            delay_at_end_ns: 0,
            seen_ns: 0,
            polled_ns: 0,
            has_answers: false,
            just_sent: None,
            is_stamped: false,
            batch: 0,
            usual_ns: 0,
            timers: BinaryHeap::new(),
            later: Vec::new(),
            book,
            buffer: vec![0; BUFFER_BYTES],
            known: KnownHead::default(),
            stop,
            sending: true,
            assigned: 0,
            connecting: 0,
            long_bodies: false,
            early_send_failures: 0,
            reconnecting: false,
            t0_ns: 0,
            sends: 0,
            plan,
        })
    }

    /// Opens the connections of an open load's pool, a few at a time, until each is made or has failed.
    pub fn prepare(&mut self) {
        let Source::Open(pool) = &self.source else { return };
        let initial = pool.initial;
        let mut next = 0;
        let mut events = Vec::new();
        while (next < initial || self.connecting > 0) && !self.stop.load(Ordering::Relaxed) {
            while next < initial && self.connecting < OPENING_AT_ONCE {
                self.open(next, self.wire.now_ns());
                next += 1;
            }
            let until_ns = self.next_timer_ns();
            let waited = self.wire.wait(until_ns, Wake::Loosely, &mut events);
            self.woke(waited);
            self.handle(&mut events);
            self.strike_timers(waited.ended_ns);
        }
    }

    /// The wire's clock.
    pub fn now_ns(&self) -> u64 {
        self.wire.now_ns()
    }

    /// The wire, for what it knows of its own time.
    pub fn wire(&self) -> &W {
        &self.wire
    }

    /// Runs the share from `t0_ns` to its end and gives what was written down.
    pub fn run(mut self, t0_ns: u64) -> Finished<W> {
        self.t0_ns = t0_ns;
        self.book.start(t0_ns);
        self.absences = Absences::since(t0_ns);
        self.seen_ns = self.wire.now_ns();
        self.start_users();
        let ends_ns = self.ends_ns();
        let mut events = Vec::new();
        let mut interrupted = false;
        loop {
            let (until_ns, wake) = self.next_wake(ends_ns);
            let waited = self.wire.wait(Some(until_ns), wake, &mut events);
            self.woke(waited);
            self.batch = events.len() as u64;
            self.handle(&mut events);
            let now_ns = self.clock();
            self.dispatch_due(now_ns);
            if self.absences.delay_ns() > 0 {
                if ends_ns.is_some_and(|end| now_ns >= end) {
                    self.delay_at_end_ns = self.delay_at_end_ns.max(self.absences.delay_ns());
                }
                self.look_whether_caught_up();
            }
            if self.sending && (ends_ns.is_some_and(|end| now_ns >= end) || self.source_is_dry(now_ns)) {
                self.sending_ended(now_ns);
            }
            if now_ns >= self.book.tick_due_ns() {
                self.book.tick(now_ns);
            }
            if self.stop.load(Ordering::Relaxed) {
                interrupted = true;
                break;
            }
            let drained = ends_ns.is_some_and(|end| now_ns >= self.drained_ns(end));
            if !self.sending && ((self.assigned == 0 && !self.backlog_waits()) || drained) {
                break;
            }
        }
        self.finish(interrupted)
    }

    /// A wait has ended.
    fn woke(&mut self, waited: Waited) {
        self.look_for_gap(waited.began_ns);
        self.seen_ns = waited.ended_ns;
        self.polled_ns = waited.began_ns;
        self.was_away(waited.ended_ns, waited.late_ns);
    }

    /// Reads the clock, and notes where the loop was stopped since it was read last.
    #[inline]
    fn clock(&mut self) -> u64 {
        let now_ns = self.wire.now_ns();
        self.look_for_gap(now_ns);
        now_ns
    }

    #[inline]
    fn look_for_gap(&mut self, now_ns: u64) {
        let gap_ns = now_ns.saturating_sub(self.seen_ns);
        self.seen_ns = now_ns;
        let just_sent = self.just_sent.take();
        if gap_ns >= SHORTEST_NS {
            self.was_away(now_ns, gap_ns);
            // Whether that was sent before or after is not known, and neither is it of those sent along with it.
            if let Some(slot) = just_sent.map(|id| &mut self.slots[id as usize]) {
                let last_ns = slot.requests.back().map_or(0, |request| request.sent_ns);
                let along = slot.requests.iter_mut().rev().take_while(|request| request.sent_ns == last_ns);
                along.for_each(|request| request.own_service_ns += gap_ns);
            }
        }
    }

    /// Whether everything due has been sent, also what became due while the rest was.
    fn look_whether_caught_up(&mut self) {
        let now_ns = self.clock();
        if self.next_arrival_ns().is_none_or(|due_ns| due_ns > now_ns) {
            self.absences.caught_up(now_ns, self.under_way());
        }
    }

    #[inline]
    fn was_away(&mut self, now_ns: u64, by_ns: u64) {
        if by_ns >= SHORTEST_NS {
            self.absences.was_away(now_ns, by_ns, self.under_way());
        }
    }

    /// What is under way, requests whose connections are still being made among it.
    #[inline]
    fn under_way(&self) -> UnderWay {
        UnderWay { in_flight: self.assigned, ..self.book.under_way() }
    }

    fn start_users(&mut self) {
        let Source::Closed(users) = &self.source else { return };
        // A user that thinks does so behind every request: each that it may have in flight begins by itself.
        let places = if users.thinks { self.plan.pipeline } else { 1 };
        for index in 0..self.slots.len() {
            let starts_ns = self.t0_ns + users.starts_ns(index);
            let begin = Reverse((starts_ns, index as SlotId, Timer::Begin));
            self.timers.extend((0..places).map(|_| begin));
        }
    }

    /// When the loop must look again, and how exactly.
    fn next_wake(&self, ends_ns: Option<u64>) -> (u64, Wake) {
        let mut until_ns = self.book.tick_due_ns();
        if !self.later.is_empty() {
            return (0, Wake::Loosely);
        }
        if let Some(end_ns) = ends_ns {
            until_ns = until_ns.min(if self.sending { end_ns } else { self.drained_ns(end_ns) });
        }
        if let Some(at_ns) = self.next_timer_ns() {
            until_ns = until_ns.min(at_ns);
        }
        if let Some(end_ns) = self.schedule_ends_ns().filter(|_| self.sending) {
            until_ns = until_ns.min(end_ns);
        }
        if let Some(due_ns) = self.next_arrival_ns()
            && due_ns < until_ns
            && self.can_place()
        {
            return (due_ns, Wake::Exactly);
        }
        // A pause need not end to the microsecond; polling for it would take the processor from others.
        let gathering_ns = self.gathering_ns();
        (until_ns, if gathering_ns > 0 { Wake::Gathering(gathering_ns) } else { Wake::Loosely })
    }

    /// Until when answers are waited for: an absence takes nothing of that time.
    fn drained_ns(&self, end_ns: u64) -> u64 {
        end_ns + self.plan.drain_ns + self.delay_at_end_ns
    }

    fn next_timer_ns(&self) -> Option<u64> {
        self.timers.peek().map(|&Reverse((at_ns, ..))| at_ns)
    }

    #[inline]
    fn next_arrival_ns(&self) -> Option<u64> {
        match &self.source {
            Source::Open(pool) => pool.schedule.peek_ns().map(|due| self.t0_ns + due),
            Source::Closed(_) => None,
        }
    }

    fn can_place(&self) -> bool {
        match &self.source {
            Source::Open(pool) => {
                !pool.idle.is_empty()
                    || !pool.vacant.is_empty()
                    || !pool.behind.is_empty()
                    || (pool.unused as usize) < self.slots.len()
                    || pool.retired >= self.slots.len() as u64
            }
            Source::Closed(_) => false,
        }
    }

    /// Arrivals of an open load are still to be sent: all were due before sending ended.
    fn backlog_waits(&self) -> bool {
        self.next_arrival_ns().is_some()
    }

    fn handle(&mut self, events: &mut Vec<Event>) {
        let mut i = 0;
        while i < events.len() {
            let event = events[i];
            i += 1;
            let slot = &self.slots[event.slot as usize];
            if slot.generation != event.generation {
                continue;
            }
            match slot.phase {
                Phase::Connecting => {
                    if event.writable || event.closed {
                        self.connection_made_or_refused(event.slot);
                        // What the peer sent with its last handshake packet has no event of its own.
                        if event.readable && self.slots[event.slot as usize].phase == Phase::Open {
                            self.read(event.slot, event.closed);
                        }
                    }
                }
                Phase::Open => {
                    if event.writable && slot.unsent > 0 {
                        self.transmit(event.slot);
                    }
                    let same = self.slots[event.slot as usize].generation == event.generation;
                    if event.readable && same {
                        self.read(event.slot, event.closed);
                    }
                }
                Phase::Vacant | Phase::Retired => {}
            }
        }
        events.clear();
    }
}
