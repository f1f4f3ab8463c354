//! The path of a search: its trials and the bounds after each of them.

use std::collections::BTreeMap;

use record::{CurrentBounds, Purpose, SearchOutcome, TrialEntry};

use crate::Results;

/// One trial of a search, with its outcome and the bounds after it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Step {
    /// The trial's number in the study, from 1.
    pub index: u64,
    /// The load, in the search's unit.
    pub load: f64,
    /// The outcome of the trial for the goal.
    pub outcome: StepOutcome,
    /// The bounds after the trial.
    pub bounds: CurrentBounds,
}

/// The outcome of a trial for a goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepOutcome {
    /// The goal is met.
    Met,
    /// The goal is not met.
    NotMet,
    /// The trial is void.
    Void,
    /// The trial is valid and leaves the goal undecided.
    Undecided,
    /// The trial is a warm-up.
    WarmUp,
}

/// The path of a search for a goal in one block of a setting.
pub(crate) fn path(results: &Results, setting: usize, block: usize, goal: usize) -> Vec<Step> {
    if results.plan.search_of(setting).is_none() {
        return Vec::new();
    }
    let bounds = bounds_by_trial(results.searches_of(setting), block, goal);
    let trials =
        results.trials_of(setting).filter(|entry| entry.block == block && entry.purpose != Purpose::Confirm);
    let searched =
        trials.filter_map(|entry| Some((entry, entry.load.filter(|load| load.is_finite() && *load >= 0.0)?)));
    let step = |(entry, load): (&TrialEntry, f64)| Step {
        index: entry.index,
        load,
        outcome: outcome(results, entry, goal),
        bounds: bounds.get(&entry.index).copied().unwrap_or_default(),
    };
    searched.map(step).collect()
}

/// The bounds after each trial, keyed by the trial's number.
fn bounds_by_trial(searches: &[SearchOutcome], block: usize, goal: usize) -> BTreeMap<u64, CurrentBounds> {
    let in_block = searches.iter().filter(|search| search.block == block);
    let after = in_block.flat_map(|search| &search.path);
    after.filter_map(|after| Some((after.trial, *after.goals.get(goal)?))).collect()
}

fn outcome(results: &Results, entry: &TrialEntry, goal: usize) -> StepOutcome {
    match entry.purpose {
        _ if entry.trial.validity.is_void() => StepOutcome::Void,
        Purpose::WarmUp => StepOutcome::WarmUp,
        _ => match entry.decides(goal, &results.plan) {
            Some(true) => StepOutcome::Met,
            Some(false) => StepOutcome::NotMet,
            None => StepOutcome::Undecided,
        },
    }
}

#[cfg(test)]
mod tests {
    use record::BoundsAfterTrial;

    use super::*;

    #[test]
    fn bounds_are_those_of_the_search_of_the_block() {
        let bounds = |lower| CurrentBounds { lower: Some(lower), upper: None };
        let search = |block, trial, lower| SearchOutcome {
            block,
            goals: Vec::new(),
            finished: true,
            trials: 1,
            trial_seconds: 1.0,
            path: vec![BoundsAfterTrial { trial, goals: vec![bounds(lower)] }],
            confirmation: None,
        };
        let searches = [search(0, 3, 10.0), search(1, 4, 20.0)];
        assert_eq!(bounds_by_trial(&searches, 1, 0), BTreeMap::from([(4, bounds(20.0))]));
        assert!(bounds_by_trial(&searches, 1, 1).is_empty(), "a goal that the search does not have");
    }
}
