//! The loop stopped at random, on virtual time, against a target whose every answer takes the same.

use proptest::prelude::*;
use record::{Censored, Connections, Distribution, HttpPlan, LoadModel, VoidRule};

use crate::{
    testing,
    wire::{
        SlotId,
        simulated::{Action, Attempt, Target},
    },
    worker_result::WorkerResult,
    worker_tests::{OK, Steady, run_behind_holes, run_stopped},
};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

#[derive(Debug, Clone, Copy)]
enum Kind {
    FixedPool,
    OnDemand,
    Users,
    ThinkingUsers,
}

fn plan(kind: Kind, connections: u64, delay_ns: u64) -> HttpPlan {
    // Half of what so many connections carry.
    let rate = (connections as f64 * 1e9 / delay_ns as f64 / 2.0).min(2_500.0);
    match kind {
        Kind::FixedPool => testing::open(rate, 4, connections),
        Kind::OnDemand => {
            let mut plan = testing::open(rate, 4, connections);
            if let LoadModel::Open { connections, .. } = &mut plan.load {
                *connections = Connections { initial: 0, most: connections.most };
            }
            plan
        }
        Kind::Users => HttpPlan { duration_ns: Some(4 * S), ..testing::closed(connections) },
        Kind::ThinkingUsers => {
            let mut plan = HttpPlan { duration_ns: Some(4 * S), ..testing::closed(connections) };
            if let LoadModel::Closed { think_time, .. } = &mut plan.load {
                *think_time = Distribution::Exponential { mean_ns: delay_ns };
            }
            plan
        }
    }
}

/// Percentiles of a target whose every answer takes the same that are neither its own, nor told to be the generator's.
fn wrong(result: &WorkerResult, truth_ns: u64) -> Vec<(f64, u64, u64)> {
    wrong_times(&result.http.response_time, |_| truth_ns)
}

/// Percentiles that are neither the target's, nor told to be the generator's.
fn wrong_times(times: &Censored, truth_ns: impl Fn(f64) -> u64) -> Vec<(f64, u64, u64)> {
    let count = times.observed.count() as f64;
    let printed = QUANTILES.iter().filter(|&&quantile| count * (1.0 - quantile) >= 10.0);
    printed
        .filter_map(|&quantile| {
            let (shown, truth_ns) = (times.percentile(quantile), truth_ns(quantile));
            let off_ns = shown.ns.abs_diff(truth_ns);
            let is_true = off_ns <= 250_000 || off_ns as f64 <= 0.1 * truth_ns as f64;
            (!is_true && !shown.is_own()).then_some((quantile, shown.ns, shown.less_own_ns))
        })
        .collect()
}

/// Serves one request after the other.
#[derive(Clone, Default)]
struct OneServer {
    service_ns: u64,
    free_ns: u64,
}

impl Target for OneServer {
    fn request(&mut self, _: u64, now_ns: u64) -> Vec<(u64, Action)> {
        self.free_ns = self.free_ns.max(now_ns) + self.service_ns;
        vec![(self.free_ns, Action::Send(OK.to_vec()))]
    }
}

/// Answers after 5 ms. Of connections that come at once, its accept queue takes 64; the others ask again after a second.
#[derive(Default)]
struct ShortQueue {
    waiting: u64,
}

impl Target for ShortQueue {
    fn attempt(&mut self, _: u64, _: SlotId) -> Attempt {
        self.waiting += 1;
        Attempt::Opens(if self.waiting > 64 { S } else { 10_000 })
    }

    fn request(&mut self, _: u64, now_ns: u64) -> Vec<(u64, Action)> {
        self.waiting = 0;
        vec![(now_ns + 5 * MS, Action::Send(OK.to_vec()))]
    }
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop::sample::select(vec![Kind::FixedPool, Kind::OnDemand, Kind::Users, Kind::ThinkingUsers])
}

/// Stops drawn in milliseconds, from the second second on.
fn in_order(stops_ms: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let mut stops: Vec<_> = stops_ms.into_iter().map(|(at, by)| (S + at * MS, by * MS)).collect();
    stops.sort_unstable();
    stops
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_absence_is_taken_for_the_targets_time(
        kind in kinds(),
        connections in 4u64..300,
        delay_ms in 1u64..50,
        stops in prop::collection::vec((0u64..3_900, 1u64..1_000), 1..4),
        in_send: bool,
    ) {
        let delay_ns = delay_ms.max(connections / 5) * MS;
        let stops = in_order(stops);
        let (result, rules) = run_stopped(plan(kind, connections, delay_ns), Steady { after_ns: delay_ns }, &stops, in_send);
        prop_assert!(!rules.contains(&VoidRule::LittlesLaw) && !rules.contains(&VoidRule::Accounting), "{rules:?}");
        if rules.is_empty() {
            prop_assert_eq!(wrong(&result, delay_ns), vec![], "{:?}", result.http.away);
        }
    }

    #[test]
    fn many_short_absences_add_up_to_no_wrong_percentile(
        kind in kinds(),
        connections in 4u64..300,
        delay_ms in 1u64..50,
        every_us in 2_000u64..30_000,
        by_us in 100u64..1_500,
    ) {
        let delay_ns = delay_ms.max(connections / 5) * MS;
        let stops: Vec<(u64, u64)> =
            (0..3_900_000 / every_us).map(|n| (S + n * every_us * 1_000, by_us * 1_000)).collect();
        let (result, rules) = run_stopped(plan(kind, connections, delay_ns), Steady { after_ns: delay_ns }, &stops, false);
        if rules.is_empty() {
            prop_assert_eq!(wrong(&result, delay_ns), vec![], "{:?}", result.http.away);
        }
    }

    #[test]
    fn what_queues_behind_a_burst_is_not_the_targets_service_time(
        on_demand: bool,
        rate_per_s in 200.0f64..2_000.0,
        busy in 0.1f64..0.9,
        stops in prop::collection::vec((0u64..3_900, 1u64..300), 1..4),
    ) {
        let mut plan = testing::open(rate_per_s, 4, 400);
        if let (true, LoadModel::Open { connections, .. }) = (on_demand, &mut plan.load) {
            connections.initial = 0;
        }
        let target = OneServer { service_ns: (busy * 1e9 / rate_per_s) as u64, free_ns: 0 };
        let (truth, _) = run_stopped(plan.clone(), target.clone(), &[], false);
        let stops = in_order(stops);
        let (result, rules) = run_stopped(plan, target, &stops, false);
        if rules.is_empty() {
            for (times, truth) in [(&result.http.response_time, &truth.http.response_time), (&result.http.service_time, &truth.http.service_time)] {
                prop_assert_eq!(wrong_times(times, |quantile| truth.percentile(quantile).ns), vec![], "{:?}", result.http.away);
            }
        }
    }

    #[test]
    fn short_absences_leave_the_lower_percentiles_alone(
        kind in kinds(),
        connections in 4u64..300,
        delay_ms in 1u64..50,
        at_ms in 100u64..3_900,
        by_us in 300u64..4_000,
    ) {
        let delay_ns = delay_ms.max(connections / 5) * MS;
        let stops = [(S + at_ms * MS, by_us * 1_000)];
        let (result, rules) = run_stopped(plan(kind, connections, delay_ns), Steady { after_ns: delay_ns }, &stops, false);
        prop_assert_eq!(rules, vec![]);
        prop_assert!(!result.http.response_time.percentile(0.5).is_own());
        prop_assert!(!result.http.response_time.percentile(0.9).is_own());
    }

    #[test]
    fn what_waits_for_lost_bytes_takes_until_these_have_come(
        kind in kinds(),
        connections in 4u64..100,
        delay_ms in 40u64..200,
        hole_ms in 1u64..40,
        stops in prop::collection::vec((0u64..3_900, 1u64..1_000), 0..3),
    ) {
        let delay_ns = delay_ms * MS;
        let target = Steady { after_ns: delay_ns };
        let plan = plan(kind, connections, delay_ns);
        let (result, rules) = run_behind_holes(plan, target, hole_ms * MS, &in_order(stops.clone()));
        if stops.is_empty() {
            prop_assert_eq!((&rules[..], result.http.away.times), (&[][..], 0));
            prop_assert!(result.http.response_time.lengthened.is_empty());
        }
        if rules.is_empty() {
            prop_assert_eq!(wrong(&result, delay_ns), vec![], "{:?}", result.http.away);
        }
    }

    #[test]
    fn who_is_there_is_not_told_to_be_away(kind in kinds(), connections in 4u64..300, delay_ms in 1u64..50) {
        let delay_ns = delay_ms.max(connections / 5) * MS;
        let (result, rules) = run_stopped(plan(kind, connections, delay_ns), Steady { after_ns: delay_ns }, &[], false);
        prop_assert_eq!((rules, result.http.away.times), (vec![], 0));
        prop_assert!(result.http.response_time.lengthened.is_empty() && result.http.service_time.lengthened.is_empty());
        prop_assert_eq!(wrong(&result, delay_ns), vec![]);
    }
}

#[test]
fn a_second_away_is_the_generators() {
    let (result, rules) =
        run_stopped(testing::open(1_000.0, 10, 16), Steady { after_ns: MS }, &[(4 * S, S)], false);
    assert_eq!(rules, [VoidRule::Late], "p90 is ours");
    assert!(!result.http.response_time.percentile(0.5).is_own());
    let p99 = result.http.own_lateness.quantile_ns(0.99);
    assert!(p99 > 850 * MS, "not only as many as there are connections: {p99}");
    assert!(
        (result.http.away.longest_s - 1.0).abs() < 0.01 && result.http.away.times == 1,
        "{:?}",
        result.http.away
    );
    // The same in a closed load: its times are sound, its throughput is not.
    let users = HttpPlan { duration_ns: Some(4 * S), ..testing::closed(10) };
    let (result, rules) = run_stopped(users, Steady { after_ns: MS }, &[(2 * S, S)], false);
    assert_eq!(rules, [VoidRule::Late]);
    assert_eq!(wrong(&result, MS), []);
}

#[test]
fn an_absence_at_the_start_is_not_felt_for_ever() {
    // In flight are 23 once the first answers come, and the loop is away a little before and behind that.
    for first_ms in [10, 30, 35, 45, 70] {
        let stops: Vec<(u64, u64)> =
            [first_ms, 200, 500, 900, 2_000].into_iter().map(|at| (at * MS, 5 * MS)).collect();
        let (result, rules) =
            run_stopped(testing::open(600.0, 3, 83), Steady { after_ns: 38 * MS }, &stops, false);
        assert_eq!(rules, [], "{first_ms}");
        let lengthened = result.http.response_time.lengthened.count();
        assert!(lengthened < 200, "{first_ms}: {lengthened} of 1,800");
    }
}

#[test]
fn an_accept_queue_that_a_burst_fills_is_not_the_targets_fault() {
    let mut plan = testing::open(1_000.0, 4, 1_000);
    if let LoadModel::Open { connections, .. } = &mut plan.load {
        connections.initial = 0;
    }
    let (sound, rules) = run_stopped(plan.clone(), ShortQueue::default(), &[], false);
    assert_eq!((rules, sound.http.counts.connects_delayed), (vec![], 0));
    let (result, rules) = run_stopped(plan, ShortQueue::default(), &[(2 * S, 200 * MS)], false);
    assert_eq!(rules, []);
    assert!(
        result.http.response_time.percentile(0.99).ns > S / 2
            && result.http.response_time.percentile(0.99).is_own()
    );
    let late = result.http.connect_time.count() - result.http.connect_time.count_up_to_ns(900 * MS);
    assert!(late > 100 && result.http.counts.connects_delayed >= late, "{late}: {:?}", result.http.counts);
}

#[test]
fn an_absence_at_the_end_takes_nothing_of_the_time_that_answers_are_waited_for() {
    let plan = HttpPlan { drain_ns: 500 * MS, ..testing::open(500.0, 2, 20) };
    // From just before the end to far beyond the drain.
    let (result, _) = run_stopped(plan, Steady { after_ns: 20 * MS }, &[(2_900 * MS, 2 * S)], false);
    assert_eq!(
        (result.http.counts.in_flight, result.http.counts.never_sent, result.http.counts.completed),
        (0, 0, 1_000)
    );
}

#[test]
fn an_answer_that_lies_unread_beyond_its_timeout_is_an_answer() {
    let plan = HttpPlan { timeout_ns: 500 * MS, ..testing::open(100.0, 2, 4) };
    let (result, _) = run_stopped(plan, Steady { after_ns: 20 * MS }, &[(2 * S + 5 * MS, S)], false);
    assert_eq!(result.http.errors.total(), 0, "{:?}", result.http.errors);
}
