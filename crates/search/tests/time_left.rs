//! How well the time that is left is foreseen: once a third of a search is over, what it will have taken in all.
//!
//! The searches are those of `proofload limit`: what goal a goal, and what surely does not (`study::running_search`). A trial takes half a second beside its length, as starting workers and draining do.

mod common;

use common::{splitmix, uniform};
use search::{Measured, Preset, Search, SearchPlan, Step, SurelyNot, Unit};

/// Beside its length each trial takes so long, in seconds.
const BESIDE_S: f64 = 0.5;
/// The promise may be off by this share of what the search takes.
const OFF: f64 = 0.25;
const RUNS: u64 = 40;

struct Asked {
    unit: Unit,
    ends: (f64, f64),
    width: f64,
    trial_s: f64,
    repeats: f64,
}

fn plan(asked: &Asked) -> SearchPlan {
    let mut goal = Preset::Mlrsearch.goal("p99", 0.01);
    goal.final_trial_duration_s = asked.trial_s;
    goal.initial_trial_duration_s = goal.initial_trial_duration_s.min(asked.trial_s);
    goal.duration_sum_s = asked.trial_s * asked.repeats;
    (goal.width, goal.exceed_ratio) = (asked.width, 0.0);
    let duration_sum_s = goal.duration_sum_s.min(3.0 * asked.trial_s);
    goal.surely_not = Some(SurelyNot { exceed_ratio: 0.9, duration_sum_s });
    let mut plan = SearchPlan::new(asked.unit, asked.ends.0, asked.ends.1, vec![goal]);
    plan.method = Preset::Mlrsearch.method();
    plan
}

/// The error of the promise at a third of the search, as a share of what it took.
fn error_at_a_third(asked: &Asked, spread: f64, seed: u64) -> f64 {
    let mut state = splitmix(seed);
    let mut draw = || {
        state = splitmix(state);
        uniform(state)
    };
    let (low, high) = (asked.ends.0.max(100.0), asked.ends.1.min(20_000.0));
    let capacity = low * (high / low).powf(0.1 + 0.8 * draw());
    let mut search = Search::new(plan(asked)).unwrap();
    let mut states = Vec::new();
    let mut elapsed_s = 0.0;
    while let Step::Measure(trial) = search.next() {
        // As many trials are bad as a logistic curve has it; overload makes most requests late.
        let bad = match spread {
            0.0 => f64::from(trial.load > capacity),
            spread => 1.0 / (1.0 + (-(trial.load / capacity).ln() / spread).exp()),
        };
        let loss_ratio = if draw() < bad { 0.02 + 0.9 * draw() } else { 0.005 * draw() };
        let measured =
            Measured::Valid { loss_ratios: vec![loss_ratio], effective_duration_s: trial.duration_s };
        search.tell(measured).unwrap();
        elapsed_s += trial.duration_s + BESIDE_S;
        states.push((elapsed_s, search.clone()));
    }
    let (at_s, search) = states.iter().find(|(at_s, _)| *at_s >= elapsed_s / 3.0).unwrap();
    let progress = search.progress();
    (at_s + progress.remaining_s + progress.remaining_trials * BESIDE_S - elapsed_s) / elapsed_s
}

#[test]
fn after_a_third_the_promise_is_within_a_quarter() {
    let rate = |width, trial_s, repeats| Asked {
        unit: Unit::Continuous,
        ends: (10.0, 1e6),
        width,
        trial_s,
        repeats,
    };
    let users = Asked { unit: Unit::Whole, ends: (1.0, 10_000.0), width: 0.005, trial_s: 5.0, repeats: 3.0 };
    let quickstart = Asked { ends: (500.0, 20_000.0), ..rate(0.05, 3.0, 3.0) };
    for (name, asked, spread, least) in [
        ("rate", &rate(0.05, 5.0, 3.0), 0.0, 0.95),
        ("narrow", &rate(0.02, 5.0, 3.0), 0.0, 0.95),
        ("short trials", &rate(0.05, 1.0, 3.0), 0.0, 0.95),
        ("quickstart", &quickstart, 0.0, 0.95),
        ("users", &users, 0.0, 0.6),
        // Trials that disagree take longer, and a third of the search may not have shown that they do.
        ("noisy rate", &rate(0.05, 5.0, 3.0), 0.005, 0.7),
        ("noisy quickstart", &quickstart, 0.005, 0.7),
    ] {
        let errors: Vec<f64> = (0..RUNS).map(|seed| error_at_a_third(asked, spread, seed)).collect();
        let within = errors.iter().filter(|error| error.abs() <= OFF).count() as f64 / RUNS as f64;
        println!("{name}: {:.0} % within", within * 100.0);
        assert!(within >= least, "{name}: {within}, {errors:.2?}");
    }
}
