//! Requests that are sent again after a failure, or given up.

use std::cmp::Reverse;

use super::{Deferred, Timer, Worker};
use crate::{
    absence::MIN_ABSENCE_NS,
    exchange::Exchange,
    recorder::InFlight,
    slot::Phase,
    wire::{SlotId, Wire},
};

/// Whether requests of a method may be sent again (RFC 9110, section 9.2.2).
pub(super) fn is_idempotent(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE")
}

impl<W: Wire, X: Exchange> Worker<W, X> {
    /// Schedules the next attempt of a request, which has not ended.
    pub(super) fn retry_later(&mut self, id: SlotId, request: &InFlight, due_ns: u64, now_ns: u64) {
        self.recorder.attempt_failed(request, now_ns);
        self.recorder.users().paused(now_ns, due_ns);
        self.slots[id as usize].awaits_retry = true;
        self.timers.push(Reverse((due_ns, id, Timer::Retry)));
    }

    /// Sends a slot's request again, or gives it up if the slot is retired.
    pub(super) fn retry(&mut self, id: SlotId, now_ns: u64) {
        let Some(retry) = self.exchange.take_pending_retry(id) else { return };
        let slot = &mut self.slots[id as usize];
        slot.awaits_retry = false;
        if slot.phase == Phase::Retired {
            self.exchange.given_up(id);
            self.recorder.given_up(&retry, now_ns);
            self.assigned -= 1;
            return;
        }
        let late_ns = now_ns.saturating_sub(retry.due_ns.max(slot.free_since_ns));
        self.recorder.retried(&retry, late_ns);
        self.recorder.users().was_due(retry.due_ns, late_ns, now_ns);
        let intended_ns = retry.intended_ns;
        let delay_ns = self.absences.delay_ns();
        // A delay by the generator may have caused the last attempt's failure, and so the whole time since then.
        let own_ns = if retry.own_ns >= MIN_ABSENCE_NS {
            now_ns.saturating_sub(intended_ns).max(delay_ns)
        } else {
            late_ns.max(delay_ns)
        };
        let own_queue_ns = delay_ns.saturating_sub(late_ns);
        slot.requests.push_back(InFlight::assigned(intended_ns, now_ns, own_ns, own_queue_ns));
        slot.unsent += 1;
        self.send(id);
    }

    /// Opens a connection for the requests that a slot sends again, unless the user's next request has already done so.
    pub(super) fn send_again(&mut self, id: SlotId) {
        let slot = &self.slots[id as usize];
        if slot.phase != Phase::Vacant || slot.unsent == 0 {
            return;
        }
        if self.reconnecting {
            self.deferred.push((id, Deferred::Reopen));
        } else {
            self.reconnecting = true;
            self.open(id, slot.free_since_ns);
            self.reconnecting = false;
        }
    }

    /// Records the outcome of all requests that are in flight or awaiting a retry when the trial ends.
    pub(super) fn end_requests(&mut self, now_ns: u64) {
        for (id, slot) in (0..).zip(&self.slots) {
            for request in &slot.requests {
                self.exchange.trial_ended(id, request);
            }
            if let Some(retry) = self.exchange.take_pending_retry(id) {
                self.exchange.given_up(id);
                self.recorder.given_up(&retry, now_ns);
            }
        }
    }
}
