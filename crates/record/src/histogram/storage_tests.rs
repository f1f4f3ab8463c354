//! Tests that packed histograms and those with all bins give the same results.

use hdrhistogram::serialization::Deserializer;
use proptest::prelude::*;

use super::*;

pub(super) fn of(times_ns: &[u64]) -> Histogram {
    let mut histogram = Histogram::default();
    times_ns.iter().for_each(|&ns| histogram.record_ns(ns));
    histogram
}

fn packed(mut histogram: Histogram) -> Histogram {
    histogram.pack();
    assert!(matches!(histogram.0, Storage::Packed(_)));
    histogram
}

/// Checks that every method gives the same result for both histograms, and that they are equal.
fn assert_alike(live: &Histogram, packed: &Histogram, probes_ns: &[u64]) {
    assert!(matches!((&live.0, &packed.0), (Storage::Full(_), Storage::Packed(_))));
    assert_eq!(live, packed);
    assert_eq!(packed, live);
    assert_eq!(live.is_empty(), packed.is_empty());
    assert_eq!(live.summary(), packed.summary());
    assert_eq!(live.mean_ns().to_bits(), packed.mean_ns().to_bits());
    assert_eq!(live.stdev_ns().to_bits(), packed.stdev_ns().to_bits());
    assert_eq!((live.min_ns(), live.max_ns()), (packed.min_ns(), packed.max_ns()));
    let ninths = (0..=9).map(|i| f64::from(i) / 9.0);
    for quantile in ninths.chain([-1.0, 1e-9, 0.999_999, 2.0, f64::NAN]) {
        assert_eq!(live.quantile_ns(quantile), packed.quantile_ns(quantile), "{quantile}");
    }
    for &ns in probes_ns.iter().chain(&[0, 63, 64, 131_071, 131_072, HIGHEST_NS, u64::MAX]) {
        assert_eq!(live.count_up_to_ns(ns), packed.count_up_to_ns(ns), "{ns} ns");
    }
    assert_eq!(*live.to_hdr(), *packed.to_hdr());
    assert_eq!(live.to_base64(), packed.to_base64());
    let json = serde_json::to_string(live).unwrap();
    assert_eq!(json, serde_json::to_string(packed).unwrap());
    let read: Histogram = serde_json::from_str(&json).unwrap();
    assert!(matches!(read.0, Storage::Packed(_)));
    let bytes = BASE64.decode(live.to_base64().unwrap()).unwrap();
    let by_library: Hdr = Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
    assert_eq!(read, Histogram(Storage::Packed(Packed::of(&by_library))));
    assert_eq!(read.count(), live.count());
    assert_eq!(read.to_base64(), live.to_base64());
}

/// Times of all magnitudes, including 0 and more than 1 h. All powers of two are equally likely.
pub(super) fn times() -> impl Strategy<Value = Vec<u64>> {
    let time = (0_u32..=46, any::<u64>()).prop_map(|(bits, any)| any & ((1 << bits) - 1));
    prop::collection::vec(time, 0..200)
}

#[test]
fn both_storages_agree_on_edge_cases() {
    let too_large = HIGHEST_NS + 1;
    let edges: [&[u64]; 9] = [
        &[],
        &[0],
        &[1],
        &[0, 63],
        &[64],
        &[5_000_000; 3],
        &[HIGHEST_NS],
        &[too_large, u64::MAX],
        &[0, 0, u64::MAX],
    ];
    for times_ns in edges {
        let live = of(times_ns);
        assert_alike(&live, &packed(live.clone()), times_ns);
    }
}

#[test]
fn counts_saturate() {
    let mut live = of(&[1_000]);
    live.record_n_ns(1_000_000, u64::MAX - 10);
    let other = of(&[1_000_000; 20]);
    let mut merged = packed(live.clone());
    merged.merge(&packed(other.clone()));
    live.merge(&other);
    assert_eq!(live, merged);
    assert_eq!(merged.count(), u64::MAX);
}

#[test]
fn a_packed_histogram_can_be_recorded_into_and_cleared() {
    let mut histogram = packed(of(&[1_000, 2_000_000]));
    histogram.record_ns(3_000);
    assert_eq!(histogram, of(&[1_000, 3_000, 2_000_000]));
    histogram.pack();
    histogram.record_n_ns(0, 2);
    assert_eq!(histogram, of(&[0, 0, 1_000, 3_000, 2_000_000]));
    histogram.pack();
    histogram.clear();
    assert_eq!(histogram, Histogram::default());
    histogram.record_ns(7_000_000);
    assert_eq!(histogram, of(&[7_000_000]));
}

proptest! {
    #[test]
    fn both_storages_agree(times_ns in times()) {
        let live = of(&times_ns);
        assert_alike(&live, &packed(live.clone()), &times_ns);
    }

    #[test]
    fn statistics_are_those_of_the_counted_times(times_ns in times()) {
        let mut sorted = times_ns.iter().map(|&ns| ns % HIGHEST_NS).collect::<Vec<u64>>();
        let histogram = of(&sorted);
        sorted.sort_unstable();
        let (n, at) = (sorted.len(), |index: usize| sorted.get(index).copied().unwrap_or(0));
        let is_near = |found: u64, true_ns: u64| found.abs_diff(true_ns) <= true_ns / 500 + 64;
        prop_assert_eq!(histogram.count(), n as u64);
        prop_assert!(is_near(histogram.min_ns(), at(0)), "{}", histogram.min_ns());
        prop_assert!(is_near(histogram.max_ns(), at(n.saturating_sub(1))), "{}", histogram.max_ns());
        prop_assert!(is_near(histogram.quantile_ns(0.5), at(n.div_ceil(2).saturating_sub(1))));
        let mean = sorted.iter().map(|&ns| ns as f64).sum::<f64>() / n.max(1) as f64;
        let squares = sorted.iter().map(|&ns| (ns as f64 - mean).powi(2)).sum::<f64>();
        let stdev = (squares / n.max(1) as f64).sqrt();
        prop_assert!(is_near(histogram.mean_ns() as u64, mean as u64), "{} {mean}", histogram.mean_ns());
        let off = (histogram.stdev_ns() - stdev).abs();
        prop_assert!(off <= (mean + stdev) / 500.0 + 64.0, "{} {stdev}", histogram.stdev_ns());
    }

    #[test]
    fn merging_any_two_storages_equals_recording_all(a in times(), b in times()) {
        let all: Vec<u64> = a.iter().chain(&b).copied().collect();
        let (a, b, all) = (of(&a), of(&b), of(&all));
        for this in [a.clone(), packed(a)] {
            for other in [b.clone(), packed(b.clone())] {
                let mut merged = this.clone();
                merged.merge(&other);
                prop_assert_eq!(&merged, &all);
                prop_assert_eq!(merged.summary(), all.summary());
                prop_assert_eq!(merged.to_base64(), all.to_base64());
                prop_assert_eq!(merged.without(&other).unwrap().to_base64(), this.to_base64());
                prop_assert_eq!(this.without(&merged).is_some(), other.is_empty());
            }
        }
    }

    #[test]
    fn different_counts_are_unequal_in_any_storage(times_ns in times(), more_ns in 0_u64..HIGHEST_NS) {
        let less = of(&times_ns);
        let mut more = less.clone();
        more.record_ns(more_ns);
        prop_assert_ne!(&less, &packed(more.clone()));
        prop_assert_ne!(&packed(less.clone()), &more);
        prop_assert_ne!(packed(less), packed(more));
    }
}
