//! How the bounds of a search closed in, trial by trial.

use std::collections::BTreeMap;

use record::{CurrentBounds, Purpose, SearchOutcome, TrialEntry};

use crate::{Results, answer::searches_of};

/// What a trial of a search was, in the order they ran.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Step {
    /// The trial's number in the study.
    pub index: u64,
    /// The load.
    pub load: f64,
    /// What it said of the goal.
    pub said: Said,
    /// The bounds after it.
    pub bounds: CurrentBounds,
}

/// What a trial says of a goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    /// It was met.
    Met,
    /// It was not met.
    NotMet,
    /// Nothing.
    Void,
    /// It was run to get the target warm.
    WarmUp,
}

/// The path of a search for a goal in one block of a setting.
pub(crate) fn path(results: &Results, setting: usize, block: usize, goal: usize) -> Vec<Step> {
    if results.plan.search_of(setting).is_none() {
        return Vec::new();
    }
    let known = known(searches_of(results, setting), block, goal);
    let trials =
        results.trials_of(setting).filter(|entry| entry.block == block && entry.purpose != Purpose::Confirm);
    let searched =
        trials.filter_map(|entry| Some((entry, entry.load.filter(|load| load.is_finite() && *load >= 0.0)?)));
    let step = |(entry, load): (&TrialEntry, f64)| Step {
        index: entry.index,
        load,
        said: said(results, entry, goal),
        bounds: known.get(&entry.index).copied().unwrap_or_default(),
    };
    searched.map(step).collect()
}

/// The bounds after each trial, by its number.
fn known(searches: &[SearchOutcome], block: usize, goal: usize) -> BTreeMap<u64, CurrentBounds> {
    let of_block = searches.iter().filter(|search| search.block == block);
    let after = of_block.flat_map(|search| &search.path);
    after.filter_map(|after| Some((after.trial, *after.goals.get(goal)?))).collect()
}

fn said(results: &Results, entry: &TrialEntry, goal: usize) -> Said {
    match entry.purpose {
        _ if entry.trial.validity.is_void() => Said::Void,
        Purpose::WarmUp => Said::WarmUp,
        _ if entry.meets(goal, &results.plan) => Said::Met,
        _ => Said::NotMet,
    }
}

#[cfg(test)]
mod tests {
    use record::BoundsAfterTrial;

    use super::*;

    #[test]
    fn lines_are_those_of_the_search_of_that_block() {
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
        assert_eq!(known(&searches, 1, 0), BTreeMap::from([(4, bounds(20.0))]));
        assert!(known(&searches, 1, 1).is_empty(), "a goal that is not there");
    }
}
