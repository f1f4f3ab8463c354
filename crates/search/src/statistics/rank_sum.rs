//! The rank-sum test of Wilcoxon, Mann and Whitney: is one of two separate samples shifted? Assumes only that both
//! distributions have the same shape.
//!
//! H. B. Mann and D. R. Whitney, "On a test of whether one of two random variables is stochastically
//! larger than the other", 1947; the interval of the shift by Hodges and Lehmann, 1963; all as in
//! Hollander, Wolfe and Chicken, *Nonparametric Statistical Methods*, 3rd ed., 4.1 to 4.3.

use statrs::distribution::{ContinuousCDF, Normal};

use super::{
    sample::Sample,
    signed_rank::doubled_ranks,
    student::{Estimate, ends, excluded, two_sided},
};

/// Largest number of values in both samples for which the distribution is computed exactly.
const MAX_EXACT_VALUES: usize = 50;

/// Largest number of pairs for which this test is used, because it computes every pair.
pub(super) const MAX_PAIRS: usize = 250_000;

/// The smallest two-sided p-value that samples of these sizes can have.
pub(super) fn min_p_value(a: usize, b: usize) -> f64 {
    (2.0 / choose(a + b, a)).min(1.0)
}

/// The Hodges–Lehmann estimate of the shift from A to B, with its interval and p-value.
pub(super) fn estimate(a: &Sample, b: &Sample, alpha: f64) -> Estimate {
    let differences = differences(a, b);
    let (outside, confidence) = excluded_per_side(a.len(), b.len(), alpha);
    let (low, high) = ends(&differences, outside);
    Estimate {
        shift: super::sample::median_of_sorted(&differences),
        low,
        high,
        confidence,
        p_value: p_value(a, b),
    }
}

/// The lower end of the interval that excludes `outside` ordered differences on each side.
pub(super) fn lower_end(a: &Sample, b: &Sample, outside: usize) -> f64 {
    ends(&differences(a, b), outside).0
}

/// The number of ordered differences outside the interval on each side, and the interval's confidence.
pub(super) fn excluded_per_side(a: usize, b: usize, alpha: f64) -> (usize, f64) {
    if a + b > MAX_EXACT_VALUES {
        let (mean, variance) = ((a * b) as f64 / 2.0, (a * b * (a + b + 1)) as f64 / 12.0);
        let z = Normal::standard().inverse_cdf(1.0 - alpha / 2.0);
        return ((mean - z * variance.sqrt() - 0.5).max(0.0) as usize, 1.0 - alpha);
    }
    let ranks: Vec<usize> = (1..=a + b).collect();
    let least_sum = b * (b + 1) / 2;
    excluded(&sums(&ranks, b)[least_sum..], alpha, min_p_value(a, b))
}

/// The two-sided p-value, exact even with ties: computed over all ways to divide the given values into two samples.
fn p_value(a: &Sample, b: &Sample) -> f64 {
    let doubled = doubled_ranks(&[a.values(), b.values()].concat());
    let of_b: usize = doubled[a.len()..].iter().sum();
    if doubled.len() <= MAX_EXACT_VALUES {
        return two_sided(&sums(&doubled, b.len()), of_b);
    }
    let n = doubled.len() as f64;
    let mean_rank = doubled.iter().sum::<usize>() as f64 / n;
    let squares: f64 = doubled.iter().map(|&rank| (rank as f64 - mean_rank).powi(2)).sum();
    if squares == 0.0 {
        return 1.0;
    }
    let deviation = (a.len() as f64 * b.len() as f64 * squares / (n * (n - 1.0))).sqrt();
    let z = ((of_b as f64 - b.len() as f64 * mean_rank).abs() - 1.0).max(0.0) / deviation;
    (2.0 * Normal::standard().sf(z)).min(1.0)
}

/// The probability of each sum of `taken` ranks, if every choice of ranks is equally likely.
fn sums(ranks: &[usize], taken: usize) -> Vec<f64> {
    let mut ways = vec![vec![0.0; ranks.iter().sum::<usize>() + 1]; taken + 1];
    ways[0][0] = 1.0;
    let mut max_sum = 0;
    for (seen, &rank) in ranks.iter().enumerate() {
        max_sum += rank;
        for count in (1..=taken.min(seen + 1)).rev() {
            let (fewer, more) = ways.split_at_mut(count);
            for (way, without) in more[0][rank..=max_sum].iter_mut().zip(&fewer[count - 1]) {
                *way += without;
            }
        }
    }
    let all = choose(ranks.len(), taken);
    ways.swap_remove(taken).into_iter().map(|ways| ways / all).collect()
}

fn differences(a: &Sample, b: &Sample) -> Vec<f64> {
    let mut differences: Vec<f64> =
        b.values().iter().flat_map(|y| a.values().iter().map(move |x| y - x)).collect();
    differences.sort_unstable_by(f64::total_cmp);
    differences
}

/// The binomial coefficient; infinite if it exceeds the range of a float.
fn choose(n: usize, k: usize) -> f64 {
    let mut ways = 1.0_f64;
    for i in 1..=k.min(n - k) {
        ways = ways * (n + 1 - i) as f64 / i as f64;
        if ways.is_infinite() {
            break;
        }
    }
    ways.round()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample(values: &[f64]) -> Sample {
        Sample::new(values).unwrap()
    }

    /// scipy 1.17: `mannwhitneyu(b, a, method="exact")`; the shift and its ends are the median and the 7th
    /// and 36th of the 42 differences by numpy (critical U of 6 and 7 values: 6).
    #[test]
    fn six_and_seven_values_as_in_scipy() {
        let a = sample(&[10.2, 9.8, 10.5, 10.1, 9.9, 10.0]);
        let b = sample(&[10.9, 10.4, 11.2, 10.3, 10.8, 10.7, 11.0]);
        let estimate = estimate(&a, &b, 0.05);
        assert!((estimate.p_value - 0.004_662_004_662).abs() < 1e-12);
        assert!((estimate.shift - 0.7).abs() < 1e-9);
        assert!((estimate.low - 0.3).abs() < 1e-9 && (estimate.high - 1.1).abs() < 1e-9);
        assert_eq!(excluded_per_side(6, 7, 0.05).0, 6);
    }

    /// scipy 1.17: `mannwhitneyu([2, 3, 4, 4, 5, 3], [1, 2, 2, 3, 3],
    /// method=PermutationMethod(n_resamples=10**7))`, which takes all ways to divide the values.
    #[test]
    fn ties_as_in_scipy() {
        let p = p_value(&sample(&[1.0, 2.0, 2.0, 3.0, 3.0]), &sample(&[2.0, 3.0, 4.0, 4.0, 5.0, 3.0]));
        assert!((p - 0.103_896_103_896).abs() < 1e-10, "{p}");
    }

    /// scipy 1.17: `mannwhitneyu(b, a, method="asymptotic")` of `a = np.round(np.sin(np.arange(40) * 1.3)
    /// * 5)` and `b = np.round(np.sin(np.arange(35) * 2.1) * 5 + 1)`.
    #[test]
    fn many_values_as_in_scipy() {
        let a: Vec<f64> = (0..40).map(|i| ((f64::from(i) * 1.3).sin() * 5.0).round()).collect();
        let b: Vec<f64> = (0..35).map(|i| ((f64::from(i) * 2.1).sin() * 5.0 + 1.0).round()).collect();
        let p = p_value(&sample(&a), &sample(&b));
        assert!((p - 0.198_800_547_762).abs() < 1e-9, "{p}");
        assert_eq!(p_value(&sample(&[1.0; 40]), &sample(&[1.0; 40])), 1.0);
    }

    #[test]
    fn the_approximation_excludes_about_as_many_as_all_ways_do() {
        for (a, b) in [(25, 26), (10, 50), (40, 35)] {
            for alpha in [0.05, 0.01] {
                let ranks: Vec<usize> = (1..=a + b).collect();
                let mut below = 0.0;
                let is_rare = |probability: &&f64| {
                    below += **probability;
                    below <= alpha / 2.0
                };
                let exact = sums(&ranks, b)[b * (b + 1) / 2..].iter().take_while(is_rare).count();
                let (outside, confidence) = excluded_per_side(a, b, alpha);
                assert!(
                    (exact.saturating_sub(4)..=exact).contains(&outside),
                    "{a}, {b}, {alpha}: {outside} for {exact}"
                );
                assert_eq!(confidence, 1.0 - alpha);
            }
        }
    }

    #[test]
    fn least_p_values() {
        for (a, b, least) in [(3, 3, 0.1), (4, 4, 2.0 / 70.0), (6, 6, 2.0 / 924.0), (1, 1, 1.0)] {
            assert!((min_p_value(a, b) - least).abs() < 1e-12);
        }
        assert_eq!(min_p_value(5_000, 5_000), 0.0);
    }

    proptest! {
        #[test]
        fn interval_and_p_value_agree(
            a in prop::collection::vec(-1.0..1.0, 1..25), b in prop::collection::vec(-1.0..1.0, 1..25)
        ) {
            let estimate = estimate(&sample(&a), &sample(&b), 0.05);
            prop_assert!(estimate.low <= estimate.shift && estimate.shift <= estimate.high);
            if estimate.confidence >= 0.95 {
                let outside = estimate.low > 0.0 || estimate.high < 0.0;
                prop_assert_eq!(outside, estimate.p_value <= 0.05 + 1e-12, "{:?}", estimate);
            }
        }
    }
}
