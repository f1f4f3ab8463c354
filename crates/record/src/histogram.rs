//! Histograms of times, with fixed bounds and precision, so that any two can be merged without loss.

mod censored;
mod packed;
mod serialized;
#[cfg(test)]
mod storage_tests;

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use hdrhistogram::serialization::{Serializer as _, V2DeflateSerializer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use censored::CensoredTimes;
use packed::Packed;

use crate::percentile::PercentilesUs;

type Hdr = hdrhistogram::Histogram<u64>;

/// Smallest time that has its own bin, in nanoseconds: the lowest bins are 64 ns wide.
const LOWEST_NS: u64 = 100;
/// Largest time, in nanoseconds (1 h). Longer times count as this one.
const HIGHEST_NS: u64 = 3_600_000_000_000;
/// Significant decimal digits of a recorded time.
const DIGITS: u8 = 3;

/// The quantile (0 to 1) of a sorted list by its nearest rank: the smallest value that at least this share of the
/// values does not exceed. `None` if the list is empty.
pub fn nearest_rank<T: Copy>(sorted: &[T], quantile: f64) -> Option<T> {
    let rank = (sorted.len() as f64 * quantile).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// A histogram of times in nanoseconds, 64 ns to 1 h, 3 significant digits.
///
/// A histogram for recording holds all bins and takes 0.2 MB. A histogram that was deserialized or [packed](Self::pack)
/// holds only its non-empty bins. All methods work on both kinds and give the same results.
#[derive(Debug, Clone)]
pub struct Histogram(Storage);

#[derive(Debug, Clone)]
enum Storage {
    /// All bins. Boxed to keep the enum small, because thousands of histograms are kept packed.
    Full(Box<Hdr>),
    /// The non-empty bins.
    Packed(Packed),
}

impl Default for Histogram {
    /// An empty histogram with all bins, so that recording allocates no memory.
    fn default() -> Self {
        Self(Storage::Full(Box::new(empty_hdr())))
    }
}

impl Histogram {
    /// An empty histogram that takes no memory until it records a time.
    pub fn empty() -> Self {
        Self(Storage::Packed(Packed::default()))
    }

    /// Counts a time. A time above 1 h counts as 1 h.
    #[inline]
    pub fn record_ns(&mut self, ns: u64) {
        match &mut self.0 {
            Storage::Full(hdr) => hdr.saturating_record(ns),
            Storage::Packed(_) => self.unpack_and_record(ns, 1),
        }
    }

    /// Counts the same time `n` times.
    pub fn record_n_ns(&mut self, ns: u64, n: u64) {
        if n == 0 {
            // The library would otherwise update its smallest and largest time.
            return;
        }
        match &mut self.0 {
            Storage::Full(hdr) => hdr.saturating_record_n(ns, n),
            Storage::Packed(_) => self.unpack_and_record(ns, n),
        }
    }

    /// Adds all counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        match (&mut self.0, &other.0) {
            (Storage::Full(this), Storage::Full(other)) => {
                this.add(&**other).expect("all histograms have the same bounds");
            }
            (Storage::Full(this), Storage::Packed(other)) => other.add_to(this),
            (Storage::Packed(this), Storage::Full(other)) => this.merge(&Packed::of(other)),
            (Storage::Packed(this), Storage::Packed(other)) => this.merge(other),
        }
    }

    /// Subtracts the counts of `other`; the result is packed. `None` if `other` has counts that this histogram lacks.
    fn without(&self, other: &Self) -> Option<Self> {
        let packed = |histogram: &Self| match &histogram.0 {
            Storage::Full(hdr) => Packed::of(hdr),
            Storage::Packed(packed) => packed.clone(),
        };
        Some(Self(Storage::Packed(packed(self).without(&packed(other))?)))
    }

    /// Removes all counts.
    pub fn clear(&mut self) {
        match &mut self.0 {
            Storage::Full(hdr) => hdr.reset(),
            Storage::Packed(packed) => *packed = Packed::default(),
        }
    }

    /// Frees the memory of empty bins, for a histogram that no longer records. The next recording allocates all bins
    /// again.
    pub fn pack(&mut self) {
        if let Storage::Full(hdr) = &self.0 {
            self.0 = Storage::Packed(Packed::of(hdr));
        }
    }

    /// The number of counted times.
    pub fn count(&self) -> u64 {
        match &self.0 {
            Storage::Full(hdr) => hdr.len(),
            Storage::Packed(packed) => packed.count(),
        }
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// The smallest time that at least the share `quantile` (0 to 1) of all counted times does not exceed; 0 if empty.
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        match &self.0 {
            Storage::Full(hdr) if hdr.is_empty() => 0,
            Storage::Full(hdr) => hdr.value_at_quantile(quantile),
            Storage::Packed(packed) => packed.quantile_ns(quantile),
        }
    }

    /// Smallest counted time; 0 if empty.
    pub fn min_ns(&self) -> u64 {
        match &self.0 {
            Storage::Full(hdr) => hdr.min(),
            Storage::Packed(packed) => packed.min_ns(),
        }
    }

    /// Largest counted time; 0 if empty.
    pub fn max_ns(&self) -> u64 {
        match &self.0 {
            Storage::Full(hdr) => hdr.max(),
            Storage::Packed(packed) => packed.max_ns(),
        }
    }

    /// Arithmetic mean in nanoseconds; 0 if empty.
    pub fn mean_ns(&self) -> f64 {
        match &self.0 {
            Storage::Full(hdr) => hdr.mean(),
            Storage::Packed(packed) => packed.mean_ns(),
        }
    }

    /// Standard deviation in nanoseconds; 0 if empty.
    fn stdev_ns(&self) -> f64 {
        match &self.0 {
            Storage::Full(hdr) => hdr.stdev(),
            Storage::Packed(packed) => packed.stdev_ns(),
        }
    }

    /// The number of counted times up to `ns`, with the histogram's precision.
    pub fn count_up_to_ns(&self, ns: u64) -> u64 {
        match &self.0 {
            Storage::Full(hdr) if hdr.is_empty() => 0,
            Storage::Full(hdr) => hdr.count_between(0, ns),
            Storage::Packed(packed) => packed.count_up_to_ns(ns),
        }
    }

    /// The histogram as the library's type, for its log writers. Unpacks a packed histogram.
    pub fn to_hdr(&self) -> Cow<'_, hdrhistogram::Histogram<u64>> {
        match &self.0 {
            Storage::Full(hdr) => Cow::Borrowed(&**hdr),
            Storage::Packed(packed) => Cow::Owned(packed.to_hdr()),
        }
    }

    /// The usual statistics.
    pub fn summary(&self) -> Summary {
        // An empty histogram has no statistics. 0 would look like a measured time.
        let us = |ns: f64| (!self.is_empty()).then_some(ns / 1e3);
        Summary {
            count: self.count(),
            min_us: us(self.min_ns() as f64),
            mean_us: us(self.mean_ns()),
            stdev_us: us(self.stdev_ns()),
            percentiles: PercentilesUs::of(|quantile| us(self.quantile_ns(quantile) as f64)),
            max_us: us(self.max_ns() as f64),
        }
    }

    /// Serializes to the compressed V2 format of the HdrHistogram libraries, in base64.
    ///
    /// # Errors
    /// When the library cannot compress it.
    fn to_base64(&self) -> Result<String, String> {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(&*self.to_hdr(), &mut bytes).map_err(|e| e.to_string())?;
        Ok(BASE64.encode(bytes))
    }

    /// Deserializes the output of [`Self::to_base64`] into a packed histogram.
    ///
    /// # Errors
    /// When the text is no such histogram, or the histogram has other bounds or another precision.
    pub fn from_base64(text: &str) -> Result<Self, String> {
        let bytes = BASE64.decode(text).map_err(|e| e.to_string())?;
        let packed = Packed::of_v2_deflate(&bytes);
        let packed = packed
            .ok_or("not a compressed HdrHistogram V2 with the bounds and the precision of proofload")?;
        Ok(Self(Storage::Packed(packed)))
    }

    #[cold]
    fn unpack_and_record(&mut self, ns: u64, n: u64) {
        let mut hdr = self.to_hdr().into_owned();
        hdr.saturating_record_n(ns, n);
        self.0 = Storage::Full(Box::new(hdr));
    }
}

impl PartialEq for Histogram {
    /// Whether both have the same counts, packed or not.
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Storage::Full(this), Storage::Full(other)) => this == other,
            (Storage::Packed(this), Storage::Packed(other)) => this == other,
            (Storage::Full(live), Storage::Packed(packed))
            | (Storage::Packed(packed), Storage::Full(live)) => {
                live.len() == packed.count() && Packed::of(live) == *packed
            }
        }
    }
}

fn empty_hdr() -> Hdr {
    Hdr::new_with_bounds(LOWEST_NS, HIGHEST_NS, DIGITS)
        .expect("the bounds are constants that the library takes")
}

/// Statistics of a histogram, in microseconds; none for an empty histogram.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "each name says its statistic and its unit")]
pub struct Summary {
    pub count: u64,
    pub min_us: Option<f64>,
    pub mean_us: Option<f64>,
    pub stdev_us: Option<f64>,
    #[serde(flatten)]
    pub percentiles: PercentilesUs,
    pub max_us: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::{storage_tests::of, *};
    use proptest::prelude::*;

    #[test]
    fn a_nearest_rank_is_one_of_the_list() {
        let at = |quantile| nearest_rank(&[1, 2, 3, 4], quantile);
        let found = [0.0, 0.25, 0.26, 0.5, 0.99, 1.0].map(at);
        assert_eq!(found, [1, 1, 2, 2, 4, 4].map(Some));
        assert_eq!(nearest_rank::<u32>(&[], 0.5), None);
    }

    #[test]
    fn a_foreign_histogram_is_refused() {
        let foreign = hdrhistogram::Histogram::<u64>::new(2).unwrap();
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(&foreign, &mut bytes).unwrap();
        assert!(Histogram::from_base64(&BASE64.encode(bytes)).is_err());
        assert!(Histogram::from_base64("no base64!").is_err());
    }

    #[test]
    fn truncated_and_too_long_histograms_are_refused() {
        let bytes = BASE64.decode(of(&[0, 1_000, 2_000_000]).to_base64().unwrap()).unwrap();
        for length in 0..bytes.len() {
            assert!(Histogram::from_base64(&BASE64.encode(&bytes[..length])).is_err(), "{length} bytes");
        }
        let mut hdr =
            hdrhistogram::Histogram::<u64>::new_with_bounds(LOWEST_NS, u64::MAX / 2, DIGITS).unwrap();
        hdr.record(u64::MAX / 4).unwrap();
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(&hdr, &mut bytes).unwrap();
        assert!(Histogram::from_base64(&BASE64.encode(bytes)).is_err());
    }

    #[test]
    fn an_empty_histogram_has_no_statistics() {
        let json = serde_json::to_value(of(&[]).summary()).unwrap();
        assert!(
            json.as_object().unwrap().iter().all(|(name, value)| name == "count" || value.is_null()),
            "{json}"
        );
        assert!(of(&[1_000]).summary().percentiles.p50_us.is_some());
    }

    #[test]
    fn counting_a_time_zero_times_changes_nothing() {
        let mut histogram = of(&[1_000_000]);
        histogram.record_n_ns(5_000_000, 0);
        assert_eq!(histogram, of(&[1_000_000]));
    }

    proptest! {
        #[test]
        fn a_serialized_histogram_can_be_deserialized(times in prop::collection::vec(0u64..4_000_000_000_000, 0..50)) {
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
