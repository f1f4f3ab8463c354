//! The loop on virtual time: the results of each load model, and their record.

use std::{cell::RefCell, rc::Rc};

use proptest::prelude::*;
use record::{Arrivals, Distribution, ErrorClass, Fault, HttpPlan, HttpTrial, LoadModel, VoidRule};

use crate::{
    conclude::{TrialContext, conclude},
    share::Share,
    testing,
    validity::judge,
    wire::{
        SlotId,
        simulated::{Action, Attempt, Target},
    },
    worker::tests::{Steady, run, run_share, with_loops},
    worker_result::WorkerResult,
};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
const OK: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";

pub(super) fn trial(plan: HttpPlan, result: WorkerResult) -> HttpTrial {
    let context =
        TrialContext { started_unix_s: 0.0, command: Vec::new(), version: String::new(), series: Vec::new() };
    conclude(plan, result, context).http().unwrap().clone()
}

/// Runs a plan against a target with constant answer times.
fn measure(plan: HttpPlan, after_ns: u64) -> HttpTrial {
    let (result, _) = run(plan.clone(), Steady { after_ns });
    trial(plan, result)
}

/// A closed load whose users start over `ramp_up` and think.
fn thinking(users: u64, duration_ns: u64, ramp_up: u64, think: Distribution) -> HttpPlan {
    let load = LoadModel::Closed { users, loops: None, ramp_up_ns: ramp_up, think_time: think };
    HttpPlan { load, duration_ns: Some(duration_ns), ..testing::closed(users) }
}

/// The merged result of several workers, and the rules that it breaks.
fn run_workers(plan: &HttpPlan, workers: u64, after_ns: u64) -> (WorkerResult, Vec<VoidRule>) {
    let mut whole = None::<WorkerResult>;
    for index in 0..workers {
        let share = Share { index, of: workers };
        let (result, _) = run_share(plan, share, Steady { after_ns }, u64::MAX, 0);
        match &mut whole {
            Some(whole) => whole.merge(&result),
            None => whole = Some(result),
        }
    }
    let whole = whole.unwrap();
    let rules = judge(plan, &whole).into_iter().map(|reason| reason.rule).collect();
    (whole, rules)
}

/// Answers after a fixed time, and records the largest number of requests in flight.
#[derive(Clone)]
struct Counting {
    after_ns: u64,
    due: Rc<RefCell<Vec<u64>>>,
    most: Rc<RefCell<usize>>,
}

impl Counting {
    fn new(after_ns: u64) -> Self {
        Self { after_ns, due: Rc::default(), most: Rc::default() }
    }
}

impl Target for Counting {
    fn request(&mut self, _: u64, now_ns: u64) -> Vec<(u64, Action)> {
        let mut due = self.due.borrow_mut();
        due.retain(|&at_ns| at_ns > now_ns);
        due.push(now_ns + self.after_ns);
        let mut most = self.most.borrow_mut();
        *most = due.len().max(*most);
        vec![(now_ns + self.after_ns, Action::Send(OK.to_vec()))]
    }
}

/// Answers after 0.5 to 1.5 ms, uniformly distributed.
struct Uneven;

impl Target for Uneven {
    fn request(&mut self, n: u64, now_ns: u64) -> Vec<(u64, Action)> {
        let after_ns = MS / 2 + n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % MS;
        vec![(now_ns + after_ns, Action::Send(OK.to_vec()))]
    }
}

#[test]
fn batching_costs_at_most_a_64th_of_the_throughput_and_changes_no_time() {
    let throughput = |users| {
        let plan = HttpPlan { duration_ns: Some(S), ..testing::closed(users) };
        let (result, _) = run(plan.clone(), Uneven);
        let trial = trial(plan, result);
        for (q, ms) in [(0.1, 0.6), (0.5, 1.0), (0.9, 1.4)] {
            let took_ms = trial.service_time.percentile(q).value / 1e6;
            assert!((took_ms / ms - 1.0).abs() < 0.02, "{users} users: {took_ms} ms");
        }
        trial.throughput_per_s / (users as f64 * 1e3)
    };
    // With few users nothing is batched; with many, answers come every 2 to 16 µs.
    assert!((throughput(15) - 1.0).abs() < 0.01);
    for users in [64, 500] {
        let share = throughput(users);
        assert!((1.0 - 1.0 / 64.0..0.999).contains(&share), "{users} users: {share}");
    }
}

#[test]
fn the_rate_of_users_that_think_is_exact_even_with_few_answers() {
    // With a cycle of 1 ms and 4 s, a user gets one answer in 3 s and five in 20 s.
    for (duration_s, answers) in [(3, 1), (20, 5)] {
        for ramp_up_ns in [0, S] {
            let think = Distribution::Fixed { ns: 4 * S };
            let trial = measure(thinking(100, duration_s * S, ramp_up_ns, think), MS);
            assert_eq!(trial.counts.completed, 100 * answers);
            let expected = 100.0 / 4.001;
            assert!((trial.throughput_per_s / expected - 1.0).abs() < 0.001, "{}", trial.throughput_per_s);
        }
    }
}

#[test]
fn the_rate_with_random_pauses_follows_from_their_mean() {
    for pipeline in [1, 3] {
        let plan = thinking(4_000, 4 * S, 0, Distribution::Exponential { mean_ns: S });
        let trial = measure(HttpPlan { pipeline, ..plan }, 10 * MS);
        let expected = 4_000.0 * f64::from(pipeline) / 1.01;
        assert!((trial.throughput_per_s / expected - 1.0).abs() < 0.02, "{}", trial.throughput_per_s);
    }
}

#[test]
fn failures_between_answers_count_for_the_time() {
    /// Answers every second request only.
    struct EveryOther;
    impl Target for EveryOther {
        fn request(&mut self, n: u64, now_ns: u64) -> Vec<(u64, Action)> {
            if n.is_multiple_of(2) { vec![(now_ns + MS, Action::Send(OK.to_vec()))] } else { Vec::new() }
        }
    }
    let plan = thinking(1, 100 * S, 0, Distribution::Fixed { ns: 400 * MS });
    let plan = HttpPlan { timeout_ns: 200 * MS, ..plan };
    let (result, rules) = run(plan.clone(), EveryOther);
    assert_eq!(rules, []);
    // One answer per cycle: 1 ms and a pause of 400 ms, then a timeout of 200 ms and a pause of 400 ms.
    let rate = trial(plan, result).throughput_per_s;
    assert!((rate * 1.001 - 1.0).abs() < 0.01, "{rate}");
}

#[test]
fn users_who_are_stuck_at_the_end_count_for_the_rate() {
    /// Answers 100 requests in 10 ms each, then each in 5 s.
    struct Slower;
    impl Target for Slower {
        fn request(&mut self, n: u64, now_ns: u64) -> Vec<(u64, Action)> {
            let after_ns = if n < 100 { 10 * MS } else { 5 * S };
            vec![(now_ns + after_ns, Action::Send(OK.to_vec()))]
        }
    }
    let plan = HttpPlan { duration_ns: Some(6 * S), ..testing::closed(1) };
    let (result, _) = run(plan.clone(), Slower);
    let rate_per_s = trial(plan, result).throughput_per_s;
    assert!((16.0..18.0).contains(&rate_per_s), "{rate_per_s}, by the target's log 100 or 101 in 6 s");
}

#[test]
fn without_a_duration_the_rate_counts_up_to_the_last_answer() {
    // The last of ten users starts at 0.9 s and needs five times 100 ms.
    let mut plan = with_loops(10, 5);
    if let LoadModel::Closed { ramp_up_ns, .. } = &mut plan.load {
        *ramp_up_ns = S;
    }
    let requests = HttpPlan { requests: Some(50), ..with_loops(10, 1_000) };
    for (plan, elapsed_s) in [(plan, 1.4), (requests, 0.5)] {
        for duration_ns in [None, Some(10 * S)] {
            let trial = measure(HttpPlan { duration_ns, ..plan.clone() }, 100 * MS);
            assert_eq!(trial.counts.completed, 50);
            assert!((trial.measured_s - elapsed_s).abs() < 0.001, "{}", trial.measured_s);
            assert!((trial.throughput_per_s * elapsed_s / 50.0 - 1.0).abs() < 0.001);
        }
    }
}

#[test]
fn a_number_of_requests_that_is_not_reached_does_not_end_the_trial() {
    let mut plan = HttpPlan { requests: Some(1_000_000), duration_ns: Some(2 * S), ..testing::closed(10) };
    if let LoadModel::Closed { ramp_up_ns, .. } = &mut plan.load {
        *ramp_up_ns = S;
    }
    let rate = measure(plan, 100 * MS).throughput_per_s;
    assert!((rate / 100.0 - 1.0).abs() < 0.01, "ten users at 100 ms each: {rate}");
}

#[test]
fn requests_of_users_that_never_start_count_as_never_sent() {
    // The seventh user would start at 1.2 s.
    let mut plan = HttpPlan { duration_ns: Some(S), ..with_loops(10, 5) };
    if let LoadModel::Closed { ramp_up_ns, .. } = &mut plan.load {
        *ramp_up_ns = 2 * S;
    }
    let (result, rules) = run(plan.clone(), Steady { after_ns: MS });
    let counts = &result.http.counts;
    // The sixth user starts when the time is over.
    assert_eq!((counts.never_sent, counts.never_sent_busy, counts.completed), (20, 0, 26));
    assert_eq!(counts.scheduled, 46);
    assert_eq!(rules, [VoidRule::RateNotReached]);
    // Requests that the duration cuts off are not missing.
    let plan = HttpPlan { duration_ns: Some(S), ..with_loops(10, 1_000) };
    let (result, rules) = run(plan, Steady { after_ns: 10 * MS });
    assert_eq!((result.http.counts.never_sent, rules), (0, vec![]));
}

#[test]
fn each_request_in_flight_of_a_user_that_thinks_has_its_own_pause() {
    let plan = thinking(10, 10 * S, 0, Distribution::Fixed { ns: 100 * MS });
    let plan = HttpPlan { pipeline: 4, ..plan };
    let trial = measure(plan, MS);
    assert!((trial.throughput_per_s / (40.0 / 0.101) - 1.0).abs() < 0.001, "{}", trial.throughput_per_s);
    assert_eq!(trial.counts.connections_opened, 10);
    for think in [Distribution::Fixed { ns: MS }, Distribution::Exponential { mean_ns: 10 * MS }] {
        let target = Counting::new(50 * MS);
        let (_, rules) = run(HttpPlan { pipeline: 4, ..thinking(1, 2 * S, 0, think) }, target.clone());
        assert_eq!((rules, *target.most.borrow()), (vec![], 4));
    }
}

#[test]
fn an_open_load_pipelines_only_requests_without_a_free_connection() {
    // Each of ten connections carries 100/s without pipelining, and 400/s with four requests in flight.
    let run_at = |rate_per_s, pipeline| {
        let target = Counting::new(10 * MS);
        let plan = HttpPlan { pipeline, ..testing::open(rate_per_s, 2, 10) };
        let (result, rules) = run(plan, target.clone());
        assert_eq!(rules, []);
        assert_eq!(result.http.counts.connections_opened, 10);
        (*target.most.borrow(), result)
    };
    let (most, result) = run_at(3_000.0, 1);
    assert!(most == 10 && result.http.counts.never_sent_busy > 0, "{most}");
    let (most, result) = run_at(3_000.0, 4);
    assert!(most > 20, "{most}");
    assert_eq!((result.http.counts.completed, result.http.counts.never_sent_busy), (6_000, 0));
    assert_eq!(result.http.lateness.max_ns(), 0);
    let (most, result) = run_at(12_000.0, 4);
    assert!(most == 40 && result.http.counts.never_sent_busy > 0, "{most}");
    let (_, result) = run_at(900.0, 4);
    assert_eq!(result.http.counts.completed, 1_800);
}

#[test]
fn nothing_waits_behind_a_slow_answer_while_a_connection_is_free() {
    /// Every hundredth answer takes a second.
    struct Sometimes(Rc<RefCell<u64>>);
    impl Target for Sometimes {
        fn request(&mut self, n: u64, now_ns: u64) -> Vec<(u64, Action)> {
            *self.0.borrow_mut() += 1;
            let after_ns = if n % 100 == 50 { S } else { MS };
            vec![(now_ns + after_ns, Action::Send(OK.to_vec()))]
        }
    }
    let taken = Rc::default();
    let plan = HttpPlan { pipeline: 4, ..testing::open(500.0, 4, 20) };
    let (result, rules) = run(plan, Sometimes(Rc::clone(&taken)));
    assert_eq!((rules, *taken.borrow()), (vec![], 2_000));
    // Only the 20 slow answers of the 2,000.
    let slow = result.http.response_time.observed.count()
        - result.http.response_time.observed.count_up_to_ns(10 * MS);
    assert_eq!(slow, 20);
}

#[test]
fn a_connection_that_was_not_full_counts_as_free_before_its_answer() {
    /// Answers all requests at the next tenth of a second.
    struct InStep;
    impl Target for InStep {
        fn request(&mut self, _: u64, now_ns: u64) -> Vec<(u64, Action)> {
            vec![((now_ns / (100 * MS) + 1) * 100 * MS, Action::Send(OK.to_vec()))]
        }
    }
    // The loop takes 60 ms for thirty answers, three on each connection. Of the requests due in that time, ten are sent at
    // least 29 ms late: one on each connection, which was not full before its answers were read.
    let fault = Some(Fault::Burn { ns: 2 * MS });
    let (result, _) = run(HttpPlan { pipeline: 4, fault, ..testing::open(300.0, 2, 10) }, InStep);
    assert_eq!(result.http.counts.completed, 600);
    let late = result.http.own_lateness.count() - result.http.own_lateness.count_up_to_ns(29 * MS);
    assert!(late > 150, "{late}");
}

#[test]
fn on_demand_a_connection_is_opened_when_all_are_full() {
    let mut plan = HttpPlan { pipeline: 4, ..testing::open(1_000.0, 1, 1) };
    if let LoadModel::Open { connections, .. } = &mut plan.load {
        (connections.initial, connections.most) = (0, 500);
    }
    let (result, rules) = run(plan, Steady { after_ns: 40 * MS });
    assert_eq!((result.http.counts.completed, rules), (1_000, vec![]));
    assert!(
        (10..=12).contains(&result.http.counts.connections_opened),
        "{}",
        result.http.counts.connections_opened
    );
}

#[test]
fn events_of_a_broken_connection_do_not_affect_its_replacement() {
    struct FirstBreaks;
    impl Target for FirstBreaks {
        fn attempt(&mut self, n: u64, _: SlotId) -> Attempt {
            if n == 0 { Attempt::OpensAndResets(10_000) } else { Attempt::Opens(0) }
        }
        fn request(&mut self, _: u64, now_ns: u64) -> Vec<(u64, Action)> {
            vec![(now_ns + MS, Action::Send(OK.to_vec()))]
        }
    }
    let (result, rules) = run(with_loops(1, 10), FirstBreaks);
    assert_eq!(rules, []);
    assert_eq!((result.http.counts.completed, result.http.errors.of(ErrorClass::Reset)), (9, 1));
    assert_eq!((result.http.counts.connections_opened, result.http.counts.failed), (2, 1));
}

#[test]
fn several_workers_of_an_open_load_measure_what_one_does() {
    for after_ns in [MS, 30 * MS] {
        let plan = testing::open(20.0, 2, 10);
        let of = |workers| {
            let (result, rules) = run_workers(&plan, workers, after_ns);
            assert_eq!(rules, []);
            assert_eq!(result.http.counts.completed, 40);
            trial(plan.clone(), result).throughput_per_s
        };
        let alone = of(1);
        assert!((alone - 20.0).abs() < 0.01, "{alone}");
        for workers in [2, 3, 4, 10] {
            assert!((of(workers) - alone).abs() < 0.001, "{workers}: {} and {alone}", of(workers));
        }
    }
}

#[test]
fn a_poisson_load_without_a_duration_sends_and_counts_all_its_requests() {
    let mut plan = HttpPlan { requests: Some(500), duration_ns: None, ..testing::open(1_000.0, 1, 20) };
    if let LoadModel::Open { arrivals, stages, .. } = &mut plan.load {
        *arrivals = Arrivals::Poisson;
        stages[0].duration_ns = S / 2;
    }
    for (workers, seed) in [(1, 1), (1, 2), (1, 3), (3, 1), (3, 2)] {
        let plan = HttpPlan { seed, ..plan.clone() };
        let (result, rules) = run_workers(&plan, workers, MS);
        assert_eq!(rules, []);
        assert_eq!((result.http.counts.scheduled, result.http.counts.completed), (500, 500));
        assert!(result.completed_in_time >= 490, "{}", result.completed_in_time);
    }
}

#[test]
fn connections_of_all_workers_carry_the_same() {
    // Seven connections on two workers, at their capacity: 4 × 100/s and 3 × 100/s.
    let (result, rules) = run_workers(&testing::open(690.0, 10, 7), 2, 10 * MS);
    assert_eq!(rules, []);
    assert_eq!((result.http.counts.never_sent_busy, result.http.counts.completed), (0, 6_900));
    // Two of three users are on one of the two workers.
    let plan = HttpPlan { requests: Some(300), ..testing::closed(3) };
    let (result, rules) = run_workers(&plan, 2, 10 * MS);
    assert_eq!((result.http.counts.completed, rules), (300, vec![]));
    assert!(result.elapsed_ns < 1_010 * MS, "{}", result.elapsed_ns);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn any_number_of_workers_accounts_for_the_whole_plan(
        users in 1u64..12, loops in prop::option::of(1u64..20), requests in prop::option::of(1u64..200),
        duration_ms in prop::option::of(50u64..500), ramp_up_ms in 0u64..400, think_ms in 0u64..30, pipeline in 1u32..4,
        workers in 1u64..5, model in 0..3,
    ) {
        let mut plan = if model > 0 {
            testing::open(500.0, 1, users)
        } else {
            let think_time = Distribution::Fixed { ns: think_ms * MS };
            let load = LoadModel::Closed { users, loops, ramp_up_ns: ramp_up_ms * MS, think_time };
            let ends = loops.is_some() || requests.is_some();
            let duration_ns = if ends { duration_ms.map(|ms| ms * MS) } else { Some(S / 10) };
            HttpPlan { load, duration_ns, ..testing::closed(users) }
        };
        (plan.requests, plan.pipeline) = (requests, pipeline);
        if let (2, LoadModel::Open { arrivals, .. }) = (model, &mut plan.load) {
            *arrivals = Arrivals::Poisson;
            if requests.is_some() && duration_ms.is_none() {
                plan.duration_ns = None;
            }
        }
        let (result, rules) = run_workers(&plan, workers, 5 * MS);
        prop_assert!(!rules.contains(&VoidRule::Accounting), "{:?}", result.http.counts);
        prop_assert!(!rules.contains(&VoidRule::LittlesLaw), "{:?}", result.http.counts);
        if let (Some(n), None, true) = (requests, plan.duration_ns, loops.is_none() || model > 0) {
            prop_assert_eq!(result.http.counts.scheduled, n);
        }
    }
}
