//! How many independent values a series is worth.
//!
//! The seconds of a trial follow each other: a queue that is long now is long a second later. Treated as
//! independent they would give intervals several times too narrow.

use record::Warning;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::sample::{Confidence, Refusal, Sample};

/// Below this many independent values a mean's interval should not be used.
const FEW: f64 = 10.0;

/// A series, the number of independent values that it is worth, and the interval of its mean.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Effective {
    /// Values in the series.
    pub n: usize,
    /// Independent values that would bound the mean as well; 1 to `n`.
    pub effective_n: f64,
    /// Correlation of each value with the next; 0 where there is none to see.
    pub correlation: f64,
    /// The mean.
    pub mean: f64,
    /// Lower end of the mean's interval.
    pub low: f64,
    /// Upper end of the mean's interval.
    pub high: f64,
    /// The confidence of the interval.
    pub confidence: f64,
    /// Batches that the batch-means estimate was made of; 0 if the series is too short for one.
    pub batches: usize,
    /// `few_independent_values`.
    pub warnings: Vec<Warning>,
}

/// The effective sample size of a steady series, in order of time: the smaller of two estimates.
///
/// * By autocorrelation: n / (1 + 2 Σ ρₖ), summed over lags while pairs of neighbours are positive and no
///   larger than the pair before: the initial monotone sequence of C. J. Geyer, "Practical Markov chain
///   Monte Carlo", 1992. Each ρₖ is first freed of the bias that subtracting the series' own mean brings,
///   (1 + 2 Σ ρ) / n.
/// * By batch means: the variance of single values over that of the means of √n batches, times the length
///   of a batch: A. M. Law, *Simulation Modeling and Analysis*, 9.5.3. Only with 36 values or more, and
///   only where it is beyond what chance does.
///
/// The interval of the mean is Student's, with as many degrees of freedom as independent values, less one.
pub fn effective_size(series: &[f64], confidence: Confidence) -> Result<Effective, Refusal> {
    let sample = Sample::new(series)?;
    let n = sample.len();
    let mean = sample.mean();
    let correlations = Correlations::new(&sample);
    let batches = if n >= 36 { n.isqrt() } else { 0 };
    let effective_n = correlations.effective().min(by_batches(&sample, batches)).clamp(1.0, n as f64);
    let freedom = (effective_n - 1.0).max(1.0);
    let error = (sample.variance().unwrap_or(0.0) / effective_n).sqrt();
    let student = StudentsT::new(0.0, 1.0, freedom).expect("the degrees of freedom are positive");
    let reach = student.inverse_cdf(1.0 - confidence.alpha() / 2.0) * error;
    let mut warnings = Vec::new();
    if effective_n < FEW && !sample.is_constant() || n == 1 {
        warnings.push(Warning::new(
            "few_independent_values",
            format!(
                "{n} values in a row are worth only {effective_n:.0} independent ones; run longer, or \
                 repeat the trial and compare the repeats"
            ),
        ));
    }
    Ok(Effective {
        n,
        effective_n,
        correlation: correlations.at(1),
        mean,
        low: mean - reach,
        high: mean + reach,
        confidence: confidence.value(),
        batches,
        warnings,
    })
}

struct Correlations<'a> {
    values: &'a [f64],
    mean: f64,
    variance: f64,
}

impl<'a> Correlations<'a> {
    fn new(sample: &'a Sample) -> Self {
        let mean = sample.mean();
        let variance = sample.values().iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        Self { values: sample.values(), mean, variance }
    }

    /// The autocorrelation at a lag; 0 where it is not defined.
    fn at(&self, lag: usize) -> f64 {
        if lag >= self.values.len() || self.variance == 0.0 {
            return 0.0;
        }
        let products =
            self.values.iter().zip(&self.values[lag..]).map(|(x, y)| (x - self.mean) * (y - self.mean));
        products.sum::<f64>() / self.variance
    }

    fn effective(&self) -> f64 {
        let n = self.values.len();
        let raw = self.time(0.0);
        // The sample mean takes part of the correlation away: E ρ̂ ≈ ρ − τ / n. Once more with it put back.
        let time = self.time((raw / n as f64).min(0.2));
        n as f64 / time.max(1.0)
    }

    /// 1 + 2 Σ ρ over the initial monotone sequence, each ρ raised by `bias`.
    fn time(&self, bias: f64) -> f64 {
        let (mut time, mut before) = (-1.0, f64::INFINITY);
        let at = |lag: usize| if lag == 0 { 1.0 } else { self.at(lag) + bias };
        for lag in (0..self.values.len() / 2).step_by(2) {
            let pair = (at(lag) + at(lag + 1)).min(before);
            if pair <= 2.0 * bias || pair <= 0.0 {
                break;
            }
            time += 2.0 * pair;
            before = pair;
        }
        time.max(1.0)
    }
}

/// The estimate by batch means; infinite where it says nothing.
fn by_batches(sample: &Sample, batches: usize) -> f64 {
    let (Some(variance), true) = (sample.variance(), batches >= 2) else { return f64::INFINITY };
    let length = sample.len() / batches;
    let means: Vec<f64> =
        sample.values().chunks_exact(length).map(|batch| batch.iter().sum::<f64>() / length as f64).collect();
    let batches = means.len();
    let of_means = Sample::of_finite(means).variance().unwrap_or(0.0);
    if of_means * length as f64 <= variance * chance_factor(batches) {
        return f64::INFINITY;
    }
    sample.len() as f64 * variance / (of_means * length as f64)
}

/// What the variance of so many batch means exceeds by chance in 1 of 40 independent series: the quantile of
/// χ²/ν by E. B. Wilson and M. M. Hilferty, 1931.
fn chance_factor(batches: usize) -> f64 {
    let freedom = (batches - 1) as f64;
    let part = 2.0 / (9.0 * freedom);
    (1.0 - part + 1.96 * part.sqrt()).powi(3)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_distr::{Distribution, StandardNormal};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    /// An autoregressive series about 0: its effective size is n (1 − ρ) / (1 + ρ).
    fn series(n: usize, correlation: f64, rng: &mut Pcg64Mcg) -> Vec<f64> {
        let mut value: f64 = StandardNormal.sample(rng);
        (0..n)
            .map(|_| {
                let fresh: f64 = StandardNormal.sample(rng);
                value = correlation * value + (1.0 - correlation * correlation).sqrt() * fresh;
                value
            })
            .collect()
    }

    /// statsmodels 0.15: `acf(x, adjusted=False)[1:3]` of `x = np.sin(i * 1.7) * 2 + np.cos(i * 0.9) * 1.5
    /// + np.where(i < 25, 0, 6)` with `i = np.arange(40)`.
    #[test]
    fn correlations_as_in_statsmodels() {
        let x: Vec<f64> = (0..40)
            .map(|i| {
                (f64::from(i) * 1.7).sin() * 2.0
                    + (f64::from(i) * 0.9).cos() * 1.5
                    + if i < 25 { 0.0 } else { 6.0 }
            })
            .collect();
        let sample = Sample::new(&x).unwrap();
        let correlations = Correlations::new(&sample);
        for (lag, expected) in [(1, 0.743_128_05), (2, 0.480_290_92), (3, 0.542_538_96)] {
            assert!((correlations.at(lag) - expected).abs() < 1e-7, "lag {lag}");
        }
    }

    #[test]
    fn the_size_is_right_and_the_interval_covers_the_mean() {
        let mut rng = Pcg64Mcg::seed_from_u64(3);
        for (n, correlation, least_coverage) in [
            (30, 0.0, 0.94),
            (60, 0.0, 0.94),
            (300, 0.0, 0.94),
            (60, 0.3, 0.92),
            (300, 0.6, 0.93),
            (1_000, 0.8, 0.93),
        ] {
            let rounds = 1_000;
            let (mut covered, mut size) = (0, 0.0);
            for _ in 0..rounds {
                let effective =
                    effective_size(&series(n, correlation, &mut rng), Confidence::default()).unwrap();
                covered += usize::from(effective.low <= 0.0 && 0.0 <= effective.high);
                size += effective.effective_n / f64::from(rounds);
            }
            let truth = n as f64 * (1.0 - correlation) / (1.0 + correlation);
            assert!((size / truth - 1.0).abs() < 0.22, "n {n}, {correlation}: {size} of {truth}");
            let coverage = covered as f64 / f64::from(rounds);
            assert!(coverage >= least_coverage, "n {n}, {correlation}: {coverage}");
        }
    }

    #[test]
    fn taken_for_independent_the_same_series_would_be_far_too_sure() {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let (mut covered, mut covered_naively, mut warned) = (0, 0, 0);
        for _ in 0..1_000 {
            let effective = effective_size(&series(60, 0.9, &mut rng), Confidence::default()).unwrap();
            let reach = effective.high - effective.mean;
            let naive_reach = reach * (effective.effective_n / 60.0).sqrt();
            covered += usize::from(effective.mean.abs() <= reach);
            covered_naively += usize::from(effective.mean.abs() <= naive_reach);
            warned += effective.warnings.len();
        }
        assert!(covered >= 820 && covered_naively <= 500, "{covered} and {covered_naively} of 1,000");
        assert!(warned >= 850, "what is still missing is warned of: {warned}");
    }

    #[test]
    fn odd_input_is_taken_or_refused() {
        let constant = effective_size(&[5.0; 20], Confidence::default()).unwrap();
        assert_eq!((constant.low, constant.high, constant.warnings.len()), (5.0, 5.0, 0));
        let one = effective_size(&[5.0], Confidence::default()).unwrap();
        assert_eq!((one.effective_n, one.warnings.len()), (1.0, 1));
        assert_eq!(effective_size(&[], Confidence::default()), Err(Refusal::Empty));
        assert!(effective_size(&[1.0, f64::INFINITY], Confidence::default()).is_err());
    }

    proptest! {
        #[test]
        fn never_panics(values in prop::collection::vec(any::<f64>(), 0..80)) {
            if let Ok(effective) = effective_size(&values, Confidence::default()) {
                prop_assert!((1.0..=values.len() as f64).contains(&effective.effective_n));
                prop_assert!(effective.low <= effective.mean && effective.mean <= effective.high);
            }
        }
    }
}
