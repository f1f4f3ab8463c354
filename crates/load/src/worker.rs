//! The measuring loop: one thread, its connections, its share of the plan.
//!
//! The loop owns no clock and no socket (see [`crate::wire`]), so that the same code runs on the kernel's
//! TCP and on a simulated network of virtual time.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use http1::{KnownHead, Response};
use record::{ErrorClass, Fault, HttpPlan, Origin};
use rustix::io::Errno;

use crate::{
    book::{Book, InFlight, Part},
    failure::{connect_failure, parse_failure, stream_failure},
    request::RequestBytes,
    share::Share,
    slot::{Phase, Slot},
    source::{Placement, Source},
    wire::{Event, Route, SlotId, Wire},
};

/// Connections of a pool being made at once before the start: fewer than any listener's accept queue
/// (nginx has 511, old kernels 128), because overflowing that would cost a second per lost SYN.
const OPENING_AT_ONCE: usize = 100;
/// One receive buffer per worker: connections have none.
const BUFFER_BYTES: usize = 256 * 1024;
/// Answers with at least so much body still to come are dropped in the kernel, unread.
const DISCARD_BYTES: u64 = 8 * 1024;
/// When bodies are that long, the first read takes the head and little more.
const HEAD_READ_BYTES: usize = 4 * 1024;
/// Sends that may fail before the connection is made, in a row, before trying so early is given up.
const EARLY_SEND_FAILURES: u32 = 16;

/// A worker: a wire, slots, and what it has written down.
pub struct Worker<W: Wire> {
    wire: W,
    plan: Arc<HttpPlan>,
    request: RequestBytes,
    to_head: bool,
    source: Source,
    slots: Vec<Slot>,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A user begins its next request.
    Begin,
    /// What a slot waits for may have taken too long.
    Deadline,
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
        Ok(Self {
            wire: wire(slots as usize)?,
            request: RequestBytes::new(&plan),
            to_head: plan.request.method == "HEAD",
            source,
            slots: (0..slots).map(|_| Slot::new(loops)).collect(),
            first_slot: share.range_of(plan.connections()).start,
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

    /// Time the wire spent polling.
    pub fn spun_ns(&self) -> u64 {
        self.wire.spun_ns()
    }

    /// Runs the share from `t0_ns` to its end and gives what was written down.
    pub fn run(mut self, t0_ns: u64) -> (Part, W) {
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

    // ---- what the plan wants ----

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
        self.take_put_off(now_ns);
        self.strike_timers(now_ns);
        self.dispatch_arrivals(now_ns);
    }

    fn strike_timers(&mut self, now_ns: u64) {
        while let Some(&Reverse((at_ns, slot, timer))) = self.timers.peek()
            && at_ns <= now_ns
        {
            self.timers.pop();
            match timer {
                Timer::Begin => self.begin(slot, at_ns, now_ns),
                Timer::Deadline => self.check_deadline(slot, now_ns),
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
            if self.sends % every == 0 {
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
        self.sends % every == 0
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
        if slot.queued || slot.requests.len() >= self.plan.pipeline as usize {
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
    fn take_put_off(&mut self, now_ns: u64) {
        if self.later.is_empty() {
            return;
        }
        for id in std::mem::take(&mut self.later) {
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

    // ---- connections ----

    fn route(&self, id: SlotId) -> Route {
        let n = self.first_slot + u64::from(id);
        let pick = |list: &[IpAddr]| (!list.is_empty()).then(|| list[(n % list.len() as u64) as usize]);
        let turn = n / self.plan.sources.len().max(1) as u64;
        let target = self.plan.targets[(turn % self.plan.targets.len() as u64) as usize];
        Route { target, source: pick(&self.plan.sources) }
    }

    /// Opens a slot's connection; requests waiting on the slot leave as soon as it is made.
    fn open(&mut self, id: SlotId, now_ns: u64) {
        let route = self.route(id);
        let slot = &mut self.slots[id as usize];
        slot.phase = Phase::Connecting;
        slot.connecting_since_ns = now_ns;
        self.connecting += 1;
        if let Err(errno) = self.wire.connect(id, &route) {
            self.connect_failed(id, errno, now_ns);
            return;
        }
        // Over loopback, and often over a LAN's virtual links, the handshake is over by now. Sending at
        // once saves waiting for the kernel to say so.
        let early = self.slots[id as usize].unsent > 0 && self.early_send_failures < EARLY_SEND_FAILURES;
        if early {
            self.transmit(id);
            match self.slots[id as usize].phase {
                Phase::Connecting => self.early_send_failures += 1,
                Phase::Open => self.early_send_failures = 0,
                Phase::Vacant | Phase::Retired => return,
            }
        }
        let slot = &self.slots[id as usize];
        let wants_room = slot.phase == Phase::Connecting || slot.unsent > 0;
        if let Err(errno) = self.wire.watch(id, slot.generation, wants_room) {
            self.connection_lost(id, connect_failure(errno), 0, now_ns);
            return;
        }
        self.arm_deadline(id);
    }

    fn established(&mut self, id: SlotId, now_ns: u64) {
        let slot = &mut self.slots[id as usize];
        slot.phase = Phase::Open;
        slot.free_since_ns = now_ns;
        self.connecting -= 1;
        self.book.connected(now_ns.saturating_sub(slot.connecting_since_ns), slot.was_open);
        slot.was_open = true;
        slot.reopens = true;
    }

    fn connect_failed(&mut self, id: SlotId, errno: Errno, now_ns: u64) {
        self.connection_lost(id, connect_failure(errno), 0, now_ns);
    }

    /// The connection is gone, or was never made: every request on it ends, the first of them for
    /// `class`, those behind it because the connection closed (or for `class` too, if nothing was sent
    /// or time ran out). `answered` requests have just ended well on the same connection.
    fn connection_lost(&mut self, id: SlotId, class: ErrorClass, answered: u32, now_ns: u64) {
        let was_connecting = self.slots[id as usize].phase == Phase::Connecting;
        let requests = std::mem::take(&mut self.slots[id as usize].requests);
        let ended = answered + requests.len() as u32;
        for (i, request) in requests.iter().enumerate() {
            let same = i == 0 || was_connecting || class == ErrorClass::Timeout;
            self.book.failed(request, if same { class } else { ErrorClass::ClosedEarly }, now_ns);
        }
        self.drop_connection(id, now_ns);
        if class.origin() == Origin::Local && was_connecting {
            self.retire(id, class, ended);
            return;
        }
        if ended > 0 {
            self.ended(id, ended, now_ns);
        } else {
            self.give_back(id);
        }
        self.reopen_later(id);
    }

    fn drop_connection(&mut self, id: SlotId, now_ns: u64) {
        let slot = &mut self.slots[id as usize];
        match slot.phase {
            Phase::Connecting => self.connecting -= 1,
            Phase::Open => self.book.disconnected(),
            Phase::Vacant | Phase::Retired => return,
        }
        self.wire.close(id);
        slot.vacate(now_ns);
    }

    fn disconnect(&mut self, id: SlotId, now_ns: u64) {
        if self.slots[id as usize].phase == Phase::Open {
            self.drop_connection(id, now_ns);
        }
    }

    /// This machine cannot open the slot's connection: the slot takes no further part, and what it
    /// should have sent counts as never sent.
    fn retire(&mut self, id: SlotId, class: ErrorClass, requests: u32) {
        self.assigned -= u64::from(requests);
        self.book.unopened(class);
        let slot = &mut self.slots[id as usize];
        slot.phase = Phase::Retired;
        match &mut self.source {
            Source::Open(pool) => pool.retired += 1,
            Source::Closed(users) => {
                users.active -= u64::from(slot.loops_left > 0);
                slot.loops_left = 0;
            }
        }
    }

    fn arm_deadline(&mut self, id: SlotId) {
        let slot = &mut self.slots[id as usize];
        if let (false, Some(since_ns)) = (slot.deadline_armed, slot.waiting_since_ns()) {
            slot.deadline_armed = true;
            self.timers.push(Reverse((since_ns + self.plan.timeout_ns, id, Timer::Deadline)));
        }
    }

    /// A slot has one deadline among the timers at most, and it is looked at again only when that
    /// strikes: keeping it exact would cost every request.
    fn check_deadline(&mut self, id: SlotId, now_ns: u64) {
        let slot = &mut self.slots[id as usize];
        slot.deadline_armed = false;
        let Some(since_ns) = slot.waiting_since_ns() else { return };
        if since_ns + self.plan.timeout_ns > now_ns {
            self.arm_deadline(id);
            return;
        }
        let connecting = slot.phase == Phase::Connecting;
        let class = if connecting { ErrorClass::ConnectTimeout } else { ErrorClass::Timeout };
        self.connection_lost(id, class, 0, now_ns);
    }

    // ---- bytes ----

    /// Sends what a slot has to send, opening its connection first if it has none.
    #[inline]
    fn send(&mut self, id: SlotId) {
        match self.slots[id as usize].phase {
            Phase::Open => {
                self.transmit(id);
                self.arm_deadline(id);
            }
            Phase::Vacant if self.slots[id as usize].unsent > 0 => {
                let now_ns = self.slots[id as usize].requests.front().map_or(0, |r| r.started_ns);
                self.open(id, now_ns);
            }
            Phase::Vacant | Phase::Connecting | Phase::Retired => {}
        }
    }

    /// Hands the kernel what it takes.
    #[inline]
    fn transmit(&mut self, id: SlotId) {
        loop {
            let slot = &mut self.slots[id as usize];
            if slot.unsent == 0 {
                return;
            }
            let count = (slot.unsent as usize).min(self.request.copies());
            let bytes = self.request.rest(count, slot.sent_bytes as usize);
            let wanted = bytes.len();
            let early = slot.phase == Phase::Connecting;
            // A request that waited for its connection or for room leaves now; any other leaves as it is
            // given, at a time already taken.
            let given_ns = slot.requests[slot.requests.len() - 1].started_ns;
            let waited = early || slot.wants_room || given_ns < slot.free_since_ns;
            match self.wire.send(id, bytes) {
                Ok(sent) => {
                    let now_ns = if waited { self.wire.now_ns() } else { given_ns };
                    if early {
                        self.established(id, now_ns);
                    }
                    self.book.sent_bytes(sent);
                    self.mark_sent(id, sent, now_ns);
                    if sent < wanted {
                        continue;
                    }
                }
                Err(Errno::AGAIN) => {
                    if !early && !slot.wants_room {
                        slot.wants_room = true;
                        let generation = slot.generation;
                        // Refused only for want of memory; the deadline then ends the wait.
                        let _ = self.wire.watch(id, generation, true);
                    }
                    return;
                }
                Err(errno) if early => {
                    let now_ns = self.wire.now_ns();
                    return self.connect_failed(id, errno, now_ns);
                }
                // The peer may have answered before it broke off: what it said counts, and reading
                // finds the end as well.
                Err(Errno::PIPE | Errno::CONNRESET) => {
                    return self.read_last_words(id);
                }
                Err(errno) => {
                    let now_ns = self.wire.now_ns();
                    return self.connection_lost(id, stream_failure(errno), 0, now_ns);
                }
            }
        }
    }

    fn mark_sent(&mut self, id: SlotId, bytes: usize, now_ns: u64) {
        let slot = &mut self.slots[id as usize];
        let mut progress = slot.sent_bytes as usize + bytes;
        let mut at = slot.requests.len() - slot.unsent as usize;
        while progress > 0 {
            let request = &mut slot.requests[at];
            if request.sent_ns == 0 {
                request.sent_ns = now_ns;
                self.book.sent(request);
            }
            if progress < self.request.length() {
                break;
            }
            progress -= self.request.length();
            slot.unsent -= 1;
            at += 1;
        }
        slot.sent_bytes = progress as u32;
    }

    fn read_last_words(&mut self, id: SlotId) {
        let requests = self.slots[id as usize].requests.len();
        self.read(id, true);
        let slot = &self.slots[id as usize];
        if slot.phase == Phase::Open && slot.requests.len() == requests {
            let now_ns = self.wire.now_ns();
            self.connection_lost(id, ErrorClass::Reset, 0, now_ns);
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

    fn connection_made_or_refused(&mut self, id: SlotId) {
        let result = self.wire.connect_result(id);
        let now_ns = self.wire.now_ns();
        match result {
            Ok(()) => {
                self.established(id, now_ns);
                if self.slots[id as usize].unsent > 0 {
                    self.send(id);
                } else {
                    self.give_back(id);
                }
            }
            Err(errno) => self.connect_failed(id, errno, now_ns),
        }
    }

    /// Reads what has come, ends the requests it answers, and only then lets the next ones begin: bytes
    /// beyond the last answer must be seen as such.
    fn read(&mut self, id: SlotId, to_the_end: bool) {
        let mut answered = 0;
        let mut now_ns;
        let mut end = None;
        loop {
            let fresh = !self.slots[id as usize].reader.in_message();
            let room = if self.long_bodies && fresh { HEAD_READ_BYTES } else { BUFFER_BYTES };
            let received = self.wire.receive(id, &mut self.buffer[..room]);
            now_ns = self.wire.now_ns();
            match received {
                Ok(0) => {
                    end = Some(self.peer_closed(id, &mut answered, now_ns));
                    break;
                }
                Ok(received) => {
                    self.book.received_bytes(received);
                    end = self.take_in(id, received, &mut answered, now_ns);
                    // A short read has taken everything there was (epoll(7)), unless the end is to come.
                    if end.is_some() || self.closes_now(id) || (received < room && !to_the_end) {
                        break;
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(errno) => {
                    end = Some(stream_failure(errno));
                    break;
                }
            }
            if self.discard_body(id, &mut answered, &mut now_ns) == Drained::Yes && !to_the_end {
                break;
            }
            if self.closes_now(id) {
                break;
            }
        }
        self.after_reading(id, answered, end, now_ns);
    }

    /// Feeds what was received to the reader. Gives the failure that ends the connection, if one does.
    #[inline]
    fn take_in(
        &mut self,
        id: SlotId,
        received: usize,
        answered: &mut u32,
        now_ns: u64,
    ) -> Option<ErrorClass> {
        let mut position = 0;
        while position < received {
            let slot = &mut self.slots[id as usize];
            if slot.requests.front().is_none_or(|request| request.sent_ns == 0) {
                return Some(ErrorClass::Unsolicited);
            }
            if !slot.reader.in_message() {
                slot.first_byte_ns = now_ns;
            }
            match slot.reader.feed_known(&self.buffer[position..received], self.to_head, &mut self.known) {
                Ok(fed) => {
                    position += fed.used;
                    if let Some(response) = fed.done {
                        self.answered(id, &response, now_ns);
                        *answered += 1;
                    }
                }
                Err(error) => return Some(parse_failure(&error)),
            }
        }
        None
    }

    /// The connection has brought its last answer: its end need not be waited for.
    fn closes_now(&self, id: SlotId) -> bool {
        let slot = &self.slots[id as usize];
        slot.closes && slot.requests.is_empty()
    }

    /// Lets the kernel drop the rest of a body that nobody reads.
    fn discard_body(&mut self, id: SlotId, answered: &mut u32, now_ns: &mut u64) -> Drained {
        let left = self.slots[id as usize].reader.discardable();
        if left < DISCARD_BYTES {
            return Drained::Perhaps;
        }
        let most = left.min(BUFFER_BYTES as u64) as usize;
        match self.wire.discard(id, &mut self.buffer[..most]) {
            // The next read meets the same end or error, and names it.
            Ok(0) => Drained::Perhaps,
            Ok(dropped) => {
                self.book.received_bytes(dropped);
                let done = self.slots[id as usize].reader.discarded(dropped as u64);
                if let Some(response) = done {
                    *now_ns = self.wire.now_ns();
                    self.answered(id, &response, *now_ns);
                    *answered += 1;
                }
                let awaited = done.is_none() || !self.slots[id as usize].requests.is_empty();
                if awaited && dropped == most { Drained::Perhaps } else { Drained::Yes }
            }
            Err(Errno::AGAIN) => Drained::Yes,
            Err(_) => Drained::Perhaps,
        }
    }

    /// The oldest request of a slot has its answer.
    #[inline]
    fn answered(&mut self, id: SlotId, response: &Response, now_ns: u64) {
        let slot = &mut self.slots[id as usize];
        // take_in saw that there is one, and sent.
        let Some(request) = slot.requests.pop_front() else { return };
        if slot.unsent as usize > slot.requests.len() {
            // Answered before it was wholly sent: the rest of it can no longer be sent on its own.
            slot.unsent = slot.requests.len() as u32;
            slot.reader = http1::ResponseReader::new(http1::Limits::default());
            slot.closes = true;
        }
        slot.last_answer_ns = now_ns;
        slot.free_since_ns = now_ns;
        slot.closes |= !response.keep_alive || !self.plan.keepalive;
        self.long_bodies = response.body_bytes >= 2 * DISCARD_BYTES;
        let expected = self.plan.expect.contains(response.status);
        self.book.answered(&request, response, expected, slot.first_byte_ns, now_ns);
        if let Some(Fault::Burn { ns }) = self.plan.fault {
            self.wire.burn(ns);
        }
    }

    /// The peer sent its end. Gives what that means for the requests still on the connection.
    fn peer_closed(&mut self, id: SlotId, answered: &mut u32, now_ns: u64) -> ErrorClass {
        let slot = &mut self.slots[id as usize];
        match slot.reader.eof() {
            Ok(Some(response)) => {
                self.answered(id, &response, now_ns);
                *answered += 1;
                ErrorClass::ClosedEarly
            }
            Ok(None) => ErrorClass::ClosedEarly,
            Err(_) => ErrorClass::Truncated,
        }
    }

    fn after_reading(&mut self, id: SlotId, answered: u32, end: Option<ErrorClass>, now_ns: u64) {
        let slot = &mut self.slots[id as usize];
        let end = end.or(slot.closes.then_some(ErrorClass::ClosedEarly));
        let Some(class) = end else {
            if answered > 0 {
                self.ended(id, answered, now_ns);
            }
            return;
        };
        // An end between two answers is the peer's right (it may close an idle connection), and bytes
        // without a request are no request's failure but the connection's.
        if class == ErrorClass::Unsolicited && slot.requests.is_empty() {
            self.book.connection_error(class);
        }
        self.connection_lost(id, class, answered, now_ns);
    }

    /// Accounts for everything that did not end by itself.
    fn finish(mut self, interrupted: bool) -> (Part, W) {
        let now_ns = self.wire.now_ns();
        if self.sending {
            self.sending_ended(now_ns);
        }
        for slot in &mut self.slots {
            for request in slot.requests.drain(..) {
                if request.sent_ns != 0 {
                    self.book.left_in_flight(&request, now_ns);
                } else {
                    self.book.never_sent_busy(request.intended_ns, now_ns);
                }
            }
            if slot.last_answer_ns > 0 {
                self.book.user_span(slot.last_answer_ns - self.t0_ns);
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
        (self.book.close(now_ns, scheduled, planned, interrupted), self.wire)
    }

    fn sending_ended(&mut self, now_ns: u64) {
        self.sending = false;
        self.book.sending_ended(now_ns);
    }
}

/// Whether a socket has given everything it had.
#[derive(Debug, PartialEq, Eq)]
enum Drained {
    Yes,
    Perhaps,
}
