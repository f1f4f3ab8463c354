//! Waking up on time: sleep until shortly before, then poll.
//!
//! A processor that sleeps takes tens of microseconds to come back, a halted virtual one a hundred. How long
//! before is learnt from how late the sleeps were; how much polling there may be in all is bounded, so
//! that a busy link, where something is always due soon, is not bought with a whole processor.

/// The polling tail never gets shorter than this.
const SHORTEST_NS: u64 = 20_000;
/// Nor longer.
const LONGEST_NS: u64 = 300_000;
/// At most this part of the time is polled: one in so many nanoseconds.
const SHARE: u64 = 20;
/// What may be polled in one go, when nothing was polled for long, in nanoseconds.
const MOST_SAVED_NS: u64 = 20_000_000;

/// How long before a departure sleeping stops.
#[derive(Debug)]
pub struct SpinTail {
    tail_ns: u64,
    saved_ns: u64,
    seen_ns: u64,
}

impl SpinTail {
    /// At the beginning sleeps are trusted little.
    pub fn new(now_ns: u64) -> Self {
        Self { tail_ns: LONGEST_NS, saved_ns: 0, seen_ns: now_ns }
    }

    /// How long to sleep when something is due in `left_ns`; the rest is to be polled.
    pub fn sleep_ns(&mut self, now_ns: u64, left_ns: u64) -> u64 {
        self.saved_ns = (self.saved_ns + now_ns.saturating_sub(self.seen_ns) / SHARE).min(MOST_SAVED_NS);
        self.seen_ns = now_ns;
        let tail_ns = self.tail_ns.min(left_ns);
        if tail_ns > self.saved_ns { left_ns } else { left_ns - tail_ns }
    }

    /// A sleep ended so late. Rises at once, falls by 1/64 a time.
    pub fn woke_late_by(&mut self, late_ns: u64) {
        let wanted = late_ns + late_ns / 2;
        let fallen = self.tail_ns - self.tail_ns / 64;
        self.tail_ns = wanted.max(fallen).clamp(SHORTEST_NS, LONGEST_NS);
    }

    /// So much was polled.
    pub fn polled(&mut self, ns: u64) {
        self.saved_ns = self.saved_ns.saturating_sub(ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_now_and_then_is_polled_for_and_what_always_is_is_not() {
        let mut tail = SpinTail::new(0);
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
        assert!(polled_ns <= (now_ns - began_ns) / SHARE + MOST_SAVED_NS, "{polled_ns}");
    }
}
