//! The statistics that the bars need.

/// The median; for an even number of values, the mean of the middle two; 0 without values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// The smallest and the largest value; `(0, 0)` without values.
pub fn spread(values: &[f64]) -> (f64, f64) {
    let (low, high) =
        values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &v| (low.min(v), high.max(v)));
    if values.is_empty() { (0.0, 0.0) } else { (low, high) }
}

/// The ranks (1 to `n`) between which the true quantile lies with at least this confidence, for any distribution: the number of samples
/// below the quantile is binomial with `n` and `quantile`.
///
/// The order-statistic interval of H. A. David and H. N. Nagaraja, *Order Statistics*, 3rd ed., 7.1, with equal tails. If no sample is
/// large (or small) enough, the bound is the last (first) rank.
pub fn quantile_ranks(n: u64, quantile: f64, confidence: f64) -> (u64, u64) {
    let tail = (1.0 - confidence) / 2.0;
    let cdf = BinomialCdf::new(n, quantile);
    // Lower rank l: P(B < l) = P(B <= l - 1) <= tail. Upper rank u: P(B <= u - 1) >= 1 - tail.
    let mut lower = 0;
    let mut upper = n;
    for (successes, probability) in cdf.enumerate() {
        let rank = successes as u64 + 1;
        if probability <= tail {
            lower = rank;
        }
        if probability >= 1.0 - tail {
            upper = rank;
            break;
        }
    }
    (lower.clamp(1, n.max(1)), upper.clamp(1, n.max(1)))
}

/// P(B <= k) for k = 0, 1, …, n. Computes with logarithms of the terms, because (1 − p)ⁿ underflows early.
struct BinomialCdf {
    n: u64,
    next: u64,
    ln_term: f64,
    ln_odds: f64,
    sum: f64,
}

impl BinomialCdf {
    fn new(n: u64, p: f64) -> Self {
        Self { n, next: 0, ln_term: n as f64 * (1.0 - p).ln(), ln_odds: (p / (1.0 - p)).ln(), sum: 0.0 }
    }
}

impl Iterator for BinomialCdf {
    type Item = f64;

    fn next(&mut self) -> Option<f64> {
        let k = self.next;
        if k > self.n {
            return None;
        }
        self.sum += self.ln_term.exp();
        self.ln_term += ((self.n - k) as f64 / (k + 1) as f64).ln() + self.ln_odds;
        self.next += 1;
        Some(self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spreads() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
        assert_eq!(spread(&[3.0, 1.0, 2.0]), (1.0, 3.0));
    }

    #[test]
    fn ranks_of_the_textbook() {
        // n = 10, median: the ranks 2 and 9 contain it with 97.9 %, but 3 and 8 with only 89.1 %.
        assert_eq!(quantile_ranks(10, 0.5, 0.95), (2, 9));
        // n = 100, median: the ranks 40 and 61. The tails are P(B<=39) = 0.0176 and P(B<=40) = 0.0284.
        assert_eq!(quantile_ranks(100, 0.5, 0.95), (40, 61));
    }

    #[test]
    fn large_samples_approach_the_normal_interval() {
        let (n, q) = (10_000_u64, 0.99);
        let (lower, upper) = quantile_ranks(n, q, 0.95);
        let half_width = 1.96 * (n as f64 * q * (1.0 - q)).sqrt();
        assert!((lower as f64 - (9_900.0 - half_width)).abs() < 3.0, "{lower}");
        assert!((upper as f64 - (9_900.0 + half_width)).abs() < 3.0, "{upper}");
    }

    #[test]
    fn few_samples_bound_a_far_quantile_by_the_last_one() {
        assert_eq!(quantile_ranks(10, 0.999, 0.95).1, 10);
    }
}
