//! Is B better than A, by how much, and how small a difference could have been seen?
//!
//! Ratios are compared by their logarithms, so that "twice" and "half" weigh the same. Every comparison
//! of a family is held to Holm's rule, and says what it could have shown had there been something.

mod warnings;

use record::Warning;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use super::resolvable::Method;
use super::{
    holm, rank_sum,
    resolvable::{Design, POWER, noise_limit},
    sample::{Confidence, Refusal, Sample},
    signed_rank,
    student::{self, Estimate},
    summary::{outlier_warning, outliers},
};

/// One question about A and B.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Question<'a> {
    /// The values.
    pub runs: Runs<'a>,
    /// Which way is better.
    pub better: Better,
    /// How a difference is measured.
    pub scale: Scale,
}

/// The values of A and B: one per run, never one per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Runs<'a> {
    /// A and B ran in turns; values at the same position are of the same block, within which the order
    /// should be random.
    Blocks {
        /// Of A, in order of the blocks.
        a: &'a [f64],
        /// Of B, in order of the blocks.
        b: &'a [f64],
    },
    /// A and B ran apart.
    Separate {
        /// Of A.
        a: &'a [f64],
        /// Of B.
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

/// How a difference is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// B over A; all values must be above 0. No difference is 1.
    Ratio,
    /// B minus A, for values that may be 0. No difference is 0.
    Difference,
}

/// What a comparison shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// A is better, with the confidence asked for.
    ABetter,
    /// B is better, with the confidence asked for.
    BBetter,
    /// None was shown. That is not "they are equal": see what could have been resolved.
    NoDifferenceShown,
    /// There are too few runs to show any difference, however large.
    CannotTell,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// What is shown.
    pub verdict: Verdict,
    /// Which way is better.
    pub better: Better,
    /// How the difference is measured.
    pub scale: Scale,
    /// How many runs, and how they belong together.
    pub design: Design,
    /// By which test; none if there are too few runs for any.
    pub method: Option<Method>,
    /// B over A, or B minus A.
    pub effect: f64,
    /// Lower end of the effect's interval.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
    /// The confidence that this interval really has, taken alone.
    pub confidence: f64,
    /// The confidence that was wanted.
    pub wanted_confidence: f64,
    /// The chance of a difference as large as this between two equal targets, taken alone; two-sided.
    pub p_value: f64,
    /// The same among all comparisons of the family, by Holm's rule. The verdict goes by this one.
    pub adjusted_p_value: f64,
    /// How many comparisons were made at once.
    pub comparisons: usize,
    /// Standard deviation of the differences within blocks, or of single separate runs; of logarithms
    /// where the scale is a ratio (0.03 is about 3 %). None of a single run.
    pub noise: Option<f64>,
    /// The smallest difference that so many runs show nine times of ten (`power`) in this family: relative
    /// (0.02 is 2 %) where the scale is a ratio, else in the unit of the values. The noise is taken as
    /// large as it may well be, which of few runs is more than they show.
    pub resolvable: Option<f64>,
    /// How often a difference of `resolvable` is shown.
    pub power: f64,
    /// What a careful reader should know.
    pub warnings: Vec<Warning>,
}

/// One comparison alone.
pub fn compare(question: Question, confidence: Confidence) -> Result<Comparison, Refusal> {
    compare_all(&[question], confidence).swap_remove(0)
}

/// All comparisons of a family: with the confidence given, *none* of the differences claimed is false.
/// Refused questions do not count as comparisons.
pub fn compare_all(questions: &[Question], confidence: Confidence) -> Vec<Result<Comparison, Refusal>> {
    let read: Vec<Result<Numbers, Refusal>> = questions.iter().map(Numbers::read).collect();
    let comparisons = read.iter().filter(|numbers| numbers.is_ok()).count();
    let family =
        Family { confidence, comparisons, alpha_of_one: confidence.alpha() / comparisons.max(1) as f64 };
    let mut answers: Vec<Result<Comparison, Refusal>> = read
        .into_iter()
        .zip(questions)
        .map(|(numbers, question)| numbers.map(|numbers| family.answer(&numbers, question)))
        .collect();
    let p_values: Vec<f64> = answers.iter().flatten().map(|answer| answer.p_value).collect();
    let adjusted = holm::adjust(&p_values);
    for (answer, adjusted) in answers.iter_mut().flatten().zip(adjusted) {
        family.judge(answer, adjusted);
    }
    answers
}

/// The values of a question on the scale that they are compared on.
enum Numbers {
    Blocks { differences: Sample },
    Separate { a: Sample, b: Sample },
}

impl Numbers {
    fn read(question: &Question) -> Result<Self, Refusal> {
        let scaled = |values: &[f64]| match question.scale {
            Scale::Ratio => Sample::logarithms(values),
            Scale::Difference => Sample::new(values),
        };
        match question.runs {
            Runs::Blocks { a, b } if a.len() != b.len() => {
                Err(Refusal::UnequalBlocks { a: a.len(), b: b.len() })
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
                let freedom = a.len() + b.len() - 2;
                (freedom > 0).then(|| ((squares(a) + squares(b)) / freedom as f64).sqrt())
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

struct Family {
    confidence: Confidence,
    comparisons: usize,
    alpha_of_one: f64,
}

impl Family {
    fn answer(&self, numbers: &Numbers, question: &Question) -> Comparison {
        let design = numbers.design();
        let method = design.method(self.alpha_of_one);
        let estimate = numbers.estimate(method, self.confidence.alpha());
        let noise = numbers.noise();
        let smallest = design
            .reach(self.alpha_of_one)
            .zip(noise.filter(|noise| *noise > 0.0))
            .map(|(reach, noise)| reach * noise_limit(noise, design.freedom()));
        let mut warnings = warnings::of_design(self, design, method);
        if estimate.confidence < self.confidence.value() - 1e-12 && method.is_some() {
            warnings.push(warnings::wide_interval(self.confidence, estimate.confidence));
        }
        if noise == Some(0.0) {
            warnings.push(warnings::no_spread());
        }
        warnings.extend(numbers.warnings());
        // Kept finite: JSON has no infinity.
        let shown = |shift: f64| match question.scale {
            Scale::Ratio => shift.exp().min(f64::MAX),
            Scale::Difference => shift,
        };
        Comparison {
            verdict: Verdict::CannotTell,
            better: question.better,
            scale: question.scale,
            design,
            method,
            effect: shown(estimate.shift),
            low: shown(estimate.low),
            high: shown(estimate.high),
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
        let nothing = match answer.scale {
            Scale::Ratio => 1.0,
            Scale::Difference => 0.0,
        };
        let more = match answer.better {
            Better::More => Verdict::BBetter,
            Better::Less => Verdict::ABetter,
        };
        let less = if more == Verdict::BBetter { Verdict::ABetter } else { Verdict::BBetter };
        answer.verdict = match () {
            () if answer.method.is_none() => Verdict::CannotTell,
            () if adjusted_p_value > alpha || answer.effect == nothing => Verdict::NoDifferenceShown,
            () if answer.effect > nothing => more,
            () => less,
        };
        if answer.method.is_some() && answer.p_value <= alpha && adjusted_p_value > alpha {
            answer.warnings.push(warnings::held_back(self.comparisons));
        }
    }
}

#[cfg(test)]
mod tests;
