//! Records absences of the loop, the sound windows between them, and missed goals.

use record::{ErrorClass, Origin};

use super::Worker;
use crate::{
    absence::MIN_ABSENCE_NS,
    exchange::Exchange,
    wire::{SlotId, Wire},
};

impl<W: Wire, X: Exchange> Worker<W, X> {
    /// Records an absence that ends now, if it is long enough.
    #[inline]
    pub(super) fn record_absence(&mut self, now_ns: u64, by_ns: u64) {
        if by_ns >= MIN_ABSENCE_NS {
            self.was_away(now_ns, by_ns);
        }
    }

    #[inline(never)]
    fn was_away(&mut self, now_ns: u64, by_ns: u64) {
        if self.absences.record(now_ns, by_ns) {
            self.recorder.was_away(now_ns, self.absences.delay_ns() == 0);
        }
    }

    /// Counts the sound windows that are over.
    #[cold]
    pub(super) fn settle_windows(&mut self, now_ns: u64) {
        self.recorder.settle_windows(now_ns, self.next_arrival_ns());
    }

    /// Adds the time by which the generator delayed a slot's connection to the generator's share of the requests that wait
    /// for it.
    pub(super) fn delayed_opening(&mut self, id: SlotId, by_ns: u64) {
        let is_users = by_ns >= MIN_ABSENCE_NS && !self.source.is_open();
        for request in &mut self.slots[id as usize].requests {
            request.own_ns += by_ns;
            if is_users {
                self.recorder.user_delayed(by_ns);
            }
        }
    }

    /// Opens no further connections once every goal is missed.
    #[cold]
    pub(super) fn keep_from_growing(&mut self) {
        let is_full = self.recorder.has_missed_all_goals();
        if let Some(pool) = self.source.pool() {
            pool.is_full = is_full;
        }
    }

    /// Counts failures by the address of the slot's connection if there are several, and checks whether they exceed every goal's limit.
    pub(super) fn note_failures(&mut self, id: SlotId, class: ErrorClass, n: u32) {
        self.keep_from_growing();
        if n > 0
            && self.plan.targets.len() > 1
            && class.origin() != Origin::Local
            && let Some(address) = self.route(id).target
        {
            self.recorder.failed_at(address, class, n.into());
        }
    }
}
