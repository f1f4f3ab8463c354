use std::collections::BTreeMap;

use record::{
    Bound, BoundKind, Confirmation, Factor, Goal, GoalOutcome, LoadUnit, SearchOutcome, SearchPlan, Setting,
    SettingOutcome,
};
use testing::plans;

use super::*;

const STEADY: [f64; 8] = [1000.0, 1010.0, 990.0, 1005.0, 995.0, 1002.0, 998.0, 1007.0];
const WOBBLE: [f64; 8] = [1.01, 0.99, 1.02, 0.98, 1.015, 0.985, 1.0, 1.005];

/// A study of one factor with these levels and eight blocks.
fn plan(levels: &[&str]) -> StudyPlan {
    let level = |text: &&str| Level::Text((*text).to_owned());
    let setting = |text: &&str| Setting {
        levels: BTreeMap::from([("balancer".to_owned(), level(text))]),
        name: format!("balancer={text}"),
        ..Setting::default()
    };
    StudyPlan {
        factors: vec![Factor { name: "balancer".to_owned(), levels: levels.iter().map(level).collect() }],
        settings: levels.iter().map(setting).collect(),
        blocks: vec![(0..levels.len()).collect(); 8],
        ..plans::study("a study", vec![Goal::errors(0.0)])
    }
}

fn outcome(setting: usize, quantities: &[(&str, Vec<f64>)]) -> SettingOutcome {
    let summary = |(quantity, values): &(&str, Vec<f64>)| plans::summary(quantity, values.clone());
    SettingOutcome { summaries: quantities.iter().map(summary).collect(), ..plans::outcome(setting) }
}

/// One search per block.
fn searched(setting: usize, found: &[(f64, BoundKind)]) -> SettingOutcome {
    let search = |(block, (load, kind)): (usize, &(f64, BoundKind))| SearchOutcome {
        block,
        goals: vec![GoalOutcome {
            goal: "no errors".to_owned(),
            lower: Some(Bound { load: *load, conditional_throughput: None, trials: 1 }),
            upper: None,
            kind: *kind,
        }],
        finished: true,
        trials: 5,
        trial_seconds: 5.0,
        path: Vec::new(),
        confirmation: None,
    };
    SettingOutcome { searches: found.iter().enumerate().map(search).collect(), ..outcome(setting, &[]) }
}

fn times(factor: f64) -> Vec<f64> {
    STEADY.iter().zip(WOBBLE).map(|(value, wobble)| value * wobble * factor).collect()
}

fn usual(throughput: f64, p99: f64) -> Vec<(&'static str, Vec<f64>)> {
    vec![
        ("throughput_per_s", times(throughput)),
        ("response_p99_us", times(p99)),
        ("error_ratio", vec![0.0; 8]),
    ]
}

fn compared(a: SettingOutcome, b: SettingOutcome, options: &CompareOptions) -> Comparison {
    let plan = plan(&["haproxy"]);
    let (a, b) = (plans::result(vec![a]), plans::result(vec![b]));
    let side = |name, result| Side { name, plan: &plan, result, environment: None };
    let comparison = compare(side("A", &a), side("B", &b), options).unwrap();
    let json = serde_json::to_string(&comparison).unwrap();
    assert_eq!(serde_json::from_str::<Comparison>(&json).unwrap(), comparison);
    comparison
}

fn with_limit(limit: f64) -> CompareOptions {
    CompareOptions { fail_if_worse: Some(limit), ..CompareOptions::default() }
}

fn codes(warnings: &[Warning]) -> Vec<&str> {
    warnings.iter().map(|warning| warning.code.as_str()).collect()
}

#[test]
fn the_slower_of_two_results_is_named_and_fails_the_gate() {
    let found = compared(outcome(0, &usual(1.0, 1.0)), outcome(0, &usual(0.8, 1.4)), &with_limit(0.05));
    let rows: Vec<_> = found
        .rows
        .iter()
        .map(|row| (row.quantity.as_str(), row.statistics.verdict, row.gate.unwrap()))
        .collect();
    assert_eq!(
        rows,
        [
            ("throughput_per_s", Verdict::ABetter, Gate::Failed),
            ("response_p99_us", Verdict::ABetter, Gate::Failed),
            ("error_ratio", Verdict::NoDifferenceShown, Gate::Passed),
        ]
    );
    assert_eq!((found.verdict, found.gate), (Overall::ABetter, Some(Gate::Failed)));
    assert_eq!(found.rows[0].statistics.comparisons, 2, "what never varies is no comparison");
    assert!((found.rows[0].b_median / found.rows[0].a_median - 0.8).abs() < 0.01);
}

#[test]
fn equal_results_pass_a_wide_gate_and_leave_a_narrow_one_undecided() {
    let pair = || (outcome(0, &usual(1.0, 1.0)), outcome(0, &usual(1.001, 0.999)));
    let (a, b) = pair();
    let wide = compared(a, b, &with_limit(0.05));
    assert_eq!((wide.verdict, wide.gate), (Overall::NoDifferenceShown, Some(Gate::Passed)));
    let (a, b) = pair();
    assert_eq!(compared(a, b, &with_limit(0.001)).gate, Some(Gate::Undecided));
    let (a, b) = pair();
    assert_eq!(compared(a, b, &CompareOptions::default()).gate, None);
}

#[test]
fn errors_that_one_result_alone_has_count_against_it() {
    let mut b = usual(1.0, 1.0);
    b[2].1 = vec![0.01, 0.02, 0.03, 0.015, 0.025, 0.012, 0.018, 0.022];
    let found = compared(outcome(0, &usual(1.0, 1.0)), outcome(0, &b), &with_limit(0.001));
    let errors = &found.rows[2];
    assert_eq!((errors.statistics.verdict, errors.gate), (Verdict::ABetter, Some(Gate::Failed)));
}

#[test]
fn a_difference_is_claimed_only_if_it_holds_at_both_ends() {
    let p99 = |factor: f64, most: f64| {
        let mut wide = outcome(0, &usual(1.0, factor));
        let summary = &mut wide.summaries[1];
        summary.ends = summary.values.iter().map(|value| [value / most, *value]).collect();
        wide
    };
    let verdict = |a, b| {
        let found = compared(a, b, &with_limit(0.05));
        let row = found.rows.into_iter().find(|row| row.quantity == "response_p99_us").unwrap();
        (row.statistics.verdict, row.gate.unwrap(), codes(&row.statistics.warnings).contains(&"interval"))
    };
    let a = || outcome(0, &usual(1.0, 1.0));
    assert_eq!(verdict(a(), p99(1.5, 1.2)), (Verdict::ABetter, Gate::Failed, false), "1.25 at least");
    assert_eq!(verdict(a(), p99(1.5, 1.6)), (Verdict::CannotTell, Gate::Undecided, true), "0.94 to 1.5");
    assert_eq!(verdict(a(), p99(1.0, 1.5)), (Verdict::CannotTell, Gate::Undecided, true), "0.67 to 1");
    assert_eq!(verdict(p99(1.5, 1.6), a()), (Verdict::CannotTell, Gate::Undecided, true));
}

#[test]
fn two_runs_cannot_tell() {
    let few = |factor: f64| vec![("throughput_per_s", vec![1000.0 * factor, 1010.0 * factor])];
    let found = compared(outcome(0, &few(1.0)), outcome(0, &few(2.0)), &with_limit(0.05));
    assert_eq!((found.verdict, found.gate), (Overall::CannotTell, Some(Gate::Undecided)));
    assert!(codes(&found.rows[0].statistics.warnings).contains(&"few_runs"));
}

#[test]
fn another_environment_is_a_reason_to_be_careful() {
    let (a_plan, found) = (plan(&["haproxy"]), plans::result(vec![outcome(0, &usual(1.0, 1.0))]));
    let (two, four) = (
        Environment { cpus: 2, ..Environment::default() },
        Environment { cpus: 4, ..Environment::default() },
    );
    let side =
        |name, environment| Side { name, plan: &a_plan, result: &found, environment: Some(environment) };
    let warned = |b| {
        let comparison = compare(side("A", &two), side("B", b), &CompareOptions::default()).unwrap();
        comparison.warnings.iter().any(|warning| warning.message.contains("processors used: 2 against 4"))
    };
    assert!(warned(&four) && !warned(&two));
}

#[test]
fn lower_bounds_are_compared_unless_the_search_ran_out_of_load() {
    let bounds = |factor: f64, kind: &BoundKind| -> Vec<(f64, BoundKind)> {
        STEADY.iter().map(|load| (load * factor, *kind)).collect()
    };
    let verdict = |a: Vec<(f64, BoundKind)>, b: Vec<(f64, BoundKind)>| {
        let found = compared(searched(0, &a), searched(0, &b), &CompareOptions::default());
        (found.rows[0].quantity.clone(), found.rows[0].goal.clone(), found.rows[0].statistics.verdict)
    };
    let row = |verdict| ("lower_bound".to_owned(), Some("no errors".to_owned()), verdict);
    let (regular, at_least) = (BoundKind::Regular, BoundKind::AtLeast);
    assert_eq!(verdict(bounds(1.0, &regular), bounds(1.3, &regular)), row(Verdict::BBetter));
    assert_eq!(verdict(bounds(1.0, &regular), bounds(1.3, &at_least)), row(Verdict::BBetter));
    assert_eq!(verdict(bounds(1.0, &at_least), bounds(1.3, &regular)), row(Verdict::CannotTell));
    let generator = BoundKind::GeneratorBound { at: 2000.0 };
    assert_eq!(verdict(bounds(1.0, &generator), bounds(1.0, &generator)), row(Verdict::CannotTell));

    let mut some = bounds(1.0, &regular);
    some[3].1 = BoundKind::Unfinished;
    let found = compared(searched(0, &some), searched(0, &bounds(1.0, &regular)), &CompareOptions::default());
    assert_eq!((found.rows[0].a.len(), found.rows[0].b.len()), (7, 8));
    assert!(codes(&found.warnings).contains(&"searches_left_out"));
}

#[test]
fn other_plans_are_refused_with_what_differs_unless_forced() {
    let (mut a_plan, mut b_plan) = (plan(&["haproxy"]), plan(&["haproxy"]));
    a_plan.workload = "GET http://127.0.0.1/".to_owned();
    b_plan.workload = "GET http://127.0.0.2/".to_owned();
    b_plan.goals.clear();
    let found = plans::result(vec![outcome(0, &usual(1.0, 1.0))]);
    let a = Side { name: "A", plan: &a_plan, result: &found, environment: None };
    let b = Side { name: "B", plan: &b_plan, result: &found, environment: None };
    let error = compare(a, b, &CompareOptions::default()).unwrap_err();
    let CompareError::OtherPlan { differences } = &error else { panic!("{error}") };
    assert_eq!(
        differences[..],
        [
            "workload: A has 'GET http://127.0.0.1/', B has 'GET http://127.0.0.2/'",
            "goals: A has 'no errors', B has 'none'"
        ]
    );
    assert!(error.to_string().ends_with("with --force"), "{error}");
    let forced = compare(a, b, &CompareOptions { force: true, ..CompareOptions::default() }).unwrap();
    assert!(codes(&forced.warnings).contains(&"other_plan"));
}

#[test]
fn searches_that_ask_for_other_numbers_of_trials_are_other_plans() {
    let search = |repeats: f64| SearchPlan {
        unit: LoadUnit::Rate,
        min: 1.0,
        max: 1e6,
        width: 0.05,
        method: "mlrsearch".to_owned(),
        trial_duration_s: 5.0,
        duration_sum_s: 5.0 * repeats,
        exceed_ratio: 0.0,
        confirm: 0,
        method_settings: serde_json::Value::Null,
    };
    let with = |repeats| StudyPlan { search: Some(search(repeats)), ..plan(&["haproxy"]) };
    let (a_plan, b_plan) = (with(3.0), with(5.0));
    let found = plans::result(vec![outcome(0, &usual(1.0, 1.0))]);
    let side = |name, plan| Side { name, plan, result: &found, environment: None };
    let error = compare(side("A", &a_plan), side("B", &b_plan), &CompareOptions::default()).unwrap_err();
    let CompareError::OtherPlan { differences } = &error else { panic!("{error}") };
    assert!(matches!(&differences[..], [only] if only.starts_with("search: ")), "{differences:?}");
}

/// One search, and six further trials at its lower bound that carried exactly that load.
fn confirmed(load: f64) -> SettingOutcome {
    let mut found = searched(0, &[(load, BoundKind::Regular)]);
    let summaries = outcome(0, &[("throughput_per_s", vec![load; 6])]).summaries;
    found.searches[0].confirmation =
        Some(Confirmation { load, planned: 6, valid: 6, met: vec![6], summaries, audit: None });
    found
}

#[test]
fn trials_that_confirm_two_searches_are_not_compared_at_two_loads() {
    let found = compared(confirmed(18_250.0), confirmed(18_500.0), &with_limit(0.01));
    assert!(codes(&found.warnings).contains(&"other_load"), "{:?}", found.warnings);
    assert!(found.rows.iter().all(|row| row.quantity == "lower_bound"), "{:?}", found.rows);
    assert_eq!((found.verdict, found.gate), (Overall::CannotTell, Some(Gate::Undecided)));
    let found = compared(confirmed(18_250.0), confirmed(18_250.0), &with_limit(0.01));
    assert!(found.rows.iter().any(|row| row.quantity == "throughput_per_s"));
}

#[test]
fn settings_of_one_result_alone_are_named() {
    let (a_plan, b_plan) = (plan(&["haproxy", "lvs"]), plan(&["lvs", "l2dsr"]));
    let found = plans::result(vec![outcome(0, &usual(1.0, 1.0)), outcome(1, &usual(1.0, 1.0))]);
    let a = Side { name: "A", plan: &a_plan, result: &found, environment: None };
    let both = compare(
        a,
        Side { name: "B", plan: &b_plan, result: &found, environment: None },
        &CompareOptions::default(),
    )
    .unwrap();
    assert!(both.rows.iter().all(|row| row.setting == "balancer=lvs"));
    assert_eq!(codes(&both.warnings), ["only_in_one", "only_in_one"]);
    let other = plan(&["nginx"]);
    let nothing = compare(
        a,
        Side { name: "B", plan: &other, result: &found, environment: None },
        &CompareOptions::default(),
    );
    assert!(matches!(nothing, Err(CompareError::Nothing { .. })));
}

#[test]
fn levels_of_one_study_are_compared_block_by_block() {
    let plan = plan(&["haproxy", "lvs"]);
    // A drift that is far larger than the difference, and equal for both levels.
    let drifting = |factor: f64| -> Vec<f64> {
        STEADY.iter().enumerate().map(|(block, value)| value * factor * (1.0 + 0.2 * block as f64)).collect()
    };
    let b: Vec<f64> = drifting(1.05).iter().zip(WOBBLE).map(|(value, wobble)| value * wobble).collect();
    let found = plans::result(vec![
        outcome(0, &[("throughput_per_s", drifting(1.0))]),
        outcome(1, &[("throughput_per_s", b)]),
    ]);
    let side = Side { name: "R", plan: &plan, result: &found, environment: None };
    let level = |text: &str| Level::Text(text.to_owned());
    let (haproxy, lvs) = (level("haproxy"), level("lvs"));
    let found = compare_levels(side, "balancer", (&haproxy, &lvs), &CompareOptions::default()).unwrap();
    assert_eq!((found.a.as_str(), found.b.as_str()), ("balancer=haproxy", "balancer=lvs"));
    let row = &found.rows[0];
    assert_eq!((row.setting.as_str(), row.statistics.verdict), ("", Verdict::BBetter));
    assert!(matches!(row.statistics.design, statistics::Design::Blocks { blocks: 8 }), "{row:?}");

    let missing = compare_levels(side, "balancer", (&haproxy, &level("nginx")), &CompareOptions::default());
    assert_eq!(
        missing.unwrap_err().to_string(),
        "the study has no level 'nginx' of balancer; it has haproxy, lvs"
    );
    assert!(compare_levels(side, "threads", (&haproxy, &lvs), &CompareOptions::default()).is_err());
}

#[test]
fn levels_are_ranked_by_what_they_bring() {
    let plan = plan(&["none", "little", "much", "harm"]);
    let outcomes = [1.0, 1.1, 2.0, 0.8].iter().enumerate().map(|(setting, factor)| {
        let values = STEADY.iter().zip(WOBBLE).map(|(value, wobble)| value * factor * wobble).collect();
        outcome(setting, &[("throughput_per_s", values)])
    });
    let found = plans::result(outcomes.collect());
    let side = Side { name: "R", plan: &plan, result: &found, environment: None };
    let ranked = rank_levels(side, "balancer", &CompareOptions::default()).unwrap();
    let names: Vec<&str> = ranked.iter().map(|one| one.b.as_str()).collect();
    assert_eq!(names, ["balancer=much", "balancer=little", "balancer=harm"]);
    assert_eq!(ranked[2].verdict, Overall::ABetter);
    assert!((ranked[0].confidence - (1.0 - 0.05 / 3.0)).abs() < 1e-9, "that of all three together is 95 %");
    let unknown = rank_levels(side, "threads", &CompareOptions::default()).unwrap_err().to_string();
    assert_eq!(unknown, "the study has no factor 'threads'; it has balancer");
}

#[test]
fn unknown_quantities_are_refused_with_those_there_are() {
    let plan = plan(&["haproxy"]);
    let found = plans::result(vec![outcome(0, &usual(1.0, 1.0))]);
    let side = Side { name: "A", plan: &plan, result: &found, environment: None };
    let options = CompareOptions { quantities: vec!["p99".to_owned()], ..CompareOptions::default() };
    let error = compare(side, side, &options).unwrap_err().to_string();
    assert!(error.starts_with("there is no quantity 'p99'; there are throughput_per_s, "), "{error}");
}

#[test]
fn the_published_schema_is_the_one_of_this_code() {
    let schema = serde_json::to_string_pretty(&schemars::schema_for!(Comparison)).unwrap() + "\n";
    testing::assert_published("schema/comparison.schema.json", |_| schema);
}
