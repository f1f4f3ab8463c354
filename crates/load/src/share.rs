//! The part of a plan that one worker carries out.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Worker `index` of `of`: together the workers do the plan exactly once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// From 0.
    pub index: u64,
    /// How many share the plan; at least 1.
    pub of: u64,
}

impl Share {
    /// A lone worker's share: everything.
    pub const WHOLE: Self = Self { index: 0, of: 1 };

    /// How many of `n` things are this worker's; shares differ by one at the most.
    pub fn part_of(self, n: u64) -> u64 {
        n / self.of + u64::from(self.index < n % self.of)
    }

    /// Which of `n` numbered things are this worker's.
    pub fn range_of(self, n: u64) -> Range<u64> {
        let (each, rest) = (n / self.of, n % self.of);
        let start = self.index * each + self.index.min(rest);
        start..start + self.part_of(n)
    }

    /// How many of `n` things are this worker's where they go along with `others` that are shared out by
    /// [`Self::range_of`]: a worker with twice as many of those has twice as many of these. The parts add up to `n`.
    pub fn part_along(self, n: u64, others: u64) -> u64 {
        let others = others.max(1);
        let own = self.range_of(others);
        let up_to = |other: u64| (u128::from(n) * u128::from(other) / u128::from(others)) as u64;
        up_to(own.end) - up_to(own.start)
    }

    /// The share of sub-worker `index` of `of` inside this one.
    pub fn split(self, index: u64, of: u64) -> Self {
        Self { index: self.index * of + index, of: self.of * of }
    }
}

/// Which of a trial's arrivals are a worker's: as many as it has of the connections, so that all are asked to carry
/// the same.
///
/// Of each `connections` arrivals in a row, the workers take one each in turn as long as all have connections left, and
/// those with one more take the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turns {
    share: Share,
    connections: u64,
    own: u64,
}

impl Turns {
    /// Those of a worker in a trial of so many connections.
    pub(crate) fn new(share: Share, connections: u64) -> Self {
        let connections = connections.max(1);
        Self { share, connections, own: share.part_of(connections) }
    }

    /// The same of another worker.
    pub(crate) fn of_worker(self, index: u64) -> Self {
        Self::new(Share { index, ..self.share }, self.connections)
    }

    /// The worker's index among all.
    pub(crate) fn worker(self) -> u64 {
        self.share.index
    }

    /// Workers in all.
    pub(crate) fn workers(self) -> u64 {
        self.share.of
    }

    /// Arrivals in a row of which [`Self::own`] are this worker's.
    pub(crate) fn cycle(self) -> u64 {
        self.connections
    }

    /// How many of each cycle are this worker's: its connections.
    #[inline]
    pub(crate) fn own(self) -> u64 {
        self.own
    }

    /// Where in a cycle its arrival number `n` of that cycle is; `n` is below [`Self::own`].
    #[inline]
    pub(crate) fn place(self, n: u64) -> u64 {
        // What is left over comes right behind the last whole round: the rule is the same for both.
        n * self.share.of + self.share.index
    }

    /// How many of a trial's first `n` arrivals are this worker's.
    pub(crate) fn among(self, n: u64) -> u64 {
        let (cycles, rest) = (n / self.connections, n % self.connections);
        let begun = rest.saturating_sub(self.share.index).div_ceil(self.share.of);
        cycles * self.own + begun.min(self.own)
    }

    /// How many of a trial's `n` requests are this worker's, whenever they come.
    pub(crate) fn part_of(self, n: u64) -> u64 {
        self.share.part_along(n, self.connections)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_are_disjoint_and_cover_everything(n in 0u64..10_000, processes in 1u64..9, threads in 1u64..9) {
            let mut end = 0;
            for p in 0..processes {
                for t in 0..threads {
                    let share = Share { index: p, of: processes }.split(t, threads);
                    let range = share.range_of(n);
                    prop_assert_eq!(range.start, end);
                    prop_assert_eq!(range.end - range.start, share.part_of(n));
                    end = range.end;
                }
            }
            prop_assert_eq!(end, n);
        }

        #[test]
        fn what_goes_along_with_others_adds_up(n: u64, others in 1u64..1_000, of in 1u64..9) {
            let parts = (0..of).map(|index| Share { index, of }.part_along(n, others));
            prop_assert_eq!(parts.sum::<u64>(), n);
        }

        #[test]
        fn every_arrival_is_one_workers_and_connections_carry_the_same(connections in 1u64..40, of in 1u64..9, n in 0u64..200) {
            let mut taken = vec![0; connections as usize];
            let mut among = 0;
            for index in 0..of {
                let share = Share { index, of };
                let turns = Turns::new(share, connections);
                prop_assert_eq!(turns.own(), share.part_of(connections));
                (0..turns.own()).for_each(|n| taken[turns.place(n) as usize] += 1);
                let counted = (0..n).filter(|k| (0..turns.own()).any(|m| turns.place(m) == k % connections));
                prop_assert_eq!(turns.among(n), counted.count() as u64);
                among += turns.among(n);
            }
            prop_assert!(taken.iter().all(|&times| times == 1), "{:?}", taken);
            prop_assert_eq!(among, n);
        }
    }
}
