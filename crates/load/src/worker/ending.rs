//! The end of sending and of the trial.

use super::{Finished, Worker};
use crate::{
    slot::Phase,
    source::RequestSource,
    wire::{SlotId, Wire},
};

impl<W: Wire> Worker<W> {
    /// The latest time at which requests begin, if known.
    pub(super) fn sending_end_ns(&self) -> Option<u64> {
        let end_ns = self.plan.duration_ns.or_else(|| match &self.source {
            RequestSource::Open(pool) => pool.schedule.end_ns(),
            RequestSource::Closed(_) => None,
        });
        end_ns.map(|end_ns| self.t0_ns + end_ns)
    }

    /// Whether the load has no more requests.
    pub(super) fn source_is_exhausted(&self, now_ns: u64) -> bool {
        match &self.source {
            RequestSource::Closed(users) => users.active == 0 || users.quota == 0,
            RequestSource::Open(pool) => match self.schedule_end_ns() {
                Some(end_ns) => now_ns >= end_ns,
                // Without a known end: the duration ends sending or, without a duration, this worker's last arrival.
                None => self.plan.duration_ns.is_none() && pool.schedule.peek_ns().is_none(),
            },
        }
    }

    /// When the last arrival of all workers is due, if this worker has sent its own arrivals. Answers up to that time count
    /// for the throughput of every worker.
    pub(super) fn schedule_end_ns(&self) -> Option<u64> {
        match &self.source {
            RequestSource::Open(pool) if pool.schedule.peek_ns().is_none() => {
                pool.schedule.end_ns().map(|end_ns| self.t0_ns + end_ns)
            }
            _ => None,
        }
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
        self.end_events(now_ns);
        let is_open = matches!(self.source, RequestSource::Open(_));
        for (index, slot) in self.slots.iter_mut().enumerate() {
            for request in slot.requests.drain(..) {
                if request.sent_ns != 0 {
                    self.recorder.left_in_flight(&request, is_open, now_ns);
                } else {
                    self.recorder.never_sent_busy(request.intended_ns, request.own_ns, now_ns);
                }
            }
            let RequestSource::Closed(users) = &self.source else { continue };
            if users.thinks && slot.cycles.sum_ns() > 0 {
                self.recorder.user_span(slot.cycles.sum_ns() / u64::from(self.plan.pipeline.max(1)));
            } else if !users.thinks && slot.last_answer_ns > 0 {
                let start_ns = self.t0_ns + users.start_offset_ns(index);
                self.recorder.user_span(slot.last_answer_ns.saturating_sub(start_ns));
            }
        }
        let (scheduled, planned) = match &mut self.source {
            RequestSource::Open(pool) => {
                let planned = pool.schedule.planned().filter(|_| !interrupted);
                while let Some(due_ns) = pool.schedule.peek_ns().map(|due| self.t0_ns + due)
                    && due_ns <= now_ns
                {
                    pool.schedule.take();
                    self.recorder.never_sent_busy(due_ns, self.absences.delay_ns(), now_ns);
                }
                (pool.schedule.issued(), planned)
            }
            RequestSource::Closed(users) => {
                let left_out = users.left_out(interrupted);
                self.recorder.never_sent(left_out);
                (users.begun + left_out, users.planned(interrupted))
            }
        };
        Finished {
            result: self.recorder.finish(now_ns, scheduled, planned, interrupted, self.absences.into_total()),
            ledger: self.events.map(|events| events.ledger()),
            wire: self.wire,
        }
    }

    pub(super) fn sending_ended(&mut self, now_ns: u64) {
        self.sending = false;
        self.recorder.sending_ended(now_ns, self.absences.delay_ns());
    }
}
