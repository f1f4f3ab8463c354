//! An interval of a median, or of any quantile, that believes nothing about the distribution.

use record::Warning;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{Binomial, DiscreteCDF};

use super::sample::{Confidence, Refusal, Sample};

/// A quantile, and the two values between which the true one lies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QuantileInterval {
    /// Which quantile, 0 to 1.
    pub quantile: f64,
    /// How many values.
    pub n: usize,
    /// The sample's own quantile.
    pub value: f64,
    /// Lower end: the value of rank `low_rank`.
    pub low: f64,
    /// Upper end: the value of rank `high_rank`.
    pub high: f64,
    /// Rank of the lower end, from 1 (the least).
    pub low_rank: usize,
    /// Rank of the upper end.
    pub high_rank: usize,
    /// The confidence that the interval really has: at least the one wanted, or less with a warning.
    pub confidence: f64,
    /// The confidence that was wanted.
    pub wanted_confidence: f64,
    /// `few_values` if `confidence` is less than wanted.
    pub warnings: Vec<Warning>,
}

/// The interval of the median.
pub fn median_interval(values: &[f64], confidence: Confidence) -> Result<QuantileInterval, Refusal> {
    quantile_interval(values, 0.5, confidence)
}

/// The interval of a quantile between two order statistics. How many values lie below the true quantile is
/// binomial, whatever their distribution, as long as they are independent: H. A. David and H. N.
/// Nagaraja, *Order Statistics*, 3rd ed., 7.1.
///
/// Tails are equal where there are values enough. With too few the widest interval is given, from the least
/// to the largest value, with the confidence it has.
pub fn quantile_interval(
    values: &[f64],
    quantile: f64,
    confidence: Confidence,
) -> Result<QuantileInterval, Refusal> {
    if !(quantile > 0.0 && quantile < 1.0) {
        return Err(Refusal::Quantile(quantile));
    }
    let sample = Sample::new(values)?;
    let ranks = Ranks::new(sample.len(), quantile, confidence);
    let mut warnings = Vec::new();
    // Sums of many probabilities: equal up to rounding is equal.
    if ranks.confidence < confidence.value() - 1e-12 {
        warnings.push(few_values(sample.len(), quantile, confidence, ranks.confidence));
    }
    Ok(QuantileInterval {
        quantile,
        n: sample.len(),
        value: sample.quantile(quantile),
        low: sample.sorted()[ranks.low - 1],
        high: sample.sorted()[ranks.high - 1],
        low_rank: ranks.low,
        high_rank: ranks.high,
        confidence: ranks.confidence,
        wanted_confidence: confidence.value(),
        warnings,
    })
}

/// The fewest values whose range holds the quantile with the confidence; none if more than 10⁹.
pub fn fewest_for(quantile: f64, confidence: Confidence) -> Option<usize> {
    let enough = |n: usize| widest_confidence(n, quantile) >= confidence.value() - 1e-12;
    let most = 1_000_000_000;
    if !enough(most) {
        return None;
    }
    let (mut too_few, mut enough_n) = (0, most);
    while enough_n - too_few > 1 {
        let middle = too_few + (enough_n - too_few) / 2;
        if enough(middle) { enough_n = middle } else { too_few = middle }
    }
    Some(enough_n)
}

/// The confidence of the range of `n` values: neither all below the quantile nor all above.
fn widest_confidence(n: usize, quantile: f64) -> f64 {
    1.0 - quantile.powf(n as f64) - (1.0 - quantile).powf(n as f64)
}

fn few_values(n: usize, quantile: f64, wanted: Confidence, real: f64) -> Warning {
    let what = if quantile == 0.5 { "a median".to_owned() } else { format!("the {quantile} quantile") };
    let advice = match fewest_for(quantile, wanted) {
        Some(fewest) => format!("use {fewest} or more"),
        None => "use a quantile nearer to the median".to_owned(),
    };
    let values = if n == 1 { "1 value".to_owned() } else { format!("{n} values") };
    Warning::new(
        "few_values",
        format!(
            "{values} cannot bound {what} at {}: {} {}; {advice}",
            percent(wanted.value()),
            if n == 1 { "it gives" } else { "they give" },
            percent(real)
        ),
    )
}

/// A share as people write it: `95 %`, `93.75 %`.
pub(super) fn percent(share: f64) -> String {
    let hundredths = (share * 1e4).round() / 100.0;
    format!("{hundredths} %")
}

struct Ranks {
    low: usize,
    high: usize,
    confidence: f64,
}

impl Ranks {
    fn new(n: usize, quantile: f64, wanted: Confidence) -> Self {
        let below = Binomial::new(quantile, n as u64).expect("a quantile is a probability");
        let at_most = |k: usize| below.cdf(k as u64);
        let tail = wanted.alpha() / 2.0 + 1e-12;
        // The rank l bounds from below unless fewer than l values lie below the quantile.
        let mut low = largest(1, n, |rank| at_most(rank - 1) <= tail);
        let mut high = n + 1 - largest(1, n, |from_top| 1.0 - at_most(n - from_top) <= tail);
        let confidence = |low: usize, high: usize| (at_most(high - 1) - at_most(low - 1)).max(0.0);
        // Where one end has no value far enough out, the other may take what is left of the error.
        while confidence(low, high) < wanted.value() - 1e-12 && (low > 1 || high < n) {
            low = low.saturating_sub(1).max(1);
            high = (high + 1).min(n);
        }
        if low > high {
            (low, high) = (high, low);
        }
        Self { low, high, confidence: confidence(low, high) }
    }
}

/// The largest number in `from..=to` that holds a condition which the smaller ones hold too; `from` if none.
fn largest(from: usize, to: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut yes, mut no) = (from, to + 1);
    while no - yes > 1 {
        let middle = yes + (no - yes) / 2;
        if holds(middle) { yes = middle } else { no = middle }
    }
    yes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_distr::{Distribution, Exp1, LogNormal, StandardNormal};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    fn ranks(n: usize, quantile: f64, confidence: f64) -> (usize, usize, f64) {
        let ranks = Ranks::new(n, quantile, Confidence::new(confidence).unwrap());
        (ranks.low, ranks.high, ranks.confidence)
    }

    /// scipy 1.17: low is the largest rank with `binom.cdf(low - 1, n, q) <= 0.025`, high the least with
    /// `binom.sf(high - 1, n, q) <= 0.025`, the confidence `binom.cdf(high - 1, n, q) - binom.cdf(low - 1,
    /// n, q)`.
    #[test]
    fn ranks_and_confidences_of_the_textbook() {
        for (n, quantile, low, high, confidence) in [
            (6, 0.5, 1, 6, 0.96875),
            (10, 0.5, 2, 9, 0.978_515_625),
            (20, 0.5, 6, 15, 0.958_610_534_667_968_8),
            (100, 0.5, 40, 61, 0.964_799_799_782_295_2),
            (500, 0.99, 490, 500, 0.980_185_949_857_806),
        ] {
            let (l, h, c) = ranks(n, quantile, 0.95);
            assert_eq!((l, h), (low, high), "n = {n}");
            assert!((c - confidence).abs() < 1e-9, "n = {n}: {c}");
        }
    }

    #[test]
    fn too_few_values_give_the_widest_interval_and_say_what_it_is_worth() {
        let three = median_interval(&[3.0, 1.0, 2.0], Confidence::default()).unwrap();
        assert_eq!((three.low, three.value, three.high), (1.0, 2.0, 3.0));
        assert!((three.confidence - 0.75).abs() < 1e-12);
        assert_eq!(
            three.warnings[0].message,
            "3 values cannot bound a median at 95 %: they give 75 %; use 6 or more"
        );
        let five = median_interval(&[1.0, 2.0, 3.0, 4.0, 5.0], Confidence::default()).unwrap();
        assert!((five.confidence - 0.9375).abs() < 1e-12);
        let one = median_interval(&[7.0], Confidence::default()).unwrap();
        assert_eq!((one.low, one.high, one.confidence, one.warnings.len()), (7.0, 7.0, 0.0, 1));
        assert!(median_interval(&[1.0; 6], Confidence::default()).unwrap().warnings.is_empty());
    }

    #[test]
    fn fewest_values() {
        for (quantile, confidence, fewest) in
            [(0.5, 0.95, 6), (0.5, 0.99, 8), (0.99, 0.95, 299), (0.01, 0.95, 299)]
        {
            assert_eq!(fewest_for(quantile, Confidence::new(confidence).unwrap()), Some(fewest));
        }
        let values: Vec<f64> = (0..299).map(f64::from).collect();
        let p99 = quantile_interval(&values, 0.99, Confidence::default()).unwrap();
        assert!(p99.confidence >= 0.95 && p99.warnings.is_empty(), "{p99:?}");
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
                    let interval = median_interval(&values, Confidence::default()).unwrap();
                    *covered += usize::from(interval.low <= truth && truth <= interval.high);
                }
            }
            for covered in covered {
                assert!(covered as f64 / f64::from(rounds) >= 0.94, "n = {n}: {covered} of {rounds}");
            }
        }
    }

    proptest! {
        #[test]
        fn ends_are_in_order_and_the_confidence_is_never_overstated(
            values in prop::collection::vec(-1e6..1e6, 1..60),
            quantile in 0.001..0.999,
            confidence in 0.51..0.999_9
        ) {
            let interval = quantile_interval(&values, quantile, Confidence::new(confidence).unwrap()).unwrap();
            prop_assert!(interval.low <= interval.high);
            prop_assert!(1 <= interval.low_rank && interval.low_rank <= interval.high_rank);
            prop_assert!(interval.high_rank <= values.len());
            prop_assert!((0.0..=1.0).contains(&interval.confidence));
            prop_assert_eq!(interval.warnings.is_empty(), interval.confidence >= confidence - 1e-12);
        }
    }
}
