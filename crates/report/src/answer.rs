//! What a study answers: for each goal in each setting, two bounds and what bounded them.

use record::{BoundKind, GoalOutcome, LoadUnit, SearchOutcome};

use crate::{
    Results,
    reading::{Reading, readings},
    sentence, text,
};

/// What is known of a goal in a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It is met: at the workload's own load, or (in a search) at the lower bound.
    Met,
    /// It is not met: at the workload's own load, or at any load that was asked for.
    NotMet,
    /// Nothing may be concluded: what was run for it is void.
    Void,
    /// It was not run, or not to its end.
    Unfinished,
}

impl Status {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::NotMet => "not met",
            Self::Void => "not decided",
            Self::Unfinished => "unfinished",
        }
    }

    /// A sign that is told apart without colour.
    pub fn sign(self) -> &'static str {
        match self {
            Self::Met => "✓",
            Self::NotMet => "✗",
            Self::Void => "◇",
            Self::Unfinished => "…",
        }
    }
}

/// The answer for one goal in one setting (and, of several searches, one block).
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The number of the setting.
    pub setting: usize,
    /// The number of the goal.
    pub goal: usize,
    /// The goal's name, as it stands in the plan.
    pub goal_name: String,
    /// The block of the search; none if it is the only one, or nothing was searched.
    pub block: Option<usize>,
    /// What is known.
    pub status: Status,
    /// Where a search was made: the bounds, for people.
    pub bounds: Option<Bounds>,
    /// All of it in one sentence, without the name of the setting.
    pub sentence: String,
}

/// Two bounds as people read them: never a bare number where the true one may be larger.
#[derive(Debug, Clone, PartialEq)]
pub struct Bounds {
    /// Largest load that meets the goal: `17,800/s`, `≥ 20,000/s`, `–`.
    pub lower: String,
    /// Smallest load that does not: `18,000/s`, `< 500/s`, `–`.
    pub upper: String,
    /// What kind of answer they are: `both bounds found`, `generator-bound from 19,000/s`.
    pub kind: String,
    /// The lower bound less what was lost at it.
    pub conditional_throughput: Option<String>,
}

/// Every answer of a study, setting by setting, goal by goal.
pub fn answers(results: &Results) -> Vec<Answer> {
    answers_with(results, &readings(results))
}

/// [`answers`], with the trials read already.
pub(crate) fn answers_with(results: &Results, readings: &[Reading]) -> Vec<Answer> {
    let settings = results.plan.settings.iter().enumerate();
    settings
        .flat_map(|(number, setting)| {
            let of_setting: Vec<&Reading> = readings.iter().filter(|r| r.setting == number).collect();
            if setting.searched {
                searched(results, number, &of_setting)
            } else {
                repeated(results, number, &of_setting)
            }
        })
        .collect()
}

fn searched(results: &Results, setting: usize, readings: &[&Reading]) -> Vec<Answer> {
    let searches = searches_of(results, setting);
    if searches.is_empty() {
        let goals = results.plan.goals.iter().enumerate();
        return goals
            .map(|(goal, plan)| {
                let (status, sentence) = sentence::nothing_found(results, readings);
                Answer {
                    setting,
                    goal,
                    goal_name: plan.name.clone(),
                    block: None,
                    status,
                    bounds: None,
                    sentence,
                }
            })
            .collect();
    }
    let unit = results.plan.search.as_ref().map_or(LoadUnit::Rate, |search| search.unit.clone());
    let several = searches.len() > 1;
    let answer_of = |search: &SearchOutcome, goal: usize, outcome: &GoalOutcome| {
        let in_block: Vec<&Reading> = readings.iter().copied().filter(|r| r.block == search.block).collect();
        let place = sentence::Place { results, setting, goal, block: search.block, unit: &unit };
        let (status, sentence) = place.in_words(outcome, &in_block);
        Answer {
            setting,
            goal,
            goal_name: outcome.goal.clone(),
            block: several.then_some(search.block),
            status,
            bounds: Some(bounds(outcome, &unit)),
            sentence,
        }
    };
    let by_goal = results.plan.goals.iter().enumerate().flat_map(|(goal, _)| {
        searches
            .iter()
            .filter_map(move |search| search.goals.get(goal).map(|outcome| (search, goal, outcome)))
    });
    by_goal.map(|(search, goal, outcome)| answer_of(search, goal, outcome)).collect()
}

/// The searches of a setting; none if there is no result, or it has none for the setting.
pub(crate) fn searches_of(results: &Results, setting: usize) -> &[SearchOutcome] {
    let mut outcomes = results.outcomes().iter();
    outcomes.find(|outcome| outcome.setting == setting).map_or(&[], |outcome| &outcome.searches)
}

fn bounds(outcome: &GoalOutcome, unit: &LoadUnit) -> Bounds {
    let none = || "–".to_owned();
    let open_above = outcome.upper.is_none();
    let lower = outcome.lower.as_ref().map_or_else(none, |bound| {
        format!("{}{}", if open_above { "≥ " } else { "" }, unit.show(bound.load))
    });
    let open_below = outcome.lower.is_none();
    let upper = outcome.upper.as_ref().map_or_else(none, |bound| {
        format!("{}{}", if open_below { "< " } else { "" }, unit.show(bound.load))
    });
    // A generator-bound answer has no upper bound that would be the target's.
    let (lower, upper) = match (&outcome.kind, &outcome.lower) {
        (BoundKind::GeneratorBound { .. }, Some(bound)) => (format!("≥ {}", unit.show(bound.load)), none()),
        _ => (lower, upper),
    };
    Bounds { lower, upper, kind: kind(outcome, unit), conditional_throughput: conditional(outcome, unit) }
}

fn kind(outcome: &GoalOutcome, unit: &LoadUnit) -> String {
    match &outcome.kind {
        BoundKind::Regular => "both bounds found".to_owned(),
        BoundKind::AtLeast => "met at the largest load asked for".to_owned(),
        BoundKind::Below => "not met at the smallest load asked for".to_owned(),
        BoundKind::GeneratorBound { at } => format!("generator-bound from {}", unit.show(*at)),
        BoundKind::Disputed => "trials disagree beyond it".to_owned(),
        BoundKind::Unfinished => "unfinished".to_owned(),
    }
}

fn conditional(outcome: &GoalOutcome, unit: &LoadUnit) -> Option<String> {
    let throughput = outcome.lower.as_ref()?.conditional_throughput?;
    Some(match unit {
        // Loads are rounded to whole numbers of these, but what is left of them after a loss is not whole.
        LoadUnit::Users => format!("{} users", text::number(throughput)),
        LoadUnit::Connections => format!("{} connections", text::number(throughput)),
        _ => unit.show(throughput),
    })
}

fn repeated(results: &Results, setting: usize, readings: &[&Reading]) -> Vec<Answer> {
    let valid: Vec<&Reading> = readings.iter().copied().filter(|r| r.is_valid_repeat()).collect();
    let goals = results.plan.goals.iter().enumerate();
    goals
        .map(|(goal, plan)| {
            let judged: Vec<bool> = valid.iter().filter_map(|reading| reading.met[goal]).collect();
            let met = judged.iter().filter(|&&met| met).count();
            let (status, sentence) = sentence::repeated(results, setting, goal, met, judged.len(), readings);
            Answer {
                setting,
                goal,
                goal_name: plan.name.clone(),
                block: None,
                status,
                bounds: None,
                sentence,
            }
        })
        .collect()
}
