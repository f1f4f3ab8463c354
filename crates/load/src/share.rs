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

    /// The share of sub-worker `index` of `of` inside this one.
    pub fn split(self, index: u64, of: u64) -> Self {
        Self { index: self.index * of + index, of: self.of * of }
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
    }
}
