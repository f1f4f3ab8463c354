//! Connections: opened, lost, retired, timed out.

use std::{cmp::Reverse, net::IpAddr};

use record::{ErrorClass, Origin};
use rustix::io::Errno;

use super::{Timer, Worker};
use crate::{
    absence::{MIN_ABSENCE_NS, MIN_DISTURBING_NS},
    failure::connect_failure,
    slot::Phase,
    wire::{Route, SlotId, Wire},
};

/// The kernel retransmits a SYN after a second, less the resolution of its clock.
const SYN_RETRY_NS: u64 = 900_000_000;
/// After this number of consecutive failures, the loop no longer tries to send before the handshake is reported.
const MAX_EARLY_SEND_FAILURES: u32 = 16;

impl<W: Wire> Worker<W> {
    pub(super) fn route(&self, id: SlotId) -> Route {
        let n = self.first_slot + u64::from(id);
        let pick = |list: &[IpAddr]| (!list.is_empty()).then(|| list[(n % list.len() as u64) as usize]);
        let turn = n / self.plan.sources.len().max(1) as u64;
        let target = self.plan.targets[(turn % self.plan.targets.len() as u64) as usize];
        Route { target, source: pick(&self.plan.sources) }
    }

    /// Opens a slot's connection. Requests that wait on the slot are sent as soon as it is open.
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
        // Over loopback, and often over virtual links, the handshake is complete by now. Sending at once saves the wait
        // for its event.
        let early = self.slots[id as usize].unsent > 0 && self.early_send_failures < MAX_EARLY_SEND_FAILURES;
        if early {
            self.transmit(id);
            match self.slots[id as usize].phase {
                Phase::Connecting => self.early_send_failures += 1,
                Phase::Open => self.early_send_failures = 0,
                Phase::Vacant | Phase::Retired => return,
            }
        }
        let slot = &self.slots[id as usize];
        let awaits_writable = slot.phase == Phase::Connecting || slot.unsent > 0;
        if let Err(errno) = self.wire.watch(id, slot.generation, awaits_writable) {
            self.connection_lost(id, connect_failure(errno), 0, now_ns);
            return;
        }
        self.arm_deadline(id);
    }

    pub(super) fn established(&mut self, id: SlotId, now_ns: u64) {
        let own_ns = self.handshake_unnoticed_ns(id, now_ns);
        self.record_absence(now_ns, own_ns);
        let slot = &mut self.slots[id as usize];
        // A burst after an absence may overflow the accept queue. The SYN is then retransmitted after a second, however
        // short the absence was.
        let took_ns = now_ns.saturating_sub(slot.connecting_since_ns);
        let syn_was_retried = slot.connects_delayed && took_ns >= SYN_RETRY_NS;
        let share_ns = if syn_was_retried { took_ns } else { own_ns };
        slot.requests.iter_mut().for_each(|request| request.own_ns += share_ns);
        if slot.connects_delayed && took_ns >= MIN_DISTURBING_NS {
            self.recorder.connect_delayed();
        }
        slot.phase = Phase::Open;
        slot.free_since_ns = now_ns;
        self.connecting -= 1;
        self.recorder.connected(now_ns.saturating_sub(slot.connecting_since_ns + own_ns), slot.was_open);
        slot.was_open = true;
        slot.reopens = true;
    }

    /// For how long the connection may have been open before the loop noticed, in nanoseconds. The kernel has no receive
    /// time of a handshake, but it knows how long the handshake took.
    fn handshake_unnoticed_ns(&self, id: SlotId, now_ns: u64) -> u64 {
        let began_ns = self.slots[id as usize].connecting_since_ns;
        let unnoticed_ns = now_ns.saturating_sub(self.wait_began_ns.max(began_ns));
        if unnoticed_ns < MIN_ABSENCE_NS {
            return 0;
        }
        if let Some(handshake_ns) = self.wire.handshake_ns(id) {
            // The wake-up itself is no absence.
            let own_ns = now_ns.saturating_sub(began_ns + handshake_ns);
            return if own_ns < MIN_ABSENCE_NS { 0 } else { own_ns };
        }
        // A SYN was sent again, perhaps because the target's queue was full: the wait may have been for the handshake.
        match self.wire.open_for_ns(id) {
            Some(open_for_ns) if *open_for_ns.start() == 0 => 0,
            open_for_ns => unnoticed_ns.min(open_for_ns.map_or(u64::MAX, |open_for_ns| *open_for_ns.end())),
        }
    }

    pub(super) fn connect_failed(&mut self, id: SlotId, errno: Errno, now_ns: u64) {
        self.connection_lost(id, connect_failure(errno), 0, now_ns);
    }

    /// Ends a connection that was lost or never opened. Its first request fails with `class`, the others because the
    /// connection closed (with `class` too if the connection never opened or timed out). `answered` requests have just been
    /// answered on the connection.
    pub(super) fn connection_lost(&mut self, id: SlotId, class: ErrorClass, answered: u32, now_ns: u64) {
        let was_connecting = self.slots[id as usize].phase == Phase::Connecting;
        if was_connecting && self.slots[id as usize].connects_delayed && class.origin() != Origin::Local {
            self.recorder.connect_delayed();
        }
        let requests = std::mem::take(&mut self.slots[id as usize].requests);
        let mut failed = 0;
        for (i, request) in requests.iter().enumerate() {
            let same = i == 0 || was_connecting || class == ErrorClass::Timeout;
            let class = if same { class } else { ErrorClass::ClosedEarly };
            if !self.schedule_retry(id, request, class, None, now_ns) {
                self.recorder.failed(request, class, now_ns);
                let cycles = &mut self.slots[id as usize].cycles;
                cycles.failed(now_ns.saturating_sub(request.intended_ns));
                failed += 1;
            }
        }
        self.drop_connection(id, now_ns);
        if was_connecting && requests.is_empty() && class.origin() != Origin::Local {
            // A pool's connection that is opened before the start: no request counts the error.
            self.recorder.connection_error(class);
        }
        if class.origin() == Origin::Local && was_connecting {
            self.retire(id, class, answered + failed);
            return;
        }
        if answered + failed > 0 {
            self.requests_ended(id, answered, failed, now_ns);
        } else {
            self.return_to_pool(id);
        }
        self.schedule_reopen(id);
    }

    pub(super) fn drop_connection(&mut self, id: SlotId, now_ns: u64) {
        let slot = &mut self.slots[id as usize];
        match slot.phase {
            Phase::Connecting => self.connecting -= 1,
            Phase::Open => self.recorder.disconnected(),
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

    /// Takes a slot out of use whose connection this machine cannot open. Its share of the load counts as never sent.
    pub(super) fn retire(&mut self, id: SlotId, class: ErrorClass, requests: u32) {
        self.assigned -= u64::from(requests);
        self.recorder.unopened(class);
        let slot = &mut self.slots[id as usize];
        slot.phase = Phase::Retired;
        self.source.retire(slot);
    }

    pub(super) fn arm_deadline(&mut self, id: SlotId) {
        let slot = &mut self.slots[id as usize];
        if let (false, Some(since_ns)) = (slot.deadline_armed, slot.waiting_since_ns()) {
            slot.deadline_armed = true;
            self.timers.push(Reverse((since_ns + self.plan.timeout_ns, id, Timer::Deadline)));
        }
    }

    /// Checks a deadline that has fired, and arms it again if it was early. A slot has at most one deadline timer, because
    /// keeping it exact would cost every request.
    pub(super) fn check_deadline(&mut self, id: SlotId, now_ns: u64) {
        let slot = &mut self.slots[id as usize];
        slot.deadline_armed = false;
        let Some(since_ns) = slot.waiting_since_ns() else { return };
        if since_ns + self.plan.timeout_ns > now_ns {
            self.arm_deadline(id);
            return;
        }
        let (generation, connecting) = (slot.generation, slot.phase == Phase::Connecting);
        // The answer may be unread, or the connection open but unnoticed.
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

    pub(super) fn connect_ended(&mut self, id: SlotId) {
        let result = self.wire.connect_result(id);
        let now_ns = self.clock();
        match result {
            Ok(()) => {
                self.established(id, now_ns);
                if self.slots[id as usize].unsent > 0 {
                    self.send(id);
                }
                self.return_to_pool(id);
            }
            Err(errno) => self.connect_failed(id, errno, now_ns),
        }
    }
}
