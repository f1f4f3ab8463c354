//! Histograms of times: fixed bounds and precision, so that any two merge without loss.

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use hdrhistogram::serialization::{Deserializer as HdrDeserializer, Serializer as _, V2DeflateSerializer};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::Error as _};

/// Resolution at the bottom, in nanoseconds: times are told apart in steps of 64 ns there.
const LOWEST_NS: u64 = 100;
/// Largest time held, in nanoseconds (1 h). Larger ones are counted as this.
const HIGHEST_NS: u64 = 3_600_000_000_000;
/// Significant decimal digits.
const DIGITS: u8 = 3;

/// A histogram of times in nanoseconds, 64 ns to 1 h, 3 significant digits.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram(hdrhistogram::Histogram<u64>);

impl Default for Histogram {
    fn default() -> Self {
        Self(
            hdrhistogram::Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, DIGITS)
                .expect("the bounds are constants that the library takes"),
        )
    }
}

impl Histogram {
    /// Counts one time. More than 1 h counts as 1 h.
    #[inline]
    pub fn record_ns(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// Counts the same time `n` times.
    pub fn record_n_ns(&mut self, ns: u64, n: u64) {
        self.0.saturating_record_n(ns, n);
    }

    /// Adds every count of another histogram.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("all histograms have the same bounds");
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    /// How many times were counted.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The time that a share `quantile` (0 to 1) of all counted ones do not exceed. 0 if empty.
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        if self.is_empty() { 0 } else { self.0.value_at_quantile(quantile) }
    }

    /// Least time counted; 0 if empty.
    pub fn min_ns(&self) -> u64 {
        if self.is_empty() { 0 } else { self.0.min() }
    }

    /// Largest time counted; 0 if empty.
    pub fn max_ns(&self) -> u64 {
        self.0.max()
    }

    /// Arithmetic mean in nanoseconds; 0 if empty.
    pub fn mean_ns(&self) -> f64 {
        self.0.mean()
    }

    /// Standard deviation in nanoseconds; 0 if empty.
    pub fn stdev_ns(&self) -> f64 {
        self.0.stdev()
    }

    /// How many counted times are at most `ns`, to the histogram's precision.
    pub fn count_up_to_ns(&self, ns: u64) -> u64 {
        if self.is_empty() { 0 } else { self.0.count_between(0, ns) }
    }

    /// The library's own histogram, for its log writers.
    pub fn as_hdr(&self) -> &hdrhistogram::Histogram<u64> {
        &self.0
    }

    /// The figures people read.
    pub fn summary(&self) -> Summary {
        let us = |ns: u64| ns as f64 / 1e3;
        let quantile = |q| us(self.quantile_ns(q));
        Summary {
            count: self.count(),
            min_us: us(self.min_ns()),
            mean_us: self.mean_ns() / 1e3,
            stdev_us: self.stdev_ns() / 1e3,
            p50_us: quantile(0.5),
            p75_us: quantile(0.75),
            p90_us: quantile(0.9),
            p95_us: quantile(0.95),
            p99_us: quantile(0.99),
            p99_9_us: quantile(0.999),
            p99_99_us: quantile(0.9999),
            max_us: us(self.max_ns()),
        }
    }

    /// The compressed V2 form of the HdrHistogram libraries, in base64.
    ///
    /// # Errors
    /// When the library cannot compress it.
    pub fn to_base64(&self) -> Result<String, String> {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(&self.0, &mut bytes).map_err(|e| e.to_string())?;
        Ok(BASE64.encode(bytes))
    }

    /// Reads [`Self::to_base64`] back.
    ///
    /// # Errors
    /// When it is not such a histogram, or has other bounds than ours.
    pub fn from_base64(text: &str) -> Result<Self, String> {
        let bytes = BASE64.decode(text).map_err(|e| e.to_string())?;
        let hdr: hdrhistogram::Histogram<u64> =
            HdrDeserializer::new().deserialize(&mut bytes.as_slice()).map_err(|e| format!("{e:?}"))?;
        let mut own = Self::default();
        if hdr.sigfig() != DIGITS || hdr.high() > HIGHEST_NS || hdr.low() != own.0.low() {
            return Err("a histogram with other bounds or another precision".to_owned());
        }
        own.0.add(&hdr).map_err(|e| e.to_string())?;
        Ok(own)
    }
}

/// What people read of a histogram, in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "each name says its statistic and its unit")]
pub struct Summary {
    pub count: u64,
    pub min_us: f64,
    pub mean_us: f64,
    pub stdev_us: f64,
    pub p50_us: f64,
    pub p75_us: f64,
    pub p90_us: f64,
    pub p95_us: f64,
    pub p99_us: f64,
    pub p99_9_us: f64,
    pub p99_99_us: f64,
    pub max_us: f64,
}

/// In results a histogram is its summary and, for machines, the whole of it.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Histogram")]
struct Written {
    #[serde(flatten)]
    summary: Summary,
    /// Compressed HdrHistogram V2, base64, in nanoseconds.
    hdr_v2_deflate_base64: String,
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let hdr_v2_deflate_base64 = self.to_base64().map_err(S::Error::custom)?;
        Written { summary: self.summary(), hdr_v2_deflate_base64 }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Written::deserialize(deserializer)?;
        Self::from_base64(&written.hdr_v2_deflate_base64).map_err(D::Error::custom)
    }
}

impl JsonSchema for Histogram {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Histogram".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Written::json_schema(generator)
    }
}

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
    use super::*;
    use proptest::prelude::*;

    fn of(times_ns: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        times_ns.iter().for_each(|&ns| histogram.record_ns(ns));
        histogram
    }

    #[test]
    fn percentiles_below_the_first_censored_time_are_exact() {
        let times = Censored { observed: of(&[1_000_000; 90]), censored: of(&[2_000_000; 10]) };
        assert!(!times.percentile(0.5).at_least);
        let p99 = times.percentile(0.99);
        assert!(p99.at_least && p99.ns.abs_diff(2_000_000) < 2_000, "{p99:?}");
    }

    #[test]
    fn a_foreign_histogram_is_refused() {
        let foreign = hdrhistogram::Histogram::<u64>::new(2).unwrap();
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(&foreign, &mut bytes).unwrap();
        assert!(Histogram::from_base64(&BASE64.encode(bytes)).is_err());
        assert!(Histogram::from_base64("no base64!").is_err());
    }

    proptest! {
        #[test]
        fn merging_is_recording_all(a in prop::collection::vec(0u64..10_000_000_000_000, 0..50),
                                    b in prop::collection::vec(0u64..10_000_000_000_000, 0..50)) {
            let mut merged = of(&a);
            merged.merge(&of(&b));
            let all: Vec<u64> = a.iter().chain(&b).copied().collect();
            prop_assert_eq!(merged, of(&all));
        }

        #[test]
        fn what_is_written_is_read_back(times in prop::collection::vec(0u64..4_000_000_000_000, 0..50)) {
            let histogram = of(&times);
            let json = serde_json::to_string(&histogram).unwrap();
            let read: Histogram = serde_json::from_str(&json).unwrap();
            for q in [0.0, 0.5, 0.99, 1.0] {
                prop_assert_eq!(histogram.quantile_ns(q), read.quantile_ns(q));
            }
            prop_assert_eq!(histogram.count(), read.count());
        }
    }
}
