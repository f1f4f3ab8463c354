//! Comparisons: whether B is better than A, by how much, and how small a difference the runs could have shown.
//!
//! Ratios are compared by their logarithms, so that "twice" and "half" weigh the same. Holm's rule corrects the
//! comparisons of a family. Each comparison states the smallest difference that it could have shown.

mod warnings;

use record::Warning;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use super::resolvable::Method;
use super::{
    holm, rank_sum,
    resolvable::{Design, POWER, noise_limit},
    sample::{Confidence, Sample, SampleError},
    signed_rank,
    student::{self, Estimate},
    summary::{outlier_warning, outliers},
};

/// A question about A and B.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Question<'a> {
    /// The values of both.
    pub runs: Runs<'a>,
    /// Which way is better.
    pub better: Better,
    /// How the difference is measured.
    pub scale: Scale,
}

/// The values of A and B, one per run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Runs<'a> {
    /// A and B ran alternately. Values at the same position belong to the same block; the order within a block should
    /// be random.
    Blocks {
        /// Values of A, in the order of the blocks.
        a: &'a [f64],
        /// Values of B, in the order of the blocks.
        b: &'a [f64],
    },
    /// A and B ran separately.
    Separate {
        /// Values of A.
        a: &'a [f64],
        /// Values of B.
        b: &'a [f64],
    },
}

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// More is better, such as requests per second.
    More,
    /// Less is better, such as response times.
    Less,
}

/// How the difference is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// B divided by A; all values must be above 0. 1 means no difference.
    Ratio,
    /// B minus A, for values that may be 0. 0 means no difference.
    Difference,
}

/// What a comparison shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// A is better, with the requested confidence.
    ABetter,
    /// B is better, with the requested confidence.
    BBetter,
    /// No difference was shown. That does not mean that A and B are equal: see `resolvable`.
    NoDifferenceShown,
    /// There are too few runs to show any difference, however large.
    CannotTell,
}

/// The answer to a question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// What the comparison shows.
    pub verdict: Verdict,
    /// Which way is better.
    pub better: Better,
    /// How the difference is measured.
    pub scale: Scale,
    /// How many runs were compared, and whether they are paired.
    pub design: Design,
    /// The test; none if there are too few runs for any.
    pub method: Option<Method>,
    /// B divided by A, or B minus A.
    pub effect: f64,
    /// Lower end of the effect's interval.
    pub low: f64,
    /// Upper end of the effect's interval.
    pub high: f64,
    /// The actual confidence of this interval, without correction for the family.
    pub confidence: f64,
    /// The requested confidence.
    pub wanted_confidence: f64,
    /// The two-sided probability of a difference at least this large between equal targets, without correction for the
    /// family.
    pub p_value: f64,
    /// The p-value corrected for the family by Holm's rule. It decides the verdict.
    pub adjusted_p_value: f64,
    /// Number of comparisons in the family.
    pub comparisons: usize,
    /// Standard deviation of the differences within blocks, or of single separate runs; for ratios that of the logarithms
    /// (0.03 is about 3 %). None for a single run.
    pub noise: Option<f64>,
    /// The smallest difference that this many runs show with the probability `power` in this family: relative for ratios
    /// (0.02 is 2 %), else in the unit of the values. Based on the upper confidence limit of the noise.
    pub resolvable: Option<f64>,
    /// The probability that a difference of `resolvable` is shown.
    pub power: f64,
    /// What a careful reader should know.
    pub warnings: Vec<Warning>,
}

/// Makes a single comparison.
///
/// # Errors
/// When the values cannot be compared.
pub fn compare(question: Question, confidence: Confidence) -> Result<Comparison, SampleError> {
    compare_all(&[question], confidence).swap_remove(0)
}

/// Makes all comparisons of a family. The given confidence is the probability that *none* of the claimed differences is
/// false. Questions whose values cannot be compared do not count as comparisons.
pub fn compare_all(questions: &[Question], confidence: Confidence) -> Vec<Result<Comparison, SampleError>> {
    let scaled: Vec<Result<ScaledValues, SampleError>> = questions.iter().map(ScaledValues::of).collect();
    let comparisons = scaled.iter().filter(|values| values.is_ok()).count();
    let family = Family {
        confidence,
        comparisons,
        alpha_per_comparison: confidence.alpha() / comparisons.max(1) as f64,
    };
    let mut answers: Vec<Result<Comparison, SampleError>> = scaled
        .into_iter()
        .zip(questions)
        .map(|(values, question)| values.map(|values| family.answer(&values, question)))
        .collect();
    let p_values: Vec<f64> = answers.iter().flatten().map(|answer| answer.p_value).collect();
    let adjusted = holm::adjust(&p_values);
    for (answer, adjusted) in answers.iter_mut().flatten().zip(adjusted) {
        family.judge(answer, adjusted);
    }
    answers
}

/// The values of a question on the scale of the comparison.
enum ScaledValues {
    Blocks { differences: Sample },
    Separate { a: Sample, b: Sample },
}

impl ScaledValues {
    fn of(question: &Question) -> Result<Self, SampleError> {
        let scaled = |values: &[f64]| match question.scale {
            Scale::Ratio => Sample::logarithms(values),
            Scale::Difference => Sample::new(values),
        };
        match question.runs {
            Runs::Blocks { a, b } if a.len() != b.len() => {
                Err(SampleError::UnequalBlocks { a: a.len(), b: b.len() })
            }
            Runs::Blocks { a, b } => {
                let (a, b) = (scaled(a)?, scaled(b)?);
                let differences = a.values().iter().zip(b.values()).map(|(a, b)| b - a).collect();
                Ok(Self::Blocks { differences: Sample::of_finite(differences) })
            }
            Runs::Separate { a, b } => Ok(Self::Separate { a: scaled(a)?, b: scaled(b)? }),
        }
    }

    fn design(&self) -> Design {
        match self {
            Self::Blocks { differences } => Design::Blocks { blocks: differences.len() },
            Self::Separate { a, b } => Design::Separate { a: a.len(), b: b.len() },
        }
    }

    fn estimate(&self, method: Option<Method>, alpha: f64) -> Estimate {
        match (self, method) {
            (Self::Blocks { differences }, Some(Method::PairedT)) => {
                student::of_differences(differences, alpha)
            }
            (Self::Separate { a, b }, Some(Method::WelchT)) => student::of_samples(a, b, alpha),
            (Self::Blocks { differences }, _) => signed_rank::estimate(differences, alpha),
            (Self::Separate { a, b }, _) => rank_sum::estimate(a, b, alpha),
        }
    }

    fn noise(&self) -> Option<f64> {
        match self {
            Self::Blocks { differences } => differences.variance().map(f64::sqrt),
            Self::Separate { a, b } => {
                let squares = |sample: &Sample| sample.variance().unwrap_or(0.0) * (sample.len() - 1) as f64;
                let degrees = a.len() + b.len() - 2;
                (degrees > 0).then(|| ((squares(a) + squares(b)) / degrees as f64).sqrt())
            }
        }
    }

    fn warnings(&self) -> Vec<Warning> {
        let found = |sample: &Sample, what: &str| {
            let positions = outliers(sample);
            (!positions.is_empty()).then(|| outlier_warning(&positions, what))
        };
        match self {
            Self::Blocks { differences } => {
                found(differences, "the differences in blocks").into_iter().collect()
            }
            Self::Separate { a, b } => {
                [found(a, "A's runs"), found(b, "B's runs"), Some(warnings::separate_runs())]
                    .into_iter()
                    .flatten()
                    .collect()
            }
        }
    }
}

/// Comparisons that are corrected together.
struct Family {
    confidence: Confidence,
    comparisons: usize,
    alpha_per_comparison: f64,
}

impl Family {
    fn answer(&self, values: &ScaledValues, question: &Question) -> Comparison {
        let design = values.design();
        let method = design.method(self.alpha_per_comparison);
        let estimate = values.estimate(method, self.confidence.alpha());
        let noise = values.noise();
        let smallest = design
            .detectable_shift(self.alpha_per_comparison)
            .zip(noise.filter(|noise| *noise > 0.0))
            .map(|(detectable_shift, noise)| {
                detectable_shift * noise_limit(noise, design.degrees_of_freedom())
            });
        let mut warnings = warnings::of_design(self, design, method);
        if estimate.confidence < self.confidence.value() - 1e-12 && method.is_some() {
            warnings.push(warnings::wide_interval(self.confidence, estimate.confidence));
        }
        if noise == Some(0.0) {
            warnings.push(warnings::no_spread());
        }
        warnings.extend(values.warnings());
        // JSON cannot represent infinity.
        let on_scale = |shift: f64| match question.scale {
            Scale::Ratio => shift.exp().min(f64::MAX),
            Scale::Difference => shift,
        };
        Comparison {
            verdict: Verdict::CannotTell,
            better: question.better,
            scale: question.scale,
            design,
            method,
            effect: on_scale(estimate.shift),
            low: on_scale(estimate.low),
            high: on_scale(estimate.high),
            confidence: estimate.confidence,
            wanted_confidence: self.confidence.value(),
            p_value: estimate.p_value,
            adjusted_p_value: estimate.p_value,
            comparisons: self.comparisons,
            noise,
            resolvable: smallest.map(|smallest| match question.scale {
                Scale::Ratio => smallest.exp_m1().min(f64::MAX),
                Scale::Difference => smallest,
            }),
            power: POWER,
            warnings,
        }
    }

    fn judge(&self, answer: &mut Comparison, adjusted_p_value: f64) {
        let alpha = self.confidence.alpha() + 1e-12;
        answer.adjusted_p_value = adjusted_p_value;
        let no_difference = match answer.scale {
            Scale::Ratio => 1.0,
            Scale::Difference => 0.0,
        };
        let b_is_better = (answer.effect > no_difference) == (answer.better == Better::More);
        answer.verdict = if answer.method.is_none() {
            Verdict::CannotTell
        } else if adjusted_p_value > alpha || answer.effect == no_difference {
            Verdict::NoDifferenceShown
        } else if b_is_better {
            Verdict::BBetter
        } else {
            Verdict::ABetter
        };
        if answer.method.is_some() && answer.p_value <= alpha && adjusted_p_value > alpha {
            answer.warnings.push(warnings::held_back(self.comparisons));
        }
    }
}

#[cfg(test)]
mod tests;
