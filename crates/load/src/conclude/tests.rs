use record::{ErrorClass, Interval};

use super::*;
use crate::testing;

fn warnings_of(plan: HttpPlan, result: WorkerResult) -> Vec<(String, String)> {
    let context =
        TrialContext { started_unix_s: 0.0, command: Vec::new(), version: String::new(), series: Vec::new() };
    let trial = conclude(plan, result, context);
    trial.warnings.into_iter().map(|warning| (warning.code, warning.message)).collect()
}

fn assert_warns(warnings: &[(String, String)], code: &str, words: &str) {
    let found = warnings.iter().any(|(own, message)| own == code && message.contains(words));
    assert!(found, "{warnings:#?}");
}

#[test]
fn answers_that_were_not_expected_are_answers() {
    let mut result = WorkerResult::default();
    result.http.counts.failed = 100;
    result.http.errors.add(ErrorClass::Status, 100);
    result.http.statuses.insert(200, 100);
    let plan = HttpPlan { expect: "204".parse().unwrap(), ..testing::closed(4) };
    assert_warns(&warnings_of(plan, result), "nothing_completed", "answered 200, not 204 (--expect)");
}

#[test]
fn connections_that_never_opened_were_not_busy() {
    let mut result = WorkerResult::default();
    result.http.counts.never_sent_busy = 9_000;
    result.http.counts.never_sent = 9_000;
    result.http.counts.connections_peak = 129;
    result.http.counts.connections_opened = 129;
    result.http.counts.completed = 1_000;
    result.http.connect_time.record_n_ns(1_010_000_000, 129);
    let warnings = warnings_of(testing::open(1_000.0, 10_000, 10_000), result);
    assert_warns(&warnings, "connections_busy", "the target accepted at most 129 of 10,000 connections");
    assert_warns(&warnings, "connections_busy", "its accept queue was full");
    assert!(!warnings.iter().any(|(_, message)| message.contains("were busy")), "{warnings:#?}");
}

#[test]
fn refused_connections_are_reported_as_such() {
    let mut result = WorkerResult::default();
    result.http.counts.failed = 100;
    result.http.counts.failed_unsent = 100;
    result.http.errors.add(ErrorClass::ConnectRefused, 100);
    assert_warns(&warnings_of(testing::closed(4), result), "nothing_completed", "nothing listens at");
}

/// A trial of a thousand answers after a millisecond each, which causes no warning.
fn quiet() -> WorkerResult {
    let mut result =
        WorkerResult { elapsed_ns: 1_000_000_000, sending_ns: 1_000_000_000, ..WorkerResult::default() };
    let counts = &mut result.http.counts;
    (counts.scheduled, counts.sent, counts.completed, counts.connections_peak) = (1_000, 1_000, 1_000, 10);
    result.http.response_time.observed.record_n_ns(1_000_000, 1_000);
    result.http.service_time.observed.record_n_ns(1_000_000, 1_000);
    result.http.cpu.threads = 2;
    result
}

#[test]
fn each_warning_is_given_beyond_its_bound_and_not_at_it() {
    type Change = fn(&mut WorkerResult);
    let cases: [(Change, Option<(&str, &str)>); 24] = [
        (|_| {}, None),
        (|r| (r.http.counts.scheduled, r.http.counts.waited_busy) = (10_000, 1), None),
        (
            |r| r.http.counts.waited_busy = 100,
            Some(("connections_busy", "100 requests waited for a connection, 0 of")),
        ),
        (|r| r.http.counts.never_sent_busy = 1, Some(("connections_busy", "1 requests were still waiting"))),
        (
            |r| (r.http.counts.never_sent_busy, r.http.counts.waited_busy) = (2, 3),
            Some((
                "connections_busy",
                "5 requests waited for a connection, 2 of them to the end, because all 10",
            )),
        ),
        (
            |r| r.http.counts.never_sent_busy = 2,
            Some(("connections_busy", "a mean service time of 1.0 ms they carry at most 9,998 requests/s")),
        ),
        (
            |r| {
                (r.http.counts.never_sent_busy, r.http.counts.connections_peak) = (2, 9);
                r.http.connect_time.record_ns(1_000_000);
            },
            Some(("connections_busy", "at most 9 of 10 connections")),
        ),
        (
            |r| {
                (r.http.counts.never_sent_busy, r.http.counts.connections_peak) = (2, 9);
                r.http.errors.add(ErrorClass::ConnectRefused, 1);
                r.http.retried_errors.add(ErrorClass::ConnectRefused, 2);
                r.http.connection_errors.add(ErrorClass::ConnectRefused, 4);
            },
            Some(("connections_busy", "of 10 connections; 7 attempts failed")),
        ),
        (|r| r.lost_receipts.push("full".to_owned()), Some(("receipts_lost", "full; the outcome of"))),
        (|r| r.http.response_time.record_censored_ns(1, 0), Some(("censored", "1 response times have only"))),
        (|r| r.http.counts.completed = 999, Some(("few_samples", "only 999 response times: p99 and above"))),
        (|r| r.http.counts.completed = 100, Some(("few_samples", "p99"))),
        (|r| r.http.counts.completed = 99, Some(("few_samples", "p90"))),
        (|r| r.http.counts.reconnects = 100, None),
        (|r| r.http.counts.reconnects = 101, Some(("reconnects", "101 times"))),
        (|r| (r.http.counts.completed, r.http.counts.reconnects) = (0, 10), None),
        (|r| r.http.away.total_s = 0.002, None),
        (
            |r| (r.http.away.times, r.http.away.total_s) = (0, 0.0021),
            Some((
                "generator_away",
                "sound for 99.8 % of 1 s (longest stall 0.00 ns): no percentile is affected",
            )),
        ),
        (
            |r| (0..20).for_each(|_| r.http.response_time.record_ns(1_000_000_000, 900_000_000)),
            Some(("generator_away", ": p99 within 100 ms–1.00 s")),
        ),
        (|r| (0..20).for_each(|_| r.http.service_time.record_ns(1_000_000_000, 900_000_000)), None),
        (|r| r.http.cpu.runqueue_wait_s = Some(0.1), None),
        (|r| r.http.cpu.runqueue_wait_s = Some(0.11), Some(("processor_shared", "6 % of the time"))),
        (|r| r.http.counts.completed = 0, None),
        (
            |r| (r.http.counts.completed, r.http.counts.in_flight) = (0, 1),
            Some(("nothing_completed", "no request was completed: no connection to")),
        ),
    ];
    for (number, (change, expected)) in cases.into_iter().enumerate() {
        let mut result = quiet();
        change(&mut result);
        result.http.counts.never_sent = result.http.counts.never_sent_busy;
        let warnings = warnings_of(testing::open(1_000.0, 1, 10), result);
        assert_eq!(warnings.len(), usize::from(expected.is_some()), "case {number}: {warnings:#?}");
        if let Some((code, words)) = expected {
            assert_warns(&warnings, code, words);
        }
    }
}

#[test]
fn kept_connections_that_the_target_closes_have_advice_of_their_own() {
    for (opened, idle, words) in [
        (110, 0, "101 times, after about 9 requests each; raise its limit (nginx: keepalive_requests)"),
        (900, 10, "101 times, after each answer; let it keep connections"),
        (110, 90, "101 times, while they were idle; let it keep idle connections for longer"),
    ] {
        let mut result = quiet();
        let counts = &mut result.http.counts;
        (counts.reconnects, counts.connections_opened, counts.closed_idle) = (101, opened, idle);
        assert_warns(&warnings_of(testing::closed(4), result), "reconnects", words);
    }
}

#[test]
fn connections_of_closed_loads_and_without_keepalive_cause_no_warning() {
    let mut result = quiet();
    (result.http.counts.waited_busy, result.http.counts.reconnects) = (100, 1_000);
    let plan = HttpPlan { keepalive: false, ..testing::closed(10) };
    assert_eq!(warnings_of(plan, result), []);
}

#[test]
fn refusals_that_decide_are_told_only_if_there_is_a_goal() {
    let mut result = quiet();
    result.http.errors.add(ErrorClass::Reset, 100);
    let decides =
        Some(record::Decision { response_time_ns: 1_000_000, longest_ns: 1_000_000, loss_ratio: 0.01 });
    let warnings = warnings_of(HttpPlan { decides, ..testing::closed(10) }, result.clone());
    assert_warns(&warnings, "decided_by_refusals", "refused more requests than any goal allows");
    assert_eq!(warnings_of(testing::closed(10), result), []);
}

/// The record of a trial, without context.
fn concluded(plan: HttpPlan, result: WorkerResult) -> Trial {
    let interval = Interval { end_s: 1.0, completed: 7, ..Interval::default() };
    let context = TrialContext {
        started_unix_s: 5.0,
        command: vec!["proofload".to_owned()],
        version: "9".to_owned(),
        series: vec![interval],
    };
    conclude(plan, result, context)
}

#[test]
fn a_record_has_the_figures_of_all_workers() {
    let mut result = WorkerResult { completed_in_time: 900, interrupted: true, ..quiet() };
    (result.in_flight_integral_ns, result.delay_at_end_ns) = (2e9, 250_000_000);
    (0..500).for_each(|_| result.http.service_time.record_ns(1_000_000_000, 900_000_000));
    let plan = testing::open(1_000.0, 1, 10);
    let trial = concluded(plan.clone(), result);
    assert_eq!((trial.started_unix_s, trial.elapsed_s, trial.interrupted), (5.0, 1.0, true));
    assert_eq!((trial.command.len(), trial.proofload_version.as_str()), (1, "9"));
    assert!(trial.validity.is_void());
    let http = trial.http().unwrap();
    assert_eq!(
        (http.measured_s, http.throughput_per_s, http.throughput_at_most_per_s),
        (1.0, 900.0, 1_125.0)
    );
    assert_eq!((http.series[0].completed, http.littles_law.mean_in_flight, &http.plan), (7, 2.0, &plan));
    let own = &http.own_percentiles[0];
    assert_eq!((own.times.as_str(), own.percentile.as_str()), ("service_time", "p75"));
    assert!((own.measured_us - 1e6).abs() < 1e3 && (own.less_own_us - 1e5).abs() < 1e2, "{own:?}");
}

#[test]
fn the_time_that_counts_depends_on_the_load() {
    let result = WorkerResult {
        completed_in_time: 500,
        users: 2,
        users_span_ns: 1.6e9,
        last_answer_ns: 900_000_000,
        ..quiet()
    };
    let second = Some(1_000_000_000);
    let users = HttpPlan { duration_ns: second, ..testing::closed(2) };
    let of = |plan: HttpPlan| {
        let trial = concluded(plan, result.clone());
        let http = trial.http().unwrap();
        (http.measured_s, http.throughput_per_s.round())
    };
    assert_eq!(of(testing::open(1_000.0, 1, 10)), (1.0, 500.0));
    assert_eq!(of(users.clone()), (0.8, 1_250.0), "the users' own cycles");
    assert_eq!(of(testing::closed(2)), (0.9, 1_111.0), "up to the last answer");
    assert_eq!(of(HttpPlan { requests: Some(1_000), ..users.clone() }), (0.9, 1_111.0), "all had begun");
    assert_eq!(of(HttpPlan { requests: Some(1_001), ..users }), (0.8, 1_250.0), "one had not begun");
    let nothing = concluded(testing::closed(2), WorkerResult::default());
    assert_eq!(nothing.http().unwrap().throughput_per_s, 0.0);
}

#[test]
fn a_secret_stands_nowhere_in_a_record() {
    const SECRET: &str = "Conclude-Needle-1";
    let text = |text: &str| format!("{text}{SECRET}");
    let workload = crate::HttpWorkload {
        url: text("http://127.0.0.1:1/p/"),
        headers: vec![text("X-Api-Key: "), text("X-Open: open "), text("Referer: http://h/?n=1&token=x")],
        body: Some(text("body ")),
        expect: vec![text("text:"), text("header:X = ")],
        cookies: true,
        log: Some(text("log-")),
        ..crate::HttpWorkload::default()
    };
    let plan = workload.plan(&crate::MachineLimits::EXAMPLE).unwrap();
    let mut result = quiet();
    result.http.causes.insert(ErrorClass::ConnectRefused, text("nothing at "));
    result.lost_log = Some(text("cannot write "));
    let trial = concluded(plan, result);
    let written = serde_json::to_string(&trial).unwrap() + &workload.in_words(None, None);
    assert!(!written.contains(SECRET), "{written}");
    for open in
        ["/p/***", "open ***", "http://h/?n=1&token=***", "text:***", "nothing at ***", "cannot write ***"]
    {
        assert!(written.contains(open), "{open}: {written}");
    }
}
