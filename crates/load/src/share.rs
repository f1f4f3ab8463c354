//! The share of a plan that one worker executes.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// The share of worker `index` of `of`. The shares of all workers make up the plan, without overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Index of the worker, from 0.
    pub index: u64,
    /// Number of workers, at least 1.
    pub of: u64,
}

impl Share {
    /// The share of a single worker: the whole plan.
    pub const WHOLE: Self = Self { index: 0, of: 1 };

    /// How many of `n` items belong to this worker. Shares differ by at most one.
    pub(crate) fn part_of(self, n: u64) -> u64 {
        n / self.of + u64::from(self.index < n % self.of)
    }

    /// Which of `n` numbered items belong to this worker.
    pub(crate) fn range_of(self, n: u64) -> Range<u64> {
        let (each, rest) = (n / self.of, n % self.of);
        let start = self.index * each + self.index.min(rest);
        start..start + self.part_of(n)
    }

    /// How many of `n` items belong to this worker if they are divided in proportion to its part of `weights`, which
    /// [`Self::range_of`] gives. The parts of all workers add up to `n`.
    pub(crate) fn part_in_proportion(self, n: u64, weights: u64) -> u64 {
        let weights = weights.max(1);
        let range = self.range_of(weights);
        let up_to = |weight: u64| (u128::from(n) * u128::from(weight) / u128::from(weights)) as u64;
        up_to(range.end) - up_to(range.start)
    }

    /// The share of sub-worker `index` of `of` inside this one.
    pub(crate) fn split(self, index: u64, of: u64) -> Self {
        Self { index: self.index * of + index, of: self.of * of }
    }
}

/// The arrivals of a trial that belong to a worker. A worker's share is proportional to its connections, so that all
/// connections carry the same load.
///
/// Each `connections` consecutive arrivals form a cycle, in which every connection of the trial takes one. The workers take
/// arrivals in turn until each has taken one for each of its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ArrivalShare {
    share: Share,
    connections: u64,
    own: u64,
}

impl ArrivalShare {
    /// The arrivals of a worker in a trial with this number of connections.
    pub(crate) fn new(share: Share, connections: u64) -> Self {
        let connections = connections.max(1);
        Self { share, connections, own: share.part_of(connections) }
    }

    /// The arrivals of another worker.
    pub(crate) fn of_worker(self, index: u64) -> Self {
        Self::new(Share { index, ..self.share }, self.connections)
    }

    /// Index of the worker.
    pub(crate) fn worker(self) -> u64 {
        self.share.index
    }

    /// Number of workers.
    pub(crate) fn workers(self) -> u64 {
        self.share.of
    }

    /// Number of arrivals in a cycle.
    pub(crate) fn cycle(self) -> u64 {
        self.connections
    }

    /// Number of arrivals in a cycle that belong to this worker.
    #[inline]
    pub(crate) fn own(self) -> u64 {
        self.own
    }

    /// Position in the cycle of this worker's `n`-th arrival (from 0); `n` is below [`Self::own`].
    #[inline]
    pub(crate) fn position(self, n: u64) -> u64 {
        // The workers with one more connection have the lowest indexes, so the formula also holds for the last, partial
        // round.
        n * self.share.of + self.share.index
    }

    /// How many of a trial's first `n` arrivals belong to this worker.
    pub(crate) fn count_of_first(self, n: u64) -> u64 {
        let (cycles, rest) = (n / self.connections, n % self.connections);
        let begun = rest.saturating_sub(self.share.index).div_ceil(self.share.of);
        cycles * self.own + begun.min(self.own)
    }

    /// How many of a trial's `n` requests belong to this worker if arrivals are random.
    pub(crate) fn part_of(self, n: u64) -> u64 {
        self.share.part_in_proportion(n, self.connections)
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
        fn parts_in_proportion_add_up(n: u64, weights in 1u64..1_000, of in 1u64..9) {
            let parts = (0..of).map(|index| Share { index, of }.part_in_proportion(n, weights));
            prop_assert_eq!(parts.sum::<u64>(), n);
        }

        #[test]
        fn every_arrival_has_one_worker_and_connections_carry_the_same(connections in 1u64..40, of in 1u64..9, n in 0u64..200) {
            let mut taken = vec![0; connections as usize];
            let mut sum = 0;
            for index in 0..of {
                let share = Share { index, of };
                let arrivals = ArrivalShare::new(share, connections);
                prop_assert_eq!(arrivals.own(), share.part_of(connections));
                (0..arrivals.own()).for_each(|n| taken[arrivals.position(n) as usize] += 1);
                let counted = (0..n).filter(|k| (0..arrivals.own()).any(|m| arrivals.position(m) == k % connections));
                prop_assert_eq!(arrivals.count_of_first(n), counted.count() as u64);
                sum += arrivals.count_of_first(n);
            }
            prop_assert!(taken.iter().all(|&times| times == 1), "{:?}", taken);
            prop_assert_eq!(sum, n);
        }
    }
}
