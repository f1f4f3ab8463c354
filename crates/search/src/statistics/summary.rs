//! The summary of repeated runs: the median, a distribution-free interval of the median, and warnings.

use record::Warning;
use statrs::distribution::{Binomial, DiscreteCDF};

use super::sample::{Confidence, Sample, SampleError};

/// Values with a larger modified z-score are outliers: B. Iglewicz and D. C. Hoaglin, *How to Detect and Handle
/// Outliers*, 1993.
const MAX_Z_SCORE: f64 = 3.5;
/// With fewer values than this, none is reported as an outlier.
const MIN_VALUES_FOR_OUTLIERS: usize = 5;

/// The median of repeated runs with its interval, and warnings.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The median.
    pub median: f64,
    /// Lower end of the median's interval.
    pub low: f64,
    /// Upper end of the median's interval.
    pub high: f64,
    /// The actual confidence of the interval: at least the requested one, or less with a warning.
    pub confidence: f64,
    /// `few_values` if `confidence` is less than requested; `outliers` if there are any. All figures include the
    /// outliers.
    pub warnings: Vec<Warning>,
}

/// Summarises the values of independent runs.
///
/// The ends of the median's interval are order statistics. The number of independent values below the true median is
/// binomial, whatever their distribution: H. A. David and H. N. Nagaraja, *Order Statistics*, 3rd ed., 7.1. With too few
/// values the interval is the range of the values, with its actual confidence.
///
/// # Errors
/// When there are no values, or one is not finite.
pub fn summarize(values: &[f64], confidence: Confidence) -> Result<Summary, SampleError> {
    let sample = Sample::new(values)?;
    let (outside, actual) = excluded_per_side(sample.len(), confidence);
    let mut warnings = Vec::new();
    // The tolerance covers the rounding of sums of probabilities.
    if actual < confidence.value() - 1e-12 {
        warnings.push(few_values(sample.len(), confidence, actual));
    }
    let outliers = outliers(&sample);
    if !outliers.is_empty() {
        warnings.push(outlier_warning(&outliers, "runs"));
    }
    Ok(Summary {
        median: sample.median(),
        low: sample.sorted()[outside],
        high: sample.sorted()[sample.len() - 1 - outside],
        confidence: actual,
        warnings,
    })
}

/// The number of values outside the median's interval on each side, and the interval's confidence.
fn excluded_per_side(n: usize, requested: Confidence) -> (usize, f64) {
    let below = Binomial::new(0.5, n as u64).expect("a half is a probability");
    let is_far_enough = |outside: &u64| below.cdf(*outside) <= requested.alpha() / 2.0 + 1e-12;
    let outside = (0..n as u64).take_while(is_far_enough).last().unwrap_or(0);
    (outside as usize, (below.cdf(n as u64 - 1 - outside) - below.cdf(outside)).max(0.0))
}

fn few_values(n: usize, requested: Confidence, actual: f64) -> Warning {
    // The range of n values misses the true median if all values are on the same side of it.
    let is_enough = |n: &i32| 1.0 - 2.0 * 0.5_f64.powi(*n) >= requested.value() - 1e-12;
    let min_values = (1..).find(is_enough).expect("a confidence is below 1");
    let (values, they_give) =
        if n == 1 { ("1 value".to_owned(), "it gives") } else { (format!("{n} values"), "they give") };
    Warning::new(
        "few_values",
        format!(
            "{values} cannot bound a median at {} confidence: {they_give} {}; use {min_values} or more",
            percent(requested.value()),
            percent(actual)
        ),
    )
}

/// A share as a percentage: `95 %`, `93.75 %`.
pub(super) fn percent(share: f64) -> String {
    let hundredths = (share * 1e4).round() / 100.0;
    format!("{hundredths} %")
}

/// Indices of the outliers: values whose modified z-score, 0.6745 (x − median) / MAD, is beyond ±3.5. If more than half of
/// the values are equal, the mean deviation takes the place of the MAD.
pub(super) fn outliers(sample: &Sample) -> Vec<usize> {
    if sample.len() < MIN_VALUES_FOR_OUTLIERS {
        return Vec::new();
    }
    let median = sample.median();
    let deviation = |value: &f64| (value - median).abs();
    let mean_deviation = sample.values().iter().map(deviation).sum::<f64>() / sample.len() as f64;
    let scale = match sample.median_deviation() {
        0.0 => mean_deviation * 1.253_314,
        median_deviation => median_deviation / 0.6745,
    };
    let far = |value: &f64| deviation(value) > MAX_Z_SCORE * scale;
    sample.values().iter().enumerate().filter(|(_, value)| far(value)).map(|(index, _)| index).collect()
}

pub(super) fn outlier_warning(positions: &[usize], what: &str) -> Warning {
    let numbers: Vec<String> = positions.iter().map(|index| (index + 1).to_string()).collect();
    Warning::new(
        "outliers",
        format!(
            "{what} {} (counted from 1) are far from the others and are kept; find out why",
            numbers.join(", ")
        ),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_distr::{Distribution, Exp1, LogNormal, StandardNormal};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    /// scipy 1.17: low is the largest rank with `binom.cdf(low - 1, n, 0.5) <= 0.025`, the confidence
    /// `binom.cdf(n - low, n, 0.5) - binom.cdf(low - 1, n, 0.5)`.
    #[test]
    fn ranks_and_confidences_of_the_textbook() {
        for (n, low, confidence) in [
            (6, 1, 0.96875),
            (10, 2, 0.978_515_625),
            (20, 6, 0.958_610_534_667_968_8),
            (100, 40, 0.964_799_799_782_295_2),
        ] {
            let (outside, c) = excluded_per_side(n, Confidence::default());
            assert_eq!(outside + 1, low, "n = {n}");
            assert!((c - confidence).abs() < 1e-9, "n = {n}: {c}");
        }
    }

    #[test]
    fn too_few_values_give_the_widest_interval_with_its_confidence() {
        let three = summarize(&[3.0, 1.0, 2.0], Confidence::default()).unwrap();
        assert_eq!((three.low, three.median, three.high), (1.0, 2.0, 3.0));
        assert!((three.confidence - 0.75).abs() < 1e-12);
        assert_eq!(
            three.warnings[0].message,
            "3 values cannot bound a median at 95 % confidence: they give 75 %; use 6 or more"
        );
        let five = summarize(&[1.0, 2.0, 3.0, 4.0, 5.0], Confidence::default()).unwrap();
        assert!((five.confidence - 0.9375).abs() < 1e-12);
        let one = summarize(&[7.0], Confidence::default()).unwrap();
        assert_eq!((one.low, one.high, one.confidence, one.warnings.len()), (7.0, 7.0, 0.0, 1));
        assert!(summarize(&[1.0; 6], Confidence::default()).unwrap().warnings.is_empty());
        let seven = summarize(&[1.0; 7], Confidence::new(0.99).unwrap()).unwrap();
        assert!(seven.warnings[0].message.ends_with("use 8 or more"), "{seven:?}");
    }

    #[test]
    fn the_interval_covers_the_median_whatever_the_distribution() {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let rounds = 4_000;
        for n in [6, 10, 20, 51] {
            let mut covered = [0; 3];
            for _ in 0..rounds {
                let normal: Vec<f64> = (0..n).map(|_| StandardNormal.sample(&mut rng)).collect();
                let log_normal: Vec<f64> =
                    LogNormal::new(0.0, 1.0).unwrap().sample_iter(&mut rng).take(n).collect();
                let exponential: Vec<f64> = (0..n).map(|_| Exp1.sample(&mut rng)).collect();
                for (covered, (values, truth)) in covered.iter_mut().zip([
                    (normal, 0.0),
                    (log_normal, 1.0),
                    (exponential, std::f64::consts::LN_2),
                ]) {
                    let interval = summarize(&values, Confidence::default()).unwrap();
                    *covered += usize::from(interval.low <= truth && truth <= interval.high);
                }
            }
            for covered in covered {
                assert!(covered as f64 / f64::from(rounds) >= 0.94, "n = {n}: {covered} of {rounds}");
            }
        }
    }

    #[test]
    fn five_runs_of_a_published_test() {
        let summary = summarize(&[3249.6, 3564.5, 3618.9, 3662.4, 3548.7], Confidence::default()).unwrap();
        assert_eq!((summary.median, summary.low, summary.high), (3564.5, 3249.6, 3662.4));
        assert_eq!(summary.warnings[0].code, "few_values");
        let outliers = &summary.warnings[1].message;
        assert!(outliers.starts_with("runs 1 (counted from 1)"), "the first run warmed up: {outliers}");
    }

    #[test]
    fn outliers_cause_a_warning_and_are_kept() {
        let values = [10.0, 10.1, 9.9, 10.05, 9.95, 30.0, 10.02];
        let summary = summarize(&values, Confidence::default()).unwrap();
        assert_eq!(summary.high, 30.0);
        assert!(summary.warnings[0].message.starts_with("runs 6 (counted from 1)"), "{summary:?}");
        let mostly_equal = [5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 9.0];
        assert_eq!(outliers(&Sample::new(&mostly_equal).unwrap()), [7]);
    }

    #[test]
    fn odd_input_is_summarised_or_refused() {
        let equal = summarize(&[0.0; 9], Confidence::default()).unwrap();
        assert_eq!((equal.low, equal.high), (0.0, 0.0));
        assert!(equal.warnings.is_empty());
        assert_eq!(summarize(&[], Confidence::default()), Err(SampleError::Empty));
        assert!(matches!(
            summarize(&[1.0, f64::NAN], Confidence::default()),
            Err(SampleError::NotFinite { index: 1, .. })
        ));
    }

    proptest! {
        #[test]
        fn ends_are_in_order_and_the_confidence_is_never_overstated(
            values in prop::collection::vec(any::<f64>(), 0..60), confidence in 0.51..0.999_9
        ) {
            if let Ok(summary) = summarize(&values, Confidence::new(confidence).unwrap()) {
                prop_assert!(summary.low <= summary.median && summary.median <= summary.high);
                prop_assert!((0.0..=1.0).contains(&summary.confidence));
                let is_short = summary.warnings.iter().any(|warning| warning.code == "few_values");
                prop_assert_eq!(is_short, summary.confidence < confidence - 1e-12);
            }
        }
    }
}
