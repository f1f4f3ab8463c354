use record::{Away, Counts, Decision};

use super::*;
use crate::testing;

const DECIDES: Option<Decision> =
    Some(Decision { response_time_ns: 50_000_000, longest_ns: 50_000_000, loss_ratio: 0.01 });

/// A trial of one second. The generator waited for a processor for `wait_s`, and one request in fifty took a second.
fn waited(wait_s: f64) -> WorkerResult {
    let mut result = WorkerResult { elapsed_ns: 1_000_000_000, ..WorkerResult::default() };
    result.http.cpu.threads = 1;
    result.http.cpu.runqueue_wait_s = Some(wait_s);
    result.http.counts.scheduled = 1_000;
    result.http.counts.completed = 1_000;
    result.http.response_time.observed.record_n_ns(1_000_000, 980);
    result.http.response_time.observed.record_n_ns(1_000_000_000, 20);
    result
}

#[test]
fn a_generator_that_waits_for_its_processor_says_nothing_against_the_target() {
    let rules = |plan: HttpPlan, wait_s| processor_shared(&plan, &waited(wait_s)).map(|(rule, _)| rule);
    let open = HttpPlan { decides: DECIDES, ..testing::open(1_000.0, 1, 10) };
    assert_eq!(rules(open.clone(), 0.3), Some(VoidRule::ProcessorShared));
    assert_eq!(rules(open.clone(), 0.2), None);
    assert_eq!(
        rules(HttpPlan { decides: None, ..open.clone() }, 0.3),
        None,
        "without a goal nothing is decided"
    );
    let users = HttpPlan { decides: DECIDES, ..testing::closed(10) };
    assert_eq!(rules(users.clone(), 0.3), Some(VoidRule::ProcessorShared));
    let waited_ns = users.timeout_ns.min(users.drain_ns);
    let untimed = Decision { response_time_ns: waited_ns, longest_ns: waited_ns, loss_ratio: 0.0 };
    assert_eq!(rules(HttpPlan { decides: Some(untimed), ..users }, 0.3), None, "no goal bounds a time");
    // If the loop noticed the waits, they are recorded as the generator's share of the times.
    let mut noticed = waited(0.3);
    noticed.http.away = Away { times: 15, total_s: 0.15, longest_s: 0.01, delayed_s: None };
    assert_eq!(processor_shared(&open, &noticed), None);
    noticed.http.away.total_s = 0.149;
    assert!(processor_shared(&open, &noticed).is_some());
}

#[test]
fn a_target_that_never_answers_loses_no_throughput_by_absences() {
    let mut result =
        WorkerResult { elapsed_ns: 60_000_000_000, users_delayed_ns: 20e6, ..WorkerResult::default() };
    result.http.counts.scheduled = 5;
    assert_eq!(max_throughput_ratio(&testing::closed(2), &result), 1.0);
    (result.http.counts.completed, result.users_span_ns) = (5, 100e6);
    assert_eq!(max_throughput_ratio(&testing::closed(2), &result), 1.25);
}

#[test]
fn bursts_may_be_refused_and_users_may_not() {
    let mut result = waited(0.0);
    result.http.errors.add(ErrorClass::Reset, 100);
    let open = HttpPlan { decides: DECIDES, ..testing::open(1_000.0, 1, 10) };
    let users = HttpPlan { decides: DECIDES, ..testing::closed(10) };
    assert!(!is_decided_by_refusals(&open, &result) && is_decided_by_refusals(&users, &result));
    result.http.counts.completed = 0;
    assert!(is_decided_by_refusals(&open, &result), "everything was refused");
}

/// A valid trial of a second: a thousand requests of a millisecond, one after the other.
fn valid() -> WorkerResult {
    let mut result = WorkerResult {
        elapsed_ns: 1_000_000_000,
        sending_ns: 1_000_000_000,
        in_flight_integral_ns: 1e9,
        planned: Some(1_000),
        ..WorkerResult::default()
    };
    result.http.counts = Counts { scheduled: 1_000, sent: 1_000, completed: 1_000, ..Counts::default() };
    result.http.response_time.observed.record_n_ns(1_000_000, 1_000);
    result.http.service_time.observed.record_n_ns(1_000_000, 1_000);
    result.http.cpu.threads = 2;
    result
}

/// Adds `n` failures that the trial accounts for.
fn fail(result: &mut WorkerResult, class: ErrorClass, n: u64) {
    result.http.errors.add(class, n);
    for count in
        [&mut result.http.counts.scheduled, &mut result.http.counts.sent, &mut result.http.counts.failed]
    {
        *count += n;
    }
    result.planned = Some(result.http.counts.scheduled);
}

/// Adds requests that the generator did not send.
fn unsent(result: &mut WorkerResult, n: u64) {
    result.http.counts.never_sent = n;
    result.http.counts.scheduled += n;
    result.planned = Some(result.http.counts.scheduled);
}

/// Makes `times` of the thousand response times last 10 ms, of which 9 ms may be the generator's.
fn lengthen(result: &mut WorkerResult, times: u64) {
    result.http.response_time = Default::default();
    (times..1_000).for_each(|_| result.http.response_time.record_ns(1_000_000, 0));
    (0..times).for_each(|_| result.http.response_time.record_ns(10_000_000, 9_000_000));
}

#[test]
fn each_rule_is_broken_beyond_its_bound_and_not_at_it() {
    use VoidRule::*;
    type Change = fn(&mut WorkerResult);
    let cases: [(&str, Change, &[VoidRule]); 33] = [
        ("sound", |_| {}, &[]),
        ("one time in twenty is its own", |r| lengthen(r, 50), &[]),
        ("p90 is an interval", |r| lengthen(r, 150), &[]),
        ("p50 is an interval beyond a factor of four", |r| lengthen(r, 600), &[Late]),
        ("the throughput is an interval", |r| r.delay_at_end_ns = 810_000_000, &[]),
        ("unsent and nowhere else", |r| r.http.counts.never_sent = 1, &[Accounting]),
        ("one in a hundred unsent", |r| unsent(r, 10), &[]),
        ("more than one in a hundred unsent", |r| unsent(r, 11), &[RateNotReached]),
        (
            "unsent for the target",
            |r| {
                (r.http.counts.never_sent, r.http.counts.never_sent_busy) = (1, 1);
                (r.http.counts.scheduled, r.planned) = (1_001, Some(1_001));
            },
            &[],
        ),
        ("a thread at 95 %", |r| r.http.cpu.busiest_thread_ratio = 0.95, &[]),
        ("a thread at 96 %", |r| r.http.cpu.busiest_thread_ratio = 0.96, &[CpuExhausted]),
        ("a loop at 95 %", |r| r.http.cpu.busiest_loop_ratio = 0.95, &[]),
        ("a loop at 96 %", |r| r.http.cpu.busiest_loop_ratio = 0.96, &[CpuExhausted]),
        ("25 % of two threads waited", |r| r.http.cpu.runqueue_wait_s = Some(0.5), &[]),
        ("26 % of two threads waited", |r| r.http.cpu.runqueue_wait_s = Some(0.52), &[ProcessorShared]),
        ("unopened", |r| r.http.counts.connections_unopened = 1, &[UnopenedConnections]),
        (
            "no descriptor for a connection",
            |r| {
                r.http.connection_errors.add(ErrorClass::Descriptors, 1);
            },
            &[LocalExhaustion],
        ),
        ("no buffer for a request", |r| fail(r, ErrorClass::Buffers, 1), &[LocalExhaustion]),
        ("reset by the target", |r| fail(r, ErrorClass::Reset, 1), &[]),
        ("fewer taken than planned", |r| r.planned = Some(1_001), &[Accounting]),
        ("an unknown plan", |r| r.planned = None, &[]),
        ("scheduled and not accounted for", |r| r.http.counts.scheduled += 1, &[Accounting]),
        ("sent and not accounted for", |r| r.http.counts.sent += 1, &[Accounting]),
        ("retried", |r| (r.http.counts.sent, r.http.counts.retried) = (1_001, 1), &[]),
        ("retried unsent", |r| (r.http.counts.retried, r.http.counts.retried_unsent) = (1, 1), &[]),
        (
            "failed unsent",
            |r| {
                fail(r, ErrorClass::ConnectRefused, 1);
                (r.http.counts.sent, r.http.counts.failed_unsent) = (1_000, 1);
            },
            &[],
        ),
        (
            "left in flight",
            |r| {
                fail(r, ErrorClass::Reset, 1);
                (r.http.counts.failed, r.http.counts.in_flight) = (0, 1);
            },
            &[],
        ),
        ("a response time too many", |r| r.http.response_time.observed.record_ns(1_000_000), &[Accounting]),
        (
            "a service time too few",
            |r| {
                r.http.service_time = Default::default();
                r.http.service_time.observed.record_n_ns(1_000_000, 999);
            },
            &[Accounting],
        ),
        ("in flight for 2 % longer", |r| r.in_flight_integral_ns = 1.02e9, &[]),
        ("in flight for 3 % longer", |r| r.in_flight_integral_ns = 1.03e9, &[LittlesLaw]),
        ("in flight for 3 % shorter", |r| r.in_flight_integral_ns = 0.97e9, &[LittlesLaw]),
        (
            "lost",
            |r| (r.lost_workers, r.http.counts.sent, r.in_flight_integral_ns) = (1, 0, 2e9),
            &[WorkerLost],
        ),
    ];
    let plan = HttpPlan { decides: DECIDES, ..testing::open(1_000.0, 1, 10) };
    for (name, change, expected) in cases {
        let mut result = valid();
        change(&mut result);
        let reasons = judge(&plan, &result);
        let rules: Vec<VoidRule> = reasons.iter().map(|reason| reason.rule).collect();
        assert_eq!(rules, expected, "{name}: {reasons:#?}");
    }
}

#[test]
fn a_trial_of_less_than_200_ms_is_not_judged_by_its_processors() {
    let plan = HttpPlan { decides: DECIDES, ..testing::open(1_000.0, 1, 10) };
    for (elapsed_ns, is_judged) in [(MIN_TRIAL_NS - 1, false), (MIN_TRIAL_NS, true)] {
        let mut result = WorkerResult { elapsed_ns, ..valid() };
        lengthen(&mut result, 600);
        (result.http.cpu.busiest_thread_ratio, result.http.cpu.runqueue_wait_s) = (1.0, Some(0.2));
        for rule in [late, cpu_exhausted, processor_shared] {
            assert_eq!(rule(&plan, &result).is_some(), is_judged, "{elapsed_ns} ns");
        }
        fail(&mut result, ErrorClass::Reset, 10);
        result.http.counts.completed = 0;
        for rule in [late, cpu_exhausted, processor_shared] {
            assert_eq!(rule(&plan, &result), None, "the target refused everything");
        }
    }
}

#[test]
fn a_median_of_few_times_is_not_judged() {
    let of = |times: u64| {
        let mut result = WorkerResult { elapsed_ns: 2_000_000_000, ..WorkerResult::default() };
        result.http.away = Away { times: 3, total_s: 0.138, longest_s: 0.038, delayed_s: None };
        (0..times).for_each(|_| result.http.response_time.record_ns(10_000_000, 9_000_000));
        late(&testing::closed(2), &result).map(|(_, evidence)| evidence)
    };
    assert_eq!(of(19), None);
    let told = "sound for 93 % of 2 s (longest stall 38.0 ms): even p50 is only known to lie within 1.00–10.0 ms; give";
    assert!(of(20).is_some_and(|words| words.starts_with(told)), "{:?}", of(20));
}

#[test]
fn users_whom_a_busy_loop_only_slows_have_their_times() {
    let rules = |plan: &HttpPlan, late_ns: u64| {
        let mut result = valid();
        result.http.cpu.busiest_loop_ratio = 0.97;
        result.http.lateness.record_n_ns(late_ns, 1_000);
        cpu_exhausted(plan, &result).map(|(rule, _)| rule)
    };
    let users = testing::closed(10);
    assert_eq!(rules(&users, 20_000), None);
    assert_eq!(rules(&users, 250_000), Some(VoidRule::CpuExhausted), "its own work is in the times");
    let pipelined = HttpPlan { pipeline: 2, ..users };
    assert_eq!(rules(&pipelined, 20_000), Some(VoidRule::CpuExhausted));
    let open = testing::open(1_000.0, 1, 10);
    assert_eq!(rules(&open, 20_000), Some(VoidRule::CpuExhausted), "its bursts queue in the target");
}

#[test]
fn without_a_goal_one_request_in_a_hundred_may_be_unsent() {
    let mut result = valid();
    unsent(&mut result, 11);
    let strict = HttpPlan {
        decides: DECIDES.map(|goal| Decision { loss_ratio: 0.0, ..goal }),
        ..testing::open(1_000.0, 1, 10)
    };
    assert!(rate_not_reached(&testing::open(1_000.0, 1, 10), &result).is_some());
    unsent(&mut result, 0);
    result.http.counts.never_sent = 9;
    assert!(rate_not_reached(&testing::open(1_000.0, 1, 10), &result).is_none());
    assert!(rate_not_reached(&strict, &result).is_some(), "no error is allowed");
}

#[test]
fn the_time_of_failures_and_unread_answers_is_time_in_flight() {
    let mut result = WorkerResult { failed_in_flight_ns: 0.5e9, unread_ns: 0.25e9, ..valid() };
    result.http.service_time.censored.record_n_ns(250_000_000, 1);
    let (in_flight, rate_times_time) = littles_law_sides(&result);
    assert!(in_flight == 1.0 && (rate_times_time - 2.0).abs() < 1e-3, "{rate_times_time}");
}

#[test]
fn users_that_are_late_send_less() {
    let users = HttpPlan { pipeline: 2, ..testing::closed(2) };
    let result = WorkerResult { users_delayed_ns: 0.8e9, users_span_ns: 2e9, ..valid() };
    assert_eq!(max_throughput_ratio(&users, &result), 1.25);
    let open = testing::open(1_000.0, 1, 10);
    assert_eq!(max_throughput_ratio(&open, &WorkerResult { delay_at_end_ns: 250_000_000, ..valid() }), 1.25);
}

#[test]
fn only_the_target_can_refuse() {
    let open = testing::open(1_000.0, 1, 10);
    let users = HttpPlan { decides: DECIDES, ..testing::closed(10) };
    for (class, refuses) in [
        (ErrorClass::Reset, true),
        (ErrorClass::Status, true),
        (ErrorClass::Timeout, false),
        (ErrorClass::ConnectTimeout, false),
        (ErrorClass::Ports, false),
    ] {
        let mut result = valid();
        result.http.counts.completed = 0;
        assert!(!is_decided_by_refusals(&open, &result), "nothing was refused");
        result.http.errors.add(class, 11);
        assert_eq!(is_decided_by_refusals(&open, &result), refuses, "{class}");
        assert_eq!(is_decided_by_refusals(&users, &result), refuses, "{class}");
    }
    let mut result = valid();
    result.http.errors.add(ErrorClass::Reset, 10);
    assert!(!is_decided_by_refusals(&users, &result), "one in a hundred is allowed");
}
