//! What the trials of a study mean. Pure: the plan and the journal decide.

use record::{Goal, Knee, QuantitySummary, SettingOutcome, StudyPlan, Trial, TrialEntry, Warning};
use search::{
    knee::Kneedle,
    statistics::{Confidence, summarize},
};

use crate::searching::Searching;

/// What was found in each setting.
///
/// # Errors
/// When the journal is not one of this plan.
pub fn of(plan: &StudyPlan, entries: &[TrialEntry]) -> Result<Vec<SettingOutcome>, String> {
    (0..plan.settings.len()).map(|setting| of_setting(plan, entries, setting)).collect()
}

fn of_setting(plan: &StudyPlan, entries: &[TrialEntry], setting: usize) -> Result<SettingOutcome, String> {
    let own: Vec<&TrialEntry> = entries.iter().filter(|entry| entry.setting == setting).collect();
    let valid: Vec<&TrialEntry> =
        own.iter().copied().filter(|entry| !entry.trial.validity.is_void()).collect();
    let mut outcome = SettingOutcome {
        setting,
        goals_met: None,
        searches: Vec::new(),
        summaries: Vec::new(),
        knee: None,
        warnings: Vec::new(),
    };
    if plan.settings[setting].searched {
        for (block, _) in plan.blocks.iter().enumerate() {
            let Some((found, distrust)) = search_of(plan, &own, block)? else { continue };
            outcome.searches.push(found);
            outcome.warnings.extend(distrust.map(|why| Warning::new("search_void", why)));
        }
        outcome.warnings.extend(far_apart(plan, &outcome));
        outcome.knee = knee(plan, &outcome, &valid);
    } else {
        outcome.goals_met = goals_met(plan, &valid);
        outcome.summaries = summaries(&valid);
        if valid.is_empty() && !own.is_empty() {
            let message =
                "every trial was void: nothing may be concluded here; the reasons are with the trials";
            outcome.warnings.push(Warning::new("all_void", message));
        }
    }
    Ok(outcome)
}

fn search_of(
    plan: &StudyPlan,
    own: &[&TrialEntry],
    block: usize,
) -> Result<Option<(record::SearchOutcome, Option<String>)>, String> {
    let of_block: Vec<_> = own.iter().filter(|entry| entry.block == block).collect();
    let Some(search) = plan.search.as_ref().filter(|_| !of_block.is_empty()) else { return Ok(None) };
    let mut searching = Searching::new(search, &plan.goals)?;
    for entry in of_block {
        searching.tell(entry)?;
    }
    // Only after it was asked once more does a search know that it has come to its end.
    searching.next();
    Ok(Some((searching.outcome(block), searching.distrust())))
}

/// Each goal in at least half of the repeats.
fn goals_met(plan: &StudyPlan, valid: &[&TrialEntry]) -> Option<bool> {
    let met = |goal: usize| 2 * valid.iter().filter(|entry| entry.meets(goal, plan)).count() >= valid.len();
    (!valid.is_empty() && !plan.goals.is_empty()).then(|| (0..plan.goals.len()).all(met))
}

/// The bounds may be further apart than asked, where trials at one load disagree.
fn far_apart(plan: &StudyPlan, outcome: &SettingOutcome) -> Vec<Warning> {
    let Some(search) = &plan.search else { return Vec::new() };
    let mut warnings = Vec::new();
    for goal in outcome.searches.iter().flat_map(|search| &search.goals) {
        let (Some(lower), Some(upper)) = (&goal.lower, &goal.upper) else { continue };
        let apart = 1.0 - lower.load / upper.load;
        // One step of a whole-numbered load may be more than the width.
        if apart > search.width * 1.5 && upper.load - lower.load > 1.5 {
            warnings.push(Warning::new(
                "bounds_far_apart",
                format!(
                    "{}: the bounds are {:.1} % apart, {:.1} % were asked for: between them, trials at the same load \
                     disagree, or time ran out; longer trials (--trial; in a study search.trial) or more of them (--repeats) bring them nearer",
                    goal.goal,
                    apart * 100.0,
                    search.width * 100.0
                ),
            ));
        }
    }
    warnings
}

/// Where the 99th percentile of response time begins to rise faster than the load. A short trial above the limit
/// ends before its backlog shows: it is left out.
fn knee(plan: &StudyPlan, outcome: &SettingOutcome, valid: &[&TrialEntry]) -> Option<Knee> {
    let full_s = plan.search.as_ref()?.trial_duration_s;
    let goals = outcome.searches.iter().flat_map(|search| &search.goals);
    let limit = goals.filter_map(|goal| Some(goal.upper.as_ref()?.load)).fold(f64::INFINITY, f64::min);
    let shows = |entry: &&&TrialEntry| {
        let planned_s = entry.trial.plan.duration_ns.map_or(full_s, |ns| ns as f64 / 1e9);
        entry.load.is_some_and(|load| load < limit) || planned_s >= full_s * 0.999
    };
    let points: Vec<(f64, f64)> = valid
        .iter()
        .filter(shows)
        .filter(|entry| entry.trial.counts.completed > 0)
        .filter_map(|entry| Some((entry.load?, p99_us(&entry.trial))))
        .filter(|(load, p99_us)| *load > 0.0 && *p99_us > 0.0)
        .collect();
    match Kneedle::default().find(&points) {
        search::knee::Knee::At { load, latency, .. } => Some(Knee { load, response_p99_us: latency }),
        search::knee::Knee::None { .. } => None,
    }
}

/// A quantity: its name, and how it is read off a trial.
type Quantity = (&'static str, fn(&Trial) -> f64);

/// The quantities of a summary.
const QUANTITIES: [Quantity; 8] = [
    ("throughput_per_s", |trial| trial.throughput_per_s),
    ("response_p50_us", |trial| percentile_us(trial, 0.5)),
    ("response_p90_us", |trial| percentile_us(trial, 0.9)),
    ("response_p99_us", p99_us),
    ("response_p99_9_us", |trial| percentile_us(trial, 0.999)),
    ("connect_p99_us", |trial| trial.connect_time.quantile_ns(0.99) as f64 / 1e3),
    ("error_ratio", |trial| Goal::errors(0.0).loss_ratio_of(trial)),
    ("received_bytes_per_s", |trial| trial.counts.received_bytes as f64 / trial.elapsed_s.max(1e-9)),
];

fn summaries(valid: &[&TrialEntry]) -> Vec<QuantitySummary> {
    let confidence = Confidence::new(0.95).expect("it lies between 0 and 1");
    let of = |(quantity, read): &Quantity| {
        let values: Vec<f64> = valid.iter().map(|entry| read(&entry.trial)).collect();
        let summary = summarize(&values, confidence).ok()?;
        Some(QuantitySummary {
            quantity: (*quantity).to_owned(),
            values,
            median: summary.median,
            low: summary.low,
            high: summary.high,
            confidence: summary.confidence,
            warnings: summary.warnings,
        })
    };
    QUANTITIES.iter().filter_map(of).collect()
}

fn p99_us(trial: &Trial) -> f64 {
    percentile_us(trial, 0.99)
}

/// A lower bound where requests were cut off before they were answered.
fn percentile_us(trial: &Trial, quantile: f64) -> f64 {
    trial.response_time.percentile(quantile).ns as f64 / 1e3
}
