//! Values that the statistics accept, and the errors for other values.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Largest absolute value: squares of larger ones overflow.
const MAX_VALUE: f64 = 1e150;
/// Smallest value of a ratio: ratios of smaller ones overflow.
const MIN_POSITIVE: f64 = 1e-150;

/// Why values were refused. Positions start at 0.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SampleError {
    /// There are no values.
    #[error("there are no values; at least one is needed")]
    Empty,
    /// A value is not a number, infinite, or beyond ±10¹⁵⁰.
    #[error(
        "the value at position {index} is {value}, which is not a measurement; leave it out or measure it again"
    )]
    NotFinite {
        /// The position of the value.
        index: usize,
        /// The value.
        value: f64,
    },
    /// A value is zero or negative, and ratios are compared.
    #[error(
        "the value at position {index} is {value}, and ratios need values above 0; compare differences instead"
    )]
    NotPositive {
        /// The position of the value.
        index: usize,
        /// The value.
        value: f64,
    },
    /// The confidence is not between 0.5 and 1.
    #[error("a confidence of {0} is not possible; use a value between 0.5 and 1, such as 0.95")]
    Confidence(f64),
    /// A block has a run of only one of A and B.
    #[error("A has {a} values and B has {b}; blocks need one of each: compare them as separate runs")]
    UnequalBlocks {
        /// Values of A.
        a: usize,
        /// Values of B.
        b: usize,
    },
}

/// The confidence of an interval or a verdict: above 0.5, below 1. 0.95 by default.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "f64", into = "f64")]
#[schemars(with = "f64")]
pub struct Confidence(f64);

impl Confidence {
    /// # Errors
    /// When the value is not above 0.5 and below 1.
    pub fn new(confidence: f64) -> Result<Self, SampleError> {
        if confidence > 0.5 && confidence < 1.0 {
            Ok(Self(confidence))
        } else {
            Err(SampleError::Confidence(confidence))
        }
    }

    /// The confidence, such as 0.95.
    pub fn value(self) -> f64 {
        self.0
    }

    /// 1 − confidence, such as 0.05: the probability of a false claim.
    pub(super) fn alpha(self) -> f64 {
        1.0 - self.0
    }
}

impl Default for Confidence {
    fn default() -> Self {
        Self(0.95)
    }
}

impl TryFrom<f64> for Confidence {
    type Error = SampleError;

    fn try_from(confidence: f64) -> Result<Self, SampleError> {
        Self::new(confidence)
    }
}

impl From<Confidence> for f64 {
    fn from(confidence: Confidence) -> Self {
        confidence.0
    }
}

/// At least one value, all finite.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    values: Vec<f64>,
    sorted: Vec<f64>,
}

impl Sample {
    /// # Errors
    /// When there are no values, or one is not finite.
    pub fn new(values: &[f64]) -> Result<Self, SampleError> {
        if values.is_empty() {
            return Err(SampleError::Empty);
        }
        if let Some(index) = values.iter().position(|value| value.is_nan() || value.abs() > MAX_VALUE) {
            return Err(SampleError::NotFinite { index, value: values[index] });
        }
        Ok(Self::of_finite(values.to_vec()))
    }

    /// The natural logarithms of values.
    ///
    /// # Errors
    /// As [`Self::new`], or when a value is below 10⁻¹⁵⁰.
    pub(super) fn logarithms(values: &[f64]) -> Result<Self, SampleError> {
        let sample = Self::new(values)?;
        if let Some(index) = values.iter().position(|&value| value < MIN_POSITIVE) {
            return Err(SampleError::NotPositive { index, value: values[index] });
        }
        Ok(Self::of_finite(sample.values.iter().map(|value| value.ln()).collect()))
    }

    /// A sample of at least one value; all values are known to be finite.
    pub(super) fn of_finite(values: Vec<f64>) -> Self {
        debug_assert!(!values.is_empty() && values.iter().all(|value| value.is_finite()));
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        Self { values, sorted }
    }

    /// The number of values, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// The values in the given order.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// The values in ascending order.
    pub(super) fn sorted(&self) -> &[f64] {
        &self.sorted
    }

    /// The smallest value.
    pub fn min(&self) -> f64 {
        self.sorted[0]
    }

    /// The largest value.
    pub fn max(&self) -> f64 {
        self.sorted[self.sorted.len() - 1]
    }

    /// The arithmetic mean.
    pub fn mean(&self) -> f64 {
        self.values.iter().sum::<f64>() / self.values.len() as f64
    }

    /// The sample variance, with n − 1; none for a single value.
    pub(super) fn variance(&self) -> Option<f64> {
        if self.is_constant() {
            // The rounding error of the mean would give equal values a variance above 0.
            return (self.len() > 1).then_some(0.0);
        }
        let mean = self.mean();
        let squares: f64 = self.values.iter().map(|value| (value - mean).powi(2)).sum();
        (self.len() > 1).then(|| squares / (self.len() - 1) as f64)
    }

    /// The median; for an even number of values, the mean of the middle two.
    pub fn median(&self) -> f64 {
        median_of_sorted(&self.sorted)
    }

    /// A quantile between 0 and 1 by linear interpolation of the order statistics: definition 7 of
    /// R. J. Hyndman and Y. Fan, "Sample quantiles in statistical packages", 1996.
    pub fn quantile(&self, quantile: f64) -> f64 {
        let position = quantile.clamp(0.0, 1.0) * (self.len() - 1) as f64;
        let (below, above) = (self.sorted[position.floor() as usize], self.sorted[position.ceil() as usize]);
        below + (above - below) * position.fract()
    }

    /// The median of the absolute deviations from the median, unscaled.
    pub(super) fn median_deviation(&self) -> f64 {
        let median = self.median();
        let mut deviations: Vec<f64> = self.values.iter().map(|value| (value - median).abs()).collect();
        deviations.sort_by(f64::total_cmp);
        median_of_sorted(&deviations)
    }

    /// Whether all values are the same.
    pub fn is_constant(&self) -> bool {
        self.min() == self.max()
    }
}

/// The median of at least one value in ascending order.
pub(super) fn median_of_sorted(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn invalid_values_are_refused_with_their_position() {
        assert_eq!(Sample::new(&[]), Err(SampleError::Empty));
        for bad in [f64::INFINITY, f64::NEG_INFINITY, 2e150] {
            assert_eq!(Sample::new(&[1.0, bad]), Err(SampleError::NotFinite { index: 1, value: bad }));
        }
        assert!(matches!(Sample::new(&[f64::NAN]), Err(SampleError::NotFinite { index: 0, .. })));
        assert_eq!(
            Sample::logarithms(&[1.0, 2.0, 0.0]),
            Err(SampleError::NotPositive { index: 2, value: 0.0 })
        );
        let told = Sample::new(&[1.0, f64::NAN]).unwrap_err().to_string();
        assert!(told.contains("position 1 is NaN"), "{told}");
    }

    #[test]
    fn confidences_are_between_a_half_and_one() {
        assert_eq!(Confidence::new(0.95), Ok(Confidence::default()));
        for bad in [0.5, 1.0, -0.1, 95.0] {
            assert_eq!(Confidence::new(bad), Err(SampleError::Confidence(bad)));
        }
        assert!(Confidence::new(f64::NAN).is_err());
        assert!(serde_json::from_str::<Confidence>("1.5").is_err());
    }

    /// numpy 2.4: `np.quantile([15, 20, 35, 40, 50], q)`, and `np.var(…, ddof=1)`.
    #[test]
    fn quantiles_and_variance_are_those_of_numpy() {
        let sample = Sample::new(&[40.0, 15.0, 50.0, 20.0, 35.0]).unwrap();
        for (quantile, expected) in
            [(0.0, 15.0), (0.05, 16.0), (0.3, 23.0), (0.4, 29.0), (0.5, 35.0), (0.99, 49.6), (1.0, 50.0)]
        {
            assert!((sample.quantile(quantile) - expected).abs() < 1e-12, "{quantile}");
        }
        assert!((sample.variance().unwrap() - 207.5).abs() < 1e-9);
        assert_eq!(Sample::new(&[3.0]).unwrap().variance(), None);
    }

    proptest! {
        #[test]
        fn any_slice_is_taken_or_refused(values in prop::collection::vec(any::<f64>(), 0..20), q in -1.0..2.0) {
            if let Ok(sample) = Sample::new(&values) {
                let quantile = sample.quantile(q);
                prop_assert!(sample.min() <= quantile && quantile <= sample.max());
                prop_assert!(sample.median_deviation() >= 0.0);
                prop_assert!(sample.variance().is_none_or(|variance| variance >= 0.0 && variance.is_finite()));
            }
        }
    }
}
