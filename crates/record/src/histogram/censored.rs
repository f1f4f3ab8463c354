//! Times of which some are known only as lower limits (right-censored).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Histogram;
use crate::{percentile::PERCENTILES, span::Span};

/// Smallest share of the generator in a time that is recorded separately, in nanoseconds.
const MIN_RECORDED_SHARE_NS: u64 = 50_000;

/// Times of which some are only known as lower limits: those of timeouts, and of requests in flight or waiting at the end
/// of the trial (right-censored). Without them the results would be too good.
///
/// The generator itself may have lengthened some times by a known largest amount. These are counted as measured, and also
/// in the two histograms of lengthened times.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Censored")]
pub struct CensoredTimes {
    /// Complete times.
    pub observed: Histogram,
    /// Censored times, as long as they were observed.
    pub censored: Histogram,
    /// The times, complete or censored, that the generator may have lengthened, as measured.
    #[serde(default = "Histogram::empty", skip_serializing_if = "Histogram::is_empty")]
    pub lengthened: Histogram,
    /// The lengthened times, each less the largest possible share of the generator.
    #[serde(default = "Histogram::empty", skip_serializing_if = "Histogram::is_empty")]
    pub lengthened_less_own: Histogram,
}

impl CensoredTimes {
    /// Counts a complete time. Up to `own_ns` of it may be the generator's share.
    #[inline]
    pub fn record_ns(&mut self, ns: u64, own_ns: u64) {
        self.observed.record_ns(ns);
        self.lengthened_ns(ns, own_ns);
    }

    /// Counts a censored time that was observed for `ns`. Up to `own_ns` of it may be the generator's share.
    pub fn record_censored_ns(&mut self, ns: u64, own_ns: u64) {
        self.censored.record_ns(ns);
        self.lengthened_ns(ns, own_ns);
    }

    /// Records the generator's possible share of a time. The time itself must be counted separately.
    #[inline]
    pub fn lengthened_ns(&mut self, ns: u64, own_ns: u64) {
        if own_ns >= MIN_RECORDED_SHARE_NS {
            self.lengthened.record_ns(ns);
            self.lengthened_less_own.record_ns(ns.saturating_sub(own_ns));
        }
    }

    /// Adds all counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.observed.merge(&other.observed);
        self.censored.merge(&other.censored);
        self.lengthened.merge(&other.lengthened);
        self.lengthened_less_own.merge(&other.lengthened_less_own);
    }

    /// Frees the memory of empty bins, see [`Histogram::pack`].
    pub fn pack(&mut self) {
        self.observed.pack();
        self.censored.pack();
        self.lengthened.pack();
        self.lengthened_less_own.pack();
    }

    /// All times; censored times count as long as they were observed. Quantiles of the result are lower limits of the
    /// true ones, and exact below the smallest censored time.
    pub fn lower_bound(&self) -> Histogram {
        let mut all = self.observed.clone();
        all.merge(&self.censored);
        all
    }

    /// The percentile at `quantile` (0 to 1), in nanoseconds, as an interval.
    pub fn percentile(&self, quantile: f64) -> Span {
        let ns = if self.censored.is_empty() {
            self.observed.quantile_ns(quantile)
        } else {
            self.lower_bound().quantile_ns(quantile)
        };
        let at_least = !self.censored.is_empty() && self.censored.min_ns() <= ns;
        let less_own_ns = self.quantile_less_own_ns(quantile).unwrap_or(ns);
        Span::of_time_ns(ns as f64, less_own_ns as f64, at_least)
    }

    /// The mean, in nanoseconds, as an interval.
    pub fn mean(&self) -> Span {
        let all = self.lower_bound();
        let sum_ns = |times: &Histogram| times.mean_ns() * times.count() as f64;
        let own_ns = sum_ns(&self.lengthened) - sum_ns(&self.lengthened_less_own);
        let less_own_ns = all.mean_ns() - own_ns / all.count().max(1) as f64;
        Span::of_time_ns(all.mean_ns(), less_own_ns.max(0.0), !self.censored.is_empty())
    }

    /// The reported percentiles that are known only as intervals, by name.
    pub fn own_percentiles(&self) -> Vec<(&'static str, Span)> {
        if self.lengthened.is_empty() {
            return Vec::new();
        }
        let listed = PERCENTILES.map(|percentile| (percentile.quantile, percentile.name));
        let named = listed.into_iter().chain([(1.0, "max")]);
        let named = named.map(|(quantile, name)| (name, self.percentile(quantile)));
        named.filter(|(_, percentile)| percentile.is_wide()).collect()
    }

    /// The number of complete times up to `ns`: as measured, and without the largest possible share of the generator.
    pub fn count_up_to_ns(&self, ns: u64) -> (u64, u64) {
        let measured = self.observed.count_up_to_ns(ns);
        let shortened =
            self.lengthened_less_own.count_up_to_ns(ns).saturating_sub(self.lengthened.count_up_to_ns(ns));
        (measured, measured + shortened)
    }

    /// The quantile without the largest possible share of the generator; `None` if no time was lengthened.
    fn quantile_less_own_ns(&self, quantile: f64) -> Option<u64> {
        if self.lengthened.is_empty() {
            return None;
        }
        // Succeeds, because all times include every lengthened one.
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
        assert!(p99.at_least && (p99.value - 2e6).abs() < 2e3, "{p99:?}");
    }

    #[test]
    fn each_time_is_counted_where_it_belongs() {
        let mut times = CensoredTimes::default();
        times.record_ns(1_000_000, MIN_RECORDED_SHARE_NS - 1);
        times.record_ns(2_000_000, MIN_RECORDED_SHARE_NS);
        times.record_censored_ns(4_000_000, 0);
        times.record_censored_ns(6_000_000, 1_000_000);
        assert_eq!(times.observed, of(&[1_000_000, 2_000_000]));
        assert_eq!(times.censored, of(&[4_000_000, 6_000_000]));
        assert_eq!(times.lengthened, of(&[2_000_000, 6_000_000]));
        assert_eq!(times.lengthened_less_own, of(&[2_000_000 - MIN_RECORDED_SHARE_NS, 5_000_000]));
        let names: Vec<&str> = times.own_percentiles().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["p90", "p95", "p99", "p99.9", "p99.99", "max"]);
        let mean = times.mean();
        assert!(mean.at_least && (mean.value - 3.25e6).abs() < 3_250.0, "{mean:?}");
        assert!((mean.least - 2_987_500.0).abs() < 3_250.0, "{mean:?}");
    }

    #[test]
    fn a_percentile_of_the_generator_is_recognised() {
        let mut times = CensoredTimes::default();
        (0..950).for_each(|_| times.record_ns(1_000_000, 0));
        // The generator was absent for half a second.
        (0..50).for_each(|_| times.record_ns(500_000_000, 499_000_000));
        assert!(!times.percentile(0.9).is_wide());
        let p99 = times.percentile(0.99);
        assert!(p99.is_wide() && (p99.most - 5e8).abs() < 5e5, "{p99:?}");
        assert!((p99.least - 1e6).abs() < 1e3, "{p99:?}");
        assert_eq!(times.count_up_to_ns(2_000_000), (950, 1_000));
        let mean = times.mean();
        assert!(mean.is_wide() && (mean.least - 1e6).abs() < 5e4, "{mean:?}");
    }

    #[test]
    fn a_small_share_of_the_generator_is_tolerated() {
        let mut times = CensoredTimes::default();
        (0..100).for_each(|_| times.record_ns(1_000_000, 150_000));
        assert!(!times.percentile(0.5).is_wide(), "0.15 ms");
        (0..1_000).for_each(|_| times.record_ns(100_000_000, 5_000_000));
        assert!(!times.percentile(0.5).is_wide(), "5 %");
        (0..10_000).for_each(|_| times.record_ns(100_000_000, 10_000_000));
        assert!(times.percentile(0.5).is_wide(), "10 % of 100 ms");
    }

    proptest! {
        #[test]
        fn the_generators_share_is_subtracted_as_by_the_library(
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
                prop_assert_eq!(times.quantile_less_own_ns(quantile).unwrap_or(by_library), by_library);
                times.pack();
            }
        }

        #[test]
        fn censored_times_agree_in_both_storages(observed in times(), censored in times(), quantile in 0.0..=1.0) {
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
