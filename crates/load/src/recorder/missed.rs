//! Detects that a load has already missed every goal of its trial.

use record::{ErrorClass, HttpPlan, Origin};

use super::{InFlight, Recorder};
use crate::absence::MIN_ABSENCE_NS;

/// The requests that an open load lost because of the target, and how many it may lose.
#[derive(Debug)]
pub(super) struct Loss {
    lost: u64,
    /// Upper bound of the loss that any goal allows all workers together, in requests; `u64::MAX` without goals.
    allowed: u64,
    /// The largest time bound of any goal, in nanoseconds.
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

    /// Counts an answer as lost if it came later than any goal allows, even without the generator's share of its time.
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
    /// Whether the load has lost so many requests that it misses every goal, even if the rest succeeds.
    #[inline]
    pub(crate) fn has_missed_all_goals(&self) -> bool {
        self.loss.is_beyond()
    }
}
