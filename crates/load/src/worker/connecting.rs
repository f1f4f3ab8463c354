//! Connections: made, lost, given up, timed out.

use std::{cmp::Reverse, net::IpAddr};

use record::{ErrorClass, Origin};
use rustix::io::Errno;

use super::{Timer, Worker};
use crate::{
    absence::{FELT_NS, SHORTEST_NS},
    failure::connect_failure,
    slot::Phase,
    source::Source,
    wire::{Route, SlotId, Wire},
};

/// The kernel sends the first packet of a connection again after a second, less what its clock is coarse.
const SYN_RETRY_NS: u64 = 900_000_000;
/// Sends that may fail before the connection is made, in a row, before trying so early is given up.
const EARLY_SEND_FAILURES: u32 = 16;

impl<W: Wire> Worker<W> {
    pub(super) fn route(&self, id: SlotId) -> Route {
        let n = self.first_slot + u64::from(id);
        let pick = |list: &[IpAddr]| (!list.is_empty()).then(|| list[(n % list.len() as u64) as usize]);
        let turn = n / self.plan.sources.len().max(1) as u64;
        let target = self.plan.targets[(turn % self.plan.targets.len() as u64) as usize];
        Route { target, source: pick(&self.plan.sources) }
    }

    /// Opens a slot's connection; requests waiting on the slot leave as soon as it is made.
    pub(super) fn open(&mut self, id: SlotId, now_ns: u64) {
        let route = self.route(id);
        let slot = &mut self.slots[id as usize];
        slot.phase = Phase::Connecting;
        slot.connecting_since_ns = now_ns;
        slot.connects_delayed = self.absences.delay_ns() > 0;
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

    pub(super) fn established(&mut self, id: SlotId, now_ns: u64) {
        let own_ns = self.handshake_unseen_ns(id, now_ns);
        self.was_away(now_ns, own_ns);
        let slot = &mut self.slots[id as usize];
        // Who comes in a burst may find the accept queue full, and asks again after a second: that is no matter of how
        // long the burst was delayed.
        let took_ns = now_ns.saturating_sub(slot.connecting_since_ns);
        let asked_again = slot.connects_delayed && took_ns >= SYN_RETRY_NS;
        let share_ns = if asked_again { took_ns } else { own_ns };
        slot.requests.iter_mut().for_each(|request| request.own_ns += share_ns);
        if slot.connects_delayed && took_ns >= FELT_NS {
            self.book.connect_delayed();
        }
        slot.phase = Phase::Open;
        slot.free_since_ns = now_ns;
        self.connecting -= 1;
        self.book.connected(now_ns.saturating_sub(slot.connecting_since_ns + own_ns), slot.was_open);
        slot.was_open = true;
        slot.reopens = true;
    }

    /// For how long a connection may have been made before anybody looked. The kernel does not stamp handshakes, but
    /// where the loop waited for long it knows how long they took.
    fn handshake_unseen_ns(&self, id: SlotId, now_ns: u64) -> u64 {
        let began_ns = self.slots[id as usize].connecting_since_ns;
        let unseen_ns = now_ns.saturating_sub(self.polled_ns.max(began_ns));
        if unseen_ns < SHORTEST_NS {
            return 0;
        }
        let took_ns = now_ns.saturating_sub(began_ns);
        self.wire.handshake_ns(id).map_or(unseen_ns, |handshake_ns| {
            // The wake-up itself is not counted as an absence.
            let own_ns = took_ns.saturating_sub(handshake_ns);
            if own_ns < SHORTEST_NS { 0 } else { own_ns }
        })
    }

    pub(super) fn connect_failed(&mut self, id: SlotId, errno: Errno, now_ns: u64) {
        self.connection_lost(id, connect_failure(errno), 0, now_ns);
    }

    /// The connection is gone, or was never made: every request on it ends, the first of them for
    /// `class`, those behind it because the connection closed (or for `class` too, if nothing was sent
    /// or time ran out). `answered` requests have just ended well on the same connection.
    pub(super) fn connection_lost(&mut self, id: SlotId, class: ErrorClass, answered: u32, now_ns: u64) {
        let was_connecting = self.slots[id as usize].phase == Phase::Connecting;
        if was_connecting && self.slots[id as usize].connects_delayed && class.origin() != Origin::Local {
            self.book.connect_delayed();
        }
        let requests = std::mem::take(&mut self.slots[id as usize].requests);
        let mut failed = 0;
        for (i, request) in requests.iter().enumerate() {
            let same = i == 0 || was_connecting || class == ErrorClass::Timeout;
            let class = if same { class } else { ErrorClass::ClosedEarly };
            if !self.is_made_again(id, request, class, None, now_ns) {
                self.book.failed(request, class, now_ns);
                let cycles = &mut self.slots[id as usize].cycles;
                cycles.failed(now_ns.saturating_sub(request.intended_ns));
                failed += 1;
            }
        }
        self.drop_connection(id, now_ns);
        if was_connecting && requests.is_empty() && class.origin() != Origin::Local {
            // Of a pool that is opened before the start: no request tells of it.
            self.book.connection_error(class);
        }
        if class.origin() == Origin::Local && was_connecting {
            self.retire(id, class, answered + failed);
            return;
        }
        if answered + failed > 0 {
            self.ended(id, answered, failed, now_ns);
        } else {
            self.give_back(id);
        }
        self.reopen_later(id);
    }

    pub(super) fn drop_connection(&mut self, id: SlotId, now_ns: u64) {
        let slot = &mut self.slots[id as usize];
        match slot.phase {
            Phase::Connecting => self.connecting -= 1,
            Phase::Open => self.book.disconnected(),
            Phase::Vacant | Phase::Retired => return,
        }
        self.wire.close(id);
        slot.vacate(now_ns);
    }

    pub(super) fn disconnect(&mut self, id: SlotId, now_ns: u64) {
        if self.slots[id as usize].phase == Phase::Open {
            self.drop_connection(id, now_ns);
        }
    }

    /// This machine cannot open the slot's connection: the slot takes no further part, and what it
    /// should have sent counts as never sent.
    pub(super) fn retire(&mut self, id: SlotId, class: ErrorClass, requests: u32) {
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

    pub(super) fn arm_deadline(&mut self, id: SlotId) {
        let slot = &mut self.slots[id as usize];
        if let (false, Some(since_ns)) = (slot.deadline_armed, slot.waiting_since_ns()) {
            slot.deadline_armed = true;
            self.timers.push(Reverse((since_ns + self.plan.timeout_ns, id, Timer::Deadline)));
        }
    }

    /// A slot has one deadline among the timers at most, and it is looked at again only when that
    /// strikes: keeping it exact would cost every request.
    pub(super) fn check_deadline(&mut self, id: SlotId, now_ns: u64) {
        let slot = &mut self.slots[id as usize];
        slot.deadline_armed = false;
        let Some(since_ns) = slot.waiting_since_ns() else { return };
        if since_ns + self.plan.timeout_ns > now_ns {
            self.arm_deadline(id);
            return;
        }
        let (generation, connecting) = (slot.generation, slot.phase == Phase::Connecting);
        // The answer may lie there unread, or the connection be made and nobody have looked.
        if connecting {
            self.transmit(id);
        } else {
            self.read(id, false);
        }
        let slot = &self.slots[id as usize];
        let still_connects = slot.phase == Phase::Connecting;
        let still_waits = slot.waiting_since_ns().is_some_and(|at| at + self.plan.timeout_ns <= now_ns);
        if slot.generation != generation || !still_waits || still_connects != connecting {
            self.arm_deadline(id);
            return;
        }
        let class = if connecting { ErrorClass::ConnectTimeout } else { ErrorClass::Timeout };
        self.connection_lost(id, class, 0, now_ns);
    }

    pub(super) fn connection_made_or_refused(&mut self, id: SlotId) {
        let result = self.wire.connect_result(id);
        let now_ns = self.clock();
        match result {
            Ok(()) => {
                self.established(id, now_ns);
                if self.slots[id as usize].unsent > 0 {
                    self.send(id);
                }
                self.give_back(id);
            }
            Err(errno) => self.connect_failed(id, errno, now_ns),
        }
    }
}
