//! Times that were not all seen to end.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Histogram;

/// Times of which some are only known to be *at least* so long: timeouts, and what was still in
/// flight or waiting when the trial ended (right-censored). Dropping those would flatter the target.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Censored {
    /// Times that ended.
    pub observed: Histogram,
    /// How long the others had lasted when nobody watched any more.
    pub censored: Histogram,
}

/// A percentile of partly censored times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Percentile {
    /// The time in nanoseconds.
    pub ns: u64,
    /// The true percentile may be larger, because a censored time lies at or below this one.
    pub at_least: bool,
}

impl Censored {
    /// Adds every count of another.
    pub fn merge(&mut self, other: &Self) {
        self.observed.merge(&other.observed);
        self.censored.merge(&other.censored);
    }

    /// Gives back the memory of empty bins, see [`Histogram::pack`].
    pub fn pack(&mut self) {
        self.observed.pack();
        self.censored.pack();
    }

    /// All times, censored ones taken as if they had ended when last seen: its quantiles are lower
    /// bounds of the true ones, and exact below the least censored time.
    pub fn lower_bound(&self) -> Histogram {
        let mut all = self.observed.clone();
        all.merge(&self.censored);
        all
    }

    /// The percentile at `quantile` (0 to 1).
    pub fn percentile(&self, quantile: f64) -> Percentile {
        if self.censored.is_empty() {
            return Percentile { ns: self.observed.quantile_ns(quantile), at_least: false };
        }
        let ns = self.lower_bound().quantile_ns(quantile);
        Percentile { ns, at_least: self.censored.min_ns() <= ns }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::agreement::{of, times},
        *,
    };
    use proptest::prelude::*;

    #[test]
    fn percentiles_below_the_first_censored_time_are_exact() {
        let times = Censored { observed: of(&[1_000_000; 90]), censored: of(&[2_000_000; 10]) };
        assert!(!times.percentile(0.5).at_least);
        let p99 = times.percentile(0.99);
        assert!(p99.at_least && p99.ns.abs_diff(2_000_000) < 2_000, "{p99:?}");
    }

    proptest! {
        #[test]
        fn censored_times_agree_in_both_forms(observed in times(), censored in times(), quantile in 0.0..=1.0) {
            let live = Censored { observed: of(&observed), censored: of(&censored) };
            let mut packed = live.clone();
            packed.pack();
            prop_assert_eq!(&live, &packed);
            prop_assert_eq!(live.percentile(quantile), packed.percentile(quantile));
            prop_assert_eq!(live.lower_bound(), packed.lower_bound());
            let mut twice = packed.clone();
            twice.merge(&live);
            prop_assert_eq!(twice.lower_bound().count(), 2 * live.lower_bound().count());
        }
    }
}
