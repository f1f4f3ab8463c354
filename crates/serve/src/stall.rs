//! Schedule of the target's stalls.

use crate::Stall;

impl Stall {
    /// When the stall in progress at `now_ns` ends, in nanoseconds since the start; `None` between stalls.
    #[inline]
    pub(crate) fn end_ns_at(&self, now_ns: u64) -> Option<u64> {
        let into = now_ns % self.every_ns;
        (into >= self.every_ns - self.for_ns).then(|| now_ns - into + self.every_ns)
    }

    /// Number of stalls that have started until `now_ns`.
    pub(crate) fn count_until(&self, now_ns: u64) -> u64 {
        now_ns.saturating_add(self.for_ns) / self.every_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_of_each_period_is_a_stall() {
        let stall = Stall { every_ns: 1_000, for_ns: 100 };
        for (now, end, begun) in [
            (0, None, 0),
            (899, None, 0),
            (900, Some(1_000), 1),
            (999, Some(1_000), 1),
            (1_000, None, 1),
            (1_899, None, 1),
            (1_950, Some(2_000), 2),
        ] {
            assert_eq!((stall.end_ns_at(now), stall.count_until(now)), (end, begun), "at {now}");
        }
    }
}
