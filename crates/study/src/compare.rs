//! Compares two results, or two levels of a factor within one result, setting by setting.
//!
//! Results are compared as separate runs. Levels within one study ran in turns, so they are compared block by block, which
//! removes a drift of the machine from the difference. Holm's rule applies to all rows together: see `docs/statistics.md`.

mod gate;
mod rows;

use record::{Environment, Level, StudyPlan, StudyResult, Warning, study::quantities};
use schemars::JsonSchema;
use search::statistics::{self, Better, Confidence, Scale, Verdict};
use serde::{Deserialize, Serialize};

pub use gate::Gate;
use rows::{Pair, Values};

/// The format of comparisons that this version writes.
pub const SCHEMA: &str = "proofload/comparison/1";

/// A result that is compared.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// Its name: the folder, or the level of a factor.
    pub name: &'a str,
    /// Its plan.
    pub plan: &'a StudyPlan,
    /// Its outcomes.
    pub result: &'a StudyResult,
    /// The machine of the measurement; none if the folder does not describe it.
    pub environment: Option<&'a Environment>,
}

/// Options of a comparison.
#[derive(Debug, Clone, Default)]
pub struct CompareOptions {
    /// Confidence of all verdicts together.
    pub confidence: Confidence,
    /// How much worse B may be than A: 0.05 for 5 %; for quantities that may be 0, such as the error ratio, 0.05 in
    /// the quantity's unit. None for no limit.
    pub fail_if_worse: Option<f64>,
    /// Names of quantities, which may include `lower_bound`; empty for the default ones.
    pub quantities: Vec<String>,
    /// Compare even if the plans differ.
    pub force: bool,
}

/// Why two results cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// The results do not answer the same question.
    #[error(
        "the results are not of the same plan:\n  {}\nrun both from the same study, or compare them anyway with --force",
        differences.join("\n  ")
    )]
    OtherPlan {
        /// The differences, one per line.
        differences: Vec<String>,
    },
    /// The results have nothing in common.
    #[error("there is nothing to compare: {why}")]
    Nothing {
        /// What is missing, and how to get it.
        why: String,
    },
    /// The results have no such quantity.
    #[error("there is no quantity '{name}'; there are {}", known.join(", "))]
    Quantity {
        /// The requested name.
        name: String,
        /// The quantities of the results.
        known: Vec<String>,
    },
    /// The study has no such factor or level.
    #[error("the study has no {what}; it has {}", known.join(", "))]
    Level {
        /// The requested name.
        what: String,
        /// The factors or levels of the study.
        known: Vec<String>,
    },
}

/// The comparison of two results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// The format of this record, [`SCHEMA`].
    pub schema: String,
    /// The name of A.
    pub a: String,
    /// The name of B.
    pub b: String,
    /// Confidence of all verdicts together.
    pub confidence: f64,
    /// What all rows together show.
    pub verdict: Overall,
    /// Whether B is no worse than allowed, over all rows; none without a limit.
    pub gate: Option<Gate>,
    /// Every quantity of every setting.
    pub rows: Vec<Row>,
    /// Warnings about the comparison.
    pub warnings: Vec<Warning>,
}

/// What all rows together show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overall {
    /// A is better in at least one row, B in none.
    ABetter,
    /// B is better in at least one row, A in none.
    BBetter,
    /// A is better in some rows, B in others.
    Mixed,
    /// No row shows a difference, and at least one could have.
    NoDifferenceShown,
    /// No row could have shown a difference.
    CannotTell,
}

/// The comparison of a quantity in a setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// The setting's levels in words; empty if the study has no factors.
    pub setting: String,
    /// The quantity with its unit, or `lower_bound`.
    pub quantity: String,
    /// The goal that a lower bound belongs to.
    pub goal: Option<String>,
    /// The values of A, one per run.
    pub a: Vec<f64>,
    /// The values of B, one per run.
    pub b: Vec<f64>,
    /// The median of A.
    pub a_median: f64,
    /// The median of B.
    pub b_median: f64,
    /// The effect with its interval, the verdict, and the smallest effect that could have been shown.
    pub statistics: statistics::Comparison,
    /// Whether B is no worse than allowed; none without a limit.
    pub gate: Option<Gate>,
}

/// Compares two results of the same plan that were measured separately.
///
/// # Errors
/// If the plans differ and `force` is not set, or if the results have nothing in common.
pub fn compare(a: Side, b: Side, options: &CompareOptions) -> Result<Comparison, CompareError> {
    let differences = differences(a.plan, b.plan);
    if !differences.is_empty() && !options.force {
        return Err(CompareError::OtherPlan { differences });
    }
    let mut warnings = Vec::new();
    if !differences.is_empty() {
        warnings.push(Warning::new("other_plan", format!("the plans differ: {}", differences.join("; "))));
    }
    warnings.extend(other_inputs(a.plan, b.plan));
    warnings.extend(other_environment(a, b));
    let mut pairs = Vec::new();
    for (index, setting) in a.plan.settings.iter().enumerate() {
        match b.plan.settings.iter().position(|other| other.levels == setting.levels) {
            Some(other) => pairs.push(Pair::of_two_results(setting, (a, index), (b, other))),
            None => warnings.push(only_in(a.name, &setting.name)),
        }
    }
    for setting in &b.plan.settings {
        if !a.plan.settings.iter().any(|other| other.levels == setting.levels) {
            warnings.push(only_in(b.name, &setting.name));
        }
    }
    conclude(a, b, &pairs, options, warnings)
}

/// Compares two levels of a factor within one result, block by block, with all other factors equal.
///
/// # Errors
/// If the study has no such factor or level, or no two settings that differ only in it.
pub fn compare_levels(
    side: Side,
    factor: &str,
    levels: (&Level, &Level),
    options: &CompareOptions,
) -> Result<Comparison, CompareError> {
    let known =
        side.plan.factors.iter().find(|known| known.name == factor).ok_or_else(|| CompareError::Level {
            what: format!("factor '{factor}'"),
            known: side.plan.factors.iter().map(|factor| factor.name.clone()).collect(),
        })?;
    for level in [levels.0, levels.1] {
        if !known.levels.contains(level) {
            return Err(CompareError::Level {
                what: format!("level '{level}' of {factor}"),
                known: known.levels.iter().map(ToString::to_string).collect(),
            });
        }
    }
    let settings = &side.plan.settings;
    let pairs: Vec<Pair> = settings
        .iter()
        .enumerate()
        .filter(|(_, setting)| setting.levels.get(factor) == Some(levels.0))
        .filter_map(|(index, setting)| {
            let mut wanted = setting.levels.clone();
            wanted.insert(factor.to_owned(), levels.1.clone());
            let other = settings.iter().position(|other| other.levels == wanted)?;
            Some(Pair::of_one_result(side, factor, index, other))
        })
        .collect();
    let (a, b) = (format!("{factor}={}", levels.0), format!("{factor}={}", levels.1));
    conclude(Side { name: &a, ..side }, Side { name: &b, ..side }, &pairs, options, Vec::new())
}

/// Compares the first level of a factor with every other level. Sorts the comparisons by the first quantity, best level first. The
/// confidence holds for all comparisons together.
///
/// # Errors
/// As [`compare_levels`], and if the factor has a single level.
pub fn rank_levels(
    side: Side,
    factor: &str,
    options: &CompareOptions,
) -> Result<Vec<Comparison>, CompareError> {
    let known = side.plan.factors.iter().find(|known| known.name == factor);
    let (first, others) = match known.map(|known| &known.levels[..]) {
        Some([first, others @ ..]) if !others.is_empty() => (first, others),
        Some(_) => {
            let why = format!("the factor '{factor}' has only one level, and two are needed");
            return Err(CompareError::Nothing { why });
        }
        // No level is a flag, so the comparison fails and its error lists the known factors.
        None => {
            let none = Level::Flag(false);
            return compare_levels(side, factor, (&none, &none), options).map(|one| vec![one]);
        }
    };
    let alpha = (1.0 - options.confidence.value()) / others.len() as f64;
    let confidence = Confidence::new(1.0 - alpha).unwrap_or(options.confidence);
    let options = CompareOptions { confidence, ..options.clone() };
    let compared = others.iter().map(|other| compare_levels(side, factor, (first, other), &options));
    let mut ranked = compared.collect::<Result<Vec<_>, _>>()?;
    ranked.sort_by(|a, b| b.gain().total_cmp(&a.gain()));
    Ok(ranked)
}

impl Comparison {
    /// How much better B is in the first quantity, as a logarithm of ratios or as a difference.
    fn gain(&self) -> f64 {
        let Some(statistics) = self.rows.first().map(|row| &row.statistics) else { return 0.0 };
        let effect = match statistics.scale {
            Scale::Ratio => statistics.effect.ln(),
            Scale::Difference => statistics.effect,
        };
        if statistics.better == Better::More { effect } else { -effect }
    }
}

fn conclude(
    a: Side,
    b: Side,
    pairs: &[Pair],
    options: &CompareOptions,
    mut warnings: Vec<Warning>,
) -> Result<Comparison, CompareError> {
    if pairs.is_empty() {
        let why = "no setting of A has a counterpart in B; compare results of the same study".to_owned();
        return Err(CompareError::Nothing { why });
    }
    let mut values: Vec<Values> = Vec::new();
    let quantities = quantities(a.plan);
    for pair in pairs {
        values.extend(pair.values(&quantities, &options.quantities, &mut warnings)?);
    }
    let rows: Vec<Row> = rows::judge(values, options, &mut warnings);
    if rows.is_empty() {
        let why = "no quantity was measured in both; look at the void trials of each result".to_owned();
        return Err(CompareError::Nothing { why });
    }
    warnings.extend([a, b].into_iter().filter_map(unfinished));
    warnings.dedup();
    Ok(Comparison {
        schema: SCHEMA.to_owned(),
        a: a.name.to_owned(),
        b: b.name.to_owned(),
        confidence: options.confidence.value(),
        verdict: overall(&rows),
        gate: Gate::over(rows.iter().filter_map(|row| row.gate)),
        rows,
        warnings,
    })
}

fn overall(rows: &[Row]) -> Overall {
    let any = |verdict| rows.iter().any(|row| row.statistics.verdict == verdict);
    match (any(Verdict::ABetter), any(Verdict::BBetter)) {
        (true, true) => Overall::Mixed,
        (true, false) => Overall::ABetter,
        (false, true) => Overall::BBetter,
        (false, false) if any(Verdict::NoDifferenceShown) => Overall::NoDifferenceShown,
        (false, false) => Overall::CannotTell,
    }
}

/// Describes the differences between the plans that make the results incomparable.
fn differences(a: &StudyPlan, b: &StudyPlan) -> Vec<String> {
    let goals = |plan: &StudyPlan| {
        let names: Vec<&str> = plan.goals.iter().map(|goal| goal.name.as_str()).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    let duration =
        |plan: &StudyPlan| plan.trial_duration_s.map_or("until done".to_owned(), |s| format!("{s} s"));
    let search = |plan: &StudyPlan| {
        plan.search.as_ref().map_or("none".to_owned(), |search| {
            format!(
                "{} of {} from {} to {}, width {}, {} trials of {} s at a load",
                search.method,
                search.unit.name(),
                search.min,
                search.max,
                search.width,
                (search.duration_sum_s / search.trial_duration_s).round(),
                search.trial_duration_s
            )
        })
    };
    let mut differences = Vec::new();
    let mut hold = |what: &str, a: String, b: String| {
        if a != b {
            differences.push(format!("{what}: A has '{a}', B has '{b}'"));
        }
    };
    hold("title", a.title.clone(), b.title.clone());
    hold("workload", a.workload.clone(), b.workload.clone());
    hold("goals", goals(a), goals(b));
    hold("trial", duration(a), duration(b));
    hold("search", search(a), search(b));
    differences
}

/// Warns of different inputs, such as headers or a body, that the descriptions in a plan do not show.
fn other_inputs(a: &StudyPlan, b: &StudyPlan) -> Option<Warning> {
    (a.settings == b.settings && a.inputs != b.inputs).then(|| {
        let message = "the study files or options of A and B differ although their plans look alike: compare study.toml, \
                       or the command in plan.json";
        Warning::new("other_inputs", message)
    })
}

fn other_environment(a: Side, b: Side) -> Option<Warning> {
    let differences = a.environment?.differences(b.environment?);
    (!differences.is_empty()).then(|| {
        let message = format!(
            "A and B were measured in different environments, which may explain a difference: {}",
            differences.join("; ")
        );
        Warning::new("other_environment", message)
    })
}

fn only_in(side: &str, setting: &str) -> Warning {
    Warning::new(
        "only_in_one",
        format!("'{setting}' is only in {side} and is not compared; run both with the same factors"),
    )
}

fn unfinished(side: Side) -> Option<Warning> {
    (side.result.ending != record::Ending::Finished).then(|| {
        let why = match side.result.ending {
            record::Ending::Interrupted => "it was interrupted",
            record::Ending::OutOfBudget => "its budget was used up",
            record::Ending::Finished | record::Ending::Failed => "it failed",
        };
        Warning::new(
            "unfinished",
            format!(
                "{} is not finished ({why}): only what it has measured is compared; finish it with --resume",
                side.name
            ),
        )
    })
}

#[cfg(test)]
mod tests;
