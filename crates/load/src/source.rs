//! The sources of requests: the users of a closed load, or the schedule of an open load.

mod pool;

use std::collections::VecDeque;

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use record::{Distribution, HttpPlan, LoadModel, ScriptPlan};
use script::Numbering;

use crate::{
    schedule::{Bounds, Schedule},
    share::{ArrivalShare, Share},
    slot::Slot,
    wire::SlotId,
    worker_result::SourceTotals,
};
pub(crate) use pool::{Placement, Pool};

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
    /// Start of the first user after the start of the trial, and the interval between users, in nanoseconds.
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
    /// Total number of requests, if loops or requests bound it.
    planned: Option<u64>,
    /// The plan has a duration, which may end it before all its requests have begun.
    timed: bool,
}

impl RequestSource {
    /// A worker's share of a plan's load, and the number of slots that it needs.
    pub(crate) fn new(plan: &HttpPlan, share: Share) -> (Self, u64) {
        match &plan.load {
            LoadModel::Closed { users, loops, ramp_up_ns, think_time } => {
                let range = share.range_of(*users);
                let slots = range.end - range.start;
                let step = if *users > 0 { *ramp_up_ns as f64 / *users as f64 } else { 0.0 };
                let quota = quota_of_users(plan, *users, share);
                // Rows that are used only once may end the load earlier.
                let may_run_out = plan.script.as_ref().is_some_and(ScriptPlan::may_run_out);
                let planned = planned_by_users(plan, *users, *loops, share).filter(|_| !may_run_out);
                let users = Users {
                    thinks: !think_time.is_zero() || plan.script.as_ref().is_some_and(ScriptPlan::pauses),
                    think_time: think_time.clone(),
                    rng: Pcg64Mcg::seed_from_u64(plan.seed.wrapping_add(share.index)),
                    ramp: (range.start as f64 * step, step),
                    quota: quota.unwrap_or(u64::MAX),
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
                    is_full: false,
                    holds: false,
                    last_held_ns: 0,
                    held_at: None,
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

/// The numbers of a worker's iterations. If the number of iterations is known in advance, those of all workers are consecutive, so that
/// any number of workers makes the same iterations. `rows`: number of iterations after which rows run out or begin again.
pub(crate) fn numbering(plan: &HttpPlan, share: Share, rows: Option<u64>) -> Numbering {
    let sum = |planned: &[u64]| planned.iter().fold(0_u64, |sum, n| sum.saturating_add(*n));
    let index = share.index as usize;
    match planned_of_workers(plan, share) {
        Some(planned) if rows.is_none_or(|rows| sum(&planned) <= rows) => {
            Numbering::new(sum(&planned[..index]), 1)
        }
        // Beyond the last row, workers take rows by turns, so that no two use the same row at the same time.
        Some(planned) => Numbering::by_turns(index, &planned),
        None => Numbering::new(share.index, share.of),
    }
}

/// Number of iterations of each worker, if they are known in advance.
fn planned_of_workers(plan: &HttpPlan, share: Share) -> Option<Vec<u64>> {
    match &plan.load {
        LoadModel::Closed { users, loops, .. } => {
            let of_worker = |index| planned_by_users(plan, *users, *loops, Share { index, ..share });
            (0..share.of).map(of_worker).collect()
        }
        LoadModel::Open { arrivals, stages, connections } => {
            let bounds = Bounds { requests: plan.requests, timed: plan.duration_ns.is_some() };
            let arrival_share = ArrivalShare::new(share, connections.most);
            Schedule::planned_of(*arrivals, stages, bounds, arrival_share, share.of)
        }
    }
}

/// The requests that a worker's users may begin together, if the plan limits the requests: in proportion to the users, so that each user
/// gets the same number on every worker.
fn quota_of_users(plan: &HttpPlan, users: u64, share: Share) -> Option<u64> {
    plan.requests.map(|n| share.part_in_proportion(n, users))
}

/// Number of requests that a worker's users begin, if loops or requests bound it.
fn planned_by_users(plan: &HttpPlan, users: u64, loops: Option<u64>, share: Share) -> Option<u64> {
    let by_loops = loops.map(|loops| loops.saturating_mul(share.part_of(users)));
    by_loops.into_iter().chain(quota_of_users(plan, users, share)).min()
}

/// A slot's next state after requests on it have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterRequests {
    /// It returns to the pool.
    Returns,
    /// Its user pauses before each next request.
    Pauses,
    /// Its user sends the next requests at once.
    Continues,
}

impl RequestSource {
    /// Whether requests come from a schedule.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Open(_))
    }

    /// The users of a closed load.
    #[inline]
    pub(crate) fn users(&mut self) -> Option<&mut Users> {
        match self {
            Self::Closed(users) => Some(users),
            Self::Open(_) => None,
        }
    }

    /// The pool of an open load.
    #[inline]
    pub(crate) fn pool(&mut self) -> Option<&mut Pool> {
        match self {
            Self::Closed(_) => None,
            Self::Open(pool) => Some(pool),
        }
    }

    /// Number of slots that open their connections before the start.
    pub(crate) fn initial(&self) -> SlotId {
        match self {
            Self::Closed(_) => 0,
            Self::Open(pool) => pool.initial,
        }
    }

    /// Whether users pause between their requests.
    #[inline]
    pub(crate) fn pauses(&self) -> bool {
        matches!(self, Self::Closed(users) if users.thinks)
    }

    /// Whether a user's next request is due as soon as its last answer has arrived.
    #[inline]
    pub(crate) fn follows_answers(&self) -> bool {
        matches!(self, Self::Closed(users) if !users.thinks)
    }

    /// When the next arrival is due, in nanoseconds after the start.
    #[inline]
    pub(crate) fn next_arrival_ns(&self) -> Option<u64> {
        match self {
            Self::Closed(_) => None,
            Self::Open(pool) => pool.schedule.peek_ns(),
        }
    }

    /// Whether the next arrival can be assigned to a slot, or is lost. `slots`: number of slots.
    #[inline]
    pub(crate) fn can_assign(&self, slots: usize) -> bool {
        match self {
            Self::Closed(_) => false,
            Self::Open(pool) => {
                !pool.idle.is_empty()
                    || !pool.vacant.is_empty()
                    || !pool.pipelinable.is_empty()
                    || pool.may_grow(slots)
                    || pool.retired >= slots as u64
            }
        }
    }

    /// Whether the next arrival waits for a busy connection to become free, see [`Pool::hold`].
    pub(crate) fn holds(&self) -> bool {
        matches!(self, Self::Open(pool) if pool.holds)
    }

    /// When user `index` starts, in nanoseconds after the start of the trial; `None` without users.
    pub(crate) fn user_starts_ns(&self, index: usize) -> Option<u64> {
        match self {
            Self::Closed(users) => Some(users.start_offset_ns(index)),
            Self::Open(_) => None,
        }
    }

    /// The end of the schedule in nanoseconds after the start of the trial, if it has a known one.
    pub(crate) fn end_ns(&self) -> Option<u64> {
        match self {
            Self::Closed(_) => None,
            Self::Open(pool) => pool.schedule.end_ns(),
        }
    }

    /// Same as [`Self::end_ns`], but only once this worker has sent all its arrivals.
    #[inline]
    pub(crate) fn end_of_sent_ns(&self) -> Option<u64> {
        match self {
            Self::Open(pool) if pool.schedule.peek_ns().is_none() => pool.schedule.end_ns(),
            _ => None,
        }
    }

    /// Whether no further request can begin. `has_duration`: the plan's duration ends the load.
    pub(crate) fn is_exhausted(&self, since_start_ns: u64, has_duration: bool) -> bool {
        match self {
            Self::Closed(users) => users.active == 0 || users.quota == 0,
            Self::Open(pool) => match self.end_of_sent_ns() {
                Some(end_ns) => since_start_ns >= end_ns,
                // Without a known end, sending ends with the duration or, if there is none, with this worker's last arrival.
                None => !has_duration && pool.schedule.peek_ns().is_none(),
            },
        }
    }

    /// A slot's next state after requests on it have ended.
    #[inline]
    pub(crate) fn after_requests(&self) -> AfterRequests {
        match self {
            Self::Open(_) => AfterRequests::Returns,
            Self::Closed(users) if users.thinks => AfterRequests::Pauses,
            Self::Closed(_) => AfterRequests::Continues,
        }
    }

    /// Takes a slot out of use.
    pub(crate) fn retire(&mut self, slot: &mut Slot) {
        match self {
            Self::Open(pool) => pool.retired += 1,
            Self::Closed(users) => {
                users.active -= u64::from(slot.loops_left > 0);
                slot.loops_left = 0;
            }
        }
    }

    /// Adds up the source's requests for the trial's counts. Calls `unsent` with the due time of each arrival before
    /// `since_start_ns` that waits for a connection.
    pub(crate) fn conclude(
        &mut self,
        interrupted: bool,
        since_start_ns: u64,
        mut unsent: impl FnMut(u64),
    ) -> SourceTotals {
        match self {
            Self::Open(pool) => {
                let planned = pool.schedule.planned().filter(|_| !interrupted);
                while let Some(due_ns) = pool.schedule.peek_ns().filter(|due_ns| *due_ns <= since_start_ns) {
                    pool.schedule.take();
                    unsent(due_ns);
                }
                SourceTotals { scheduled: pool.schedule.issued(), planned, left_out: 0 }
            }
            Self::Closed(users) => {
                let left_out = users.left_out(interrupted);
                let (scheduled, planned) = (users.begun + left_out, users.planned(interrupted));
                SourceTotals { scheduled, planned, left_out }
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

    /// Counts a request of a user that may begin `loops_left` requests, including this one.
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

    /// Requests of the plan that should have begun but did not. With a duration, only the requests of users that never started.
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

#[cfg(test)]
mod tests;
