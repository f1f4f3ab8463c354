//! The measuring loop: one thread, its connections, its share of the plan.
//!
//! The loop owns no clock and no socket (see [`crate::wire`]), so that the same code runs on the kernel's
//! TCP and on a simulated network of virtual time.

mod connecting;
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
use record::{Fault, HttpPlan};

use crate::{
    book::{Book, InFlight, Part},
    events::{Events, Ledger},
    request::RequestBytes,
    share::Share,
    slot::{Phase, Slot},
    source::{Placement, Source},
    wire::{Event, SlotId, Wire},
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
            self.wire.wait(until_ns, false, &mut events);
            self.handle(&mut events);
            self.strike_timers(self.wire.now_ns());
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
        self.start_users();
        let ends_ns = self.plan.duration_ns.map(|duration| t0_ns + duration);
        let mut events = Vec::new();
        let mut interrupted = false;
        loop {
            let (until_ns, precise) = self.next_wake(ends_ns);
            self.wire.wait(Some(until_ns), precise, &mut events);
            self.handle(&mut events);
            let now_ns = self.wire.now_ns();
            self.dispatch_due(now_ns);
            if self.sending && (ends_ns.is_some_and(|end| now_ns >= end) || self.source_is_dry()) {
                self.sending_ended(now_ns);
            }
            if now_ns >= self.book.tick_due_ns() {
                self.book.tick(now_ns);
            }
            if self.stop.load(Ordering::Relaxed) {
                interrupted = true;
                break;
            }
            let drained = ends_ns.is_some_and(|end| now_ns >= end + self.plan.drain_ns);
            if !self.sending && ((self.assigned == 0 && !self.backlog_waits()) || drained) {
                break;
            }
        }
        self.finish(interrupted)
    }

    fn start_users(&mut self) {
        let Source::Closed(users) = &self.source else { return };
        for index in 0..self.slots.len() {
            let starts_ns = self.t0_ns + users.starts_ns(index);
            self.timers.push(Reverse((starts_ns, index as SlotId, Timer::Begin)));
        }
    }

    /// When the loop must look again, and whether that must be exact.
    fn next_wake(&self, ends_ns: Option<u64>) -> (u64, bool) {
        let mut until_ns = self.book.tick_due_ns();
        if !self.later.is_empty() {
            return (0, false);
        }
        if let Some(end_ns) = ends_ns {
            until_ns = until_ns.min(if self.sending { end_ns } else { end_ns + self.plan.drain_ns });
        }
        if let Some(at_ns) = self.next_timer_ns() {
            until_ns = until_ns.min(at_ns);
        }
        if let Some(due_ns) = self.next_arrival_ns()
            && due_ns < until_ns
            && self.can_place()
        {
            return (due_ns, true);
        }
        // A pause need not end to the microsecond; polling for it would take the processor from others.
        (until_ns, false)
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

    fn source_is_dry(&self) -> bool {
        match &self.source {
            Source::Closed(users) => users.active == 0 || users.quota == 0,
            Source::Open(pool) => pool.schedule.peek_ns().is_none(),
        }
    }

    /// Everything that is due by the clock: timers, arrivals, steps put off.
    fn dispatch_due(&mut self, now_ns: u64) {
        self.take_put_off();
        self.strike_timers(now_ns);
        self.dispatch_arrivals(now_ns);
    }

    fn strike_timers(&mut self, mut now_ns: u64) {
        while let Some(&Reverse((at_ns, slot, timer))) = self.timers.peek()
            && at_ns <= now_ns
        {
            self.timers.pop();
            match timer {
                Timer::Begin => {
                    self.begin(slot, at_ns, now_ns);
                    // Connecting and sending took time: the next user's stamps must not be of before.
                    now_ns = self.wire.now_ns();
                }
                Timer::Deadline => self.check_deadline(slot, now_ns),
                Timer::Retry => {
                    self.make_again(slot, now_ns);
                    now_ns = self.wire.now_ns();
                }
            }
        }
    }

    /// Gives every arrival that is due to a connection, as long as there are any.
    #[inline]
    fn dispatch_arrivals(&mut self, mut now_ns: u64) {
        loop {
            let slots = self.slots.len();
            let t0_ns = self.t0_ns;
            let Source::Open(pool) = &mut self.source else { return };
            let Some(due_ns) = pool.schedule.peek_ns().map(|due| t0_ns + due) else { return };
            if due_ns > now_ns {
                return;
            }
            match pool.place(slots) {
                Placement::Busy => return,
                Placement::Lost => {
                    pool.schedule.take();
                    self.book.never_sent(1);
                    continue;
                }
                Placement::Slot(slot) => {
                    pool.schedule.take();
                    self.slots[slot as usize].queued = false;
                    if self.skipped_by_fault() {
                        self.give_back(slot);
                        continue;
                    }
                    self.assign(slot, due_ns, now_ns);
                    self.send(slot);
                }
            }
            // Sending took time: what is late because of it must show.
            now_ns = self.wire.now_ns();
        }
    }

    /// A user of a closed load begins a request that it wanted to begin at `intended_ns`.
    fn begin(&mut self, id: SlotId, intended_ns: u64, now_ns: u64) {
        if self.take_turn(id) {
            self.assign(id, intended_ns, now_ns);
            let depth = self.plan.pipeline as usize;
            while self.slots[id as usize].requests.len() < depth && self.take_turn(id) {
                self.assign(id, intended_ns, now_ns);
            }
            self.send(id);
        }
    }

    /// Whether a user may begin another request; books that it does, or that it is done for good.
    fn take_turn(&mut self, id: SlotId) -> bool {
        let Source::Closed(users) = &mut self.source else { return false };
        let slot = &mut self.slots[id as usize];
        if slot.loops_left == 0 || slot.phase == Phase::Retired {
            return false;
        }
        if !self.sending || users.quota == 0 {
            slot.loops_left = 0;
            users.active -= 1;
            return false;
        }
        slot.loops_left -= 1;
        users.active -= u64::from(slot.loops_left == 0);
        users.quota -= 1;
        users.begun += 1;
        true
    }

    /// Gives a request to a slot and writes down how late that is of ourselves.
    #[inline]
    fn assign(&mut self, id: SlotId, intended_ns: u64, mut now_ns: u64) {
        if let Some(Fault::LateSends { every, by_ns }) = self.plan.fault {
            self.sends += 1;
            if self.sends.is_multiple_of(every) {
                self.wire.burn(by_ns);
                now_ns = self.wire.now_ns();
            }
        }
        let slot = &mut self.slots[id as usize];
        let could_ns = intended_ns.max(slot.free_since_ns);
        self.book.assigned(now_ns.saturating_sub(could_ns));
        slot.requests.push_back(InFlight { intended_ns, started_ns: now_ns, sent_ns: 0 });
        slot.unsent += 1;
        self.assigned += 1;
    }

    fn skipped_by_fault(&mut self) -> bool {
        let Some(Fault::NeverSend { every }) = self.plan.fault else { return false };
        self.sends += 1;
        self.sends.is_multiple_of(every)
    }

    /// Requests of a slot have ended: what comes next for it.
    fn ended(&mut self, id: SlotId, requests: u32, now_ns: u64) {
        self.assigned -= u64::from(requests);
        match &mut self.source {
            Source::Open(_) => self.give_back(id),
            Source::Closed(users) if users.thinks => {
                for _ in 0..requests {
                    let at_ns = now_ns + users.think_ns();
                    self.timers.push(Reverse((at_ns, id, Timer::Begin)));
                }
            }
            Source::Closed(_) => {
                if self.slots[id as usize].phase == Phase::Open {
                    for _ in 0..requests {
                        if self.take_turn(id) {
                            self.assign(id, now_ns, now_ns);
                        }
                    }
                    self.send(id);
                } else if self.reconnecting {
                    self.put_off(id);
                } else {
                    self.reconnecting = true;
                    self.begin(id, now_ns, now_ns);
                    self.reconnecting = false;
                }
            }
        }
        if self.slots[id as usize].loops_left == 0 && self.slots[id as usize].requests.is_empty() {
            self.disconnect(id, now_ns);
        }
    }

    /// Puts a slot of a pool back among the free or the vacant ones.
    fn give_back(&mut self, id: SlotId) {
        let Source::Open(pool) = &mut self.source else { return };
        let slot = &mut self.slots[id as usize];
        if slot.queued || slot.awaits_retry || slot.requests.len() >= self.plan.pipeline as usize {
            return;
        }
        match slot.phase {
            Phase::Open => {
                slot.queued = true;
                pool.idle.push_back(id);
            }
            Phase::Vacant => {
                slot.queued = true;
                pool.vacant.push(id);
            }
            Phase::Connecting | Phase::Retired => {}
        }
    }

    fn put_off(&mut self, id: SlotId) {
        self.later.push(id);
    }

    /// A pool that was planned to be open stays open: a connection that the target closed is made anew,
    /// once; if that fails, the next arrival that gets the slot tries.
    fn reopen_later(&mut self, id: SlotId) {
        let Source::Open(pool) = &self.source else { return };
        let slot = &mut self.slots[id as usize];
        if slot.reopens && slot.phase == Phase::Vacant && id < pool.initial && self.sending {
            slot.reopens = false;
            self.put_off(id);
        }
    }

    /// One pass over the slots whose next step was put off; what fails again waits for the next pass.
    fn take_put_off(&mut self) {
        if self.later.is_empty() {
            return;
        }
        for id in std::mem::take(&mut self.later) {
            let now_ns = self.wire.now_ns();
            match &self.source {
                Source::Closed(_) => {
                    let since_ns = self.slots[id as usize].free_since_ns;
                    self.begin(id, since_ns.min(now_ns), now_ns);
                }
                Source::Open(_) => {
                    if self.slots[id as usize].phase == Phase::Vacant {
                        self.open(id, now_ns);
                    }
                }
            }
        }
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

    /// Accounts for everything that did not end by itself.
    fn finish(mut self, interrupted: bool) -> Finished<W> {
        let now_ns = self.wire.now_ns();
        if self.sending {
            self.sending_ended(now_ns);
        }
        self.cut_events_off(now_ns);
        for (index, slot) in self.slots.iter_mut().enumerate() {
            for request in slot.requests.drain(..) {
                if request.sent_ns != 0 {
                    self.book.left_in_flight(&request, now_ns);
                } else {
                    self.book.never_sent_busy(request.intended_ns, now_ns);
                }
            }
            if slot.last_answer_ns > 0
                && let Source::Closed(users) = &self.source
            {
                let starts_ns = self.t0_ns + users.starts_ns(index);
                self.book.user_span(slot.last_answer_ns.saturating_sub(starts_ns));
            }
        }
        let (scheduled, planned) = match &mut self.source {
            Source::Open(pool) => {
                let planned = pool.schedule.planned().filter(|_| !interrupted);
                while let Some(due_ns) = pool.schedule.peek_ns().map(|due| self.t0_ns + due)
                    && due_ns <= now_ns
                {
                    pool.schedule.take();
                    self.book.never_sent_busy(due_ns, now_ns);
                }
                (pool.schedule.issued(), planned)
            }
            Source::Closed(users) => {
                let planned = users.planned.filter(|_| !interrupted);
                // Users that could not be opened leave a part of the plan undone.
                self.book.never_sent(planned.map_or(0, |n| n - users.begun));
                (planned.unwrap_or(users.begun), planned)
            }
        };
        Finished {
            part: self.book.close(now_ns, scheduled, planned, interrupted),
            ledger: self.events.map(|events| events.ledger()),
            wire: self.wire,
        }
    }

    fn sending_ended(&mut self, now_ns: u64) {
        self.sending = false;
        self.book.sending_ended(now_ns);
    }
}
