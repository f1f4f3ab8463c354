//! Properties that hold for every plan and every sequence of outcomes.

mod common;

use common::{MAX_STEPS, splitmix, uniform};
use proptest::prelude::*;
use search::{
    BoundKind, Ending, Method, Midpoint, Search, SearchGoal, SearchPlan, Start, Step, TrialOutcome, Unit,
    UpperBoundRule, VoidPolicy, WarmUp,
};

fn goal(index: usize) -> impl Strategy<Value = SearchGoal> {
    (
        prop_oneof![Just(0.0), 0.0..0.5],
        prop_oneof![Just(0.0), Just(0.5), 0.0..0.9],
        0.002..0.6_f64,
        (0.1..2.0_f64, 1.0..5.0_f64, 1.0..8.0_f64),
        1..4_u32,
        2..5_u32,
        prop::option::of((0.0..1.0_f64, 0.0..1.0_f64)),
    )
        .prop_map(
            move |(
                loss_ratio,
                exceed_ratio,
                width,
                lengths,
                preceding_targets,
                expansion,
                upper_bound_rule,
            )| {
                let (initial_trial_duration_s, longer, more) = lengths;
                let final_trial_duration_s = initial_trial_duration_s * longer;
                let upper_bound_rule = upper_bound_rule.map(|(beyond, less)| UpperBoundRule {
                    exceed_ratio: 0.95 * beyond,
                    duration_sum_s: final_trial_duration_s * (1.0 + (more - 1.0) * less),
                });
                SearchGoal {
                    name: format!("goal {index}"),
                    loss_ratio,
                    exceed_ratio: if upper_bound_rule.is_some() { 0.0 } else { exceed_ratio },
                    final_trial_duration_s,
                    duration_sum_s: final_trial_duration_s * more,
                    initial_trial_duration_s,
                    width,
                    preceding_targets,
                    expansion,
                    upper_bound_rule,
                }
            },
        )
}

fn method() -> impl Strategy<Value = Method> {
    let warm_up = prop_oneof![Just(WarmUp::None), Just(WarmUp::Max { duration_s: 1.0 })];
    let start = prop_oneof![Just(Start::Max), (1.1..10.0_f64).prop_map(|factor| Start::Min { factor })];
    prop_oneof![
        1 => (1.1..4.0_f64).prop_map(|factor| Method::NoiseAware { factor }),
        6 => (warm_up, start).prop_map(|(warm_up, start)| Method::Mlrsearch { warm_up, start }),
        1 => Just(Method::Bisection { midpoint: Midpoint::Arithmetic }),
        1 => Just(Method::Bisection { midpoint: Midpoint::Geometric }),
    ]
}

fn plan() -> impl Strategy<Value = SearchPlan> {
    let range = (prop::bool::ANY, 1..50_u32, prop_oneof![1..5_u32, 1..100_000_u32]);
    let goals = prop_oneof![
        goal(0).prop_map(|goal| vec![goal]),
        (goal(0), goal(1)).prop_map(|(first, second)| vec![first, second]),
        (goal(0), goal(1), goal(2)).prop_map(|(first, second, third)| vec![first, second, third]),
    ];
    (range, goals, prop::option::of(1.0..500.0_f64), 1..4_u32, method()).prop_map(
        |((whole, least, more), goals, search_duration_max_s, attempts, method)| {
            let unit = if whole { Unit::Whole } else { Unit::Continuous };
            SearchPlan {
                method,
                search_duration_max_s,
                void: VoidPolicy { attempts, unlucky: 5 },
                ..SearchPlan::new(unit, f64::from(least), f64::from(least + more), goals)
            }
        },
    )
}

/// A random outcome that does not depend on the load and is sometimes void.
fn random_outcome(
    plan: &SearchPlan,
    seed: u64,
    void_share: f64,
    duration_s: f64,
    index: u64,
) -> TrialOutcome {
    let mut state = splitmix(seed ^ splitmix(index));
    let mut draw = || {
        state = splitmix(state);
        uniform(state)
    };
    if draw() < void_share {
        return TrialOutcome::Void { is_exhausted: false };
    }
    let loss = |_| if draw() < 0.5 { 0.0 } else { draw() };
    let loss_ratios = plan.goals.iter().map(loss).collect();
    // In some searches, each trial may leave each goal undecided.
    let goals: Vec<usize> =
        (0..plan.goals.len()).filter(|_| seed.is_multiple_of(4) && draw() < 0.4).collect();
    if !goals.is_empty() {
        return TrialOutcome::Undecided { loss_ratios, goals, is_exhausted: draw() < 0.1 };
    }
    TrialOutcome::Valid {
        loss_ratios,
        effective_duration_s: duration_s * (0.95 + 0.1 * uniform(splitmix(index))),
    }
}

/// Runs a search with random outcomes and checks every step.
fn check(plan: &SearchPlan, seed: u64, void_share: f64) -> Result<(), TestCaseError> {
    let mut search = Search::new(plan.clone()).expect("the strategy makes right plans");
    let (least, largest) = (plan.min_load, plan.max_load);
    let mut reported = Vec::new();
    let mut asked_s = 0.0;
    let outcome = loop {
        let step = search.next_step();
        prop_assert_eq!(&search.next_step(), &step, "a second call returns the same step");
        match step {
            Step::Done(outcome) => break outcome,
            Step::Measure(trial) => {
                prop_assert!(least <= trial.load && trial.load <= largest, "{trial:?}");
                prop_assert!(plan.unit == Unit::Continuous || trial.load.fract() == 0.0, "{trial:?}");
                prop_assert!(trial.duration_s > 0.0);
                asked_s += trial.duration_s;
                let limit_s = plan.search_duration_max_s.unwrap_or(f64::INFINITY);
                prop_assert!(asked_s <= limit_s * (1.0 + 1e-6), "{asked_s} s of {limit_s} s");
                let measured =
                    random_outcome(plan, seed, void_share, trial.duration_s, reported.len() as u64);
                reported.push((trial, measured.clone()));
                search.report(measured).expect("the outcome has the right form");
                prop_assert!(reported.len() < MAX_STEPS, "it does not end");
            }
        }
        if reported.len() % 16 == 1 {
            let progress = search.progress();
            prop_assert!(progress.remaining_s >= 0.0 && progress.remaining_s.is_finite());
        }
    };
    prop_assert!(
        search.report(TrialOutcome::Void { is_exhausted: false }).is_err(),
        "no trial is pending after the end"
    );
    prop_assert_eq!(outcome.trials, reported.len() as u64);
    prop_assert!(outcome.ended != Ending::Unfinished);
    let has_undecided =
        reported.iter().any(|(_, measured)| matches!(measured, TrialOutcome::Undecided { .. }));
    for (goal, wanted) in outcome.goals.iter().zip(&plan.goals) {
        if let (Some(lower), Some(upper)) = (&goal.lower, &goal.upper) {
            prop_assert!(lower.load < upper.load);
        }
        if let Some(lower) = &goal.lower {
            // With a threshold, the bound may have too few trials for a conditional throughput.
            let may_be_silent = matches!(plan.method, Method::NoiseAware { .. });
            prop_assert!(lower.conditional_throughput.map_or(may_be_silent, |through| through <= lower.load));
        }
        match goal.kind {
            BoundKind::Regular => prop_assert!(goal.lower.is_some() && goal.upper.is_some()),
            BoundKind::AtLeast => {
                prop_assert!(goal.upper.is_none());
                prop_assert_eq!(goal.lower.as_ref().map(|bound| bound.load), Some(largest), "{:?}", goal);
            }
            BoundKind::Below => prop_assert!(goal.lower.is_none() && goal.upper.is_some()),
            BoundKind::GeneratorBound { at } => {
                prop_assert!(goal.upper.is_none() && goal.lower.as_ref().is_none_or(|bound| bound.load < at));
            }
            // Both rules may have been decided before the search for other goals ended.
            BoundKind::Disputed => prop_assert!(
                (outcome.ended == Ending::Complete || wanted.upper_bound_rule.is_some() || has_undecided)
                    && (goal.lower.is_none() || goal.upper.is_none()),
                "{goal:?}"
            ),
            BoundKind::Unsteady => prop_assert!(false, "only a look at the time gives it"),
            BoundKind::Unfinished => prop_assert!(outcome.ended != Ending::Complete, "{goal:?}"),
        }
    }
    let text =
        serde_json::to_string(&(plan, reported.iter().map(|(_, measured)| measured).collect::<Vec<_>>()))
            .expect("plans and outcomes are plain data");
    let (plan, measured): (SearchPlan, Vec<TrialOutcome>) =
        serde_json::from_str(&text).expect("it was just written");
    let mut replayed = Search::new(plan).expect("the same plan");
    for ((trial, _), measured) in reported.iter().zip(measured) {
        prop_assert_eq!(replayed.next_step(), Step::Measure(*trial));
        replayed.report(measured).expect("the same outcome");
    }
    prop_assert_eq!(replayed.next_step(), Step::Done(outcome));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn any_outcomes_lead_to_an_end_and_the_same_ones_to_the_same_steps(
        plan in plan(), seed in any::<u64>(), void_share in prop_oneof![Just(0.0), Just(0.1), 0.0..1.0_f64],
    ) {
        check(&plan, seed, void_share)?;
    }

    #[test]
    fn a_target_of_one_capacity_is_found_to_the_width(
        mut plan in plan(), share in -0.1..1.1_f64,
    ) {
        if matches!(plan.method, Method::NoiseAware { .. }) {
            plan.method = Method::Mlrsearch { warm_up: WarmUp::None, start: Start::Min { factor: 2.0 } };
        }
        plan.search_duration_max_s = None;
        let capacity = plan.min_load * (plan.max_load / plan.min_load).powf(share);
        let goals = plan.goals.clone();
        let (outcome, _) = common::run(plan.clone(), |trial| {
            let loss = |goal: &SearchGoal| if trial.load <= capacity { goal.loss_ratio } else { 1.0 };
            TrialOutcome::Valid { loss_ratios: goals.iter().map(loss).collect(), effective_duration_s: trial.duration_s }
        });
        prop_assert_eq!(outcome.ended, Ending::Complete);
        prop_assert!(outcome.inversions.is_empty());
        for (found, goal) in outcome.goals.iter().zip(&goals) {
            let (lower, upper) = (found.lower.as_ref().map(|b| b.load), found.upper.as_ref().map(|b| b.load));
            match found.kind {
                BoundKind::Regular => {
                    let (lower, upper) = (lower.expect("regular"), upper.expect("regular"));
                    prop_assert!(lower <= capacity && capacity < upper);
                    // Each rule has its own interval, and both intervals contain the capacity.
                    let rules = if goal.upper_bound_rule.is_some() { 2.0 } else { 1.0 };
                    let least = if plan.unit == Unit::Whole { 1.0 } else { 0.0 };
                    let most = rules * (goal.width * upper * (1.0 + 1e-9)).max(least);
                    prop_assert!(upper - lower <= most, "{lower} {upper} {}", goal.width);
                }
                BoundKind::AtLeast => prop_assert!(lower == Some(plan.max_load) && plan.max_load <= capacity),
                BoundKind::Below => prop_assert!(upper == Some(plan.min_load) && plan.min_load > capacity),
                kind => prop_assert!(false, "{kind:?}"),
            }
        }
    }

    #[test]
    fn mistakes_in_a_plan_are_reported_without_a_panic(
        numbers in prop::collection::vec(any::<f64>(), 8), whole in any::<bool>(), small in 0..40_u32,
    ) {
        let goal = SearchGoal {
            name: String::new(),
            loss_ratio: numbers[0],
            exceed_ratio: numbers[1],
            final_trial_duration_s: numbers[2],
            duration_sum_s: numbers[3],
            initial_trial_duration_s: numbers[4],
            width: numbers[5],
            preceding_targets: small,
            expansion: small,
            upper_bound_rule: None,
        };
        let unit = if whole { Unit::Whole } else { Unit::Continuous };
        let plan = SearchPlan::new(unit, numbers[6], numbers[7], vec![goal]);
        if let Err(mistakes) = Search::new(plan) {
            prop_assert!(!mistakes.0.is_empty() && !mistakes.to_string().is_empty());
        }
    }
}

/// The search begins at the load that a first short trial suggested. It finds limits below and above that load.
#[test]
fn a_load_that_is_expected_is_tried_first_and_bounds_nothing() {
    for limit in [15.0, 300.0, 4_800.0, 52_000.0] {
        let goal = search::Preset::Mlrsearch.goal("errors", 0.0);
        let plan = SearchPlan {
            method: search::Preset::Mlrsearch.method(),
            expected_load: Some(5_000.0),
            ..SearchPlan::new(Unit::Continuous, 10.0, 1e6, vec![goal])
        };
        let mut search = Search::new(plan).unwrap();
        let mut loads = Vec::new();
        while let Step::Measure(next) = search.next_step() {
            loads.push(next.load);
            let loss_ratios = vec![if next.load > limit { 0.5 } else { 0.0 }];
            let effective_duration_s = next.duration_s;
            search.report(TrialOutcome::Valid { loss_ratios, effective_duration_s }).unwrap();
        }
        let found = &search.outcome().goals[0];
        let (lower, upper) = (found.lower.as_ref().unwrap().load, found.upper.as_ref().unwrap().load);
        assert!(lower <= limit && limit < upper && upper < 1.12 * lower, "{limit}: {lower} to {upper}");
        assert!((4_500.0..=5_000.0).contains(&loads[0]), "{loads:?}");
    }
}
