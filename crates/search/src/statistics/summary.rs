//! Several runs of the same thing, in one line.

use record::Warning;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    median::median_interval,
    sample::{Confidence, Refusal, Sample},
};

/// Values whose modified z-score is beyond this are pointed out: B. Iglewicz and D. C. Hoaglin, *How to
/// Detect and Handle Outliers*, 1993.
const FAR_OUT: f64 = 3.5;
/// Of fewer values none can be told from the others.
const FEWEST_FOR_OUTLIERS: usize = 5;

/// Values of repeated runs: the median with its interval, the spread, and what is odd.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// How many values.
    pub n: usize,
    /// The median.
    pub median: f64,
    /// Lower end of the median's interval.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
    /// The confidence that the interval really has.
    pub confidence: f64,
    /// The confidence that was wanted.
    pub wanted_confidence: f64,
    /// The least value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
    /// The mean.
    pub mean: f64,
    /// The sample standard deviation; none of one value.
    pub standard_deviation: Option<f64>,
    /// Three quarters of the values minus one quarter: the range of the middle half.
    pub quartile_range: f64,
    /// Largest minus least value, over the size of the median; none if that is 0.
    pub range_ratio: Option<f64>,
    /// Positions (from 0) of values far from the others. They are part of every figure above.
    pub outliers: Vec<usize>,
    /// `few_values`, `outliers`.
    pub warnings: Vec<Warning>,
}

/// Summarises values of independent runs. Refuses none at all, and what is not finite.
pub fn summarize(values: &[f64], confidence: Confidence) -> Result<Summary, Refusal> {
    let interval = median_interval(values, confidence)?;
    let sample = Sample::new(values)?;
    let outliers = outliers(&sample);
    let mut warnings = interval.warnings;
    if !outliers.is_empty() {
        warnings.push(outlier_warning(&outliers, "runs"));
    }
    Ok(Summary {
        n: sample.len(),
        median: interval.value,
        low: interval.low,
        high: interval.high,
        confidence: interval.confidence,
        wanted_confidence: interval.wanted_confidence,
        min: sample.min(),
        max: sample.max(),
        mean: sample.mean(),
        standard_deviation: sample.variance().map(f64::sqrt),
        quartile_range: sample.quantile(0.75) - sample.quantile(0.25),
        range_ratio: (interval.value != 0.0).then(|| (sample.max() - sample.min()) / interval.value.abs()),
        outliers,
        warnings,
    })
}

/// Positions of the values far from the others, by the modified z-score: 0.6745 (x − median) / MAD, beyond
/// ±3.5. Where more than half the values are the same, the mean deviation stands in for the MAD.
pub(super) fn outliers(sample: &Sample) -> Vec<usize> {
    if sample.len() < FEWEST_FOR_OUTLIERS {
        return Vec::new();
    }
    let median = sample.median();
    let deviation = |value: &f64| (value - median).abs();
    let mean_deviation = sample.values().iter().map(deviation).sum::<f64>() / sample.len() as f64;
    let scale = match sample.median_deviation() {
        0.0 => mean_deviation * 1.253_314,
        median_deviation => median_deviation / 0.6745,
    };
    let far = |value: &f64| deviation(value) > FAR_OUT * scale;
    sample.values().iter().enumerate().filter(|(_, value)| far(value)).map(|(index, _)| index).collect()
}

pub(super) fn outlier_warning(positions: &[usize], what: &str) -> Warning {
    let numbers: Vec<String> = positions.iter().map(|index| (index + 1).to_string()).collect();
    Warning::new(
        "outliers",
        format!(
            "{what} {} (counted from 1) are far from the others; they are kept: look what happened in them",
            numbers.join(", ")
        ),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn five_runs_of_a_published_test() {
        let summary = summarize(&[3249.6, 3564.5, 3618.9, 3662.4, 3548.7], Confidence::default()).unwrap();
        assert_eq!((summary.n, summary.median, summary.min, summary.max), (5, 3564.5, 3249.6, 3662.4));
        assert_eq!((summary.low, summary.high), (3249.6, 3662.4));
        assert!((summary.mean - 3528.82).abs() < 1e-9);
        assert_eq!(summary.warnings[0].code, "few_values");
        assert_eq!(summary.outliers, [0], "the first run warmed up");
    }

    #[test]
    fn outliers_are_pointed_out_and_kept() {
        let values = [10.0, 10.1, 9.9, 10.05, 9.95, 30.0, 10.02];
        let summary = summarize(&values, Confidence::default()).unwrap();
        assert_eq!(summary.outliers, [5]);
        assert_eq!((summary.n, summary.max), (7, 30.0));
        assert!(summary.warnings[0].message.starts_with("runs 6 (counted from 1)"), "{summary:?}");
        let mostly_equal = [5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 9.0];
        assert_eq!(outliers(&Sample::new(&mostly_equal).unwrap()), [7]);
    }

    #[test]
    fn odd_input_is_summarised_or_refused() {
        let one = summarize(&[4.0], Confidence::default()).unwrap();
        assert_eq!((one.median, one.standard_deviation, one.confidence), (4.0, None, 0.0));
        let equal = summarize(&[0.0; 9], Confidence::default()).unwrap();
        assert_eq!((equal.low, equal.high, equal.range_ratio), (0.0, 0.0, None));
        assert!(equal.outliers.is_empty() && equal.warnings.is_empty());
        assert_eq!(summarize(&[], Confidence::default()), Err(Refusal::Empty));
        assert!(matches!(
            summarize(&[1.0, f64::NAN], Confidence::default()),
            Err(Refusal::NotFinite { index: 1, .. })
        ));
    }

    proptest! {
        #[test]
        fn never_panics_and_survives_json(values in prop::collection::vec(any::<f64>(), 0..30)) {
            if let Ok(summary) = summarize(&values, Confidence::default()) {
                prop_assert!(summary.min <= summary.low && summary.low <= summary.median);
                prop_assert!(summary.median <= summary.high && summary.high <= summary.max);
                let json = serde_json::to_string(&summary).unwrap();
                prop_assert!(serde_json::from_str::<Summary>(&json).is_ok(), "{json}");
            }
        }
    }
}
