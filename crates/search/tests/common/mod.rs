//! Simulated targets, and a function that runs a search against one.

#![allow(dead_code, reason = "every test file uses only some items")]

pub(crate) mod services;

use search::{
    NextTrial, Outcome, Preset, Search, SearchGoal, SearchPlan, Step, TrialOutcome, Unit, UpperBoundRule,
};

/// Largest number of steps of any search in these tests.
pub(crate) const MAX_STEPS: usize = 20_000;

/// A search for a rate as `proofload limit rate` plans it: trials of 5 s, and bounds 5 % apart.
pub(crate) fn limit_rate((least, most): (f64, f64), allowed: f64) -> SearchPlan {
    let goal = SearchGoal {
        exceed_ratio: 0.0,
        width: 0.05,
        upper_bound_rule: Some(UpperBoundRule { exceed_ratio: 0.9, duration_sum_s: 15.0 }),
        ..Preset::Mlrsearch.goal("goal", allowed)
    };
    let plan = SearchPlan::new(Unit::Continuous, least, most, vec![goal]);
    SearchPlan { method: Preset::Mlrsearch.method(), ..plan }
}

/// Runs a search to its end. Returns its outcome and the requested trials.
pub(crate) fn run(
    plan: SearchPlan,
    mut target: impl FnMut(&NextTrial) -> TrialOutcome,
) -> (Outcome, Vec<NextTrial>) {
    let mut search = Search::new(plan).expect("the plan is right");
    let mut asked = Vec::new();
    loop {
        match search.next_step() {
            Step::Done(outcome) => return (outcome, asked),
            Step::Measure(trial) => {
                asked.push(trial);
                assert!(asked.len() < MAX_STEPS, "the search does not end: {trial:?}");
                search.report(target(&trial)).expect("the outcome is valid");
            }
        }
    }
}

/// A valid trial with the same loss ratio for every goal.
pub(crate) fn lost(loss_ratio: f64, goals: usize, trial: &NextTrial) -> TrialOutcome {
    TrialOutcome::Valid { loss_ratios: vec![loss_ratio; goals], effective_duration_s: trial.duration_s }
}

/// The loss ratio of a target with this capacity.
pub(crate) fn above(capacity: f64, load: f64) -> f64 {
    (1.0 - capacity / load).max(0.0)
}

/// Next output of SplitMix64 for this state (G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom
/// number generators", OOPSLA 2014).
pub(crate) fn splitmix(state: u64) -> u64 {
    let state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let state = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    state ^ (state >> 31)
}

/// A number from 0 to below 1.
pub(crate) fn uniform(state: u64) -> f64 {
    (state >> 11) as f64 / (1_u64 << 53) as f64
}
