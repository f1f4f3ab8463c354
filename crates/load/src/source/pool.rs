//! The connections of an open load, and the choice of the connection for each arrival.

use std::collections::VecDeque;

use crate::{schedule::Schedule, slot::Slot, wire::SlotId};

/// After an absence, overdue arrivals may open one further slot per this number of slots in use.
const HELD_SLOTS_TO_ONE_MORE: SlotId = 20;

/// An open load's schedule and the connections that carry it.
#[derive(Debug)]
pub(crate) struct Pool {
    /// When requests are due.
    pub schedule: Schedule,
    /// Open slots with nothing in flight, the longest free first.
    pub idle: VecDeque<SlotId>,
    /// With pipelining: open slots with requests in flight that had room for more when they were queued. A slot may have become
    /// full since then; keeping the queue exact would cost time at every answer.
    pub pipelinable: VecDeque<SlotId>,
    /// Slots without a connection that may open one.
    pub vacant: Vec<SlotId>,
    /// The first slot that has never been used. Later slots have not been used either.
    pub unused: SlotId,
    /// Unused slots stay unused, because every goal is missed and more connections would show nothing.
    pub is_full: bool,
    /// The next arrival is overdue because of an absence of the generator, so it must not open a further slot.
    pub holds: bool,
    /// The last time at which an arrival was held while every connection was busy.
    pub last_held_ns: u64,
    /// Number of slots that may be used while arrivals are held; `None` except during the recovery from an absence.
    pub held_at: Option<SlotId>,
    /// Number of slots that open their connections before the start.
    pub initial: SlotId,
    /// Number of retired slots.
    pub retired: u64,
    /// The last time at which an arrival was due while every connection was busy; 0 if never.
    pub busy_at_ns: u64,
    /// Sum of the retired slots' shares of arrivals. An arrival is lost when the sum reaches the number of slots.
    pub retired_carry: u64,
}

/// The assignment of an arrival.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// It is assigned to this slot.
    Slot(SlotId),
    /// It belongs to a retired slot, and is counted as never sent.
    Lost,
    /// It waits, because every connection is busy.
    Busy,
}

impl Pool {
    /// Chooses the slot of the next arrival. `depth`: maximum number of requests in flight on a connection.
    #[inline]
    pub(crate) fn choose_slot(&mut self, slots: &mut [Slot], depth: usize) -> Placement {
        // A retired slot keeps its share of the schedule: assigning it to other slots would change the planned load, and
        // hide that a part of it is missing.
        if self.retired > 0 {
            self.retired_carry += self.retired;
            if self.retired_carry >= slots.len() as u64 {
                self.retired_carry -= slots.len() as u64;
                return Placement::Lost;
            }
        }
        let placement = self.find_free_slot(slots, depth);
        if placement == Placement::Busy && self.retired > 0 {
            // The same arrival is placed again later, so its share must be added only once.
            self.retired_carry -= self.retired;
        }
        placement
    }

    /// Whether the next arrival may take one of the `slots` that has never been used.
    #[inline]
    pub(crate) fn may_grow(&self, slots: usize) -> bool {
        let most = if self.holds { self.held_at.map_or(0, |most| most as usize).min(slots) } else { slots };
        !self.is_full && (self.unused as usize) < most
    }

    /// Sets whether the next arrival is held. A few further slots are allowed: too few to affect the target, but enough for the
    /// load to recover if each of its connections is always busy.
    pub(crate) fn hold(&mut self, holds: bool) {
        self.holds = holds;
        if holds {
            self.held_at.get_or_insert(self.unused + self.unused / HELD_SLOTS_TO_ONE_MORE);
        }
    }

    /// Takes an idle or vacant slot first, because a pipelined request waits for the answers before it. Takes a pipelinable
    /// slot next, and opens a further connection only when all are full.
    #[inline]
    fn find_free_slot(&mut self, slots: &mut [Slot], depth: usize) -> Placement {
        if let Some(slot) = self.idle.pop_front() {
            return Placement::Slot(slot);
        }
        if let Some(slot) = self.vacant.pop() {
            return Placement::Slot(slot);
        }
        while let Some(id) = self.pipelinable.pop_front() {
            let slot = &mut slots[id as usize];
            slot.queued_pipelinable = false;
            if slot.has_room(depth) {
                return Placement::Slot(id);
            }
        }
        if self.may_grow(slots.len()) {
            self.unused += 1;
            return Placement::Slot(self.unused - 1);
        }
        Placement::Busy
    }
}
