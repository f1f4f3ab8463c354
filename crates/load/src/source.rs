//! Where requests come from: the users of a closed load, or the schedule of an open load.

use std::collections::VecDeque;

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use record::{Distribution, HttpPlan, LoadModel};

use crate::{
    schedule::{Bounds, Schedule},
    share::{ArrivalShare, Share},
    slot::Slot,
    wire::SlotId,
};

/// One worker's share of the load model.
#[derive(Debug)]
pub(crate) enum RequestSource {
    /// The users of a closed load.
    Closed(Users),
    /// The schedule and the pool of an open load.
    Open(Pool),
}

/// The users of a closed load; user i has slot i.
#[derive(Debug)]
pub(crate) struct Users {
    /// Pause between an answer and the next request.
    pub think_time: Distribution,
    /// Whether `think_time` can be above 0.
    pub thinks: bool,
    /// The random numbers for pauses.
    pub rng: Pcg64Mcg,
    /// Start of the first user and step to each further one, in nanoseconds after the start of the trial.
    pub ramp: (f64, f64),
    /// Requests that all users together may still begin.
    pub quota: u64,
    /// Users that may still begin a request.
    pub active: u64,
    /// Requests begun.
    pub begun: u64,
    /// Users that have begun at least one request.
    pub started: u64,
    /// Number of users.
    users: u64,
    /// Requests of each user.
    loops: u64,
    /// Requests of the plan, if loops or requests bound it.
    planned: Option<u64>,
    /// The plan has a duration, which may end it before all its requests have begun.
    timed: bool,
}

/// An open load's schedule and the connections that carry it.
#[derive(Debug)]
pub(crate) struct Pool {
    /// When requests are due.
    pub schedule: Schedule,
    /// Open slots with nothing in flight, longest free first.
    pub idle: VecDeque<SlotId>,
    /// With pipelining: open slots that have requests in flight and had room for more when they were queued. A slot that is
    /// taken out may be full, because keeping the queue exact would cost every answer.
    pub pipelinable: VecDeque<SlotId>,
    /// Slots without a connection that may open one.
    pub vacant: Vec<SlotId>,
    /// The first slot that was never used. No later slot was used either.
    pub unused: SlotId,
    /// Number of slots that are opened before the start.
    pub initial: SlotId,
    /// Number of retired slots.
    pub retired: u64,
    /// When an arrival was due and every connection was busy, for the last time; 0 if never.
    pub busy_at_ns: u64,
    /// Sum of the retired slots' shares of arrivals. An arrival is lost when the sum reaches the number of slots.
    pub retired_carry: u64,
}

/// What happens to an arrival.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// It is assigned to this slot.
    Slot(SlotId),
    /// It belongs to a retired slot, and is never sent.
    Lost,
    /// It waits, because every connection is busy.
    Busy,
}

impl RequestSource {
    /// A worker's share of a plan's load, and the number of slots that it needs.
    pub(crate) fn new(plan: &HttpPlan, share: Share) -> (Self, u64) {
        match &plan.load {
            LoadModel::Closed { users, loops, ramp_up_ns, think_time } => {
                let own = share.range_of(*users);
                let slots = own.end - own.start;
                let step = if *users > 0 { *ramp_up_ns as f64 / *users as f64 } else { 0.0 };
                let by_loops = loops.map(|n| n * slots);
                // In proportion to the users, so that users of all workers get the same number.
                let by_requests = plan.requests.map(|n| share.part_in_proportion(n, *users));
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
                let arrival_share = ArrivalShare::new(share, connections.most);
                let pool = Pool {
                    schedule: Schedule::new(*arrivals, stages, bounds, plan.seed, arrival_share),
                    idle: VecDeque::new(),
                    pipelinable: VecDeque::new(),
                    vacant: Vec::new(),
                    unused: initial,
                    initial,
                    retired: 0,
                    busy_at_ns: 0,
                    retired_carry: 0,
                };
                (Self::Open(pool), slots)
            }
        }
    }
}

impl Users {
    /// When user `index` of this worker starts, in nanoseconds after the start of the trial.
    pub(crate) fn start_offset_ns(&self, index: usize) -> u64 {
        (self.ramp.0 + index as f64 * self.ramp.1) as u64
    }

    /// Draws a pause, in nanoseconds.
    pub(crate) fn think_ns(&mut self) -> u64 {
        self.think_time.sample_ns(&mut self.rng)
    }

    /// Counts a request of a user that may begin `loops_left` requests, this one included.
    #[inline]
    pub(crate) fn begin_request(&mut self, loops_left: u64) {
        self.started += u64::from(loops_left == self.loops);
        self.active -= u64::from(loops_left == 1);
        self.quota -= 1;
        self.begun += 1;
    }

    /// The number of requests that the plan must reach; `None` if a duration or an interruption may end it earlier.
    pub(crate) fn planned(&self, interrupted: bool) -> Option<u64> {
        self.planned.filter(|_| !self.timed && !interrupted)
    }

    /// Requests of the plan that should have begun and did not. With a duration, these are only the requests of users that
    /// never started.
    pub(crate) fn left_out(&self, interrupted: bool) -> u64 {
        let Some(planned) = self.planned.filter(|_| !interrupted) else { return 0 };
        let not_begun = planned.saturating_sub(self.begun);
        if !self.timed {
            return not_begun;
        }
        let not_started = u128::from(self.users - self.started);
        let left_out = u128::from(planned) * not_started / u128::from(self.users.max(1));
        not_begun.min(left_out as u64)
    }
}

impl Pool {
    /// Chooses the slot of the next arrival. `depth`: most requests in flight on a connection.
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
            // The same arrival comes again.
            self.retired_carry -= self.retired;
        }
        placement
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
    fn exactly_the_retired_slots_share_of_the_schedule_is_lost() {
        let stage = Stage { duration_ns: 1_000_000_000, from_rate_per_s: 1e3, to_rate_per_s: 1e3 };
        let mut pool = Pool {
            schedule: Schedule::new(
                Arrivals::Constant,
                &[stage],
                Bounds { requests: None, timed: true },
                1,
                ArrivalShare::new(Share::WHOLE, 400),
            ),
            idle: (0..255).collect(),
            pipelinable: VecDeque::new(),
            vacant: Vec::new(),
            unused: 400,
            initial: 400,
            retired: 145,
            busy_at_ns: 0,
            retired_carry: 0,
        };
        let mut slots: Vec<Slot> = (0..400).map(|_| Slot::new(u64::MAX)).collect();
        let mut lost = 0;
        for arrival in 0..10_000 {
            match pool.choose_slot(&mut slots, 1) {
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
            .map(|index| match RequestSource::new(&plan, Share { index, of: 2 }).0 {
                RequestSource::Closed(users) => users.quota,
                RequestSource::Open(_) => panic!("a closed load"),
            })
            .collect();
        assert_eq!(quotas, [200, 100]);
    }
}
