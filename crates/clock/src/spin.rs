//! Waking up on time: sleep until shortly before, then poll.
//!
//! A processor that sleeps takes tens of microseconds to come back, a halted virtual one a hundred or more. How
//! long before is learnt from how late the sleeps were.

/// The polling tail gets no shorter than this unless it may not be so long: a sleep is never exact.
const SHORTEST_NS: u64 = 20_000;
/// What may be polled in one go, when nothing was polled for long, in nanoseconds.
const MOST_SAVED_NS: u64 = 20_000_000;

/// How long before a wake-up sleeping stops and polling begins: a little more than sleeps were late of late.
#[derive(Debug)]
pub struct SpinTail {
    tail_ns: u64,
    most_ns: u64,
    budget: Option<Budget>,
}

/// What may be polled in all, as a part of the time that passes.
#[derive(Debug)]
struct Budget {
    /// One nanosecond in so many.
    one_in: u64,
    saved_ns: u64,
    seen_ns: u64,
}

impl SpinTail {
    /// A tail of at most `most_ns`, however often it is needed; 0 never polls. At the beginning sleeps are
    /// trusted little: it has its full length.
    pub fn new(most_ns: u64) -> Self {
        Self { tail_ns: most_ns, most_ns, budget: None }
    }

    /// The same for one who has something due all the time and must not buy its punctuality with a whole
    /// processor: at most one nanosecond in `one_in` is polled, in the long run.
    pub fn with_share(most_ns: u64, one_in: u64, now_ns: u64) -> Self {
        let budget = Budget { one_in: one_in.max(1), saved_ns: 0, seen_ns: now_ns };
        Self { budget: Some(budget), ..Self::new(most_ns) }
    }

    /// How long polling takes at the end of a wait, whatever was polled so far.
    #[inline]
    pub fn tail_ns(&self) -> u64 {
        self.tail_ns
    }

    /// How long to sleep when something is due in `left_ns`; the rest is to be polled.
    #[inline]
    pub fn sleep_ns(&mut self, now_ns: u64, left_ns: u64) -> u64 {
        let tail_ns = self.tail_ns.min(left_ns);
        let is_over_budget = self.budget.as_mut().is_some_and(|budget| tail_ns > budget.at(now_ns));
        if is_over_budget { left_ns } else { left_ns - tail_ns }
    }

    /// A sleep ended so late. Rises at once, falls by 1/64 a time: near the largest of some hundred recent
    /// ones.
    #[inline]
    pub fn woke_late_by(&mut self, late_ns: u64) {
        let wanted = late_ns + late_ns / 2;
        let fallen = self.tail_ns - self.tail_ns / 64;
        self.tail_ns = wanted.max(fallen).max(SHORTEST_NS).min(self.most_ns);
    }

    /// So much was polled: it counts against the share.
    #[inline]
    pub fn polled(&mut self, ns: u64) {
        if let Some(budget) = &mut self.budget {
            budget.saved_ns = budget.saved_ns.saturating_sub(ns);
        }
    }
}

impl Budget {
    /// What may be polled now.
    fn at(&mut self, now_ns: u64) -> u64 {
        let earned_ns = now_ns.saturating_sub(self.seen_ns) / self.one_in;
        self.saved_ns = (self.saved_ns + earned_ns).min(MOST_SAVED_NS);
        self.seen_ns = now_ns;
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
        assert_eq!(tail.tail_ns(), SHORTEST_NS);
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
    fn what_is_due_now_and_then_is_polled_for_and_what_always_is_is_not() {
        let mut tail = SpinTail::with_share(300_000, 20, 0);
        // One in 5 ms: the tail of 300 µs is more than a twentieth at first, and is learnt to be too much.
        let mut now_ns = 0;
        for _ in 0..1_000 {
            now_ns += 5_000_000;
            let sleep_ns = tail.sleep_ns(now_ns, 1_000_000);
            tail.woke_late_by(60_000);
            tail.polled(1_000_000 - sleep_ns);
        }
        assert_eq!(tail.sleep_ns(now_ns, 1_000_000), 910_000);
        // One in 100 µs: polled for a twentieth of the time at the most.
        let mut polled_ns = 0;
        let began_ns = now_ns;
        for _ in 0..10_000 {
            now_ns += 100_000;
            let sleep_ns = tail.sleep_ns(now_ns, 100_000);
            polled_ns += 100_000 - sleep_ns;
            tail.polled(100_000 - sleep_ns);
        }
        assert!(polled_ns <= (now_ns - began_ns) / 20 + MOST_SAVED_NS, "{polled_ns}");
        assert!(polled_ns > 0);
    }
}
