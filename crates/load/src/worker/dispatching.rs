//! Dispatching: timers, arrivals, the next requests of users, and deferred steps.

use std::cmp::Reverse;

use record::Fault;

use super::{Deferred, Timer, Worker};
use crate::{
    absence::MIN_ABSENCE_NS,
    exchange::{Exchange, Next},
    recorder::InFlight,
    slot::Phase,
    source::{AfterRequests, Placement, Users},
    wire::{SlotId, Wire},
};

/// Time limit for sending arrivals before answers are read, in nanoseconds. Answers free connections: if opening a
/// connection takes longer than the time between arrivals, the loop would otherwise open all allowed connections before it
/// reads an answer.
const MAX_DISPATCH_NS: u64 = 500_000;

impl<W: Wire, X: Exchange> Worker<W, X> {
    /// Runs everything that is due: deferred steps, timers, arrivals.
    pub(super) fn dispatch_due(&mut self, now_ns: u64) {
        self.run_deferred();
        self.fire_timers(now_ns);
        self.dispatch_arrivals(now_ns);
    }

    pub(super) fn fire_timers(&mut self, mut now_ns: u64) {
        while let Some(&Reverse((at_ns, slot, timer))) = self.timers.peek()
            && at_ns <= now_ns
        {
            self.timers.pop();
            match timer {
                Timer::Begin => {
                    self.begin(slot, at_ns, at_ns, now_ns);
                    // Connecting and sending took time, which the next user's times must include.
                    now_ns = self.clock();
                }
                Timer::Step => {
                    self.paused -= 1;
                    if self.may_go_on(now_ns) {
                        self.begin_step(slot, at_ns, at_ns, now_ns);
                        now_ns = self.clock();
                    }
                }
                Timer::Deadline => {
                    self.check_deadline(slot, at_ns, now_ns);
                    now_ns = self.clock();
                }
                Timer::Retry => {
                    self.retry(slot, now_ns);
                    now_ns = self.clock();
                }
            }
        }
    }

    /// Assigns due arrivals to connections until none is due, or all connections are busy, or it is time to read answers.
    #[inline]
    fn dispatch_arrivals(&mut self, mut now_ns: u64) {
        let until_ns = now_ns + MAX_DISPATCH_NS;
        while now_ns < until_ns {
            let depth = self.plan.pipeline as usize;
            let t0_ns = self.t0_ns;
            let Some(pool) = self.source.pool() else { return };
            let Some(due_ns) = pool.schedule.peek_ns().map(|due| t0_ns + due) else { return };
            if due_ns > now_ns {
                pool.holds = false;
                return;
            }
            let hold_ns = self.absences.longest_hold_ns();
            pool.hold(hold_ns > 0 && now_ns - due_ns <= hold_ns && self.absences.has_baseline());
            match pool.choose_slot(&mut self.slots, depth) {
                Placement::Busy => {
                    let last_ns = if pool.holds { &mut pool.last_held_ns } else { &mut pool.busy_at_ns };
                    *last_ns = now_ns;
                    return;
                }
                Placement::Lost => {
                    pool.schedule.take();
                    self.recorder.never_sent(1);
                    continue;
                }
                Placement::Slot(slot) => {
                    pool.schedule.take();
                    // A wait that an absence explains does not count as a wait for a connection.
                    if due_ns <= pool.busy_at_ns && now_ns - due_ns > hold_ns {
                        self.recorder.waited_busy();
                    }
                    if due_ns <= pool.last_held_ns {
                        pool.last_held_ns = now_ns;
                    }
                    if !pool.is_full && (pool.unused as usize) < self.slots.len() {
                        // The arrival could have had a new connection at once, so the generator caused its wait.
                        let slot = &mut self.slots[slot as usize];
                        slot.free_since_ns = slot.free_since_ns.min(due_ns);
                    }
                    self.slots[slot as usize].queued = false;
                    if self.skipped_by_fault() {
                        self.return_to_pool(slot);
                        continue;
                    }
                    self.assign(slot, due_ns, due_ns, now_ns);
                    self.send(slot);
                    if depth > 1 {
                        self.return_to_pool(slot);
                    }
                }
            }
            // Sending took time, which the next arrival's lateness must include.
            now_ns = self.clock();
        }
    }

    /// Begins a user's request. `intended_ns`: the start of its response time; `ready_ns`: when the user was ready.
    fn begin(&mut self, id: SlotId, intended_ns: u64, ready_ns: u64, now_ns: u64) {
        if !self.claim_request(id) {
            return self.recorder.users().late_to_the_end(ready_ns);
        }
        self.assign(id, intended_ns, ready_ns, now_ns);
        // With think time, each of a user's pipelined requests has its own timer.
        let depth = if self.source.pauses() { 1 } else { self.plan.pipeline as usize };
        while self.slots[id as usize].requests.len() < depth && self.claim_request(id) {
            self.assign(id, intended_ns, ready_ns, now_ns);
        }
        self.send(id);
    }

    /// Claims the user's next request. Returns false if the user is done; the user then counts as inactive.
    fn claim_request(&mut self, id: SlotId) -> bool {
        let Some(users) = self.source.users() else { return false };
        let slot = &mut self.slots[id as usize];
        if slot.loops_left == 0 || slot.phase == Phase::Retired {
            return false;
        }
        if !self.sending || users.quota == 0 || !self.exchange.has_more() {
            slot.loops_left = 0;
            users.active -= 1;
            return false;
        }
        users.begin_request(slot.loops_left);
        slot.loops_left -= 1;
        true
    }

    /// Begins the next request of a user's iteration. Times as in `begin`.
    fn begin_step(&mut self, id: SlotId, intended_ns: u64, ready_ns: u64, now_ns: u64) {
        if self.slots[id as usize].phase == Phase::Retired {
            return;
        }
        self.continued += 1;
        self.assign(id, intended_ns, ready_ns, now_ns);
        self.send(id);
    }

    /// Assigns a request to a slot and records the generator's share of its lateness. `intended_ns`: the start of its
    /// response time; `ready_ns`: when a free slot could have taken it.
    #[inline]
    fn assign(&mut self, id: SlotId, intended_ns: u64, ready_ns: u64, mut now_ns: u64) {
        if let Some(Fault::LateSends { every, by_ns }) = self.plan.fault {
            self.fault_counter += 1;
            if self.fault_counter.is_multiple_of(every) {
                self.wire.burn(by_ns);
                now_ns = self.clock();
            }
        }
        // A user without pauses waits only for its own last answer, so absences add no further delay.
        let delay_ns = match self.source.follows_answers() {
            true => 0,
            false => self.delay_ns(now_ns.saturating_sub(intended_ns)),
        };
        let slot = &mut self.slots[id as usize];
        // A user is free when it has its answer, even if its connection ended with the answer.
        let free_since_ns = if self.source.is_open() { slot.free_since_ns } else { 0 };
        let mut late_ns = now_ns.saturating_sub(ready_ns.max(free_since_ns));
        let (mut own_ns, mut own_queue_ns) = (late_ns, 0);
        if delay_ns > 0 {
            // An absence may have caused a wait for a connection, and a queue of late requests in the target.
            own_queue_ns = delay_ns.saturating_sub(late_ns);
            late_ns = late_ns.max(delay_ns.min(now_ns.saturating_sub(intended_ns)));
            own_ns = own_ns.max(delay_ns);
        }
        if late_ns >= MIN_ABSENCE_NS && !self.source.is_open() {
            self.recorder.user_delayed(late_ns);
        }
        self.recorder.assigned(late_ns);
        self.recorder.users().was_due(intended_ns, late_ns, now_ns);
        self.recorder.begun(intended_ns);
        if X::HAS_STEPS {
            self.exchange.prepare(id, now_ns);
        }
        slot.requests.push_back(InFlight::assigned(intended_ns, now_ns, own_ns, own_queue_ns));
        slot.unsent += 1;
        self.assigned += 1;
    }

    /// Upper bound of the delay by absences for a request that begins `late_ns` after it was due, in nanoseconds.
    #[inline]
    fn delay_ns(&mut self, late_ns: u64) -> u64 {
        if self.absences.delay_ns() == 0 {
            self.absences.note_in_flight(self.assigned);
            return 0;
        }
        self.absences.note_begun(late_ns, self.are_arrivals())
    }

    /// Whether only the schedule makes requests due. A request that follows an answer or a failure becomes due later after each
    /// absence.
    pub(super) fn are_arrivals(&self) -> bool {
        self.source.is_open() && !X::HAS_STEPS && self.plan.events.is_none()
    }

    /// Raises the delay bounds of a slot's requests that waited for their connection and are about to be sent: absences
    /// since they began, and earlier late requests, delay them too. Returns the current time.
    #[inline(never)]
    pub(super) fn leaves_late(&mut self, id: SlotId) -> u64 {
        let now_ns = self.wire.now_ns();
        if self.absences.delay_ns() == 0 || self.source.follows_answers() {
            return now_ns;
        }
        let are_arrivals = self.are_arrivals();
        let slot = &mut self.slots[id as usize];
        for request in slot.requests.iter_mut().filter(|request| request.sent_ns == 0) {
            // The generator's share so far counts as the request's lateness, because a later absence delays the request
            // further.
            let bound_ns = self.absences.note_begun(request.own_ns, are_arrivals);
            request.own_ns = request.own_ns.max(bound_ns);
            request.own_queue_ns = request.own_queue_ns.max(bound_ns);
        }
        now_ns
    }

    fn skipped_by_fault(&mut self) -> bool {
        let Some(Fault::NeverSend { every }) = self.plan.fault else { return false };
        self.fault_counter += 1;
        self.fault_counter.is_multiple_of(every)
    }

    /// Starts a slot's next step after `answered` and `failed` requests have ended on it.
    pub(super) fn requests_ended(&mut self, id: SlotId, answered: u32, failed: u32, now_ns: u64) {
        let requests = answered + failed;
        self.assigned -= u64::from(requests);
        // A user is ready when the answer has arrived, even if it was read later.
        let ready_ns = if answered > 0 { self.slots[id as usize].ready_ns } else { now_ns };
        let mut own_pause_ns = None;
        if X::HAS_STEPS {
            match self.exchange.next(id) {
                Next::Step(pause_ns) => {
                    return self.step_ended(id, pause_ns, answered > 0, ready_ns, now_ns);
                }
                Next::End(pause_ns) => own_pause_ns = pause_ns,
            }
            self.slots[id as usize].in_iteration = false;
        }
        match self.source.after_requests() {
            AfterRequests::Returns => self.return_to_pool(id),
            AfterRequests::Pauses => {
                for number in 0..requests {
                    let pause_ns = own_pause_ns.unwrap_or_else(|| self.think_ns());
                    self.slots[id as usize].cycles.paused(number < answered, pause_ns);
                    let from_ns = if number < answered { ready_ns } else { now_ns };
                    self.recorder.users().paused(from_ns, from_ns + pause_ns);
                    self.timers.push(Reverse((from_ns + pause_ns, id, Timer::Begin)));
                }
            }
            AfterRequests::Continues => {
                if self.slots[id as usize].phase == Phase::Open {
                    for _ in 0..requests {
                        if self.claim_request(id) {
                            self.assign(id, now_ns, ready_ns, now_ns);
                        } else {
                            self.recorder.users().late_to_the_end(ready_ns);
                        }
                    }
                    self.send(id);
                } else if self.slots[id as usize].refusals > 0 {
                    let pause_ns = self.slots[id as usize].refused_pause_ns();
                    self.recorder.users().refused_for(now_ns, now_ns + pause_ns);
                    self.timers.push(Reverse((now_ns + pause_ns, id, Timer::Begin)));
                } else if self.reconnecting {
                    self.deferred.push((id, Deferred::Next));
                } else {
                    self.reconnecting = true;
                    self.begin(id, now_ns, ready_ns, now_ns);
                    self.reconnecting = false;
                }
            }
        }
        // When all users leave, their connections end together with the worker's other sockets, which may be reset.
        let slot = &self.slots[id as usize];
        if self.sending && slot.loops_left == 0 && slot.requests.is_empty() {
            self.disconnect(id, now_ns);
        }
    }

    /// Continues a user's iteration after one of its requests has ended, unless the trial ends first.
    fn step_ended(&mut self, id: SlotId, pause_ns: Option<u64>, answered: bool, ready_ns: u64, now_ns: u64) {
        let refused_ns = self.slots[id as usize].refused_pause_ns();
        let pause_ns = pause_ns.unwrap_or_else(|| self.think_ns()).max(refused_ns);
        self.slots[id as usize].in_iteration = true;
        self.slots[id as usize].cycles.paused(answered, pause_ns);
        if pause_ns > 0 {
            self.paused += 1;
            let from_ns = if answered { ready_ns } else { now_ns };
            self.recorder.users().paused(from_ns, from_ns + pause_ns);
            self.timers.push(Reverse((from_ns + pause_ns, id, Timer::Step)));
            return;
        }
        if !self.may_go_on(now_ns) {
            return self.recorder.users().late_to_the_end(ready_ns);
        }
        if self.slots[id as usize].phase == Phase::Open {
            self.begin_step(id, now_ns, ready_ns, now_ns);
        } else if self.reconnecting {
            self.deferred.push((id, Deferred::Next));
        } else {
            self.reconnecting = true;
            self.begin_step(id, now_ns, ready_ns, now_ns);
            self.reconnecting = false;
        }
    }

    /// Draws a pause of a user, in nanoseconds; 0 in an open load.
    fn think_ns(&mut self) -> u64 {
        self.source.users().map_or(0, Users::think_ns)
    }

    /// Returns a slot to the pool's queues of idle, pipelinable or vacant slots.
    pub(super) fn return_to_pool(&mut self, id: SlotId) {
        let Some(pool) = self.source.pool() else { return };
        let slot = &mut self.slots[id as usize];
        if slot.queued
            || slot.awaits_retry
            || slot.in_iteration
            || slot.requests.len() >= self.plan.pipeline as usize
        {
            return;
        }
        match slot.phase {
            Phase::Open if slot.requests.is_empty() => {
                slot.queued = true;
                pool.idle.push_back(id);
            }
            Phase::Open if !slot.queued_pipelinable => {
                slot.queued_pipelinable = true;
                pool.pipelinable.push_back(id);
            }
            Phase::Vacant if slot.requests.is_empty() => {
                slot.queued = true;
                pool.vacant.push(id);
            }
            Phase::Open
            | Phase::Vacant
            | Phase::Connecting
            | Phase::Preface
            | Phase::Handshaking
            | Phase::Retired => {}
        }
    }

    /// Reopens a lost initial connection of a pool in the next pass. If that fails, the next arrival that gets the slot
    /// tries again.
    pub(super) fn schedule_reopen(&mut self, id: SlotId) {
        let slot = &mut self.slots[id as usize];
        // The next step of an iteration opens the connection itself.
        let is_due = slot.reopens && slot.phase == Phase::Vacant && !slot.in_iteration;
        if is_due && id < self.source.initial() && self.sending {
            slot.reopens = false;
            self.deferred.push((id, Deferred::Reopen));
        }
    }

    /// Whether no request is in flight, waiting, pausing or deferred to the next pass.
    pub(super) fn has_ended(&self, now_ns: u64) -> bool {
        let goes_on = |(id, _): &(SlotId, Deferred)| self.slots[*id as usize].in_iteration;
        self.assigned == 0
            && !self.has_backlog()
            && !self.has_pauses(now_ns)
            && !self.deferred.iter().any(goes_on)
    }

    /// Runs the deferred steps once. A step that fails again is deferred to the next pass.
    fn run_deferred(&mut self) {
        if self.deferred.is_empty() {
            return;
        }
        for (id, what) in std::mem::take(&mut self.deferred) {
            let now_ns = self.clock();
            let slot = &self.slots[id as usize];
            let since_ns = slot.free_since_ns.min(now_ns);
            match what {
                // An arrival may have taken the slot in the meantime.
                Deferred::Reopen if slot.phase == Phase::Vacant && !slot.in_iteration => {
                    self.open(id, now_ns)
                }
                Deferred::Reopen => {}
                Deferred::Next if !slot.in_iteration => self.begin(id, since_ns, since_ns, now_ns),
                Deferred::Next if self.may_go_on(now_ns) => self.begin_step(id, since_ns, since_ns, now_ns),
                Deferred::Next => {}
            }
        }
    }
}
