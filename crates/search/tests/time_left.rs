//! Tests the accuracy of the estimated time left after a third of a search.
//!
//! The searches are those of `proofload limit`, with separate rules for loads that meet the goal and loads that surely
//! miss it (`study::running_search`). A trial takes half a second in addition to its length, for the start of workers
//! and the drain.

mod common;

use common::{splitmix, uniform};
use search::{Preset, Search, SearchPlan, Step, TrialOutcome, Unit, UpperBoundRule};

/// Time that each trial takes in addition to its length, in seconds.
const OVERHEAD_S: f64 = 0.5;
/// Largest error of the estimate, relative to the duration of the search.
const MAX_ERROR: f64 = 0.25;
const RUNS: u64 = 40;

struct Scenario {
    unit: Unit,
    ends: (f64, f64),
    width: f64,
    trial_s: f64,
    repeats: f64,
}

fn plan(scenario: &Scenario) -> SearchPlan {
    let mut goal = Preset::Mlrsearch.goal("p99", 0.01);
    goal.final_trial_duration_s = scenario.trial_s;
    goal.initial_trial_duration_s = goal.initial_trial_duration_s.min(scenario.trial_s);
    goal.duration_sum_s = scenario.trial_s * scenario.repeats;
    (goal.width, goal.exceed_ratio) = (scenario.width, 0.0);
    let duration_sum_s = goal.duration_sum_s.min(3.0 * scenario.trial_s);
    goal.upper_bound_rule = Some(UpperBoundRule { exceed_ratio: 0.9, duration_sum_s });
    let mut plan = SearchPlan::new(scenario.unit, scenario.ends.0, scenario.ends.1, vec![goal]);
    plan.method = Preset::Mlrsearch.method();
    plan
}

/// The error of the estimate after a third of the search, relative to the duration of the search.
fn error_at_a_third(scenario: &Scenario, spread: f64, seed: u64) -> f64 {
    let mut state = splitmix(seed);
    let mut draw = || {
        state = splitmix(state);
        uniform(state)
    };
    let (low, high) = (scenario.ends.0.max(100.0), scenario.ends.1.min(20_000.0));
    let capacity = low * (high / low).powf(0.1 + 0.8 * draw());
    let mut search = Search::new(plan(scenario)).unwrap();
    let mut states = Vec::new();
    let mut elapsed_s = 0.0;
    while let Step::Measure(trial) = search.next_step() {
        // The probability of a bad trial follows a logistic curve; overload makes most requests late.
        let bad = match spread {
            0.0 => f64::from(trial.load > capacity),
            spread => 1.0 / (1.0 + (-(trial.load / capacity).ln() / spread).exp()),
        };
        let loss_ratio = if draw() < bad { 0.02 + 0.9 * draw() } else { 0.005 * draw() };
        let measured =
            TrialOutcome::Valid { loss_ratios: vec![loss_ratio], effective_duration_s: trial.duration_s };
        search.report(measured).unwrap();
        elapsed_s += trial.duration_s + OVERHEAD_S;
        states.push((elapsed_s, search.clone()));
    }
    let (at_s, search) = states.iter().find(|(at_s, _)| *at_s >= elapsed_s / 3.0).unwrap();
    let progress = search.progress();
    (at_s + progress.remaining_s + progress.remaining_trials * OVERHEAD_S - elapsed_s) / elapsed_s
}

#[test]
fn after_a_third_the_estimate_is_within_a_quarter() {
    let rate = |width, trial_s, repeats| Scenario {
        unit: Unit::Continuous,
        ends: (10.0, 1e6),
        width,
        trial_s,
        repeats,
    };
    let users =
        Scenario { unit: Unit::Whole, ends: (1.0, 10_000.0), width: 0.005, trial_s: 5.0, repeats: 3.0 };
    let quickstart = Scenario { ends: (500.0, 20_000.0), ..rate(0.05, 3.0, 3.0) };
    for (name, scenario, spread, min_share) in [
        ("rate", &rate(0.05, 5.0, 3.0), 0.0, 0.95),
        ("narrow", &rate(0.02, 5.0, 3.0), 0.0, 0.95),
        ("short trials", &rate(0.05, 1.0, 3.0), 0.0, 0.95),
        ("quickstart", &quickstart, 0.0, 0.95),
        ("users", &users, 0.0, 0.6),
        // Noise lengthens a search, and the first third may not show the noise yet.
        ("noisy rate", &rate(0.05, 5.0, 3.0), 0.005, 0.7),
        ("noisy quickstart", &quickstart, 0.005, 0.7),
    ] {
        let errors: Vec<f64> = (0..RUNS).map(|seed| error_at_a_third(scenario, spread, seed)).collect();
        let within = errors.iter().filter(|error| error.abs() <= MAX_ERROR).count() as f64 / RUNS as f64;
        println!("{name}: {:.0} % within", within * 100.0);
        assert!(within >= min_share, "{name}: {within}, {errors:.2?}");
    }
}
