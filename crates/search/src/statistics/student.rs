//! Student's t, of paired differences and of two separate samples. Believes that the values are
//! normal (those of ratios: that their logarithms are), and in turn needs fewer of them than ranks do.
//!
//! With values as measurements have them, now and then far out, it errs on the side of showing nothing:
//! Y. Benjamini, "Is the t test really conservative when the parent distribution is long-tailed?", 1983.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::{rank_sum, sample::Sample, signed_rank};

/// A shift with its interval and p-value, on whatever scale the values have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Estimate {
    pub shift: f64,
    pub low: f64,
    pub high: f64,
    /// The confidence that the interval really has.
    pub confidence: f64,
    /// Two-sided.
    pub p_value: f64,
}

/// The mean of at least 2 differences.
pub(super) fn of_differences(differences: &Sample, alpha: f64) -> Estimate {
    let n = differences.len() as f64;
    let variance = differences.variance().expect("a t test is given two or more values");
    let least_p = signed_rank::least_p(differences.len());
    estimate(differences.mean(), (variance / n).sqrt(), n - 1.0, alpha, least_p)
}

/// The difference of the means of two samples of at least 2 values each, their variances not assumed
/// equal: B. L. Welch, 1947.
pub(super) fn of_samples(a: &Sample, b: &Sample, alpha: f64) -> Estimate {
    let of_mean = |sample: &Sample| {
        sample.variance().expect("a t test is given two or more values") / sample.len() as f64
    };
    let (of_a, of_b) = (of_mean(a), of_mean(b));
    // By shares: squares of variances leave the range of numbers where values themselves are within it.
    let share = if of_a + of_b > 0.0 { of_a / (of_a + of_b) } else { 0.5 };
    let freedom = 1.0 / (share.powi(2) / (a.len() - 1) as f64 + (1.0 - share).powi(2) / (b.len() - 1) as f64);
    estimate(b.mean() - a.mean(), (of_a + of_b).sqrt(), freedom, alpha, rank_sum::least_p(a.len(), b.len()))
}

/// The two-sided p-value of a sum, from the probability of each.
pub(super) fn two_sided(probabilities: &[f64], sum: usize) -> f64 {
    let (below, above) =
        (probabilities[..=sum].iter().sum::<f64>(), probabilities[sum..].iter().sum::<f64>());
    (2.0 * below.min(above)).min(1.0)
}

/// The quantile of Student's distribution, 0.5 to 1.
pub(super) fn quantile(probability: f64, freedom: f64) -> f64 {
    student(freedom).inverse_cdf(probability)
}

fn estimate(shift: f64, error: f64, freedom: f64, alpha: f64, least_p: f64) -> Estimate {
    // Values without spread tell nothing of the noise; then only the order of them counts.
    let p_value = match (error > 0.0, shift == 0.0) {
        (true, _) => (2.0 * student(freedom).sf((shift / error).abs())).min(1.0),
        (false, true) => 1.0,
        (false, false) => least_p,
    };
    let reach = quantile(1.0 - alpha / 2.0, freedom) * error;
    Estimate { shift, low: shift - reach, high: shift + reach, confidence: 1.0 - alpha, p_value }
}

fn student(freedom: f64) -> StudentsT {
    StudentsT::new(0.0, 1.0, freedom).expect("the degrees of freedom are positive")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-9, "{found} is not {expected}");
    }

    /// scipy 1.17: `r = ttest_1samp(d, 0)`, `r.pvalue`, `r.confidence_interval(0.95)`.
    #[test]
    fn differences_as_in_scipy() {
        let differences = Sample::new(&[0.041, -0.012, 0.055, 0.023, 0.031, -0.004, 0.062, 0.018]).unwrap();
        let estimate = of_differences(&differences, 0.05);
        close(estimate.p_value, 0.023_333_540_205_605_578);
        close(estimate.low, 0.004_858_973_641_363_132);
        close(estimate.high, 0.048_641_026_358_636_87);
    }

    /// scipy 1.17: `r = ttest_ind(b, a, equal_var=False)`, `r.pvalue`, `r.confidence_interval(0.95)`.
    #[test]
    fn separate_samples_as_in_scipy() {
        let a = Sample::new(&[10.2, 9.8, 10.5, 10.1, 9.9, 10.0]).unwrap();
        let b = Sample::new(&[10.9, 10.4, 11.2, 10.3, 10.8, 10.7, 11.0]).unwrap();
        let estimate = of_samples(&a, &b, 0.05);
        close(estimate.p_value, 0.001_356_410_512_014_509_3);
        close(estimate.low, 0.325_684_302_696_51);
        close(estimate.high, 1.021_934_744_922_534_7);
    }

    /// The degrees of freedom are a ratio of variances: the unit of the values cannot change them.
    #[test]
    fn separate_samples_of_any_size_as_their_multiples() {
        let (a, b) = ([1.02, 0.98, 1.05, 1.01, 0.99], [1.09, 1.04, 1.12, 1.03, 1.08]);
        let p_value = |unit: f64| {
            let times = |values: [f64; 5]| Sample::new(&values.map(|value| value * unit)).unwrap();
            of_samples(&times(a), &times(b), 0.05).p_value
        };
        for unit in [1e149, 1e100, 1e-100, 1e-149] {
            close(p_value(unit), p_value(1.0));
        }
    }

    #[test]
    fn values_without_spread_are_judged_by_their_order_alone() {
        let equal = Sample::new(&[0.5; 4]).unwrap();
        let estimate = of_differences(&equal, 0.05);
        assert_eq!((estimate.low, estimate.high, estimate.p_value), (0.5, 0.5, 0.125));
        assert_eq!(of_differences(&Sample::new(&[0.0; 4]).unwrap(), 0.05).p_value, 1.0);
        let apart = of_samples(&equal, &Sample::new(&[0.7; 4]).unwrap(), 0.05);
        assert!((apart.p_value - 2.0 / 70.0).abs() < 1e-12);
    }
}
