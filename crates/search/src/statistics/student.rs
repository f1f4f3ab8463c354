//! Student's t test, of paired differences and of two separate samples. Assumes normal values (for ratios: normal
//! logarithms) and therefore needs fewer values than rank tests.
//!
//! Measurements have long-tailed values, for which the test is conservative: Y. Benjamini, "Is the t test really
//! conservative when the parent distribution is long-tailed?", 1983.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::{rank_sum, sample::Sample, signed_rank};

/// A shift with its interval and p-value, on the scale of the values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Estimate {
    pub shift: f64,
    pub low: f64,
    pub high: f64,
    /// The actual confidence of the interval.
    pub confidence: f64,
    /// Two-sided p-value.
    pub p_value: f64,
}

/// Estimates the mean of at least 2 differences.
pub(super) fn of_differences(differences: &Sample, alpha: f64) -> Estimate {
    let n = differences.len() as f64;
    let variance = differences.variance().expect("a t test is given two or more values");
    let min_p_value = signed_rank::min_p_value(differences.len());
    estimate(differences.mean(), (variance / n).sqrt(), n - 1.0, alpha, min_p_value)
}

/// Estimates the difference of the means of two samples of at least 2 values each, without the assumption of equal
/// variances: B. L. Welch, 1947.
pub(super) fn of_samples(a: &Sample, b: &Sample, alpha: f64) -> Estimate {
    let variance_of_mean = |sample: &Sample| {
        sample.variance().expect("a t test is given two or more values") / sample.len() as f64
    };
    let (of_a, of_b) = (variance_of_mean(a), variance_of_mean(b));
    // Uses shares, because squares of variances may overflow even if the values do not.
    let share = if of_a + of_b > 0.0 { of_a / (of_a + of_b) } else { 0.5 };
    let degrees = 1.0 / (share.powi(2) / (a.len() - 1) as f64 + (1.0 - share).powi(2) / (b.len() - 1) as f64);
    estimate(
        b.mean() - a.mean(),
        (of_a + of_b).sqrt(),
        degrees,
        alpha,
        rank_sum::min_p_value(a.len(), b.len()),
    )
}

/// The two-sided p-value of `sum`. `probabilities` holds the probability of each sum.
pub(super) fn two_sided(probabilities: &[f64], sum: usize) -> f64 {
    let (below, above) =
        (probabilities[..=sum].iter().sum::<f64>(), probabilities[sum..].iter().sum::<f64>());
    (2.0 * below.min(above)).min(1.0)
}

/// The largest sum that an exact interval excludes on each side, and the interval's confidence. `probabilities` holds
/// the probability of each sum.
pub(super) fn excluded(probabilities: &[f64], alpha: f64, min_p_value: f64) -> (usize, f64) {
    let mut below = 0.0;
    let mut found = (0, 1.0 - min_p_value);
    for (sum, probability) in probabilities.iter().enumerate() {
        below += probability;
        if below > alpha / 2.0 + 1e-12 {
            break;
        }
        found = (sum, 1.0 - 2.0 * below);
    }
    found
}

/// The ends of the interval that excludes `outside` of the ordered values on each side.
pub(super) fn ends(ordered: &[f64], outside: usize) -> (f64, f64) {
    let outside = outside.min((ordered.len() - 1) / 2);
    (ordered[outside], ordered[ordered.len() - 1 - outside])
}

/// A quantile of Student's distribution; `probability` is 0.5 to 1.
pub(super) fn quantile(probability: f64, degrees: f64) -> f64 {
    student(degrees).inverse_cdf(probability)
}

fn estimate(shift: f64, error: f64, degrees: f64, alpha: f64, min_p_value: f64) -> Estimate {
    // Equal values give no estimate of the noise, so the p-value is the smallest that their number allows.
    let p_value = match (error > 0.0, shift == 0.0) {
        (true, _) => (2.0 * student(degrees).sf((shift / error).abs())).min(1.0),
        (false, true) => 1.0,
        (false, false) => min_p_value,
    };
    let margin = quantile(1.0 - alpha / 2.0, degrees) * error;
    Estimate { shift, low: shift - margin, high: shift + margin, confidence: 1.0 - alpha, p_value }
}

fn student(degrees: f64) -> StudentsT {
    StudentsT::new(0.0, 1.0, degrees).expect("the degrees of freedom are positive")
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

    /// The degrees of freedom are a ratio of variances, so they do not depend on the unit of the values.
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
