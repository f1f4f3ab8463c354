//! Precise wake-ups: sleep until shortly before the time, then poll (spin).
//!
//! A sleeping processor takes tens of microseconds to wake up, a halted virtual one a hundred or more. The length of
//! the polling phase, called the tail, adapts to the lateness of recent sleeps.

/// Minimum tail, in nanoseconds, because no sleep is exact. A smaller `max_ns` takes precedence.
const MIN_TAIL_NS: u64 = 20_000;
/// Maximum of the unused polling time that a budget accumulates, in nanoseconds.
const MAX_SAVED_NS: u64 = 20_000_000;

/// Decides how long to sleep and how long to poll before a wake-up. The tail is a little longer than the lateness of recent
/// sleeps.
#[derive(Debug)]
pub struct SpinTail {
    tail_ns: u64,
    max_ns: u64,
    budget: Option<Budget>,
}

/// Limits the polling time to a share of the elapsed time.
#[derive(Debug)]
struct Budget {
    /// The budget grows by one nanosecond per `one_in` nanoseconds of elapsed time.
    one_in: u64,
    saved_ns: u64,
    updated_ns: u64,
}

impl SpinTail {
    /// A tail of at most `max_ns`, without a budget. It starts at `max_ns`; 0 never polls.
    pub fn new(max_ns: u64) -> Self {
        Self { tail_ns: max_ns, max_ns, budget: None }
    }

    /// A tail with a budget: on average at most one nanosecond in `one_in` is spent polling. Threads that always have
    /// something due need a budget, because they would poll all the time otherwise.
    pub fn with_budget(max_ns: u64, one_in: u64, now_ns: u64) -> Self {
        let budget = Budget { one_in: one_in.max(1), saved_ns: 0, updated_ns: now_ns };
        Self { budget: Some(budget), ..Self::new(max_ns) }
    }

    /// How long to poll at the end of a wait, in nanoseconds, ignoring the budget.
    #[inline]
    pub fn tail_ns(&self) -> u64 {
        self.tail_ns
    }

    /// How long to sleep if something is due in `left_ns`, in nanoseconds; the caller polls for the rest.
    #[inline]
    pub fn sleep_ns(&mut self, now_ns: u64, left_ns: u64) -> u64 {
        let tail_ns = self.tail_ns.min(left_ns);
        let is_over_budget = self.budget.as_mut().is_some_and(|budget| tail_ns > budget.update(now_ns));
        if is_over_budget { left_ns } else { left_ns - tail_ns }
    }

    /// Adapts the tail to a sleep that ended `late_ns` late. The tail rises at once to 1.5 times the lateness and falls by
    /// at most 1/64 per sleep, so that it follows the largest lateness of some hundred recent sleeps.
    #[inline]
    pub fn woke_late_by(&mut self, late_ns: u64) {
        let wanted = late_ns + late_ns / 2;
        let fallen = self.tail_ns - self.tail_ns / 64;
        self.tail_ns = wanted.max(fallen).max(MIN_TAIL_NS).min(self.max_ns);
    }

    /// Charges polled time to the budget.
    #[inline]
    pub fn polled(&mut self, ns: u64) {
        if let Some(budget) = &mut self.budget {
            budget.saved_ns = budget.saved_ns.saturating_sub(ns);
        }
    }
}

impl Budget {
    /// Updates the budget and returns the polling time that is allowed now, in nanoseconds.
    fn update(&mut self, now_ns: u64) -> u64 {
        let earned_ns = now_ns.saturating_sub(self.updated_ns) / self.one_in;
        self.saved_ns = (self.saved_ns + earned_ns).min(MAX_SAVED_NS);
        self.updated_ns = now_ns;
        self.saved_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_rises_at_once_and_falls_slowly() {
        let mut tail = SpinTail::new(500_000);
        assert_eq!(tail.tail_ns(), 500_000);
        (0..400).for_each(|_| tail.woke_late_by(10_000));
        assert_eq!(tail.tail_ns(), MIN_TAIL_NS);
        assert_eq!((tail.sleep_ns(0, 1_000_000), tail.sleep_ns(0, 10_000)), (980_000, 0));
        tail.woke_late_by(200_000);
        assert_eq!(tail.tail_ns(), 300_000);
        tail.woke_late_by(10_000_000);
        assert_eq!(tail.tail_ns(), 500_000);
    }

    #[test]
    fn a_tail_of_zero_never_polls() {
        let mut tail = SpinTail::new(0);
        tail.woke_late_by(1_000_000);
        assert_eq!((tail.tail_ns(), tail.sleep_ns(0, 1_000)), (0, 1_000));
    }

    #[test]
    fn a_budget_allows_rare_wake_ups_to_be_polled_for_and_bounds_frequent_ones() {
        let mut tail = SpinTail::with_budget(300_000, 20, 0);
        // One wake-up per 5 ms: the initial tail of 300 µs exceeds the budget of a twentieth (250 µs), then the tail
        // shrinks.
        let mut now_ns = 0;
        for _ in 0..1_000 {
            now_ns += 5_000_000;
            let sleep_ns = tail.sleep_ns(now_ns, 1_000_000);
            tail.woke_late_by(60_000);
            tail.polled(1_000_000 - sleep_ns);
        }
        assert_eq!(tail.sleep_ns(now_ns, 1_000_000), 910_000);
        // One wake-up per 100 µs: polling stays within a twentieth of the time.
        let mut polled_ns = 0;
        let began_ns = now_ns;
        for _ in 0..10_000 {
            now_ns += 100_000;
            let sleep_ns = tail.sleep_ns(now_ns, 100_000);
            polled_ns += 100_000 - sleep_ns;
            tail.polled(100_000 - sleep_ns);
        }
        assert!(polled_ns <= (now_ns - began_ns) / 20 + MAX_SAVED_NS, "{polled_ns}");
        assert!(polled_ns > 0);
    }
}
