//! Methods, void trials and irregular answers, on targets without noise.

mod common;

use common::{above, lost, run, splitmix, uniform};
use search::{
    Bound, BoundKind, Ending, Method, Midpoint, OutcomeError, Preset, Search, SearchGoal, SearchPlan, Start,
    Step, TrialOutcome, Unit, UpperBoundRule, VoidPolicy, WarmUp,
};

const VOID: TrialOutcome = TrialOutcome::Void { is_exhausted: false };

fn no_errors(width: f64) -> SearchGoal {
    SearchGoal { width, ..Preset::Mlrsearch.goal("no errors", 0.0) }
}

fn whole(min: f64, max: f64, goal: SearchGoal) -> SearchPlan {
    SearchPlan::new(Unit::Whole, min, max, vec![goal])
}

fn loads(lower: &Option<Bound>, upper: &Option<Bound>) -> (Option<f64>, Option<f64>) {
    (lower.as_ref().map(|bound| bound.load), upper.as_ref().map(|bound| bound.load))
}

#[test]
fn the_largest_number_of_users_is_found_exactly() {
    let methods = [
        Preset::Mlrsearch.method(),
        Method::Mlrsearch { warm_up: WarmUp::Max { duration_s: 1.0 }, start: Start::Max },
        Method::Bisection { midpoint: Midpoint::Arithmetic },
        Method::Bisection { midpoint: Midpoint::Geometric },
    ];
    for method in methods {
        for capacity in [1.0, 2.0, 3.0, 128.0, 200.0, 1023.0, 4999.0] {
            let plan = SearchPlan { method: method.clone(), ..whole(1.0, 5_000.0, no_errors(0.0001)) };
            let (outcome, _) = run(plan, |trial| lost(above(capacity, trial.load), 1, trial));
            let goal = &outcome.goals[0];
            assert_eq!(loads(&goal.lower, &goal.upper), (Some(capacity), Some(capacity + 1.0)), "{method:?}");
            assert_eq!((goal.kind, outcome.ended), (BoundKind::Regular, Ending::Complete));
        }
    }
}

#[test]
fn the_jmeter_preset_runs_good_loads_three_times_and_bad_loads_once() {
    let goal = Preset::Jmeter.goal("no errors", 0.0);
    let plan = SearchPlan { method: Preset::Jmeter.method(), ..whole(1.0, 150.0, goal) };
    let (outcome, asked) = run(plan, |trial| lost(above(128.0, trial.load), 1, trial));
    assert_eq!(loads(&outcome.goals[0].lower, &outcome.goals[0].upper), (Some(128.0), Some(129.0)));
    let mut runs: Vec<(f64, usize)> = Vec::new();
    for trial in &asked {
        match runs.last_mut() {
            Some((load, count)) if *load == trial.load => *count += 1,
            _ => runs.push((trial.load, 1)),
        }
    }
    let expected = [
        (150.0, 1),
        (1.0, 3),
        (75.0, 3),
        (112.0, 3),
        (131.0, 1),
        (121.0, 3),
        (126.0, 3),
        (128.0, 3),
        (129.0, 1),
    ];
    assert_eq!(runs, expected);
}

#[test]
fn one_bad_run_of_three_fails_a_load_for_jmeter_and_not_for_the_majority() {
    for (goal, expected) in [
        (Preset::Jmeter.goal("no errors", 0.0), 99.0),
        (SearchGoal { width: 0.005, ..Preset::Mlrsearch.goal("no errors", 0.0) }, 128.0),
    ] {
        let method = Method::Bisection { midpoint: Midpoint::Arithmetic };
        let plan = SearchPlan { method, ..whole(100.0 - 1.0, 129.0, goal) };
        let mut at_100 = 0;
        let (outcome, _) = run(plan, |trial| {
            at_100 += u32::from(trial.load > 99.0);
            // Every third run above 99 users fails, and every run at 129.
            let fails = trial.load > 128.0 || (trial.load > 99.0 && at_100 % 3 == 0);
            lost(if fails { 0.01 } else { 0.0 }, 1, trial)
        });
        assert_eq!(outcome.goals[0].lower.as_ref().map(|bound| bound.load), Some(expected));
    }
}

#[test]
fn loads_that_all_pass_or_all_fail_give_one_bound() {
    for start in [Start::Max, Start::Min { factor: 2.0 }] {
        let method = Method::Mlrsearch { warm_up: WarmUp::None, start };
        let plan = || SearchPlan { method: method.clone(), ..whole(10.0, 1_000.0, no_errors(0.05)) };
        let (outcome, _) = run(plan(), |trial| lost(0.0, 1, trial));
        let goal = &outcome.goals[0];
        assert_eq!((goal.kind, loads(&goal.lower, &goal.upper)), (BoundKind::AtLeast, (Some(1_000.0), None)));
        let (outcome, _) = run(plan(), |trial| lost(0.5, 1, trial));
        let goal = &outcome.goals[0];
        assert_eq!((goal.kind, loads(&goal.lower, &goal.upper)), (BoundKind::Below, (None, Some(10.0))));
    }
}

#[test]
fn a_generator_that_cannot_make_more_bounds_the_answer_from_below_only() {
    for start in [Start::Max, Start::Min { factor: 2.0 }] {
        for method in [
            Method::Mlrsearch { warm_up: WarmUp::None, start },
            Method::Bisection { midpoint: Midpoint::Geometric },
        ] {
            let plan = SearchPlan { method, ..whole(10.0, 100_000.0, no_errors(0.05)) };
            let mut void_in_a_row = 0;
            let (outcome, asked) = run(plan, |trial| {
                assert_eq!(trial.attempt, void_in_a_row);
                if trial.load > 700.0 {
                    void_in_a_row = (void_in_a_row + 1) % 3;
                    return VOID;
                }
                void_in_a_row = 0;
                lost(0.0, 1, trial)
            });
            let goal = &outcome.goals[0];
            let BoundKind::GeneratorBound { at } = goal.kind else { panic!("{goal:?}") };
            let lower = goal.lower.as_ref().expect("700 was measured").load;
            assert!(lower <= 700.0 && 700.0 < at && (at - lower) / at <= 0.05, "{lower} {at}");
            assert_eq!((goal.upper.is_none(), outcome.ended), (true, Ending::Complete));
            let void = asked.iter().filter(|trial| trial.load > 700.0).count();
            assert_eq!((void as u64, void % 3), (outcome.void_trials, 0));
        }
    }
}

#[test]
fn a_goal_that_is_met_only_below_the_generators_limit_gets_both_bounds() {
    let goals = vec![no_errors(0.05), SearchGoal { loss_ratio: 0.5, ..no_errors(0.05) }];
    let goals =
        goals.into_iter().enumerate().map(|(index, goal)| SearchGoal { name: index.to_string(), ..goal });
    let plan = SearchPlan::new(Unit::Continuous, 10.0, 1e6, goals.collect());
    let (outcome, _) = run(plan, |trial| match trial.load > 700.0 {
        true => VOID,
        false => lost(above(500.0, trial.load), 2, trial),
    });
    assert_eq!(outcome.goals[0].kind, BoundKind::Regular);
    assert!(matches!(outcome.goals[1].kind, BoundKind::GeneratorBound { at } if at > 700.0 && at < 740.0));
}

#[test]
fn a_generator_that_makes_no_load_at_all_leaves_no_bounds() {
    for start in [Start::Max, Start::Min { factor: 2.0 }] {
        let method = Method::Mlrsearch { warm_up: WarmUp::Max { duration_s: 1.0 }, start };
        let plan = SearchPlan { method, ..whole(10.0, 100_000.0, no_errors(0.05)) };
        let (outcome, asked) = run(plan, |_| VOID);
        let goal = &outcome.goals[0];
        assert_eq!(loads(&goal.lower, &goal.upper), (None, None));
        assert_eq!(goal.kind, BoundKind::GeneratorBound { at: 10.0 });
        assert!(asked.len() < 60, "{} void trials", asked.len());
    }
}

#[test]
fn a_void_trial_below_a_measured_load_is_repeated() {
    let plan = whole(10.0, 1_000.0, no_errors(0.05));
    let mut left = 7;
    let (outcome, asked) = run(plan.clone(), |trial| {
        // At the first load after a larger one was measured, six trials are void.
        if trial.load > 256.0 {
            left = left.min(6);
        }
        if left < 7 && left > 0 && trial.load <= 300.0 {
            left -= 1;
            return VOID;
        }
        lost(above(300.0, trial.load), 1, trial)
    });
    assert_eq!((outcome.ended, outcome.goals[0].kind), (Ending::Complete, BoundKind::Regular));
    assert_eq!(outcome.void_trials, 6);
    let (undisturbed, _) = run(plan, |trial| lost(above(300.0, trial.load), 1, trial));
    assert_eq!(outcome.goals, undisturbed.goals);
    assert!(asked.iter().any(|trial| trial.attempt == 6));
}

#[test]
fn a_load_that_the_generator_makes_only_briefly_is_given_up() {
    for unit in [Unit::Continuous, Unit::Whole] {
        for noise_aware in [false, true] {
            let mut plan = SearchPlan::new(unit, 10.0, 100_000.0, vec![no_errors(0.05)]);
            if noise_aware {
                plan.method = Method::NoiseAware { factor: 2.0 };
                plan.goals[0].duration_sum_s = 5.0 * plan.goals[0].final_trial_duration_s;
            }
            // The generator makes any load for a second, and up to 700 for longer.
            let (outcome, asked) = run(plan, |trial| match trial.load > 700.0 && trial.duration_s > 1.0 {
                true => VOID,
                false => lost(above(20_000.0, trial.load), 1, trial),
            });
            // The steps down grow, so that the search skips most loads on the way.
            assert!(asked.len() < 90, "{} trials", asked.len());
            let goal = &outcome.goals[0];
            let BoundKind::GeneratorBound { at } = goal.kind else { panic!("{outcome:?}") };
            let lower = goal.lower.as_ref().expect("700 was measured").load;
            assert!(lower <= 700.0 && 700.0 < at && (at - lower) / at <= 0.05, "{lower} {at}");
            assert_eq!((goal.upper.is_none(), outcome.ended), (true, Ending::Complete));
        }
    }
}

#[test]
fn too_many_void_trials_at_known_loads_end_the_search_as_void() {
    let void = VoidPolicy { attempts: 3, unlucky: 4 };
    let plan = SearchPlan { void, ..whole(10.0, 1_000.0, no_errors(0.05)) };
    let mut overloaded = false;
    let (outcome, _) = run(plan, |trial| {
        let measured = if overloaded { VOID } else { lost(above(300.0, trial.load), 1, trial) };
        overloaded |= trial.load > 300.0;
        measured
    });
    assert!(matches!(outcome.ended, Ending::Void { at } if at < 640.0), "{:?}", outcome.ended);
    assert_eq!((outcome.void_trials, outcome.goals[0].kind), (5, BoundKind::Unfinished));
}

#[test]
fn a_budget_ends_the_search_before_it_is_spent() {
    let plan = || whole(1.0, 1_000_000.0, no_errors(0.001));
    let target = |load| above(4_321.0, load);
    let (whole_search, _) = run(plan(), |trial| lost(target(trial.load), 1, trial));
    let plan = SearchPlan { search_duration_max_s: Some(whole_search.trial_seconds / 2.0), ..plan() };
    let (outcome, _) = run(plan, |trial| lost(target(trial.load), 1, trial));
    assert_eq!((outcome.ended, outcome.goals[0].kind), (Ending::OutOfBudget, BoundKind::Unfinished));
    assert!(outcome.trial_seconds <= whole_search.trial_seconds / 2.0);
}

#[test]
fn a_larger_load_that_does_better_is_not_believed_and_is_shown() {
    // The first goal causes trials at larger loads than the second goal would.
    let goals =
        vec![SearchGoal { name: "half".to_owned(), loss_ratio: 0.5, ..no_errors(0.05) }, no_errors(0.05)];
    let method = Method::Bisection { midpoint: Midpoint::Arithmetic };
    let plan = SearchPlan { method, ..SearchPlan::new(Unit::Whole, 10.0, 1_000.0, goals) };
    let (outcome, _) = run(plan, |trial| {
        let loss_ratio = match trial.load {
            505.0 => 0.1,
            load => f64::from(load == 1_000.0),
        };
        lost(loss_ratio, 2, trial)
    });
    let [half, none] = &outcome.goals[..] else { panic!("{outcome:?}") };
    assert_eq!(loads(&half.lower, &half.upper), (Some(969.0), Some(1_000.0)));
    assert_eq!(loads(&none.lower, &none.upper), (Some(489.0), Some(505.0)));
    let [inversion] = &outcome.inversions[..] else { panic!("{outcome:?}") };
    assert_eq!((&inversion.goal, inversion.missed), (&none.goal, 505.0));
    assert_eq!(inversion.met, [752.0, 876.0, 938.0, 969.0]);
}

#[test]
fn each_goal_has_its_own_bounds_from_the_same_trials() {
    let goals = [("few late", 0.01, 300.0), ("no errors", 0.0, 700.0), ("half", 0.5, 900.0)];
    let wanted = goals.iter().map(|(name, loss_ratio, _)| SearchGoal {
        name: (*name).to_owned(),
        ..Preset::Mlrsearch.goal("", *loss_ratio)
    });
    let plan = SearchPlan::new(Unit::Continuous, 1.0, 1e5, wanted.collect());
    let (outcome, asked) = run(plan, |trial| TrialOutcome::Valid {
        loss_ratios: goals.iter().map(|(_, _, capacity)| above(*capacity, trial.load)).collect(),
        effective_duration_s: trial.duration_s,
    });
    let mut alone = 0;
    for (index, (_, loss_ratio, capacity)) in goals.iter().enumerate() {
        let (lower, upper) = loads(&outcome.goals[index].lower, &outcome.goals[index].upper);
        let answer = capacity / (1.0 - loss_ratio);
        assert!(lower.is_some_and(|lower| lower <= answer) && upper.is_some_and(|upper| upper > answer));
        let goal = Preset::Mlrsearch.goal("alone", *loss_ratio);
        let plan = SearchPlan::new(Unit::Continuous, 1.0, 1e5, vec![goal]);
        alone += run(plan, |trial| lost(above(*capacity, trial.load), 1, trial)).1.len();
    }
    assert!(asked.len() < alone, "{} trials together, {alone} alone", asked.len());
}

#[test]
fn the_estimated_time_left_is_near_the_actual_one() {
    let plan = SearchPlan::new(Unit::Continuous, 10.0, 1e5, vec![no_errors(0.05)]);
    let mut search = Search::new(plan).expect("the plan is right");
    let mut estimates = Vec::new();
    while let Step::Measure(trial) = search.next_step() {
        let progress = search.progress();
        estimates.push((progress.trial_seconds, progress.remaining_s));
        search.report(lost(above(1_000.0, trial.load), 1, &trial)).expect("it was asked for");
    }
    let total_s = search.progress().trial_seconds;
    assert_eq!(search.progress().remaining_s, 0.0);
    for (done_s, remaining_s) in estimates {
        let error = (done_s + remaining_s - total_s).abs() / total_s;
        assert!(error <= 0.35, "after {done_s} s: {remaining_s} s to come, {total_s} s in all");
    }
}

#[test]
fn impossible_outcomes_are_refused_and_change_nothing() {
    let plan = whole(10.0, 1_000.0, no_errors(0.05));
    let mut search = Search::new(plan).expect("the plan is right");
    assert_eq!(search.report(VOID), Err(OutcomeError::NoTrial));
    let step = search.next_step();
    let Step::Measure(trial) = step else { panic!("nothing was measured yet") };
    let valid = |loss_ratios, effective_duration_s| TrialOutcome::Valid { loss_ratios, effective_duration_s };
    for (measured, said) in [
        (valid(vec![], 1.0), "0 loss ratios for 1 goals"),
        (valid(vec![1.5], 1.0), "not a share"),
        (valid(vec![f64::NAN], 1.0), "not a share"),
        (valid(vec![0.0], 0.5), "void trial if it was cut short"),
        (valid(vec![0.0], f64::INFINITY), "planned length"),
    ] {
        let error = search.report(measured).expect_err("senseless").to_string();
        assert!(error.contains(said), "{error}");
    }
    assert_eq!(search.next_step(), Step::Measure(trial));
    assert_eq!(search.outcome().trials, 0);
}

/// A goal with the rule for upper bounds that studies use.
fn with_upper_bound_rule(repeats: f64) -> SearchGoal {
    let duration_sum_s = 5.0 * repeats;
    SearchGoal {
        exceed_ratio: 0.0,
        duration_sum_s,
        upper_bound_rule: Some(UpperBoundRule { exceed_ratio: 0.9, duration_sum_s }),
        ..Preset::Mlrsearch.goal("met", 0.0)
    }
}

#[test]
fn two_rules_of_a_goal_are_searched_by_the_steps_of_two_goals() {
    for (seed, repeats) in (0..40).map(|seed| (seed, if seed % 2 == 0 { 3.0 } else { 5.0 })) {
        let one = with_upper_bound_rule(repeats);
        let rule = SearchGoal { upper_bound_rule: None, ..one.clone() };
        let other = SearchGoal { name: "not met".to_owned(), exceed_ratio: 0.9, ..rule.clone() };
        let search = |goals: Vec<SearchGoal>| {
            let count = goals.len();
            let plan = SearchPlan::new(Unit::Continuous, 10.0, 1e5, goals);
            let mut state = seed;
            run(SearchPlan { method: Preset::Mlrsearch.method(), ..plan }, |trial| {
                state = splitmix(state);
                lost(above(900.0 + 200.0 * uniform(state), trial.load), count, trial)
            })
        };
        let ((found, asked), (apart, asked_apart)) = (search(vec![one]), search(vec![rule, other]));
        assert_eq!(asked, asked_apart);
        assert_eq!(found.goals[0].lower, apart.goals[0].lower);
        assert_eq!(found.goals[0].upper, apart.goals[1].upper);
    }
}

#[test]
fn where_trials_disagree_the_bounds_are_measured_loads_beyond_the_disagreement() {
    let mut toss = false;
    let mut full = Vec::new();
    let plan = SearchPlan {
        method: Preset::Mlrsearch.method(),
        ..SearchPlan::new(Unit::Continuous, 10.0, 1e5, vec![with_upper_bound_rule(5.0)])
    };
    let (outcome, _) = run(plan, |trial| {
        toss = !toss;
        let is_bad = trial.load > 1_100.0 || (trial.load > 900.0 && toss);
        full.push((trial.load, is_bad));
        lost(f64::from(u8::from(is_bad)), 1, trial)
    });
    let (lower, upper) = (outcome.goals[0].lower.as_ref(), outcome.goals[0].upper.as_ref());
    let (lower, upper) = (lower.expect("there is one").load, upper.expect("there is one").load);
    assert!(lower <= 950.0 && upper >= 1_050.0, "{lower} to {upper}");
    assert!(full.iter().all(|(load, is_bad)| *load != lower || !is_bad), "good trials only");
    assert!(full.iter().all(|(load, is_bad)| *load != upper || *is_bad), "bad trials only");
    assert!(outcome.trial_seconds < 110.0, "{} s", outcome.trial_seconds);
}

#[test]
fn a_budget_that_ends_early_leaves_the_bounds_that_are_known() {
    for (budget_s, repeats) in [(25.0, 3.0), (30.0, 3.0), (40.0, 3.0), (40.0, 5.0)] {
        let plan = SearchPlan {
            method: Preset::Mlrsearch.method(),
            search_duration_max_s: Some(budget_s),
            ..SearchPlan::new(Unit::Continuous, 10.0, 1e5, vec![with_upper_bound_rule(repeats)])
        };
        let (outcome, _) = run(plan, |trial| lost(above(640.0, trial.load), 1, trial));
        assert_eq!(outcome.ended, Ending::OutOfBudget);
        let (lower, upper) = (outcome.goals[0].lower.as_ref(), outcome.goals[0].upper.as_ref());
        assert!(lower.is_some_and(|bound| bound.load <= 640.0), "{budget_s} s: {outcome:?}");
        assert!(upper.is_some_and(|bound| bound.load >= 640.0), "{budget_s} s: {outcome:?}");
    }
}

/// The outcome of a trial on a busy machine: it leaves the goal undecided near the target's capacity, and sometimes
/// elsewhere.
fn blurred(
    capacity: f64,
    blur: f64,
    elsewhere: f64,
    state: &mut u64,
    trial: &search::NextTrial,
) -> TrialOutcome {
    *state = splitmix(*state);
    let is_near = (trial.load / capacity).ln().abs() < blur;
    if is_near || uniform(*state) < elsewhere {
        return TrialOutcome::Undecided { loss_ratios: vec![1.0], goals: vec![0], is_exhausted: false };
    }
    lost(above(capacity, trial.load), 1, trial)
}

#[test]
fn trials_that_stay_undecided_lie_between_the_bounds() {
    for index in 0..60 {
        let mut state = splitmix(index);
        let capacity = 500.0 * 40.0f64.powf(uniform(state));
        let (blur, elsewhere) = [(0.0, 0.3), (0.02, 0.0), (0.08, 0.1)][index as usize % 3];
        let plan = common::limit_rate((10.0, 1e5), 0.0);
        let quiet = run(plan.clone(), |trial| lost(above(capacity, trial.load), 1, trial)).0;
        let (outcome, _) = run(plan, |trial| blurred(capacity, blur, elsewhere, &mut state, trial));
        let goal = &outcome.goals[0];
        let (Some(lower), Some(upper)) = loads(&goal.lower, &goal.upper) else {
            panic!("{capacity}: {goal:?} has no two bounds");
        };
        assert!(lower <= capacity && capacity <= upper, "{capacity}: {lower} to {upper}");
        assert_eq!((outcome.ended, goal.kind), (Ending::Complete, BoundKind::Regular), "{capacity}");
        // The distance from the blurred range to each bound is at most the requested width.
        let widest = 1.0 - (1.0 - 0.05f64).powi(2) * (-2.0 * blur).exp();
        assert!(1.0 - lower / upper <= widest + 1e-9 || elsewhere > 0.0, "{capacity}: {lower} to {upper}");
        assert!(blur < 0.05 || !outcome.undecided.is_empty(), "{capacity}");
        let times = outcome.trial_seconds / quiet.trial_seconds;
        assert!(
            times <= if elsewhere < 0.2 { 2.0 } else { 6.0 },
            "{capacity}: {} s, {} s if all were decided",
            outcome.trial_seconds,
            quiet.trial_seconds
        );
    }
}

#[test]
fn what_an_attempt_decides_about_one_goal_counts_though_it_leaves_another_undecided() {
    let goals = ["strict", "lenient"].map(|name| SearchGoal {
        name: name.to_owned(),
        exceed_ratio: 0.0,
        ..Preset::Mlrsearch.goal("", 0.0)
    });
    let plan = SearchPlan::new(Unit::Continuous, 10.0, 1e5, goals.to_vec());
    // First attempts above 500 miss the strict goal. Their repeats meet both goals up to 2,000.
    let (outcome, _) = run(plan, |trial| match trial.attempt {
        0 => TrialOutcome::Undecided {
            loss_ratios: vec![above(500.0, trial.load), 1.0],
            goals: vec![1],
            is_exhausted: false,
        },
        _ => lost(above(2_000.0, trial.load), 2, trial),
    });
    let bound = |goal: usize| loads(&outcome.goals[goal].lower, &outcome.goals[goal].upper);
    let (strict, lenient) = (bound(0), bound(1));
    assert!(strict.0.is_some_and(|lower| lower <= 500.0), "{outcome:?}");
    assert!(lenient.0.is_some_and(|lower| lower > 1_500.0), "{outcome:?}");
}

#[test]
fn an_undecided_trial_decides_nothing_where_a_repeat_does() {
    let capacity = 1_234.0;
    let plan = common::limit_rate((10.0, 1e5), 0.0);
    let quiet = run(plan.clone(), |trial| lost(above(capacity, trial.load), 1, trial)).0;
    // All first attempts are undecided.
    let (outcome, _) = run(plan, |trial| match trial.attempt {
        0 => TrialOutcome::Undecided { loss_ratios: vec![1.0], goals: vec![0], is_exhausted: false },
        _ => lost(above(capacity, trial.load), 1, trial),
    });
    assert_eq!((outcome.goals, outcome.undecided), (quiet.goals, vec![]));
    assert_eq!((outcome.ended, outcome.trials), (Ending::Complete, 2 * quiet.trials));
}
