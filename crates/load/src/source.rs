//! What decides that another request begins: the users of a closed load, or an open load's schedule.

use std::collections::VecDeque;

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use record::{Distribution, HttpPlan, LoadModel};

use crate::{schedule::Schedule, share::Share, wire::SlotId};

/// One worker's part of the load model.
#[derive(Debug)]
pub enum Source {
    /// Users.
    Closed(Users),
    /// A schedule and a pool.
    Open(Pool),
}

/// The users of a closed load; user i has slot i.
#[derive(Debug)]
pub struct Users {
    /// Pause between an answer and the next request.
    pub think_time: Distribution,
    /// Whether `think_time` is ever more than nothing.
    pub thinks: bool,
    /// Where pauses are drawn from.
    pub rng: Pcg64Mcg,
    /// When each user starts, after the start of the trial, as first and step in nanoseconds.
    pub ramp: (f64, f64),
    /// Requests that may still begin, all users together.
    pub quota: u64,
    /// Users that may still begin one.
    pub active: u64,
    /// Requests begun.
    pub begun: u64,
    /// What the plan has in all, if loops or requests bound it.
    pub planned: Option<u64>,
}

/// An open load's schedule and the connections that carry it.
#[derive(Debug)]
pub struct Pool {
    /// When requests are due.
    pub schedule: Schedule,
    /// Open slots with room for another request, longest free first.
    pub idle: VecDeque<SlotId>,
    /// Slots without a connection that may open one.
    pub vacant: Vec<SlotId>,
    /// Slots from here on were never used.
    pub unused: SlotId,
    /// Slots opened before the start.
    pub initial: SlotId,
    /// Slots that were retired.
    pub retired: u64,
    /// Carries the retired slots' part of the schedule over to the next arrival.
    pub retired_part: u64,
}

/// What to do with an arrival.
#[derive(Debug, PartialEq, Eq)]
pub enum Placement {
    /// Give it to this slot.
    Slot(SlotId),
    /// It belongs to a slot that this machine could not open: never sent.
    Lost,
    /// Every connection is busy: it waits.
    Busy,
}

impl Source {
    /// The share of a plan's load. Returns it with the number of slots it needs.
    pub fn new(plan: &HttpPlan, share: Share) -> (Self, u64) {
        match &plan.load {
            LoadModel::Closed { users, loops, ramp_up_ns, think_time } => {
                let own = share.range_of(*users);
                let slots = own.end - own.start;
                let step = if *users > 0 { *ramp_up_ns as f64 / *users as f64 } else { 0.0 };
                let by_loops = loops.map(|n| n * slots);
                let by_requests = plan.requests.map(|n| share.part_of(n));
                let planned = match (by_loops, by_requests) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
                let users = Users {
                    thinks: !think_time.is_zero(),
                    think_time: think_time.clone(),
                    rng: Pcg64Mcg::seed_from_u64(plan.seed.wrapping_add(share.index)),
                    ramp: (own.start as f64 * step, step),
                    quota: by_requests.unwrap_or(u64::MAX),
                    active: slots,
                    begun: 0,
                    // A time limit may cut the plan short: then only what was begun was planned.
                    planned: planned.filter(|_| plan.duration_ns.is_none()),
                };
                (Self::Closed(users), slots)
            }
            LoadModel::Open { arrivals, stages, connections } => {
                let slots = share.part_of(connections.most);
                let initial =
                    if plan.keepalive { share.part_of(connections.initial).min(slots) as SlotId } else { 0 };
                let pool = Pool {
                    schedule: Schedule::new(*arrivals, stages, plan.requests, plan.seed, share),
                    idle: VecDeque::new(),
                    vacant: Vec::new(),
                    unused: initial,
                    initial,
                    retired: 0,
                    retired_part: 0,
                };
                (Self::Open(pool), slots)
            }
        }
    }
}

impl Users {
    /// When user `index` of this worker starts, after the start of the trial.
    pub fn starts_ns(&self, index: usize) -> u64 {
        (self.ramp.0 + index as f64 * self.ramp.1) as u64
    }

    /// Draws a pause.
    pub fn think_ns(&mut self) -> u64 {
        self.think_time.sample_ns(&mut self.rng)
    }
}

impl Pool {
    /// Finds a place for the next arrival among `slots` slots.
    pub fn place(&mut self, slots: usize) -> Placement {
        // A slot that could not be opened keeps its part of the schedule: giving that to the others
        // would be another load than the one planned, and would hide that anything is missing.
        if self.retired > 0 {
            self.retired_part += self.retired;
            if self.retired_part >= slots as u64 {
                self.retired_part -= slots as u64;
                return Placement::Lost;
            }
        }
        let placement = self.find_slot(slots);
        if placement == Placement::Busy && self.retired > 0 {
            // The arrival will be asked for again.
            self.retired_part -= self.retired;
        }
        placement
    }

    fn find_slot(&mut self, slots: usize) -> Placement {
        if let Some(slot) = self.idle.pop_front() {
            return Placement::Slot(slot);
        }
        if let Some(slot) = self.vacant.pop() {
            return Placement::Slot(slot);
        }
        if (self.unused as usize) < slots {
            self.unused += 1;
            return Placement::Slot(self.unused - 1);
        }
        Placement::Busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::{Arrivals, Stage};

    #[test]
    fn a_retired_slots_part_of_the_schedule_is_lost_and_no_more() {
        let stage = Stage { duration_ns: 1_000_000_000, from_rate_per_s: 1e3, to_rate_per_s: 1e3 };
        let mut pool = Pool {
            schedule: Schedule::new(Arrivals::Constant, &[stage], None, 1, Share::WHOLE),
            idle: (0..255).collect(),
            vacant: Vec::new(),
            unused: 400,
            initial: 400,
            retired: 145,
            retired_part: 0,
        };
        let mut lost = 0;
        for arrival in 0..10_000 {
            match pool.place(400) {
                Placement::Lost => lost += 1,
                Placement::Slot(slot) => pool.idle.push_back(slot),
                Placement::Busy => panic!("arrival {arrival} found no slot"),
            }
        }
        assert_eq!(lost, 10_000 * 145 / 400);
    }
}
