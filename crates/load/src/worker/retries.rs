//! Requests that carry events: acknowledged, retried, or given up.

use std::cmp::Reverse;

use http1::Response;
use record::ErrorClass;

use super::{Timer, Worker};
use crate::{
    absence::MIN_ABSENCE_NS,
    recorder::InFlight,
    slot::Phase,
    wire::{SlotId, Wire},
};

impl<W: Wire> Worker<W> {
    /// Handles the answer to a request with events: acknowledges the events, or schedules a retry and records the answer.
    /// Returns true if the request is retried, so that it has not ended.
    pub(super) fn answer_or_retry_event(
        &mut self,
        id: SlotId,
        request: &InFlight,
        response: &Response,
        expected: bool,
        now_ns: u64,
    ) -> bool {
        if expected {
            self.events.iter_mut().for_each(|events| events.acknowledged(id));
            return false;
        }
        let retries = self.schedule_retry(id, request, ErrorClass::Status, Some(response.status), now_ns);
        if retries {
            self.recorder.refused_attempt(response);
        }
        retries
    }

    /// Schedules the retry of a failed attempt, if its events allow one. Returns true if so: the request has not ended.
    pub(super) fn schedule_retry(
        &mut self,
        id: SlotId,
        request: &InFlight,
        class: ErrorClass,
        status: Option<u16>,
        now_ns: u64,
    ) -> bool {
        let Some(events) = &mut self.events else { return false };
        let Some(due_ns) = events.failed(id, request, class, status, now_ns) else { return false };
        self.recorder.attempt_failed(request, now_ns);
        self.slots[id as usize].awaits_retry = true;
        self.timers.push(Reverse((due_ns, id, Timer::Retry)));
        true
    }

    /// Sends a slot's request again, or gives it up if the slot is retired.
    pub(super) fn retry(&mut self, id: SlotId, now_ns: u64) {
        let Some(events) = &mut self.events else { return };
        let Some(retry) = events.take_pending_retry(id) else { return };
        let slot = &mut self.slots[id as usize];
        slot.awaits_retry = false;
        if slot.phase == Phase::Retired {
            events.given_up(id);
            self.recorder.given_up(&retry, now_ns);
            self.assigned -= 1;
            return;
        }
        let late_ns = now_ns.saturating_sub(retry.due_ns.max(slot.free_since_ns));
        self.recorder.retried(&retry, late_ns);
        let intended_ns = retry.intended_ns;
        let delay_ns = self.absences.delay_ns();
        // The generator's delay may have caused the failure of the last attempt, and so the whole time since.
        let own_ns = if retry.own_ns >= MIN_ABSENCE_NS {
            now_ns.saturating_sub(intended_ns).max(delay_ns)
        } else {
            late_ns.max(delay_ns)
        };
        let own_queue_ns = delay_ns.saturating_sub(late_ns);
        let request =
            InFlight { intended_ns, started_ns: now_ns, sent_ns: 0, own_ns, own_queue_ns, own_service_ns: 0 };
        slot.requests.push_back(request);
        slot.unsent += 1;
        self.send(id);
    }

    /// Records the outcome of all events that are in flight or wait for a retry when the trial ends.
    pub(super) fn end_events(&mut self, now_ns: u64) {
        let Some(events) = &mut self.events else { return };
        for (id, slot) in (0..).zip(&self.slots) {
            for request in &slot.requests {
                events.trial_ended(id, request.sent_ns != 0);
            }
            if let Some(retry) = events.take_pending_retry(id) {
                events.given_up(id);
                self.recorder.given_up(&retry, now_ns);
            }
        }
    }
}
