//! Times that were not all seen to end.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Histogram;

/// A generator's share of a time below this, in nanoseconds, is not recorded.
const MIN_RECORDED_SHARE_NS: u64 = 50_000;
/// The percentiles that people read.
const REPORTED_PERCENTILES: [(f64, &str); 8] = [
    (0.5, "p50"),
    (0.75, "p75"),
    (0.9, "p90"),
    (0.95, "p95"),
    (0.99, "p99"),
    (0.999, "p99.9"),
    (0.9999, "p99.99"),
    (1.0, "max"),
];
/// A percentile that the generator may have lengthened by less than this, in nanoseconds, is the target's.
const TOLERANCE_NS: u64 = 200_000;
/// So is one that the generator may have lengthened by less than this share of what is left without it.
const TOLERANCE_RATIO: f64 = 0.08;

/// Times of which some are only known to be *at least* so long: timeouts, and what was still in
/// flight or waiting when the trial ended (right-censored). Dropping those would flatter the target.
///
/// Of others it is known that the generator itself may have lengthened them, and by how much at the most. They are
/// counted as measured, and again in the two histograms of those that it may have lengthened.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Censored")]
pub struct CensoredTimes {
    /// Times that ended.
    pub observed: Histogram,
    /// How long the others had lasted when nobody watched any more.
    pub censored: Histogram,
    /// The times, ended or not, that the generator may have lengthened, as measured.
    #[serde(default = "Histogram::empty", skip_serializing_if = "Histogram::is_empty")]
    pub lengthened: Histogram,
    /// The same times less the most that the generator may have added to each.
    #[serde(default = "Histogram::empty", skip_serializing_if = "Histogram::is_empty")]
    pub lengthened_less_own: Histogram,
}

/// A percentile of times that were partly censored, or lengthened by the generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Percentile {
    /// The time in nanoseconds.
    pub ns: u64,
    /// The true percentile may be larger, because a censored time lies at or below this one.
    pub at_least: bool,
    /// The percentile in nanoseconds if the generator lengthened every time by the most that it may have: the
    /// target's own lies between this and `ns`.
    pub less_own_ns: u64,
}

impl Percentile {
    /// Whether the generator may have made so much of this percentile that it says nothing about the target.
    pub fn is_own(&self) -> bool {
        let own_ns = self.ns.saturating_sub(self.less_own_ns);
        own_ns > TOLERANCE_NS && own_ns as f64 > TOLERANCE_RATIO * self.less_own_ns as f64
    }
}

impl CensoredTimes {
    /// Counts a time that ended, of which the generator may have made `own_ns`.
    #[inline]
    pub fn record_ns(&mut self, ns: u64, own_ns: u64) {
        self.observed.record_ns(ns);
        self.lengthened_ns(ns, own_ns);
    }

    /// Counts a time that had lasted for `ns` when nobody watched any more, of which the generator may have made `own_ns`.
    pub fn record_censored_ns(&mut self, ns: u64, own_ns: u64) {
        self.censored.record_ns(ns);
        self.lengthened_ns(ns, own_ns);
    }

    /// Notes the generator's share of a time that is counted elsewhere.
    #[inline]
    pub fn lengthened_ns(&mut self, ns: u64, own_ns: u64) {
        if own_ns >= MIN_RECORDED_SHARE_NS {
            self.lengthened.record_ns(ns);
            self.lengthened_less_own.record_ns(ns.saturating_sub(own_ns));
        }
    }

    /// Adds every count of another.
    pub fn merge(&mut self, other: &Self) {
        self.observed.merge(&other.observed);
        self.censored.merge(&other.censored);
        self.lengthened.merge(&other.lengthened);
        self.lengthened_less_own.merge(&other.lengthened_less_own);
    }

    /// Gives back the memory of empty bins, see [`Histogram::pack`].
    pub fn pack(&mut self) {
        self.observed.pack();
        self.censored.pack();
        self.lengthened.pack();
        self.lengthened_less_own.pack();
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
        let ns = match self.censored.is_empty() {
            true => self.observed.quantile_ns(quantile),
            false => self.lower_bound().quantile_ns(quantile),
        };
        Percentile {
            ns,
            at_least: !self.censored.is_empty() && self.censored.min_ns() <= ns,
            less_own_ns: self.quantile_less_own_ns(quantile).unwrap_or(ns),
        }
    }

    /// The mean, in the form of a percentile.
    pub fn mean(&self) -> Percentile {
        let all = self.lower_bound();
        let sum_ns = |times: &Histogram| times.mean_ns() * times.count() as f64;
        let own_ns = sum_ns(&self.lengthened) - sum_ns(&self.lengthened_less_own);
        let less_own_ns = all.mean_ns() - own_ns / all.count().max(1) as f64;
        Percentile {
            ns: all.mean_ns() as u64,
            at_least: !self.censored.is_empty(),
            less_own_ns: less_own_ns.max(0.0) as u64,
        }
    }

    /// Those of the percentiles that people read which the generator may have made, by name.
    pub fn own_percentiles(&self) -> Vec<(&'static str, Percentile)> {
        if self.lengthened.is_empty() {
            return Vec::new();
        }
        let named = REPORTED_PERCENTILES.map(|(quantile, name)| (name, self.percentile(quantile)));
        named.into_iter().filter(|(_, percentile)| percentile.is_own()).collect()
    }

    /// How many of the observed times are at most `ns`: as measured, and if the generator lengthened every time by
    /// the most that it may have.
    pub fn count_up_to_ns(&self, ns: u64) -> (u64, u64) {
        let measured = self.observed.count_up_to_ns(ns);
        let brought_below =
            self.lengthened_less_own.count_up_to_ns(ns).saturating_sub(self.lengthened.count_up_to_ns(ns));
        (measured, measured + brought_below)
    }

    /// The quantile less the generator's share; none where it had none.
    fn quantile_less_own_ns(&self, quantile: f64) -> Option<u64> {
        if self.lengthened.is_empty() {
            return None;
        }
        // Every lengthened time is among all times, so that nothing is left over.
        let mut all = self.lower_bound().without(&self.lengthened)?;
        all.merge(&self.lengthened_less_own);
        Some(all.quantile_ns(quantile))
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::storage_tests::{of, times},
        *,
    };
    use proptest::prelude::*;

    #[test]
    fn percentiles_below_the_first_censored_time_are_exact() {
        let times = CensoredTimes {
            observed: of(&[1_000_000; 90]),
            censored: of(&[2_000_000; 10]),
            ..CensoredTimes::default()
        };
        assert!(!times.percentile(0.5).at_least);
        let p99 = times.percentile(0.99);
        assert!(p99.at_least && p99.ns.abs_diff(2_000_000) < 2_000, "{p99:?}");
    }

    #[test]
    fn a_percentile_that_the_generator_made_is_told_from_the_targets() {
        let mut times = CensoredTimes::default();
        (0..950).for_each(|_| times.record_ns(1_000_000, 0));
        // The generator was away for half a second.
        (0..50).for_each(|_| times.record_ns(500_000_000, 499_000_000));
        assert!(!times.percentile(0.9).is_own());
        let p99 = times.percentile(0.99);
        assert!(p99.is_own() && p99.ns.abs_diff(500_000_000) < 500_000, "{p99:?}");
        assert!(p99.less_own_ns.abs_diff(1_000_000) < 1_000, "{p99:?}");
        assert_eq!(times.count_up_to_ns(2_000_000), (950, 1_000));
        let mean = times.mean();
        assert!(mean.is_own() && mean.less_own_ns.abs_diff(1_000_000) < 50_000, "{mean:?}");
    }

    #[test]
    fn a_little_of_the_generators_is_within_what_a_percentile_is_good_for() {
        let mut times = CensoredTimes::default();
        (0..100).for_each(|_| times.record_ns(1_000_000, 150_000));
        assert!(!times.percentile(0.5).is_own(), "0.15 ms");
        (0..1_000).for_each(|_| times.record_ns(100_000_000, 5_000_000));
        assert!(!times.percentile(0.5).is_own(), "5 %");
        (0..10_000).for_each(|_| times.record_ns(100_000_000, 10_000_000));
        assert!(times.percentile(0.5).is_own(), "10 % of 100 ms");
    }

    proptest! {
        #[test]
        fn less_the_generators_share_is_as_the_library_works_it_out(
            ended in prop::collection::vec((0_u64..1 << 40, 0_u64..1 << 41), 1..100),
            left in prop::collection::vec((0_u64..1 << 40, 0_u64..1 << 41), 0..20),
            quantile in 0.0..=1.0_f64,
        ) {
            let mut times = CensoredTimes::default();
            ended.iter().for_each(|(ns, own_ns)| times.record_ns(*ns, *own_ns));
            left.iter().for_each(|(ns, own_ns)| times.record_censored_ns(*ns, *own_ns));
            let mut all = times.lower_bound().to_hdr().into_owned();
            all.subtract(&*times.lengthened.to_hdr()).unwrap();
            all.add(&*times.lengthened_less_own.to_hdr()).unwrap();
            let by_library = all.value_at_quantile(quantile);
            for _ in 0..2 {
                prop_assert_eq!(times.percentile(quantile).less_own_ns, by_library);
                times.pack();
            }
        }

        #[test]
        fn censored_times_agree_in_both_forms(observed in times(), censored in times(), quantile in 0.0..=1.0) {
            let live = CensoredTimes { observed: of(&observed), censored: of(&censored), ..CensoredTimes::default() };
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
