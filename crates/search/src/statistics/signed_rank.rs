//! Wilcoxon's signed-rank test: are differences centred on zero? Assumes only that they are symmetric. Differences
//! within blocks of two identical targets are symmetric, whatever the noise.
//!
//! F. Wilcoxon, "Individual comparisons by ranking methods", 1945; the interval by J. L. Hodges and E. L.
//! Lehmann, 1963, and J. W. Tukey; all as in M. Hollander, D. A. Wolfe and E. Chicken, *Nonparametric
//! Statistical Methods*, 3rd ed., 3.1 to 3.3.

use statrs::distribution::{ContinuousCDF, Normal};

use super::{
    sample::Sample,
    student::{Estimate, ends, excluded, two_sided},
};

/// Largest number of values for which the distribution is computed exactly.
const MAX_EXACT_VALUES: usize = 100;

/// Largest sample for which this test is used, because it computes every pair.
pub(super) const MAX_DIFFERENCES: usize = 500;

/// The smallest two-sided p-value that `n` differences can have.
pub(super) fn min_p_value(n: usize) -> f64 {
    (2.0 * 0.5_f64.powi(n.min(1_000) as i32)).min(1.0)
}

/// The Hodges–Lehmann estimate of the differences' centre, with its interval and p-value.
pub(super) fn estimate(differences: &Sample, alpha: f64) -> Estimate {
    let averages = walsh_averages(differences);
    let (outside, confidence) = excluded_per_side(differences.len(), alpha);
    let (low, high) = ends(&averages, outside);
    Estimate {
        shift: super::sample::median_of_sorted(&averages),
        low,
        high,
        confidence,
        p_value: p_value(differences),
    }
}

/// The lower end of the interval that excludes `outside` ordered averages of pairs on each side.
pub(super) fn lower_end(differences: &Sample, outside: usize) -> f64 {
    ends(&walsh_averages(differences), outside).0
}

/// The number of ordered averages of pairs outside the interval on each side, and the interval's confidence.
pub(super) fn excluded_per_side(n: usize, alpha: f64) -> (usize, f64) {
    if n > MAX_EXACT_VALUES {
        let (mean, deviation) = (moment(n, 4.0), (moment(n, 24.0) * (2 * n + 1) as f64).sqrt());
        let z = Normal::standard().inverse_cdf(1.0 - alpha / 2.0);
        return ((mean - z * deviation - 0.5).max(0.0) as usize, 1.0 - alpha);
    }
    let ranks: Vec<usize> = (1..=n).collect();
    excluded(&sums(&ranks), alpha, min_p_value(n))
}

/// The two-sided p-value, exact also with ties: computed over all combinations of signs of the absolute differences.
/// Zeros are ranked but have no sign: J. W. Pratt, 1959.
fn p_value(differences: &Sample) -> f64 {
    let sizes: Vec<f64> = differences.values().iter().map(|difference| difference.abs()).collect();
    let doubled = doubled_ranks(&sizes);
    let signed: Vec<usize> =
        doubled.iter().zip(differences.values()).filter(|(_, d)| **d != 0.0).map(|(&rank, _)| rank).collect();
    let positive: usize =
        doubled.iter().zip(differences.values()).filter(|(_, d)| **d > 0.0).map(|(&rank, _)| rank).sum();
    if signed.is_empty() {
        return 1.0;
    }
    if signed.len() <= MAX_EXACT_VALUES {
        return two_sided(&sums(&signed), positive);
    }
    let mean = signed.iter().sum::<usize>() as f64 / 2.0;
    let deviation = signed.iter().map(|&rank| (rank as f64).powi(2)).sum::<f64>().sqrt() / 2.0;
    // The sum of doubled ranks has steps of 2, so the continuity correction is 1.
    let z = ((positive as f64 - mean).abs() - 1.0).max(0.0) / deviation;
    (2.0 * Normal::standard().sf(z)).min(1.0)
}

/// Twice the rank of each value. It is a whole number even for ties, which share the mean of their ranks.
pub(super) fn doubled_ranks(values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&i, &j| values[i].total_cmp(&values[j]));
    let mut doubled = vec![0; values.len()];
    let mut start = 0;
    for tied in order.chunk_by(|&i, &j| values[i] == values[j]) {
        for &index in tied {
            doubled[index] = 2 * start + tied.len() + 1;
        }
        start += tied.len();
    }
    doubled
}

/// The probability of each sum of positive ranks, if every sign is equally likely.
fn sums(ranks: &[usize]) -> Vec<f64> {
    let mut probabilities = vec![0.0; ranks.iter().sum::<usize>() + 1];
    probabilities[0] = 1.0;
    let mut max_sum = 0;
    for &rank in ranks {
        max_sum += rank;
        for sum in (0..=max_sum).rev() {
            let with = if sum >= rank { probabilities[sum - rank] } else { 0.0 };
            probabilities[sum] = (probabilities[sum] + with) / 2.0;
        }
    }
    probabilities
}

fn walsh_averages(differences: &Sample) -> Vec<f64> {
    let sorted = differences.sorted();
    let mut averages: Vec<f64> = Vec::with_capacity(sorted.len() * (sorted.len() + 1) / 2);
    for (i, x) in sorted.iter().enumerate() {
        averages.extend(sorted[i..].iter().map(|y| (x + y) / 2.0));
    }
    averages.sort_unstable_by(f64::total_cmp);
    averages
}

fn moment(n: usize, divisor: f64) -> f64 {
    n as f64 * (n + 1) as f64 / divisor
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EIGHT: [f64; 8] = [0.041, -0.012, 0.055, 0.023, 0.031, -0.004, 0.062, 0.018];

    fn sample(values: &[f64]) -> Sample {
        Sample::new(values).unwrap()
    }

    /// scipy 1.17: `wilcoxon(d, method="exact")`; the centre and ends are the median and the 4th and 33rd
    /// of the 36 averages of pairs by numpy, the confidence 1 − 2 · 5/256 from counting all 256 signs.
    #[test]
    fn eight_differences_as_in_scipy() {
        let estimate = estimate(&sample(&EIGHT), 0.05);
        assert!((estimate.p_value - 0.039_062_5).abs() < 1e-12);
        assert!((estimate.shift - 0.026_25).abs() < 1e-12);
        assert!((estimate.low - 0.003).abs() < 1e-12 && (estimate.high - 0.0515).abs() < 1e-12);
        assert!((estimate.confidence - 0.960_937_5).abs() < 1e-12);
    }

    /// scipy 1.17: `wilcoxon([3, -1, 2, 2, 0, 4, -2, 5, 0, 1], zero_method="pratt",
    /// method=PermutationMethod(n_resamples=10**7))`, which takes all signs.
    #[test]
    fn ties_and_zeros_as_in_scipy() {
        let p = p_value(&sample(&[3.0, -1.0, 2.0, 2.0, 0.0, 4.0, -2.0, 5.0, 0.0, 1.0]));
        assert!((p - 0.117_187_5).abs() < 1e-12, "{p}");
        assert_eq!(p_value(&sample(&[0.0; 5])), 1.0);
    }

    /// scipy 1.17: `d = np.round(np.sin(np.arange(150) * 1.7) * 10 + 1.2, 1)`, `wilcoxon(d,
    /// zero_method="pratt", correction=True, method="approx")`.
    #[test]
    fn many_differences_as_in_scipy() {
        let many: Vec<f64> =
            (0..150).map(|i| (((f64::from(i) * 1.7).sin() * 10.0 + 1.2) * 10.0).round() / 10.0).collect();
        let p = p_value(&sample(&many));
        assert!((p - 0.014_604_175_405).abs() < 1e-9, "{p}");
    }

    #[test]
    fn the_approximation_continues_the_exact_distribution() {
        let ((exact, _), (approximate, _)) =
            (excluded_per_side(MAX_EXACT_VALUES, 0.05), excluded_per_side(MAX_EXACT_VALUES + 1, 0.05));
        let step = approximate as f64 - exact as f64;
        assert!((0.0..60.0).contains(&step), "{exact} then {approximate}");
    }

    #[test]
    fn one_difference_has_an_interval_without_confidence() {
        let one = estimate(&sample(&[0.3]), 0.05);
        assert_eq!((one.low, one.high, one.confidence, one.p_value), (0.3, 0.3, 0.0, 1.0));
    }

    proptest! {
        #[test]
        fn interval_and_p_value_agree(values in prop::collection::vec(-1.0..1.0, 1..40)) {
            let estimate = estimate(&sample(&values), 0.05);
            prop_assert!(estimate.low <= estimate.shift && estimate.shift <= estimate.high);
            if estimate.confidence >= 0.95 {
                let outside = estimate.low > 0.0 || estimate.high < 0.0;
                prop_assert_eq!(outside, estimate.p_value <= 0.05 + 1e-12, "{:?}", estimate);
            }
        }
    }
}
