//! Whether a load has already missed every goal that it is run for.

use record::{ErrorClass, HttpPlan, Origin};

use super::{InFlight, Recorder};
use crate::absence::MIN_ABSENCE_NS;

/// The requests that an open load lost to the target, and how many it may lose.
#[derive(Debug)]
pub(super) struct Loss {
    lost: u64,
    /// More than any goal of the trial allows all workers together to lose; `u64::MAX` without goals.
    allowed: u64,
    /// The largest bound of any goal on a time, in nanoseconds.
    longest_ns: u64,
}

impl Loss {
    pub(super) fn of(plan: &HttpPlan) -> Self {
        let goals = plan.decides.filter(|_| plan.load.is_open()).zip(plan.sending_ns());
        let Some((decision, sending_ns)) = goals else { return Self::NONE };
        let planned = (plan.load.peak() * sending_ns as f64 / 1e9).ceil();
        Self { lost: 0, allowed: (decision.loss_ratio * planned) as u64, longest_ns: decision.longest_ns }
    }

    const NONE: Self = Self { lost: 0, allowed: u64::MAX, longest_ns: u64::MAX };

    /// Counts an answer that came later than any goal allows, whatever the generator's share of it.
    pub(super) fn answered(&mut self, response_ns: u64, own_ns: u64) {
        self.lost += u64::from(response_ns.saturating_sub(own_ns) > self.longest_ns);
    }

    /// Counts a request that failed, unless the generator may have caused it.
    pub(super) fn failed(&mut self, request: &InFlight, class: ErrorClass) {
        self.lost += u64::from(class.origin() != Origin::Local && request.own_ns < MIN_ABSENCE_NS);
    }

    fn is_beyond(&self) -> bool {
        self.lost > self.allowed
    }
}

impl Recorder {
    /// Whether every goal is missed, whatever the rest of the load does.
    #[inline]
    pub(crate) fn has_missed_all_goals(&self) -> bool {
        self.loss.is_beyond()
    }
}
