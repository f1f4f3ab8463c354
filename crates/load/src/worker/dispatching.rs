//! What is due: timers, arrivals, the next requests of users, and steps put off.

use std::cmp::Reverse;

use record::Fault;

use super::{Timer, Worker};
use crate::{
    absence::SHORTEST_NS,
    book::InFlight,
    slot::Phase,
    source::{Placement, Source},
    wire::{SlotId, Wire},
};

impl<W: Wire> Worker<W> {
    /// Everything that is due by the clock: timers, arrivals, steps put off.
    pub(super) fn dispatch_due(&mut self, now_ns: u64) {
        self.take_put_off();
        self.strike_timers(now_ns);
        self.dispatch_arrivals(now_ns);
    }

    pub(super) fn strike_timers(&mut self, mut now_ns: u64) {
        while let Some(&Reverse((at_ns, slot, timer))) = self.timers.peek()
            && at_ns <= now_ns
        {
            self.timers.pop();
            match timer {
                Timer::Begin => {
                    self.begin(slot, at_ns, at_ns, now_ns);
                    // Connecting and sending took time: the next user's stamps must not be of before.
                    now_ns = self.clock();
                }
                Timer::Deadline => self.check_deadline(slot, now_ns),
                Timer::Retry => {
                    self.make_again(slot, now_ns);
                    now_ns = self.clock();
                }
            }
        }
    }

    /// Gives every arrival that is due to a connection, as long as there are any.
    #[inline]
    fn dispatch_arrivals(&mut self, mut now_ns: u64) {
        loop {
            let depth = self.plan.pipeline as usize;
            let t0_ns = self.t0_ns;
            let Source::Open(pool) = &mut self.source else { return };
            let Some(due_ns) = pool.schedule.peek_ns().map(|due| t0_ns + due) else { return };
            if due_ns > now_ns {
                return;
            }
            match pool.place(&mut self.slots, depth) {
                Placement::Busy => {
                    pool.busy_at_ns = now_ns;
                    return;
                }
                Placement::Lost => {
                    pool.schedule.take();
                    self.book.never_sent(1);
                    continue;
                }
                Placement::Slot(slot) => {
                    pool.schedule.take();
                    // What an absence explains was not the connections' doing.
                    if due_ns <= pool.busy_at_ns && now_ns - due_ns > self.absences.delay_ns() {
                        self.book.waited_busy();
                    }
                    self.slots[slot as usize].queued = false;
                    if self.skipped_by_fault() {
                        self.give_back(slot);
                        continue;
                    }
                    self.assign(slot, due_ns, due_ns, now_ns);
                    self.send(slot);
                    if depth > 1 {
                        self.give_back(slot);
                    }
                }
            }
            // Sending took time: what is late because of it must show.
            now_ns = self.clock();
        }
    }

    /// A user of a closed load begins a request that counts from `intended_ns`; the user was ready at `ready_ns`.
    fn begin(&mut self, id: SlotId, intended_ns: u64, ready_ns: u64, now_ns: u64) {
        if !self.take_turn(id) {
            return;
        }
        self.assign(id, intended_ns, ready_ns, now_ns);
        let thinks = matches!(&self.source, Source::Closed(users) if users.thinks);
        // The other requests of one that thinks begin when their own pauses are over.
        let depth = if thinks { 1 } else { self.plan.pipeline as usize };
        while self.slots[id as usize].requests.len() < depth && self.take_turn(id) {
            self.assign(id, intended_ns, ready_ns, now_ns);
        }
        self.send(id);
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
        users.begins(slot.loops_left);
        slot.loops_left -= 1;
        true
    }

    /// Gives a slot a request that counts from `intended_ns` and could have been given at `ready_ns` if the slot was
    /// free, and records how much of its lateness is our own.
    #[inline]
    fn assign(&mut self, id: SlotId, intended_ns: u64, ready_ns: u64, mut now_ns: u64) {
        if let Some(Fault::LateSends { every, by_ns }) = self.plan.fault {
            self.sends += 1;
            if self.sends.is_multiple_of(every) {
                self.wire.burn(by_ns);
                now_ns = self.clock();
            }
        }
        let slot = &mut self.slots[id as usize];
        let mut late_ns = now_ns.saturating_sub(ready_ns.max(slot.free_since_ns));
        let (mut own_ns, mut own_queue_ns) = (late_ns, 0);
        match &self.source {
            // A user without pauses always waits for its own last answer only.
            Source::Closed(users) if !users.thinks => {}
            _ if self.absences.delay_ns() > 0 => {
                // What waited for a connection may have done so because of an absence, and be held up behind others
                // that leave late.
                let delay_ns = self.absences.delay_ns();
                own_queue_ns = delay_ns.saturating_sub(late_ns);
                late_ns = late_ns.max(delay_ns.min(now_ns.saturating_sub(intended_ns)));
                own_ns = own_ns.max(delay_ns);
            }
            _ => {}
        }
        if late_ns >= SHORTEST_NS && matches!(self.source, Source::Closed(_)) {
            self.book.user_delayed(late_ns);
        }
        self.book.assigned(late_ns);
        slot.requests.push_back(InFlight {
            intended_ns,
            started_ns: now_ns,
            sent_ns: 0,
            own_ns,
            own_queue_ns,
            own_service_ns: 0,
        });
        slot.unsent += 1;
        self.assigned += 1;
    }

    fn skipped_by_fault(&mut self) -> bool {
        let Some(Fault::NeverSend { every }) = self.plan.fault else { return false };
        self.sends += 1;
        self.sends.is_multiple_of(every)
    }

    /// Requests of a slot have ended, with an answer or failed without one: what comes next for it.
    pub(super) fn ended(&mut self, id: SlotId, answered: u32, failed: u32, now_ns: u64) {
        let requests = answered + failed;
        self.assigned -= u64::from(requests);
        // A user goes on when the answer is there, however late it was read.
        let ready_ns = if answered > 0 { self.slots[id as usize].last_answer_ns } else { now_ns };
        match &mut self.source {
            Source::Open(_) => self.give_back(id),
            Source::Closed(users) if users.thinks => {
                for number in 0..requests {
                    let pause_ns = users.think_ns();
                    self.slots[id as usize].cycles.paused(number < answered, pause_ns);
                    let from_ns = if number < answered { ready_ns } else { now_ns };
                    self.timers.push(Reverse((from_ns + pause_ns, id, Timer::Begin)));
                }
            }
            Source::Closed(_) => {
                if self.slots[id as usize].phase == Phase::Open {
                    for _ in 0..requests {
                        if self.take_turn(id) {
                            self.assign(id, now_ns, ready_ns, now_ns);
                        }
                    }
                    self.send(id);
                } else if self.reconnecting {
                    self.put_off(id);
                } else {
                    self.reconnecting = true;
                    self.begin(id, now_ns, ready_ns, now_ns);
                    self.reconnecting = false;
                }
            }
        }
        if self.slots[id as usize].loops_left == 0 && self.slots[id as usize].requests.is_empty() {
            self.disconnect(id, now_ns);
        }
    }

    /// Puts a slot of a pool back among the free or the vacant ones.
    pub(super) fn give_back(&mut self, id: SlotId) {
        let Source::Open(pool) = &mut self.source else { return };
        let slot = &mut self.slots[id as usize];
        if slot.queued || slot.awaits_retry || slot.requests.len() >= self.plan.pipeline as usize {
            return;
        }
        match slot.phase {
            Phase::Open if slot.requests.is_empty() => {
                slot.queued = true;
                pool.idle.push_back(id);
            }
            Phase::Open if !slot.queued_behind => {
                slot.queued_behind = true;
                pool.behind.push_back(id);
            }
            Phase::Vacant => {
                slot.queued = true;
                pool.vacant.push(id);
            }
            Phase::Open | Phase::Connecting | Phase::Retired => {}
        }
    }

    fn put_off(&mut self, id: SlotId) {
        self.later.push(id);
    }

    /// A pool that was planned to be open stays open: a connection that the target closed is made anew,
    /// once; if that fails, the next arrival that gets the slot tries.
    pub(super) fn reopen_later(&mut self, id: SlotId) {
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
            let now_ns = self.clock();
            match &self.source {
                Source::Closed(_) => {
                    let since_ns = self.slots[id as usize].free_since_ns.min(now_ns);
                    self.begin(id, since_ns, since_ns, now_ns);
                }
                Source::Open(_) => {
                    if self.slots[id as usize].phase == Phase::Vacant {
                        self.open(id, now_ns);
                    }
                }
            }
        }
    }
}
