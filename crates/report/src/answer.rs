//! The answers of a study: for each goal in each setting, its status and, in a search, two bounds.

use record::{BoundKind, GoalOutcome, LoadUnit, SearchOutcome};

use crate::{
    Results, Status,
    reading::{Reading, readings},
    sentence, text,
};

/// The answer for one goal in one setting and, if there are several searches, one block.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Index of the setting in the plan.
    pub setting: usize,
    /// Index of the goal in the plan.
    pub goal: usize,
    /// The goal's name in the plan.
    pub goal_name: String,
    /// The block of the search; `None` if the setting has at most one search.
    pub block: Option<usize>,
    /// The status of the goal.
    pub status: Status,
    /// The bounds of a search.
    pub bounds: Option<Bounds>,
    /// The answer in one sentence, without the name of the setting.
    pub sentence: String,
}

impl Answer {
    /// The goal's outcome in the search of this answer; `None` for a setting without a search.
    pub(crate) fn outcome<'a>(&self, results: &'a Results) -> Option<&'a GoalOutcome> {
        let mut searches = results.searches_of(self.setting).iter();
        searches.find(|search| self.block.is_none_or(|block| search.block == block))?.goals.get(self.goal)
    }
}

/// Two bounds as text, marked with `≥` or `<` where the other bound is missing.
#[derive(Debug, Clone, PartialEq)]
pub struct Bounds {
    /// Largest load that meets the goal: `17,800/s`, `≥ 20,000/s`, `–`.
    pub lower: String,
    /// Smallest load that does not: `18,000/s`, `< 500/s`, `–`.
    pub upper: String,
    /// How the search ended: `both bounds found`, `generator-bound from 19,000/s`.
    pub kind: String,
    /// The lower bound minus the loss at that load.
    pub conditional_throughput: Option<String>,
}

/// Every answer of a study, in the order of settings and goals.
pub fn answers(results: &Results) -> Vec<Answer> {
    answers_with(results, &readings(results))
}

/// Like [`answers`], for a caller that has already read the trials.
pub(crate) fn answers_with(results: &Results, readings: &[Reading]) -> Vec<Answer> {
    let settings = results.plan.settings.iter().enumerate();
    settings
        .flat_map(|(number, setting)| {
            let own_readings: Vec<&Reading> = readings.iter().filter(|r| r.setting == number).collect();
            if setting.searched {
                searched(results, number, &own_readings)
            } else {
                repeated(results, number, &own_readings)
            }
        })
        .collect()
}

impl Answer {
    fn without_bounds(setting: usize, goal: usize, name: &str, answer: (Status, String)) -> Self {
        let (status, sentence) = answer;
        Self { setting, goal, goal_name: name.to_owned(), block: None, status, bounds: None, sentence }
    }
}

fn searched(results: &Results, setting: usize, readings: &[&Reading]) -> Vec<Answer> {
    let searches = results.searches_of(setting);
    if searches.is_empty() {
        let goals = results.plan.goals.iter().enumerate();
        return goals
            .map(|(goal, plan)| {
                Answer::without_bounds(setting, goal, &plan.name, sentence::nothing_found(results, readings))
            })
            .collect();
    }
    let unit = results.plan.search.as_ref().map_or(LoadUnit::Rate, |search| search.unit.clone());
    let several = searches.len() > 1;
    let answer_of = |search: &SearchOutcome, goal: usize, outcome: &GoalOutcome| {
        let in_block: Vec<&Reading> = readings.iter().copied().filter(|r| r.block == search.block).collect();
        let search_answer =
            sentence::SearchAnswer { results, setting, goal, block: search.block, unit: &unit };
        let (status, sentence) = search_answer.sentence(outcome, &in_block);
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
    // The upper bound of a generator-bound answer limits the generator, not the target, so the answer omits it.
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
        BoundKind::Disputed => "trials disagree at larger loads".to_owned(),
        BoundKind::Unsteady => "results depend on when a trial runs, not on its load".to_owned(),
        BoundKind::Unfinished => "unfinished".to_owned(),
    }
}

fn conditional(outcome: &GoalOutcome, unit: &LoadUnit) -> Option<String> {
    let throughput = outcome.lower.as_ref()?.conditional_throughput?;
    Some(match unit {
        // `unit.show` would round the mean to a whole number.
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
            let answer = sentence::repeated(results, setting, goal, met, judged.len(), readings);
            Answer::without_bounds(setting, goal, &plan.name, answer)
        })
        .collect()
}
