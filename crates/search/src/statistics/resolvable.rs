//! The power of a comparison: the smallest difference that a number of runs can resolve.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use rand::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use rand_pcg::Pcg64Mcg;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ChiSquared, ContinuousCDF};

use super::{rank_sum, sample::Sample, signed_rank, student};

/// Probability that a comparison shows the smallest resolvable difference.
pub(super) const POWER: f64 = 0.9;

/// Smallest number of runs per side for any test.
const MIN_RUNS: usize = 3;
/// Largest number of repeats that a warning may ask for.
const MAX_REPEATS: usize = 100_000;
/// Simulated comparisons per design; the error of the result is about 2 %.
const SIMULATIONS: usize = 2_000;
/// Largest number of pairs of values for which a design is simulated. For more pairs, a formula is as exact.
const MAX_SIMULATED_PAIRS: usize = 400;

/// Largest number of cached results.
const MAX_CACHED: usize = 1_000;

/// How many runs are compared, and whether they are paired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Design {
    /// A and B ran alternately: one run of each in every block.
    Blocks {
        /// Number of blocks.
        blocks: usize,
    },
    /// A and B ran separately.
    Separate {
        /// Number of runs of A.
        a: usize,
        /// Number of runs of B.
        b: usize,
    },
}

/// The test of a comparison. It depends on the design alone, never on the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Wilcoxon's signed-rank test of the differences within blocks, with the Hodges–Lehmann estimate.
    SignedRank,
    /// The rank-sum test of Wilcoxon, Mann and Whitney, with the Hodges–Lehmann shift.
    RankSum,
    /// Student's t test of the differences within blocks.
    PairedT,
    /// Welch's t test of two separate samples.
    WelchT,
}

impl Design {
    /// The test for a confidence of 1 − `alpha`: a rank test if there are enough runs for it, otherwise a t test, which
    /// assumes normal noise. `None` with fewer than 3 runs per side.
    pub(super) fn method(self, alpha: f64) -> Option<Method> {
        let can_use_ranks = self.can_use_ranks(alpha);
        match self {
            Self::Blocks { blocks } if blocks < MIN_RUNS => None,
            Self::Blocks { blocks } if can_use_ranks && blocks <= signed_rank::MAX_DIFFERENCES => {
                Some(Method::SignedRank)
            }
            Self::Blocks { .. } => Some(Method::PairedT),
            Self::Separate { a, b } if a.min(b) < MIN_RUNS => None,
            Self::Separate { a, b } if can_use_ranks && a * b <= rank_sum::MAX_PAIRS => Some(Method::RankSum),
            Self::Separate { .. } => Some(Method::WelchT),
        }
    }

    /// Degrees of freedom of the noise estimate.
    pub(super) fn degrees_of_freedom(self) -> usize {
        match self {
            Self::Blocks { blocks } => blocks.saturating_sub(1),
            Self::Separate { a, b } => (a + b).saturating_sub(2),
        }
    }

    /// The same kind of design with this number of runs per side.
    fn with_repeats(self, repeats: usize) -> Self {
        match self {
            Self::Blocks { .. } => Self::Blocks { blocks: repeats },
            Self::Separate { .. } => Self::Separate { a: repeats, b: repeats },
        }
    }

    /// Smallest number of repeats per side for which a rank test can show a difference at a confidence of 1 − `alpha`.
    pub(super) fn min_repeats_for_ranks(self, alpha: f64) -> usize {
        (1..MAX_REPEATS).find(|&n| self.with_repeats(n).can_use_ranks(alpha)).unwrap_or(MAX_REPEATS)
    }

    /// The smallest shift that a comparison shows with the probability [`POWER`], in standard deviations of the
    /// differences within blocks, or of single runs of separate samples. `None` if there are too few runs for any test.
    pub(super) fn detectable_shift(self, alpha: f64) -> Option<f64> {
        let method = self.method(alpha)?;
        let pairs = match self {
            Self::Blocks { blocks } => blocks * blocks,
            Self::Separate { a, b } => a * b,
        };
        Some(if pairs <= MAX_SIMULATED_PAIRS {
            self.cached(method, alpha)
        } else {
            self.formula(method, alpha)
        })
    }

    /// Whether there are enough runs for a rank test to show a difference at a confidence of 1 − `alpha`.
    pub(super) fn can_use_ranks(self, alpha: f64) -> bool {
        self.min_p_value() <= alpha + 1e-12
    }

    fn min_p_value(self) -> f64 {
        match self {
            Self::Blocks { blocks } => signed_rank::min_p_value(blocks),
            Self::Separate { a, b } => rank_sum::min_p_value(a, b),
        }
    }

    /// Like [`Self::simulated`], but cached, because a report asks once per row and mostly for the same design.
    fn cached(self, method: Method, alpha: f64) -> f64 {
        static CACHE: Mutex<BTreeMap<(Design, u64), f64>> = Mutex::new(BTreeMap::new());
        let key = (self, alpha.to_bits());
        let cache = || CACHE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&shift) = cache().get(&key) {
            return shift;
        }
        let shift = self.simulated(method, alpha);
        let mut cache = cache();
        if cache.len() >= MAX_CACHED {
            cache.clear();
        }
        cache.insert(key, shift);
        shift
    }

    /// The smallest detectable shift by simulation. A comparison shows a shift that exceeds the distance from the
    /// centre to the interval's lower end, so the result is a quantile of that distance for simulated normal noise.
    fn simulated(self, method: Method, alpha: f64) -> f64 {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let mut normal = |n: usize| {
            Sample::of_finite((0..n).map(|_| StandardNormal.sample(&mut rng)).collect::<Vec<f64>>())
        };
        let needed: Vec<f64> = match self {
            Self::Blocks { blocks } => {
                let (outside, _) = signed_rank::excluded_per_side(blocks, alpha);
                (0..SIMULATIONS)
                    .map(|_| match method {
                        Method::SignedRank => -signed_rank::lower_end(&normal(blocks), outside),
                        _ => -student::of_differences(&normal(blocks), alpha).low,
                    })
                    .collect()
            }
            Self::Separate { a, b } => {
                let (outside, _) = rank_sum::excluded_per_side(a, b, alpha);
                (0..SIMULATIONS)
                    .map(|_| match method {
                        Method::RankSum => -rank_sum::lower_end(&normal(a), &normal(b), outside),
                        _ => -student::of_samples(&normal(a), &normal(b), alpha).low,
                    })
                    .collect()
            }
        };
        Sample::of_finite(needed).quantile(POWER)
    }

    /// The smallest detectable shift by the textbook formula (t₁₋α⸝₂ + t_power) · error. With normal noise, a rank test
    /// needs √(π/3) times that shift.
    fn formula(self, method: Method, alpha: f64) -> f64 {
        let (error, degrees) = match self {
            Self::Blocks { blocks } => ((1.0 / blocks as f64).sqrt(), (blocks - 1) as f64),
            Self::Separate { a, b } => ((1.0 / a as f64 + 1.0 / b as f64).sqrt(), (a + b - 2) as f64),
        };
        let shift =
            (student::quantile(1.0 - alpha / 2.0, degrees) + student::quantile(POWER, degrees)) * error;
        match method {
            Method::PairedT | Method::WelchT => shift,
            Method::SignedRank | Method::RankSum => shift * (std::f64::consts::PI / 3.0).sqrt(),
        }
    }
}

/// The upper confidence limit, at 80 %, of a noise that was measured with this number of degrees of freedom. A plan
/// that uses the measured noise is too optimistic half of the time, and by a large factor if there are few runs: R. H.
/// Browne, "On the use of a pilot sample for sample size determination", 1995.
pub(super) fn noise_limit(noise: f64, degrees: usize) -> f64 {
    let degrees = degrees.max(1) as f64;
    let spread = ChiSquared::new(degrees).expect("the degrees of freedom are positive");
    noise * (degrees / spread.inverse_cdf(0.2)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: Design = Design::Blocks { blocks: 0 };
    const SEPARATE: Design = Design::Separate { a: 0, b: 0 };

    #[test]
    fn the_formula_is_that_of_the_textbook() {
        // Student's distribution with 2 degrees of freedom: t(97.5 %) = 4.3027, t(90 %) = 1.8856.
        let sum_of_quantiles = 4.3027 + 1.8856;
        for (design, method, factor) in [
            (Design::Separate { a: 2, b: 2 }, Method::WelchT, 1.0),
            (Design::Separate { a: 1, b: 3 }, Method::WelchT, (4.0_f64 / 3.0).sqrt()),
            (Design::Blocks { blocks: 3 }, Method::PairedT, 1.0 / 3.0_f64.sqrt()),
            (Design::Separate { a: 2, b: 2 }, Method::RankSum, 1.02333),
            (Design::Blocks { blocks: 3 }, Method::SignedRank, 1.02333 / 3.0_f64.sqrt()),
        ] {
            let shift = design.formula(method, 0.05);
            assert!(
                (shift / (sum_of_quantiles * factor) - 1.0).abs() < 1e-4,
                "{design:?} {method:?}: {shift}"
            );
        }
    }

    #[test]
    fn the_test_follows_from_the_number_of_runs() {
        for (design, alpha, method) in [
            (Design::Blocks { blocks: 2 }, 0.05, None),
            (Design::Blocks { blocks: 5 }, 0.05, Some(Method::PairedT)),
            (Design::Blocks { blocks: 6 }, 0.05, Some(Method::SignedRank)),
            (Design::Blocks { blocks: 6 }, 0.05 / 4.0, Some(Method::PairedT)),
            (Design::Blocks { blocks: 501 }, 0.05, Some(Method::PairedT)),
            (Design::Separate { a: 2, b: 9 }, 0.05, None),
            (Design::Separate { a: 3, b: 3 }, 0.05, Some(Method::WelchT)),
            (Design::Separate { a: 4, b: 4 }, 0.05, Some(Method::RankSum)),
        ] {
            assert_eq!(design.method(alpha), method, "{design:?} at {alpha}");
        }
        assert_eq!((BLOCKS.min_repeats_for_ranks(0.05), SEPARATE.min_repeats_for_ranks(0.05)), (6, 4));
    }

    /// statsmodels 0.15: `TTestPower().solve_power(nobs=n, alpha=alpha, power=0.9)` and
    /// `TTestIndPower().solve_power(nobs1=n, alpha=alpha, power=0.9)`. For few separate runs: the 0.9 quantile of −low
    /// from 400,000 simulated `ttest_ind(y, x, equal_var=False).confidence_interval(1 - alpha)` of scipy 1.17.
    #[test]
    fn detectable_shifts_are_those_of_the_noncentral_t() {
        for (design, alpha, expected) in [
            (Design::Blocks { blocks: 4 }, 0.05, 2.506_9),
            (Design::Blocks { blocks: 5 }, 0.05, 1.965_9),
            (Design::Blocks { blocks: 6 }, 0.012_5, 2.297_4),
            (Design::Blocks { blocks: 1_000 }, 0.05, 0.102_6),
            (Design::Separate { a: 3, b: 3 }, 0.05, 4.117),
            (Design::Separate { a: 6, b: 6 }, 0.001, 3.894),
            (Design::Separate { a: 600, b: 600 }, 0.05, 0.187_3),
        ] {
            assert!(matches!(design.method(alpha), Some(Method::PairedT | Method::WelchT)));
            let detectable_shift = design.detectable_shift(alpha).unwrap();
            assert!(
                (detectable_shift / expected - 1.0).abs() < 0.05,
                "{design:?}: {detectable_shift} is not {expected}"
            );
        }
    }

    /// Six blocks show a difference only if all six agree: Φ(δ)⁶ = 0.9.
    #[test]
    fn six_blocks_must_all_agree() {
        let detectable_shift = Design::Blocks { blocks: 6 }.detectable_shift(0.05).unwrap();
        assert!((detectable_shift - 2.11).abs() < 0.06, "{detectable_shift}");
    }

    /// scipy 1.17: `math.sqrt(n / chi2.ppf(0.2, n))`.
    #[test]
    fn the_noise_of_few_runs_has_a_wide_limit() {
        for (degrees, expected) in [(1, 3.947_153_5), (5, 1.461_0), (9, 1.293_4), (38, 1.115_5)] {
            assert!(
                (noise_limit(1.0, degrees) - expected).abs() < 1e-3,
                "{degrees}: {}",
                noise_limit(1.0, degrees)
            );
        }
    }

    #[test]
    fn the_formula_continues_where_the_simulation_ends() {
        for (simulated, formula) in [
            (Design::Blocks { blocks: 20 }, Design::Blocks { blocks: 21 }),
            (Design::Separate { a: 20, b: 20 }, Design::Separate { a: 21, b: 21 }),
        ] {
            let ratio = formula.detectable_shift(0.05).unwrap() / simulated.detectable_shift(0.05).unwrap();
            assert!((0.92..1.02).contains(&ratio), "{ratio}");
        }
    }

    #[test]
    fn more_runs_resolve_smaller_differences() {
        for kind in [BLOCKS, SEPARATE] {
            let reaches: Vec<f64> =
                [6, 10, 20, 40, 100].map(|n| kind.with_repeats(n).detectable_shift(0.05).unwrap()).to_vec();
            assert!(reaches.is_sorted_by(|a, b| a > b), "{reaches:?}");
        }
    }
}
