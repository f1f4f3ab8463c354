//! What a comparison can show at all: the smallest difference that so many runs of so much noise can
//! resolve.

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

/// How often the smallest resolvable difference is found when it is there.
pub const POWER: f64 = 0.9;

/// Fewer runs than this on a side cannot show their own noise.
const FEWEST: usize = 3;
/// More repeats than this are not worth asking for.
const MOST_REPEATS: usize = 100_000;
/// Simulated comparisons behind a figure: its error is about 2 %.
const SIMULATIONS: usize = 2_000;
/// Up to so many pairs of values a design is simulated; beyond, the formula is as good.
const SIMULATED_PAIRS: usize = 400;

/// Answers kept for the next time.
const MOST_REMEMBERED: usize = 1_000;

/// How many runs are compared, and how they belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Design {
    /// A and B ran in turns: one of each in every block.
    Blocks {
        /// How many blocks.
        blocks: usize,
    },
    /// A and B ran apart.
    Separate {
        /// Runs of A.
        a: usize,
        /// Runs of B.
        b: usize,
    },
}

/// Which test a comparison is made by. It follows from the design alone, never from what was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Wilcoxon's signed ranks of the differences within blocks, with the Hodges–Lehmann estimate.
    SignedRank,
    /// The rank sum of Wilcoxon, Mann and Whitney, with the Hodges–Lehmann shift.
    RankSum,
    /// Student's t of the differences within blocks.
    PairedT,
    /// Welch's t of two separate samples.
    WelchT,
}

impl Design {
    /// The test that can show a difference at 1 − `alpha`: ranks where there are runs enough for them,
    /// Student's t where there are not (it assumes normal noise), none where there are fewer than 3 runs
    /// of a side.
    pub fn method(self, alpha: f64) -> Option<Method> {
        let ranks_can = self.has_ranks(alpha);
        match self {
            Self::Blocks { blocks } if blocks < FEWEST => None,
            Self::Blocks { blocks } if ranks_can && blocks <= signed_rank::MOST => Some(Method::SignedRank),
            Self::Blocks { .. } => Some(Method::PairedT),
            Self::Separate { a, b } if a.min(b) < FEWEST => None,
            Self::Separate { a, b } if ranks_can && a * b <= rank_sum::MOST_PAIRS => Some(Method::RankSum),
            Self::Separate { .. } => Some(Method::WelchT),
        }
    }

    /// Degrees of freedom that the noise is known with.
    pub fn freedom(self) -> usize {
        match self {
            Self::Blocks { blocks } => blocks.saturating_sub(1),
            Self::Separate { a, b } => (a + b).saturating_sub(2),
        }
    }

    /// The same kind of design with as many runs of each side.
    pub fn with_repeats(self, repeats: usize) -> Self {
        match self {
            Self::Blocks { .. } => Self::Blocks { blocks: repeats },
            Self::Separate { .. } => Self::Separate { a: repeats, b: repeats },
        }
    }

    /// The fewest repeats of each side with which ranks can show a difference at 1 − `alpha`.
    pub fn fewest_for_ranks(self, alpha: f64) -> usize {
        (1..MOST_REPEATS).find(|&n| self.with_repeats(n).has_ranks(alpha)).unwrap_or(MOST_REPEATS)
    }

    /// The smallest shift that is found with [`POWER`], in standard deviations: of the differences within
    /// blocks, or of single runs of separate samples. None if there are too few runs to find any.
    pub fn reach(self, alpha: f64) -> Option<f64> {
        let method = self.method(alpha)?;
        let pairs = match self {
            Self::Blocks { blocks } => blocks * blocks,
            Self::Separate { a, b } => a * b,
        };
        Some(if pairs <= SIMULATED_PAIRS {
            self.remembered(method, alpha)
        } else {
            self.formula(method, alpha)
        })
    }

    /// Whether ranks can show a difference at 1 − `alpha` with so many runs.
    pub fn has_ranks(self, alpha: f64) -> bool {
        self.least_p() <= alpha + 1e-12
    }

    fn least_p(self) -> f64 {
        match self {
            Self::Blocks { blocks } => signed_rank::least_p(blocks),
            Self::Separate { a, b } => rank_sum::least_p(a, b),
        }
    }

    /// The same design always has the same answer, and a report asks for it once a row.
    fn remembered(self, method: Method, alpha: f64) -> f64 {
        static KNOWN: Mutex<BTreeMap<(Design, u64), f64>> = Mutex::new(BTreeMap::new());
        let key = (self, alpha.to_bits());
        let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&reach) = known().get(&key) {
            return reach;
        }
        let reach = self.simulated(method, alpha);
        let mut known = known();
        if known.len() >= MOST_REMEMBERED {
            known.clear();
        }
        known.insert(key, reach);
        reach
    }

    /// A shift is found when it is larger than what lies between the centre and the interval's lower end, so
    /// a quantile of that over simulated normal noise is the answer.
    fn simulated(self, method: Method, alpha: f64) -> f64 {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let mut normal = |n: usize| {
            Sample::of_finite((0..n).map(|_| StandardNormal.sample(&mut rng)).collect::<Vec<f64>>())
        };
        let needed: Vec<f64> = match self {
            Self::Blocks { blocks } => {
                let (outside, _) = signed_rank::critical(blocks, alpha);
                (0..SIMULATIONS)
                    .map(|_| match method {
                        Method::SignedRank => -signed_rank::lower_end(&normal(blocks), outside),
                        _ => -student::of_differences(&normal(blocks), alpha).low,
                    })
                    .collect()
            }
            Self::Separate { a, b } => {
                let (outside, _) = rank_sum::critical(a, b, alpha);
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

    /// The textbook's (t₁₋α⸝₂ + t_power) · error; ranks need √(π/3) times that of normal noise.
    fn formula(self, method: Method, alpha: f64) -> f64 {
        let (error, freedom) = match self {
            Self::Blocks { blocks } => ((1.0 / blocks as f64).sqrt(), (blocks - 1) as f64),
            Self::Separate { a, b } => ((1.0 / a as f64 + 1.0 / b as f64).sqrt(), (a + b - 2) as f64),
        };
        let reach =
            (student::quantile(1.0 - alpha / 2.0, freedom) + student::quantile(POWER, freedom)) * error;
        match method {
            Method::PairedT | Method::WelchT => reach,
            Method::SignedRank | Method::RankSum => reach * (std::f64::consts::PI / 3.0).sqrt(),
        }
    }
}

/// What the noise may well be, seen only in a sample with so many degrees of freedom: its upper limit at
/// 80 %. A plan made from the noise as seen would be too hopeful half of the time, and with few runs by
/// much: R. H. Browne, "On the use of a pilot sample for sample size determination", 1995.
pub fn noise_limit(noise: f64, freedom: usize) -> f64 {
    let freedom = freedom.max(1) as f64;
    let spread = ChiSquared::new(freedom).expect("the degrees of freedom are positive");
    noise * (freedom / spread.inverse_cdf(0.2)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: Design = Design::Blocks { blocks: 0 };
    const SEPARATE: Design = Design::Separate { a: 0, b: 0 };

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
        assert_eq!((BLOCKS.fewest_for_ranks(0.05), SEPARATE.fewest_for_ranks(0.05)), (6, 4));
    }

    /// statsmodels 0.15: `TTestPower().solve_power(nobs=n, alpha=alpha, power=0.9)` and
    /// `TTestIndPower().solve_power(nobs1=n, alpha=alpha, power=0.9)`; those of few separate runs by
    /// 400,000 simulated `ttest_ind(y, x, equal_var=False).confidence_interval(1 - alpha)` of scipy 1.17,
    /// 0.9 quantile of −low.
    #[test]
    fn reaches_are_those_of_the_noncentral_t() {
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
            let reach = design.reach(alpha).unwrap();
            assert!((reach / expected - 1.0).abs() < 0.05, "{design:?}: {reach} is not {expected}");
        }
    }

    /// Six blocks show a difference when all six agree: Φ(δ)⁶ = 0.9.
    #[test]
    fn six_blocks_must_all_agree() {
        let reach = Design::Blocks { blocks: 6 }.reach(0.05).unwrap();
        assert!((reach - 2.11).abs() < 0.06, "{reach}");
    }

    /// scipy 1.17: `math.sqrt(n / chi2.ppf(0.2, n))`.
    #[test]
    fn few_runs_know_their_noise_badly() {
        for (freedom, expected) in [(1, 3.947_153_5), (5, 1.461_0), (9, 1.293_4), (38, 1.115_5)] {
            assert!(
                (noise_limit(1.0, freedom) - expected).abs() < 1e-3,
                "{freedom}: {}",
                noise_limit(1.0, freedom)
            );
        }
    }

    #[test]
    fn the_formula_continues_where_the_simulation_ends() {
        for (simulated, formula) in [
            (Design::Blocks { blocks: 20 }, Design::Blocks { blocks: 21 }),
            (Design::Separate { a: 20, b: 20 }, Design::Separate { a: 21, b: 21 }),
        ] {
            let ratio = formula.reach(0.05).unwrap() / simulated.reach(0.05).unwrap();
            assert!((0.92..1.02).contains(&ratio), "{ratio}");
        }
    }

    #[test]
    fn more_runs_resolve_less() {
        for kind in [BLOCKS, SEPARATE] {
            let reaches: Vec<f64> =
                [6, 10, 20, 40, 100].map(|n| kind.with_repeats(n).reach(0.05).unwrap()).to_vec();
            assert!(reaches.is_sorted_by(|a, b| a > b), "{reaches:?}");
        }
    }
}
