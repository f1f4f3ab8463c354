//! The measuring loop: one thread, its connections, its share of the plan.
//!
//! The loop owns no clock and no socket (see [`crate::wire`]), so that the same code runs on the kernel's
//! TCP and on a simulated network of virtual time.

mod connecting;
mod dispatching;
mod ending;
mod reading;
mod retries;
mod sending;
mod waiting;
mod watching;

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::{Arc, atomic::AtomicBool},
};

use record::{HttpPlan, LoadModel, ScriptResult};

use crate::{
    absence::{Absences, LoadState, MIN_ABSENCE_NS},
    events::Ledger,
    exchange::{Exchange, ExchangeContext, RunningScript},
    lease::{Lease, Permission},
    recorder::Recorder,
    share::Share,
    slot::{Lifetime, Phase, Slot, Timeouts},
    source::RequestSource,
    wire::{Event, SlotId, Waited, Wake, Wire},
    worker_result::WorkerResult,
};

/// Maximum number of concurrent connection attempts before the start. It is below every usual accept queue (nginx 511, old
/// kernels 128), because an overflow would cost a second per lost SYN.
const MAX_CONNECTING: usize = 100;
/// Size of the receive buffer, which all connections of a worker share.
const BUFFER_BYTES: usize = 256 * 1024;

/// One measuring thread: a wire, its slots and its recorder.
pub struct Worker<W: Wire, X: Exchange> {
    wire: W,
    plan: Arc<HttpPlan>,
    exchange: X,
    source: RequestSource,
    slots: Vec<Slot>,
    /// Index of this worker's first slot among those of all workers, to spread the routes.
    first_slot: u64,
    absences: Absences,
    /// The largest delay by absences after the planned end of sending.
    delay_at_end_ns: u64,
    /// The last reading of the clock.
    clock_read_ns: u64,
    /// When the last wait began. Earlier waits have reported everything that had happened by then.
    wait_began_ns: u64,
    has_answers: bool,
    /// The slot that has sent something since the clock was last read.
    just_sent: Option<SlotId>,
    /// Whether the kernel gave the receive time of the last bytes.
    has_receive_stamp: bool,
    /// Number of events that the last wait reported.
    last_event_count: u64,
    /// Exponentially weighted mean of the service time, in nanoseconds.
    mean_service_ns: u64,
    timers: BinaryHeap<Reverse<(u64, SlotId, Timer)>>,
    /// Slots whose next step is deferred to the next pass, because immediate failures would otherwise recurse.
    deferred: Vec<(SlotId, Deferred)>,
    recorder: Recorder,
    buffer: Vec<u8>,
    permission: Permission,
    sending: bool,
    timeouts: Timeouts,
    lifetime: Option<Lifetime>,
    /// A connection takes requests as soon as TCP is established, without a preface or handshake.
    sends_at_once: bool,
    /// Number of unfinished requests that are assigned to slots.
    assigned: u64,
    /// Number of begun requests that are not the first of their iteration.
    continued: u64,
    /// Number of iterations that pause before their next request.
    paused: u64,
    connecting: usize,
    has_long_bodies: bool,
    /// Requests may be repeated, because their method is idempotent.
    is_idempotent: bool,
    early_send_failures: u32,
    /// A user is reconnecting; another immediate failure is deferred so that it cannot recurse.
    reconnecting: bool,
    t0_ns: u64,
    fault_counter: u64,
}

/// The results of a worker.
pub struct Finished<W> {
    /// What the worker measured.
    pub result: WorkerResult,
    /// The outcome of every event, if the load has events.
    pub(crate) ledger: Option<Ledger>,
    /// The results of the steps, if the load has a script.
    pub(crate) script: Option<ScriptResult>,
    /// The wire, which counts its own waiting and polling time.
    pub(crate) wire: W,
}

/// The deferred step of a slot.
#[derive(Debug, Clone, Copy)]
enum Deferred {
    /// It begins its user's next request.
    Next,
    /// It opens its connection again.
    Reopen,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A user begins its next request.
    Begin,
    /// A user continues with the next request of its iteration.
    Step,
    /// The deadline of a slot must be checked.
    Deadline,
    /// A slot retries its request.
    Retry,
}

impl<W: Wire, X: Exchange> Worker<W, X> {
    /// A worker for a share of the plan, with the plan's script if any. `wire` creates the wire for a number of slots.
    ///
    /// # Errors
    /// The errors of `wire`.
    pub fn new<E>(
        plan: Arc<HttpPlan>,
        share: Share,
        script: Option<&RunningScript>,
        recorder: Recorder,
        stop: Arc<AtomicBool>,
        wire: impl FnOnce(usize) -> Result<W, E>,
    ) -> Result<Self, E> {
        let (source, slots) = RequestSource::new(&plan, share);
        let loops = match &plan.load {
            LoadModel::Closed { loops, .. } => loops.unwrap_or(u64::MAX),
            LoadModel::Open { .. } => u64::MAX,
        };
        let first_slot = share.range_of(plan.connections()).start;
        let log = script.and_then(|script| script.log.as_ref());
        let script = script.map(|script| &script.script);
        let context = ExchangeContext { plan: &plan, share, first_slot, slots, script, log };
        let wire = wire(slots as usize)?;
        Ok(Self {
            timeouts: Timeouts::of(&plan),
            lifetime: Lifetime::of(&plan),
            sends_at_once: !W::HAS_HANDSHAKE && !wire.has_preface(),
            wire,
            exchange: X::new(&context),
            source,
            slots: (0..slots).map(|_| Slot::new(loops)).collect(),
            first_slot,
            absences: Absences::default(),
            delay_at_end_ns: 0,
            clock_read_ns: 0,
            wait_began_ns: 0,
            has_answers: false,
            just_sent: None,
            has_receive_stamp: false,
            last_event_count: 0,
            mean_service_ns: 0,
            timers: BinaryHeap::new(),
            deferred: Vec::new(),
            recorder,
            buffer: vec![0; BUFFER_BYTES],
            permission: Permission { stop, lease: None },
            sending: true,
            assigned: 0,
            continued: 0,
            paused: 0,
            connecting: 0,
            has_long_bodies: false,
            is_idempotent: retries::is_idempotent(&plan.request.method),
            early_send_failures: 0,
            reconnecting: false,
            t0_ns: 0,
            fault_counter: 0,
            plan,
        })
    }

    /// Sends only while a lease lasts.
    pub(crate) fn with_lease(self, lease: Option<Arc<Lease>>) -> Self {
        Self { permission: Permission { lease, ..self.permission }, ..self }
    }

    /// Opens the initial connections of an open load's pool, a few at a time, until each is open or has failed.
    pub fn prepare(&mut self) {
        let initial = self.source.initial();
        let mut next = 0;
        let mut events = Vec::new();
        let is_stopped = |permission: &Permission| permission.is_stopped() || permission.has_lost_lease();
        while (next < initial || self.connecting > 0) && !is_stopped(&self.permission) {
            while next < initial && self.connecting < MAX_CONNECTING {
                self.open(next, self.wire.now_ns());
                next += 1;
            }
            let until_ns = self.next_timer_ns();
            let waited = self.wire.wait(until_ns, Wake::Loosely, &mut events);
            self.wait_ended(waited);
            self.handle_events(&mut events);
            self.fire_timers(waited.ended_ns);
        }
    }

    /// The time on the wire's clock.
    pub fn now_ns(&self) -> u64 {
        self.wire.now_ns()
    }

    /// The wire, which counts its own waiting and polling time.
    pub(crate) fn wire(&self) -> &W {
        &self.wire
    }

    /// Runs the share from `t0_ns` to its end.
    pub fn run(mut self, t0_ns: u64) -> Finished<W> {
        self.t0_ns = t0_ns;
        self.absences = Absences::new(t0_ns, self.plan.load.may_grow());
        self.clock_read_ns = self.wire.now_ns();
        self.start_users();
        let end_ns = self.sending_end_ns();
        let users_until_ns = end_ns.filter(|_| !self.source.is_open()).unwrap_or(u64::MAX);
        self.recorder.start(t0_ns, users_until_ns);
        let mut events = Vec::new();
        let (mut interrupted, mut lost_lease) = (false, false);
        loop {
            let (until_ns, wake) = self.next_wake(end_ns);
            let waited = self.wire.wait(Some(until_ns), wake, &mut events);
            self.wait_ended(waited);
            // Everything that is sent is sent between here and the next wait.
            if self.permission.has_lost_lease() {
                (interrupted, lost_lease) = (true, true);
                break;
            }
            self.last_event_count = events.len() as u64;
            self.handle_events(&mut events);
            let now_ns = self.clock();
            self.dispatch_due(now_ns);
            if self.absences.delay_ns() > 0 {
                if end_ns.is_some_and(|end| now_ns >= end) {
                    let delay_ns = self.absences.delay_ns_of(self.are_arrivals());
                    self.delay_at_end_ns = self.delay_at_end_ns.max(delay_ns);
                }
                self.check_caught_up();
            }
            if now_ns >= self.recorder.windows_due_ns() {
                self.settle_windows(now_ns);
            }
            if self.sending && (end_ns.is_some_and(|end| now_ns >= end) || self.source_is_exhausted(now_ns)) {
                self.sending_ended(now_ns);
            }
            if now_ns >= self.recorder.tick_due_ns() {
                self.recorder.tick(now_ns);
                self.keep_from_growing();
            }
            if self.permission.is_stopped() {
                interrupted = true;
                break;
            }
            let drained = end_ns.is_some_and(|end| now_ns >= self.drain_deadline_ns(end));
            if !self.sending && (drained || self.has_ended(now_ns)) {
                break;
            }
        }
        let mut finished = self.finish(interrupted);
        finished.result.lost_lease = lost_lease;
        // The user did not interrupt it.
        finished.result.interrupted &= !lost_lease;
        finished
    }

    /// Accounts for a wait that has ended.
    #[inline]
    fn wait_ended(&mut self, waited: Waited) {
        self.detect_gap(waited.began_ns);
        self.clock_read_ns = waited.ended_ns;
        self.wait_began_ns = waited.began_ns;
        self.record_absence(waited.ended_ns, waited.late_ns);
    }

    /// Reads the clock; a long time since the last reading counts as an absence.
    #[inline]
    fn clock(&mut self) -> u64 {
        let now_ns = self.wire.now_ns();
        self.detect_gap(now_ns);
        now_ns
    }

    #[inline]
    fn detect_gap(&mut self, now_ns: u64) {
        let gap_ns = now_ns.saturating_sub(self.clock_read_ns);
        self.clock_read_ns = now_ns;
        let just_sent = self.just_sent.take();
        if gap_ns >= MIN_ABSENCE_NS {
            self.record_absence(now_ns, gap_ns);
            // The absence may have come before or after the last send, so the requests of that send may have waited for it.
            if let Some(slot) = just_sent.map(|id| &mut self.slots[id as usize]) {
                let last_ns = slot.requests.back().map_or(0, |request| request.sent_ns);
                let along = slot.requests.iter_mut().rev().take_while(|request| request.sent_ns == last_ns);
                along.for_each(|request| request.own_service_ns += gap_ns);
            }
        }
    }

    /// Ends the delay by absences if every due request has been sent.
    fn check_caught_up(&mut self) {
        let now_ns = self.clock();
        // Requests that left in a burst are answered together. A held arrival shows that the burst persists, so the load
        // counts as recovered only if no arrival was held during the last mean service time.
        let mean_service_ns = self.mean_service_ns;
        let pool = self.source.pool();
        let are_apart = pool.is_none_or(|pool| {
            pool.held_at.is_none() || now_ns.saturating_sub(pool.last_held_ns) > mean_service_ns
        });
        if are_apart && self.next_arrival_ns().is_none_or(|due_ns| due_ns > now_ns) {
            // Without pauses, every user has a request at the target again as soon as the due requests are sent.
            match self.source.follows_answers() {
                true => self.absences.end_delay(now_ns),
                false => self.absences.caught_up(now_ns, self.load_state()),
            }
            if self.absences.delay_ns() == 0 {
                self.recorder.recovered(now_ns);
                if let Some(pool) = self.source.pool() {
                    pool.held_at = None;
                }
            }
        }
    }

    /// The state of the load; requests whose connections are still being opened count as in flight.
    #[inline]
    fn load_state(&self) -> LoadState {
        LoadState { in_flight: self.assigned, begun: self.recorder.ended() + self.assigned }
    }

    fn start_users(&mut self) {
        // A user with think time pauses after each request, so each of its pipelined requests has its own timer.
        let timers = if self.source.pauses() { self.plan.pipeline } else { 1 };
        for index in 0..self.slots.len() {
            let Some(start_ns) = self.source.user_starts_ns(index) else { return };
            let begin = Reverse((self.t0_ns + start_ns, index as SlotId, Timer::Begin));
            self.timers.extend((0..timers).map(|_| begin));
        }
    }

    fn next_timer_ns(&self) -> Option<u64> {
        self.timers.peek().map(|&Reverse((at_ns, ..))| at_ns)
    }

    #[inline]
    fn next_arrival_ns(&self) -> Option<u64> {
        self.source.next_arrival_ns().map(|due| self.t0_ns + due)
    }

    fn handle_events(&mut self, events: &mut Vec<Event>) {
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
                        self.connect_ended(event.slot);
                        // Bytes that arrived with the peer's last handshake packet cause no further event.
                        if event.readable && self.slots[event.slot as usize].phase == Phase::Open {
                            self.read(event.slot, event.closed);
                        }
                    }
                }
                Phase::Preface | Phase::Handshaking => {
                    self.advance_opening(event.slot);
                    if event.closed && self.slots[event.slot as usize].phase == Phase::Open {
                        self.read(event.slot, true);
                    }
                }
                Phase::Open => {
                    if event.writable && slot.unsent > 0 {
                        self.send(event.slot);
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

#[cfg(test)]
mod tests;
