//! The end of sending and of the trial.

use std::mem;

use super::{Finished, Worker};
use crate::{
    exchange::{Concluded, Exchange},
    slot::Phase,
    wire::{SlotId, Wire},
};

/// A request that is unanswered at the end of the trial hangs if it has waited for this long, in nanoseconds, and for twice
/// as long as any answer took. Time that this program may have added does not count. Other requests are merely cut off by
/// the end.
const MIN_HANG_NS: u64 = 1_000_000_000;

impl<W: Wire, X: Exchange> Worker<W, X> {
    /// The latest time at which requests begin, if known.
    pub(super) fn sending_end_ns(&self) -> Option<u64> {
        self.plan.duration_ns.or_else(|| self.source.end_ns()).map(|end_ns| self.t0_ns + end_ns)
    }

    /// When the wait for answers ends. Absences extend it.
    pub(super) fn drain_deadline_ns(&self, end_ns: u64) -> u64 {
        end_ns + self.plan.drain_ns + self.delay_at_end_ns
    }

    /// Whether paused iterations will continue.
    pub(super) fn has_pauses(&self, now_ns: u64) -> bool {
        self.paused > 0 && self.may_go_on(now_ns)
    }

    /// Whether arrivals of an open load are still unsent.
    pub(super) fn has_backlog(&self) -> bool {
        self.next_arrival_ns().is_some()
    }

    /// Whether iterations continue: until the end of sending or, in an open load, until the wait for answers ends.
    pub(super) fn may_go_on(&self, now_ns: u64) -> bool {
        let is_open = self.source.is_open();
        let end_ns = self.sending_end_ns();
        end_ns.is_none_or(|end_ns| now_ns < if is_open { self.drain_deadline_ns(end_ns) } else { end_ns })
    }

    /// Whether the load has no more requests.
    pub(super) fn source_is_exhausted(&self, now_ns: u64) -> bool {
        self.source.is_exhausted(now_ns.saturating_sub(self.t0_ns), self.plan.duration_ns.is_some())
    }

    /// When the last arrival of all workers is due, if this worker has sent its own arrivals. Answers up to that time count
    /// for the throughput of every worker.
    pub(super) fn schedule_end_ns(&self) -> Option<u64> {
        self.source.end_of_sent_ns().map(|end_ns| self.t0_ns + end_ns)
    }

    /// Accounts for all requests that have not ended, and returns the results.
    pub(super) fn finish(mut self, interrupted: bool) -> Finished<W> {
        let now_ns = self.clock();
        if self.sending {
            self.sending_ended(now_ns);
        }
        for id in 0..self.slots.len() as SlotId {
            // An unread answer counts as answered.
            if self.slots[id as usize].phase == Phase::Open && !self.slots[id as usize].requests.is_empty() {
                self.read(id, false);
            }
        }
        let now_ns = self.clock();
        self.end_requests(now_ns);
        let (is_open, pauses) = (self.source.is_open(), self.source.pauses());
        let end_ns = self.sending_end_ns().unwrap_or(now_ns).min(now_ns);
        let hangs_from_ns = self.recorder.longest_service_ns().saturating_mul(2).max(MIN_HANG_NS);
        for (index, slot) in self.slots.iter_mut().enumerate() {
            // The time for which a user waited without an answer counts; the time of a request that the end cut off does
            // not.
            let mut waited_until_ns = slot.last_failure_ns.min(end_ns);
            let mut first_byte_ns = slot.answer_began_ns();
            for request in slot.requests.drain(..) {
                self.recorder.users().served(&request, mem::replace(&mut first_byte_ns, u64::MAX), now_ns);
                let waited_ns = now_ns.saturating_sub(request.started_ns);
                let hangs = waited_ns.saturating_sub(request.own_ns) >= hangs_from_ns;
                if hangs {
                    slot.cycles.failed(end_ns.saturating_sub(request.intended_ns));
                    waited_until_ns = end_ns;
                    self.recorder.users().unanswered(&request, now_ns);
                }
                if request.sent_ns != 0 {
                    self.recorder.left_in_flight(&request, (is_open, hangs), now_ns);
                } else {
                    self.recorder.never_sent_busy(request.intended_ns, request.own_ns, now_ns);
                }
            }
            let Some(start_ns) = self.source.user_starts_ns(index) else { continue };
            if pauses && slot.cycles.sum_ns() > 0 {
                self.recorder.user_span(slot.cycles.sum_ns() / u64::from(self.plan.pipeline.max(1)));
            } else if !pauses && slot.last_answer_ns > 0 {
                let start_ns = self.t0_ns + start_ns;
                let until_ns = slot.cycles.counts_until_ns(start_ns, slot.last_answer_ns, end_ns);
                self.recorder.user_span(until_ns.max(waited_until_ns).saturating_sub(start_ns));
            }
        }
        self.recorder.tickets(self.wire.tickets());
        let delay_ns = self.absences.delay_ns();
        let mut totals = self.source.conclude(interrupted, now_ns.saturating_sub(self.t0_ns), |due_ns| {
            self.recorder.users().was_due(self.t0_ns + due_ns, 0, now_ns);
            self.recorder.never_sent_busy(self.t0_ns + due_ns, delay_ns, now_ns);
        });
        totals.scheduled += self.continued;
        totals.planned = totals.planned.map(|planned| planned + self.continued);
        let Concluded { ledger, script, causes } = self.exchange.conclude();
        let mut result = self.recorder.finish(now_ns, totals, interrupted, self.absences.into_total());
        result.http.causes.extend(causes);
        Finished { result, ledger, script, wire: self.wire }
    }

    pub(super) fn sending_ended(&mut self, now_ns: u64) {
        self.sending = false;
        self.recorder.sending_ended(now_ns, self.absences.delay_ns_of(self.are_arrivals()));
    }
}
