//! What decides that another request begins: the users of a closed load, or an open load's schedule.

use std::collections::VecDeque;

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use record::{Distribution, HttpPlan, LoadModel};

use crate::{
    schedule::{Bounds, Schedule},
    share::{Share, Turns},
    slot::Slot,
    wire::SlotId,
};

/// One worker's part of the load model.
#[derive(Debug)]
pub(crate) enum Source {
    /// Users.
    Closed(Users),
    /// A schedule and a pool.
    Open(Pool),
}

/// The users of a closed load; user i has slot i.
#[derive(Debug)]
pub(crate) struct Users {
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
    /// Users that have begun at least one.
    pub started: u64,
    /// How many there are.
    users: u64,
    /// Requests of each user.
    loops: u64,
    /// What the plan has in all, if loops or requests bound it.
    planned: Option<u64>,
    /// A duration may cut the plan short.
    timed: bool,
}

/// An open load's schedule and the connections that carry it.
#[derive(Debug)]
pub(crate) struct Pool {
    /// When requests are due.
    pub schedule: Schedule,
    /// Open slots with nothing in flight, longest free first.
    pub idle: VecDeque<SlotId>,
    /// With pipelining: slots with something in flight, longest without another request first. Whether there is still
    /// room is seen when one is taken: keeping that exact would cost every answer.
    pub behind: VecDeque<SlotId>,
    /// Slots without a connection that may open one.
    pub vacant: Vec<SlotId>,
    /// Slots from here on were never used.
    pub unused: SlotId,
    /// Slots opened before the start.
    pub initial: SlotId,
    /// Slots that were retired.
    pub retired: u64,
    /// When every connection was last seen to be busy with an arrival due; 0 if never.
    pub busy_at_ns: u64,
    /// Carries the retired slots' part of the schedule over to the next arrival.
    pub retired_part: u64,
}

/// What to do with an arrival.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Give it to this slot.
    Slot(SlotId),
    /// It belongs to a slot that this machine could not open: never sent.
    Lost,
    /// Every connection is busy: it waits.
    Busy,
}

impl Source {
    /// The share of a plan's load. Returns it with the number of slots it needs.
    pub(crate) fn new(plan: &HttpPlan, share: Share) -> (Self, u64) {
        match &plan.load {
            LoadModel::Closed { users, loops, ramp_up_ns, think_time } => {
                let own = share.range_of(*users);
                let slots = own.end - own.start;
                let step = if *users > 0 { *ramp_up_ns as f64 / *users as f64 } else { 0.0 };
                let by_loops = loops.map(|n| n * slots);
                // Users get the same wherever they are: a worker with more of them has more.
                let by_requests = plan.requests.map(|n| share.part_along(n, *users));
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
                    started: 0,
                    users: slots,
                    loops: loops.unwrap_or(u64::MAX),
                    planned,
                    timed: plan.duration_ns.is_some(),
                };
                (Self::Closed(users), slots)
            }
            LoadModel::Open { arrivals, stages, connections } => {
                let slots = share.part_of(connections.most);
                let initial =
                    if plan.keepalive { share.part_of(connections.initial).min(slots) as SlotId } else { 0 };
                let bounds = Bounds { requests: plan.requests, timed: plan.duration_ns.is_some() };
                let turns = Turns::new(share, connections.most);
                let pool = Pool {
                    schedule: Schedule::new(*arrivals, stages, bounds, plan.seed, turns),
                    idle: VecDeque::new(),
                    behind: VecDeque::new(),
                    vacant: Vec::new(),
                    unused: initial,
                    initial,
                    retired: 0,
                    busy_at_ns: 0,
                    retired_part: 0,
                };
                (Self::Open(pool), slots)
            }
        }
    }
}

impl Users {
    /// When user `index` of this worker starts, after the start of the trial.
    pub(crate) fn starts_ns(&self, index: usize) -> u64 {
        (self.ramp.0 + index as f64 * self.ramp.1) as u64
    }

    /// Draws a pause.
    pub(crate) fn think_ns(&mut self) -> u64 {
        self.think_time.sample_ns(&mut self.rng)
    }

    /// One that may still begin `loops_left` requests begins one.
    #[inline]
    pub(crate) fn begins(&mut self, loops_left: u64) {
        self.started += u64::from(loops_left == self.loops);
        self.active -= u64::from(loops_left == 1);
        self.quota -= 1;
        self.begun += 1;
    }

    /// What the plan has in all, where it must come to that: a time limit may cut it short, and so may a user.
    pub(crate) fn planned(&self, interrupted: bool) -> Option<u64> {
        self.planned.filter(|_| !self.timed && !interrupted)
    }

    /// Requests of the plan that were never begun, though nobody cut them short: those of users that could not be
    /// opened and, where time cut the others short, those of users that never started.
    pub(crate) fn left_out(&self, interrupted: bool) -> u64 {
        let Some(planned) = self.planned.filter(|_| !interrupted) else { return 0 };
        let not_begun = planned.saturating_sub(self.begun);
        if !self.timed {
            return not_begun;
        }
        let not_started = u128::from(self.users - self.started);
        let part = u128::from(planned) * not_started / u128::from(self.users.max(1));
        not_begun.min(part as u64)
    }
}

impl Pool {
    /// Finds a place for the next arrival. A connection carries `depth` requests at once.
    #[inline]
    pub(crate) fn place(&mut self, slots: &mut [Slot], depth: usize) -> Placement {
        // A slot that could not be opened keeps its part of the schedule: giving that to the others
        // would be another load than the one planned, and would hide that anything is missing.
        if self.retired > 0 {
            self.retired_part += self.retired;
            if self.retired_part >= slots.len() as u64 {
                self.retired_part -= slots.len() as u64;
                return Placement::Lost;
            }
        }
        let placement = self.find_slot(slots, depth);
        if placement == Placement::Busy && self.retired > 0 {
            // The arrival will be asked for again.
            self.retired_part -= self.retired;
        }
        placement
    }

    /// First those that have nothing in flight, the planned ones that must be made anew among them: behind another
    /// request, one would wait for an answer that it has no need of. Then those with room behind others, and only
    /// when all are full one more connection.
    #[inline]
    fn find_slot(&mut self, slots: &mut [Slot], depth: usize) -> Placement {
        if let Some(slot) = self.idle.pop_front() {
            return Placement::Slot(slot);
        }
        if let Some(slot) = self.vacant.pop() {
            return Placement::Slot(slot);
        }
        while let Some(id) = self.behind.pop_front() {
            let slot = &mut slots[id as usize];
            slot.queued_behind = false;
            if slot.has_room(depth) {
                return Placement::Slot(id);
            }
        }
        if (self.unused as usize) < slots.len() {
            self.unused += 1;
            return Placement::Slot(self.unused - 1);
        }
        Placement::Busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use record::{Arrivals, Stage};

    #[test]
    fn a_retired_slots_part_of_the_schedule_is_lost_and_no_more() {
        let stage = Stage { duration_ns: 1_000_000_000, from_rate_per_s: 1e3, to_rate_per_s: 1e3 };
        let mut pool = Pool {
            schedule: Schedule::new(
                Arrivals::Constant,
                &[stage],
                Bounds { requests: None, timed: true },
                1,
                Turns::new(Share::WHOLE, 400),
            ),
            idle: (0..255).collect(),
            behind: VecDeque::new(),
            vacant: Vec::new(),
            unused: 400,
            initial: 400,
            retired: 145,
            busy_at_ns: 0,
            retired_part: 0,
        };
        let mut slots: Vec<Slot> = (0..400).map(|_| Slot::new(u64::MAX)).collect();
        let mut lost = 0;
        for arrival in 0..10_000 {
            match pool.place(&mut slots, 1) {
                Placement::Lost => lost += 1,
                Placement::Slot(slot) => pool.idle.push_back(slot),
                Placement::Busy => panic!("arrival {arrival} found no slot"),
            }
        }
        assert_eq!(lost, 10_000 * 145 / 400);
    }

    #[test]
    fn requests_follow_the_users() {
        // Three users on two workers: one has twice as many users, and twice as many requests.
        let plan = HttpPlan { requests: Some(300), ..testing::closed(3) };
        let quotas: Vec<u64> = (0..2)
            .map(|index| match Source::new(&plan, Share { index, of: 2 }).0 {
                Source::Closed(users) => users.quota,
                Source::Open(_) => panic!("a closed load"),
            })
            .collect();
        assert_eq!(quotas, [200, 100]);
    }
}
