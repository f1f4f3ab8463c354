//! Seeded bootstrap intervals: of any statistic, of one or several samples.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use record::Warning;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal};

use super::sample::{Confidence, Refusal, Sample};

/// Below this many values a bootstrap interval is noticeably too narrow.
const FEW: usize = 10;

/// How to draw, and how to read the interval from what was drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bootstrap {
    /// How often to draw; at least 100 are drawn.
    pub resamples: usize,
    /// What the draws begin from: the same seed gives the same interval.
    pub seed: u64,
    /// How the ends are found.
    pub ends: Ends,
}

/// How the ends of a bootstrap interval are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ends {
    /// The quantiles of the resampled statistic: for statistics that jump, such as medians.
    Percentile,
    /// Bias-corrected and accelerated (BCa): B. Efron, "Better bootstrap confidence intervals", 1987. For
    /// smooth statistics, such as means and their ratios.
    BiasCorrected,
}

/// A statistic and its bootstrap interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BootstrapInterval {
    /// The statistic of the values themselves.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The confidence aimed at; a bootstrap reaches it only with many values.
    pub confidence: f64,
    /// How it was drawn.
    pub bootstrap: Bootstrap,
    /// `few_values` or `no_spread`.
    pub warnings: Vec<Warning>,
}

impl Default for Bootstrap {
    fn default() -> Self {
        Self { resamples: 4_000, seed: 1, ends: Ends::Percentile }
    }
}

impl Bootstrap {
    /// The interval of a statistic of `N` independent samples. The statistic is given resamples as long as the
    /// samples, and must be a finite number for each.
    ///
    /// # Panics
    ///
    /// Never, unless the statistic does.
    pub fn interval<const N: usize>(
        self,
        samples: [&[f64]; N],
        statistic: impl Fn([&[f64]; N]) -> f64,
        confidence: Confidence,
    ) -> Result<BootstrapInterval, Refusal> {
        for values in samples {
            Sample::new(values)?;
        }
        let finite = |value: f64| if value.is_finite() { Ok(value) } else { Err(Refusal::Statistic(value)) };
        let value = finite(statistic(samples))?;
        let mut rng = Pcg64Mcg::seed_from_u64(self.seed);
        let mut drawn = samples.map(<[f64]>::to_vec);
        let mut resampled = Vec::with_capacity(self.resamples.max(100));
        for _ in 0..self.resamples.max(100) {
            for (drawn, values) in drawn.iter_mut().zip(samples) {
                drawn.fill_with(|| values[rng.random_range(0..values.len())]);
            }
            resampled.push(finite(statistic(drawn.each_ref().map(Vec::as_slice)))?);
        }
        let resampled = Sample::new(&resampled)?;
        let (low, high) = match self.ends {
            Ends::Percentile => (confidence.alpha() / 2.0, 1.0 - confidence.alpha() / 2.0),
            Ends::BiasCorrected => {
                bias_corrected(&resampled, value, acceleration(samples, &statistic), confidence)
            }
        };
        let fewest = samples.iter().map(|values| values.len()).min().unwrap_or(0);
        Ok(BootstrapInterval {
            value,
            low: resampled.quantile(low),
            high: resampled.quantile(high),
            confidence: confidence.value(),
            bootstrap: self,
            warnings: warnings(fewest, resampled.is_constant()),
        })
    }

    /// The interval of the median of B over the median of A.
    pub fn ratio_of_medians(
        self,
        a: &[f64],
        b: &[f64],
        confidence: Confidence,
    ) -> Result<BootstrapInterval, Refusal> {
        for values in [a, b] {
            Sample::logarithms(values)?;
        }
        self.interval([a, b], |[a, b]| median(b) / median(a), confidence)
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    super::sample::median_of_sorted(&sorted)
}

/// The quantiles of the resampled statistic at which BCa puts the ends.
fn bias_corrected(resampled: &Sample, value: f64, acceleration: f64, confidence: Confidence) -> (f64, f64) {
    let normal = Normal::standard();
    let count = |keep: &dyn Fn(f64) -> bool| resampled.values().iter().filter(|&&v| keep(v)).count() as f64;
    // Ties count half; kept off 0 and 1, where the correction would be infinite.
    let n = resampled.len() as f64;
    let below = (count(&|v| v < value) + count(&|v| v <= value)) / 2.0 / n;
    let bias = normal.inverse_cdf(below.clamp(0.5 / n, 1.0 - 0.5 / n));
    let end = |tail: f64| {
        let shifted = bias + normal.inverse_cdf(tail);
        normal.cdf(bias + shifted / (1.0 - acceleration * shifted))
    };
    (end(confidence.alpha() / 2.0), end(1.0 - confidence.alpha() / 2.0))
}

/// The acceleration from leaving out one value at a time: T. J. DiCiccio and B. Efron, "Bootstrap confidence
/// intervals", 1996, extended to several samples as scipy does. 0 where it has no finite value.
fn acceleration<const N: usize>(samples: [&[f64]; N], statistic: &impl Fn([&[f64]; N]) -> f64) -> f64 {
    let (mut cubes, mut squares) = (0.0, 0.0);
    for index in 0..N {
        let n = samples[index].len();
        if n < 2 {
            continue;
        }
        let without: Vec<f64> = (0..n)
            .map(|left_out| {
                let rest = [&samples[index][..left_out], &samples[index][left_out + 1..]].concat();
                let mut samples = samples;
                samples[index] = &rest;
                statistic(samples)
            })
            .collect();
        let mean = without.iter().sum::<f64>() / n as f64;
        let influence = |value: &f64| (n - 1) as f64 * (mean - value);
        cubes += without.iter().map(|value| influence(value).powi(3)).sum::<f64>() / (n as f64).powi(3);
        squares += without.iter().map(|value| influence(value).powi(2)).sum::<f64>() / (n as f64).powi(2);
    }
    let acceleration = cubes / (6.0 * squares.powf(1.5));
    if acceleration.is_finite() { acceleration } else { 0.0 }
}

fn warnings(fewest: usize, constant: bool) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if fewest < FEW {
        warnings.push(Warning::new(
            "few_values",
            format!(
                "a bootstrap of {fewest} values gives too narrow an interval; use {FEW} or more, or an \
                 order-statistic interval"
            ),
        ));
    }
    if constant {
        warnings.push(Warning::new(
            "no_spread",
            "every resample gives the same statistic, so the interval says nothing of its error; \
             measure with a finer resolution or more often",
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const V: [f64; 12] = [4.1, 3.8, 5.2, 4.7, 9.6, 4.4, 4.0, 5.9, 4.9, 4.3, 6.1, 4.6];
    const W: [f64; 10] = [5.1, 6.0, 4.8, 7.9, 5.5, 6.6, 5.8, 12.0, 6.2, 5.0];

    fn drawn(ends: Ends) -> Bootstrap {
        Bootstrap { resamples: 40_000, ends, ..Bootstrap::default() }
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    /// scipy 1.17: `bootstrap(data, statistic, n_resamples=200000, method=…)` with `random_state` 1 and 2,
    /// which agree within 0.005. The tolerance is a little more than the mean of 12 such values jumps by.
    #[test]
    fn intervals_as_in_scipy() {
        let confidence = Confidence::default();
        let one = |ends| drawn(ends).interval([&V], |[v]| mean(v), confidence).unwrap();
        let ratio_of_means =
            drawn(Ends::BiasCorrected).interval([&V, &W], |[v, w]| mean(w) / mean(v), confidence).unwrap();
        let ratio_of_medians = drawn(Ends::Percentile).ratio_of_medians(&V, &W, confidence).unwrap();
        for (found, low, high) in [
            (one(Ends::Percentile), 4.433, 6.1),
            (one(Ends::BiasCorrected), 4.55, 6.533),
            (ratio_of_means, 0.995, 1.644),
            (ratio_of_medians, 1.019, 1.523),
        ] {
            assert!((found.low - low).abs() < 0.02, "{found:?} does not begin at {low}");
            assert!((found.high - high).abs() < 0.06, "{found:?} does not end at {high}");
        }
    }

    #[test]
    fn the_seed_alone_decides() {
        let interval = |seed| {
            Bootstrap { seed, ..Bootstrap::default() }
                .ratio_of_medians(&V, &W, Confidence::default())
                .unwrap()
        };
        assert_eq!(interval(7), interval(7));
        assert_ne!(
            drawn(Ends::Percentile).interval([&V], |[v]| mean(v), Confidence::default()).unwrap().low,
            Bootstrap { seed: 9, ..drawn(Ends::Percentile) }
                .interval([&V], |[v]| mean(v), Confidence::default())
                .unwrap()
                .low
        );
    }

    #[test]
    fn odd_input_is_warned_of_or_refused() {
        let confidence = Confidence::default();
        let equal = Bootstrap::default().interval([&[2.0; 12]], |[v]| mean(v), confidence).unwrap();
        assert_eq!((equal.low, equal.high), (2.0, 2.0));
        assert_eq!(equal.warnings[0].code, "no_spread");
        let few = Bootstrap::default().interval([&V[..3]], |[v]| mean(v), confidence).unwrap();
        assert_eq!(few.warnings[0].code, "few_values");
        assert!(Bootstrap::default().interval([&[]], |[v]| mean(v), confidence).is_err());
        assert!(matches!(
            Bootstrap::default().interval([&V], |_| f64::NAN, confidence),
            Err(Refusal::Statistic(value)) if value.is_nan()
        ));
        assert!(matches!(
            Bootstrap::default().ratio_of_medians(&V, &[1.0, 0.0], confidence),
            Err(Refusal::NotPositive { index: 1, .. })
        ));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn never_panics(values in prop::collection::vec(any::<f64>(), 0..12), corrected: bool) {
            let ends = if corrected { Ends::BiasCorrected } else { Ends::Percentile };
            let bootstrap = Bootstrap { resamples: 100, ends, ..Bootstrap::default() };
            if let Ok(interval) = bootstrap.interval([&values], |[v]| median(v), Confidence::default()) {
                prop_assert!(interval.low <= interval.high, "{interval:?}");
            }
        }
    }
}
