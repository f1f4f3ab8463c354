//! Requests that carry events: acknowledged, or made again, or given up.

use std::cmp::Reverse;

use http1::Response;
use record::ErrorClass;

use super::{Timer, Worker};
use crate::{
    absence::SHORTEST_NS,
    book::InFlight,
    slot::Phase,
    wire::{SlotId, Wire},
};

impl<W: Wire> Worker<W> {
    /// An event's request has its answer. Whether it is to be made again: then it has not ended, and the answer is
    /// booked here.
    pub(super) fn event_is_made_again(
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
        let again = self.is_made_again(id, request, ErrorClass::Status, Some(response.status), now_ns);
        if again {
            self.book.refused_for_now(response);
        }
        again
    }

    /// An attempt failed. Whether it is to be made again: then the slot keeps the request, and it has not ended.
    pub(super) fn is_made_again(
        &mut self,
        id: SlotId,
        request: &InFlight,
        class: ErrorClass,
        status: Option<u16>,
        now_ns: u64,
    ) -> bool {
        let Some(events) = &mut self.events else { return false };
        let Some(due_ns) = events.failed(id, request, class, status, now_ns) else { return false };
        self.book.attempt_failed(request, now_ns);
        self.slots[id as usize].awaits_retry = true;
        self.timers.push(Reverse((due_ns, id, Timer::Retry)));
        true
    }

    /// The wait before a retry is over.
    pub(super) fn make_again(&mut self, id: SlotId, now_ns: u64) {
        let Some(events) = &mut self.events else { return };
        let Some(waiting) = events.take_waiting(id) else { return };
        let slot = &mut self.slots[id as usize];
        slot.awaits_retry = false;
        if slot.phase == Phase::Retired {
            events.given_up(id);
            self.book.given_up(&waiting, now_ns);
            self.assigned -= 1;
            return;
        }
        let late_ns = now_ns.saturating_sub(waiting.due_ns.max(slot.free_since_ns));
        self.book.retried(&waiting, late_ns);
        let intended_ns = waiting.intended_ns;
        let delay_ns = self.absences.delay_ns();
        // Without our own share the attempt before might not have failed.
        let own_ns = match waiting.own_ns >= SHORTEST_NS {
            true => now_ns.saturating_sub(intended_ns).max(delay_ns),
            false => late_ns.max(delay_ns),
        };
        let own_queue_ns = delay_ns.saturating_sub(late_ns);
        let request =
            InFlight { intended_ns, started_ns: now_ns, sent_ns: 0, own_ns, own_queue_ns, own_service_ns: 0 };
        slot.requests.push_back(request);
        slot.unsent += 1;
        self.send(id);
    }

    /// The trial ends: what becomes of the events that are on their way, or wait to be sent again.
    pub(super) fn cut_events_off(&mut self, now_ns: u64) {
        let Some(events) = &mut self.events else { return };
        for (id, slot) in (0..).zip(&self.slots) {
            for request in &slot.requests {
                events.cut_off(id, request.sent_ns != 0);
            }
            if let Some(waiting) = events.take_waiting(id) {
                events.given_up(id);
                self.book.given_up(&waiting, now_ns);
            }
        }
    }
}
