use super::*;
use crate::{
    AuditResult, GoalQuantity, HttpTrial, Measured, PlaceCounts, Validity, VoidReason, VoidRule,
    study::quantities,
    testing::{entry, plan},
};

fn void() -> Validity {
    Validity::from_reasons(vec![VoidReason { rule: VoidRule::Late, evidence: String::new() }])
}

fn search(method: &str) -> SearchPlan {
    SearchPlan {
        unit: LoadUnit::Rate,
        min: 1.0,
        max: 2.0,
        width: 0.1,
        method: method.to_owned(),
        trial_duration_s: 10.0,
        duration_sum_s: 20.0,
        exceed_ratio: 0.5,
        confirm: 0,
        method_settings: serde_json::Value::Null,
    }
}

#[test]
fn half_of_the_trials_meet_a_goal_but_an_audit_must_be_met_in_all() {
    let lost = Goal { name: String::new(), quantity: GoalQuantity::Lost, loss_ratio: 0.0 };
    let plan = StudyPlan { goals: vec![Goal::errors(0.0), lost], ..plan("") };
    for (met, valid, [random, audited]) in [
        (0, 0, [false, false]),
        (1, 3, [false, false]),
        (1, 2, [true, false]),
        (2, 3, [true, false]),
        (3, 3, [true, true]),
    ] {
        assert_eq!(
            [0, 1].map(|goal| plan.counts_as_met(goal, met, valid)),
            [random, audited],
            "{met} of {valid}"
        );
    }
}

#[test]
fn a_setting_has_the_search_of_its_method() {
    let setting = |method: Option<&str>, searched| Setting {
        method: method.map(str::to_owned),
        searched,
        ..Setting::default()
    };
    let plan = StudyPlan {
        settings: vec![setting(None, true), setting(Some("b"), true), setting(Some("b"), false)],
        search: Some(search("a")),
        other_searches: vec![search("b")],
        ..plan("")
    };
    let found = [0, 1, 2, 3].map(|index| plan.search_of(index).map(|search| search.method.as_str()));
    assert_eq!(found, [Some("a"), Some("b"), None, None]);
    let short = [(0, Some(9.9)), (0, Some(10.0)), (0, Some(9.999)), (0, None), (2, Some(1.0))]
        .map(|(setting, asked_s)| plan.is_exploratory(setting, asked_s));
    assert_eq!(short, [true, false, false, false, false]);
    let trial = |asked_s| TrialEntry { asked_s, ..entry(1) };
    assert!(trial(Some(1.0)).is_short(&plan) && !trial(Some(10.0)).is_short(&plan));
}

#[test]
fn a_valid_trial_meets_a_goal_with_its_loss() {
    let plan = StudyPlan { goals: vec![Goal::errors(0.01); 2], ..plan("") };
    let mut trial = TrialEntry { loss_ratios: vec![0.01, 0.011], ..entry(1) };
    assert_eq!([0, 1, 2].map(|goal| trial.meets(goal, &plan)), [true, false, false]);
    trial.trial.validity = void();
    assert!(!trial.meets(0, &plan));
}

#[test]
fn void_repeats_are_repeated_as_often_as_allowed() {
    let mut trial = TrialEntry { attempt: 1, ..entry(1) };
    assert!(!trial.needs_retry(2), "it is valid");
    trial.trial.validity = void();
    assert_eq!([0, 1, 2, 3].map(|attempts| trial.needs_retry(attempts)), [false, false, true, true]);
    let purposes = [Purpose::WarmUp, Purpose::Search, Purpose::Repeat, Purpose::Confirm];
    let retried = purposes.map(|purpose| TrialEntry { purpose, ..trial.clone() }.needs_retry(2));
    assert_eq!(retried, [false, false, true, true]);
}

#[test]
fn loads_are_shown_in_their_unit() {
    let of =
        |unit: LoadUnit| (unit.show(1_500.0), unit.name().to_owned(), unit.key().is_some(), unit.is_whole());
    let shown = |shown: &str, name: &str, key, whole| (shown.to_owned(), name.to_owned(), key, whole);
    assert_eq!(of(LoadUnit::Users), shown("1,500 users", "users", true, true));
    assert_eq!(of(LoadUnit::Rate), shown("1,500/s", "rate", true, false));
    assert_eq!(of(LoadUnit::Connections), shown("1,500 connections", "connections", true, true));
    assert_eq!(of(LoadUnit::Copies), shown("1,500 copies", "copies", true, true));
    assert_eq!(of(LoadUnit::Factor("size".to_owned())), shown("size 1500", "size", false, false));
}

fn audit() -> AuditResult {
    let mut audit = AuditResult {
        stored: 2,
        lost: 3,
        repeated: 4,
        duplicated: 5,
        corrupt: 6,
        never_sent: 7,
        places: PlaceCounts { wrong: 8, ..PlaceCounts::default() },
        out_of_order: 9,
        foreign_events: 2,
        ..AuditResult::default()
    };
    (audit.sent.written, audit.sent.refused, audit.read.bytes) = (1, 100, 2_000);
    audit
}

#[test]
fn audits_are_added_and_each_finding_makes_them_unclean() {
    let totals = AuditTotals::of([&audit(), &audit(), &audit()]).unwrap();
    let expected = AuditTotals {
        trials: 3,
        acknowledged: 3,
        stored: 6,
        lost: 9,
        repeated: 12,
        duplicated: 15,
        corrupt: 18,
        never_sent: 21,
        wrong_places: 24,
        out_of_order: 27,
    };
    assert_eq!(totals, expected);
    assert_eq!(AuditTotals::of([]), None);
    let harmless = AuditTotals { stored: 1, repeated: 1, out_of_order: 1, ..AuditTotals::default() };
    assert!(harmless.is_clean());
    for finding in [
        AuditTotals { lost: 1, ..harmless },
        AuditTotals { duplicated: 1, ..harmless },
        AuditTotals { corrupt: 1, ..harmless },
        AuditTotals { never_sent: 1, ..harmless },
        AuditTotals { wrong_places: 1, ..harmless },
    ] {
        assert!(!finding.is_clean(), "{finding:?}");
    }
}

#[test]
fn quantities_are_read_from_a_trial() {
    let mut http = HttpTrial { throughput_per_s: 7.0, ..HttpTrial::default() };
    (http.counts.scheduled, http.counts.failed) = (10, 5);
    (http.counts.sent_bytes, http.counts.received_bytes) = (20, 40);
    http.connect_time.record_ns(1_000_000);
    http.handshake_time.record_ns(2_000_000);
    for ms in 1..=10 {
        http.response_time.record_ns(ms * 1_000_000, 0);
    }
    let mut trial = TrialEntry { audit: Some(audit()), ..entry(1) };
    trial.trial.measured = Measured::Http(Box::new(http));
    let quantities = quantities(&plan(""));
    let read = |name: &str, trial: &TrialEntry| {
        let quantity = quantities.iter().find(|quantity| quantity.name == name).unwrap();
        quantity.read(trial).map(|read| read.value.round())
    };
    for (name, value) in [
        ("throughput_per_s", 7.0),
        ("stored_events_per_s", 1.0),
        ("stored_bytes_per_s", 100.0),
        ("sent_bytes_per_s", 10.0),
        ("received_bytes_per_s", 20.0),
        ("response_p50_us", 5_000.0),
        ("response_p90_us", 9_001.0),
        ("response_p99_us", 10_002.0),
        ("connect_p99_us", 1_000.0),
        ("handshake_p50_us", 2_000.0),
        ("handshake_p99_us", 2_000.0),
    ] {
        let found = read(name, &trial).unwrap();
        assert!((found - value).abs() <= value / 1_000.0, "{name}: {found}");
    }
    let errors = quantities.iter().find(|quantity| quantity.name == "error_ratio").unwrap();
    assert_eq!(errors.read(&trial).map(|read| read.value), Some(0.5));
    let nothing = entry(1);
    for name in
        ["stored_events_per_s", "stored_bytes_per_s", "response_p50_us", "connect_p99_us", "handshake_p99_us"]
    {
        assert_eq!(read(name, &nothing), None, "{name}");
    }
    let better: Vec<bool> = quantities.iter().map(|quantity| quantity.more_is_better).collect();
    assert_eq!(better, [[true; 5].as_slice(), &[false; 18]].concat());
    let main: Vec<&str> =
        crate::quantity::main_figures(&quantities).map(|(quantity, _)| &*quantity.name).collect();
    assert_eq!(main, ["throughput_per_s", "response_p50_us", "response_p99_us", "error_ratio"]);
    assert!(quantities.iter().all(|quantity| quantity.may_be_zero == (quantity.name == "error_ratio")));
}
