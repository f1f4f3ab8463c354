//! When sending ends, and what is left of the plan then.

use super::{Finished, Worker};
use crate::{
    slot::Phase,
    source::Source,
    wire::{SlotId, Wire},
};

impl<W: Wire> Worker<W> {
    /// When no more requests are begun at the latest, where that is known.
    pub(super) fn ends_ns(&self) -> Option<u64> {
        let by_schedule = || match &self.source {
            Source::Open(pool) => pool.schedule.ends_ns(),
            Source::Closed(_) => None,
        };
        self.plan.duration_ns.or_else(by_schedule).map(|end| self.t0_ns + end)
    }

    /// Nothing more comes of the load itself.
    pub(super) fn source_is_dry(&self, now_ns: u64) -> bool {
        match &self.source {
            Source::Closed(users) => users.active == 0 || users.quota == 0,
            Source::Open(pool) => match self.schedule_ends_ns() {
                Some(end_ns) => now_ns >= end_ns,
                // Not known beforehand: the duration ends it or, without one, its own last arrival.
                None => self.plan.duration_ns.is_none() && pool.schedule.peek_ns().is_none(),
            },
        }
    }

    /// When the last arrival of all workers is due, once this one has sent its own: what is answered until then counts
    /// for the throughput, whichever worker the last is of.
    pub(super) fn schedule_ends_ns(&self) -> Option<u64> {
        match &self.source {
            Source::Open(pool) if pool.schedule.peek_ns().is_none() => {
                pool.schedule.ends_ns().map(|end| self.t0_ns + end)
            }
            _ => None,
        }
    }

    /// Accounts for everything that did not end by itself.
    pub(super) fn finish(mut self, interrupted: bool) -> Finished<W> {
        let now_ns = self.clock();
        if self.sending {
            self.sending_ended(now_ns);
        }
        for id in 0..self.slots.len() as SlotId {
            // An answer that lies there unread has come.
            if self.slots[id as usize].phase == Phase::Open && !self.slots[id as usize].requests.is_empty() {
                self.read(id, false);
            }
        }
        let now_ns = self.clock();
        self.cut_events_off(now_ns);
        let is_open = matches!(self.source, Source::Open(_));
        for (index, slot) in self.slots.iter_mut().enumerate() {
            for request in slot.requests.drain(..) {
                if request.sent_ns != 0 {
                    self.book.left_in_flight(&request, is_open, now_ns);
                } else {
                    self.book.never_sent_busy(request.intended_ns, request.own_ns, now_ns);
                }
            }
            let Source::Closed(users) = &self.source else { continue };
            if users.thinks && slot.cycles.sum_ns() > 0 {
                self.book.user_span(slot.cycles.sum_ns() / u64::from(self.plan.pipeline.max(1)));
            } else if !users.thinks && slot.last_answer_ns > 0 {
                let starts_ns = self.t0_ns + users.starts_ns(index);
                self.book.user_span(slot.last_answer_ns.saturating_sub(starts_ns));
            }
        }
        let (scheduled, planned) = match &mut self.source {
            Source::Open(pool) => {
                let planned = pool.schedule.planned().filter(|_| !interrupted);
                while let Some(due_ns) = pool.schedule.peek_ns().map(|due| self.t0_ns + due)
                    && due_ns <= now_ns
                {
                    pool.schedule.take();
                    self.book.never_sent_busy(due_ns, self.absences.delay_ns(), now_ns);
                }
                (pool.schedule.issued(), planned)
            }
            Source::Closed(users) => {
                let left_out = users.left_out(interrupted);
                self.book.never_sent(left_out);
                (users.begun + left_out, users.planned(interrupted))
            }
        };
        Finished {
            part: self.book.close(now_ns, scheduled, planned, interrupted, self.absences.all()),
            ledger: self.events.map(|events| events.ledger()),
            wire: self.wire,
        }
    }

    pub(super) fn sending_ended(&mut self, now_ns: u64) {
        self.sending = false;
        self.book.sending_ended(now_ns, self.absences.delay_ns());
    }
}
