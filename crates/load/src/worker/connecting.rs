//! Opens, retires and times out connections, and handles lost ones.

use std::{cmp::Reverse, collections::VecDeque, net::IpAddr};

use record::{ErrorClass, Origin};

use super::{Timer, Worker};
use crate::{
    absence::{MIN_ABSENCE_NS, MIN_DISTURBING_NS},
    exchange::Exchange,
    failure::{connect_failure, handshake_cause, handshake_failure},
    recorder::InFlight,
    slot::Phase,
    wire::{Route, SlotId, Wire},
};

/// The time after which the kernel retransmits a SYN, in nanoseconds: a second, less the resolution of its clock.
const SYN_RETRY_NS: u64 = 900_000_000;
/// After this number of consecutive failed early sends, the loop waits for the event of the handshake before it sends.
const MAX_EARLY_SEND_FAILURES: u32 = 16;

impl<W: Wire, X: Exchange> Worker<W, X> {
    pub(super) fn route(&self, id: SlotId) -> Route {
        let n = self.first_slot + u64::from(id);
        let pick = |list: &[IpAddr]| (!list.is_empty()).then(|| list[(n % list.len() as u64) as usize]);
        // Each further connection of a slot goes to the next target address, from the same source address.
        let turn = n / self.plan.sources.len().max(1) as u64 + u64::from(self.slots[id as usize].generation);
        let target = turn.checked_rem(self.plan.targets.len() as u64);
        Route { target: target.map(|at| self.plan.targets[at as usize]), source: pick(&self.plan.sources) }
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
            self.connection_lost(id, connect_failure(errno), 0, now_ns);
            return;
        }
        // Over loopback, and often over virtual links, the handshake is complete by now. An immediate send avoids the wait for
        // the event.
        let has_request = self.sends_at_once && self.slots[id as usize].unsent > 0;
        let early = has_request && self.early_send_failures < MAX_EARLY_SEND_FAILURES;
        if early {
            self.transmit(id);
            match self.slots[id as usize].phase {
                Phase::Connecting => self.early_send_failures += 1,
                Phase::Open => self.early_send_failures = 0,
                Phase::Preface | Phase::Handshaking | Phase::Vacant | Phase::Retired => return,
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
        // A burst after an absence may overflow the accept queue. The SYN is then retransmitted after a second, even after a
        // short absence.
        let took_ns = now_ns.saturating_sub(slot.connecting_since_ns);
        let syn_was_retried = slot.connects_delayed && took_ns >= SYN_RETRY_NS;
        let share_ns = if syn_was_retried { took_ns } else { own_ns };
        if slot.connects_delayed && took_ns >= MIN_DISTURBING_NS {
            self.recorder.connect_delayed();
        }
        self.recorder.connected(now_ns.saturating_sub(slot.connecting_since_ns + own_ns), slot.was_open);
        self.delayed_opening(id, share_ns);
        let slot = &mut self.slots[id as usize];
        slot.was_open = self.plan.keepalive;
        if self.sends_at_once {
            self.opened(id, now_ns);
        } else {
            slot.phase = Phase::Preface;
        }
    }

    /// Advances a connection that is being established as far as possible.
    pub(super) fn advance_opening(&mut self, id: SlotId) {
        match self.slots[id as usize].phase {
            Phase::Preface => self.advance_preface(id),
            _ => self.advance_handshake(id),
        }
    }

    /// Advances the preface of a connection as far as possible, and then the handshake.
    fn advance_preface(&mut self, id: SlotId) {
        let result = self.wire.preface(id);
        let now_ns = self.clock();
        let step = match result {
            Ok(step) => step,
            Err(error) => return self.connection_lost(id, connect_failure(error), 0, now_ns),
        };
        self.note_unread(id, step.unread_ns, now_ns);
        if !step.is_done {
            return;
        }
        if self.wire.has_preface() && self.gave_up_opening(id, ErrorClass::ProxyTimeout, now_ns) {
            return;
        }
        if !W::HAS_HANDSHAKE {
            self.opened(id, now_ns);
            return self.take_up(id);
        }
        let slot = &mut self.slots[id as usize];
        slot.phase = Phase::Handshaking;
        (slot.handshake_since_ns, slot.handshake_unread_ns) = (now_ns, 0);
        self.arm_deadline(id);
        self.advance_handshake(id);
    }

    /// Accounts for the time for which bytes of a connection that is being established were unread, and returns it.
    fn note_unread(&mut self, id: SlotId, unread_ns: Option<u64>, now_ns: u64) -> u64 {
        let unread_ns = unread_ns.unwrap_or_else(|| self.unnoticed_ns(now_ns));
        if unread_ns >= MIN_ABSENCE_NS {
            self.delayed_opening(id, unread_ns);
            self.record_absence(now_ns, unread_ns);
        }
        unread_ns
    }

    /// Fails requests that timed out before their connection was established, with the class of the current step. Returns
    /// whether there were any.
    fn gave_up_opening(&mut self, id: SlotId, class: ErrorClass, now_ns: u64) -> bool {
        let is_late = self.is_late(id, now_ns);
        if is_late {
            self.connection_lost(id, class, 0, now_ns);
        }
        is_late
    }

    /// Whether the oldest request of a slot has timed out.
    fn is_late(&self, id: SlotId, now_ns: u64) -> bool {
        let oldest = self.slots[id as usize].requests.front();
        oldest.is_some_and(|request| request.started_ns.saturating_add(self.timeouts.whole_ns) <= now_ns)
    }

    /// Marks a connection as open for requests.
    fn opened(&mut self, id: SlotId, now_ns: u64) {
        let slot = &mut self.slots[id as usize];
        slot.phase = Phase::Open;
        slot.opened_ns = now_ns;
        slot.free_since_ns = now_ns;
        slot.reopens = true;
        self.connecting -= 1;
        self.exchange.connected(id, &self.wire);
    }

    /// Advances a connection's handshake as far as possible, and sends the requests that wait for it.
    fn advance_handshake(&mut self, id: SlotId) {
        let result = self.wire.handshake(id);
        let now_ns = self.clock();
        let step = match result {
            Ok(step) => step,
            Err(error) => {
                let class = handshake_failure(error);
                handshake_cause(error)
                    .into_iter()
                    .for_each(|cause| self.recorder.caused(class, || cause.to_owned()));
                return self.connection_lost(id, class, 0, now_ns);
            }
        };
        let unread_ns = self.note_unread(id, step.unread_ns, now_ns);
        self.slots[id as usize].handshake_unread_ns += unread_ns;
        let Some(agreed) = step.agreed else { return };
        let slot = &self.slots[id as usize];
        let took_ns = now_ns.saturating_sub(slot.handshake_since_ns + slot.handshake_unread_ns);
        self.recorder.agreed(took_ns, agreed);
        if self.gave_up_opening(id, ErrorClass::TlsTimeout, now_ns) {
            return;
        }
        self.opened(id, now_ns);
        self.take_up(id);
        if step.may_have_more && self.slots[id as usize].phase == Phase::Open {
            self.read(id, false);
        }
    }

    /// Sends the requests that waited for the connection, and returns the slot to the pool if it has room.
    fn take_up(&mut self, id: SlotId) {
        if self.slots[id as usize].unsent > 0 {
            self.send(id);
        }
        self.return_to_pool(id);
    }

    /// How long the connection may have been open before the loop noticed, in nanoseconds. The kernel reports no receive time
    /// for a handshake, but it reports how long the handshake took.
    fn handshake_unnoticed_ns(&self, id: SlotId, now_ns: u64) -> u64 {
        let began_ns = self.slots[id as usize].connecting_since_ns;
        let unnoticed_ns = now_ns.saturating_sub(self.wait_began_ns.max(began_ns));
        if unnoticed_ns < MIN_ABSENCE_NS {
            return 0;
        }
        if let Some(handshake_ns) = self.wire.round_trip_ns(id) {
            // The wake-up itself does not count as an absence.
            let own_ns = now_ns.saturating_sub(began_ns + handshake_ns);
            return if own_ns < MIN_ABSENCE_NS { 0 } else { own_ns };
        }
        // A SYN was retransmitted, perhaps because the target's queue was full, so the wait may have been for the handshake.
        match self.wire.open_for_ns(id) {
            Some(open_for_ns) if *open_for_ns.start() == 0 => 0,
            open_for_ns => unnoticed_ns.min(open_for_ns.map_or(u64::MAX, |open_for_ns| *open_for_ns.end())),
        }
    }

    /// Ends a connection that was lost or never opened. Its requests fail with `class`; requests behind a truncated answer
    /// fail because the connection closed. If the target closed the connection after an answer, the requests behind it are
    /// unanswered (RFC 9112, 9.3.2 and 9.6) and are sent again if that is safe. `answered`: number of requests that have
    /// just been answered.
    pub(super) fn connection_lost(&mut self, id: SlotId, class: ErrorClass, answered: u32, now_ns: u64) {
        let slot = &mut self.slots[id as usize];
        let was_connecting = matches!(slot.phase, Phase::Connecting | Phase::Preface | Phase::Handshaking);
        let has_answered = slot.last_answer_ns > 0 && slot.last_answer_ns >= slot.opened_ns;
        let is_behind = class == ErrorClass::ClosedEarly && has_answered && self.plan.pipeline > 1;
        if was_connecting && slot.connects_delayed && class.origin() != Origin::Local {
            self.recorder.connect_delayed();
        }
        let is_refused = was_connecting && class.is_connect() && !class.is_timeout();
        slot.refusals = if is_refused { slot.refusals.saturating_add(1) } else { 0 };
        let first_byte_ns = slot.answer_began_ns();
        let requests = std::mem::take(&mut slot.requests);
        let mut again = VecDeque::new();
        let (mut failed, is_alone) = (0, was_connecting && requests.is_empty());
        for (i, request) in requests.into_iter().enumerate() {
            if is_behind && (self.is_idempotent || request.sent_ns == 0) {
                self.recorder.repeated(&request, class, now_ns);
                again.push_back(InFlight { sent_ns: 0, sent_whole_ns: 0, own_service_ns: 0, ..request });
                continue;
            }
            self.recorder.users().served(&request, if i == 0 { first_byte_ns } else { u64::MAX }, now_ns);
            let is_cut_off = class == ErrorClass::Truncated && i > 0;
            let class = if is_cut_off { ErrorClass::ClosedEarly } else { class };
            if let Some(due_ns) = self.exchange.failed(id, &request, class, now_ns) {
                self.retry_later(id, &request, due_ns, now_ns);
            } else {
                self.recorder.failed(&request, class, now_ns);
                if class.is_timeout() {
                    self.recorder.users().unanswered(&request, now_ns);
                }
                let slot = &mut self.slots[id as usize];
                slot.cycles.failed(now_ns.saturating_sub(request.intended_ns));
                slot.last_failure_ns = now_ns;
                failed += 1;
            }
        }
        // A failed attempt without a request counts as one failure. A lost connection without pending requests does not: it
        // has answered all its requests.
        self.note_failures(id, class, failed.max(u32::from(is_alone)));
        self.drop_connection(id, now_ns);
        let slot = &mut self.slots[id as usize];
        let is_given_up = class.is_timeout() || class.is_tls() || class.is_proxy();
        slot.was_open &= has_answered && !is_given_up;
        slot.unsent = again.len() as u32;
        slot.requests = again;
        if is_alone && class.origin() != Origin::Local {
            // A pool's connection that is opened before the start has no request that counts the error.
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
        self.send_again(id);
        self.schedule_reopen(id);
    }

    pub(super) fn drop_connection(&mut self, id: SlotId, now_ns: u64) {
        let slot = &mut self.slots[id as usize];
        match slot.phase {
            Phase::Connecting => self.connecting -= 1,
            Phase::Preface | Phase::Handshaking => {
                self.connecting -= 1;
                self.recorder.disconnected();
            }
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

    /// Takes a slot whose connection this machine cannot open out of use. Its share of the load counts as never sent.
    pub(super) fn retire(&mut self, id: SlotId, class: ErrorClass, requests: u32) {
        self.assigned -= u64::from(requests);
        self.recorder.unopened(class);
        let slot = &mut self.slots[id as usize];
        slot.phase = Phase::Retired;
        self.source.retire(slot);
    }

    /// Sets a timer for a slot's deadline, unless an earlier one is set. A slot has few deadline timers, because an exact timer
    /// would cost time at every request.
    pub(super) fn arm_deadline(&mut self, id: SlotId) {
        let slot = &mut self.slots[id as usize];
        let armed_ns = slot.deadline_armed_ns;
        let Some(at_ns) = slot.deadline_ns(&self.timeouts).filter(|&at_ns| armed_ns == 0 || at_ns < armed_ns)
        else {
            return;
        };
        // A later timer that is still set is reused; otherwise timers would pile up.
        slot.deadline_later_ns = slot.deadline_later_ns.max(armed_ns);
        if (1..=at_ns).contains(&slot.deadline_later_ns) {
            slot.deadline_armed_ns = std::mem::take(&mut slot.deadline_later_ns);
            return;
        }
        slot.deadline_armed_ns = at_ns;
        self.timers.push(Reverse((at_ns, id, Timer::Deadline)));
    }

    /// Checks a deadline whose timer was set to `at_ns`, and arms it again if it was early.
    pub(super) fn check_deadline(&mut self, id: SlotId, at_ns: u64, now_ns: u64) {
        let slot = &mut self.slots[id as usize];
        if slot.deadline_later_ns == at_ns {
            slot.deadline_later_ns = 0;
        }
        if slot.deadline_armed_ns != at_ns {
            // An earlier timer has replaced this one.
            return;
        }
        slot.deadline_armed_ns = 0;
        let is_over = |deadline_ns: Option<u64>| deadline_ns.is_some_and(|at_ns| at_ns <= now_ns);
        if !is_over(slot.deadline_ns(&self.timeouts)) {
            self.arm_deadline(id);
            return;
        }
        let (generation, phase) = (slot.generation, slot.phase);
        // The answer may be unread, or the connection may be open without the loop having noticed.
        match phase {
            Phase::Connecting if self.sends_at_once && !self.is_late(id, now_ns) => self.transmit(id),
            Phase::Connecting if self.is_established(id) => self.connect_ended(id),
            Phase::Connecting => {}
            Phase::Preface | Phase::Handshaking => self.advance_opening(id),
            Phase::Vacant | Phase::Open | Phase::Retired => self.read(id, false),
        }
        let slot = &self.slots[id as usize];
        let still_waits = is_over(slot.deadline_ns(&self.timeouts));
        if slot.generation != generation || !still_waits || slot.phase != phase {
            self.arm_deadline(id);
            return;
        }
        let class = match phase {
            Phase::Connecting => ErrorClass::ConnectTimeout,
            Phase::Preface => ErrorClass::ProxyTimeout,
            Phase::Handshaking => ErrorClass::TlsTimeout,
            _ => ErrorClass::Timeout,
        };
        // Reading answers may have started other requests, so the clock is read again.
        let now_ns = self.clock();
        self.connection_lost(id, class, 0, now_ns);
    }

    /// Whether a connection attempt has succeeded, even if its event was not seen. Connecting to a Unix socket succeeds at once.
    fn is_established(&self, id: SlotId) -> bool {
        self.plan.targets.is_empty() || self.wire.round_trip_ns(id).is_some()
    }

    pub(super) fn connect_ended(&mut self, id: SlotId) {
        let result = self.wire.connect_result(id);
        let now_ns = self.clock();
        match result {
            Ok(()) => {
                self.established(id, now_ns);
                if self.gave_up_opening(id, ErrorClass::ConnectTimeout, now_ns) {
                    return;
                }
                if self.sends_at_once {
                    self.take_up(id);
                } else {
                    self.advance_preface(id);
                }
            }
            Err(errno) => self.connection_lost(id, connect_failure(errno), 0, now_ns),
        }
    }
}
