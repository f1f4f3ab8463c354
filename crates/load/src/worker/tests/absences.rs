//! The loop on virtual time, stopped at random, against a target with constant answer times.

use proptest::prelude::*;
use record::{CensoredTimes, Distribution, HttpPlan, LoadModel, Span, VoidRule};

use crate::{
    share::Share,
    testing,
    validity::max_throughput_ratio,
    wire::{
        SlotId,
        simulated::{Action, Attempt, Target},
    },
    worker::tests::{OK, Steady, run_on, run_stopped, run_with_losses},
    worker_result::WorkerResult,
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
    // Half of the capacity of the connections.
    let rate = (connections as f64 * 1e9 / delay_ns as f64 / 2.0).min(2_500.0);
    match kind {
        Kind::FixedPool => testing::open(rate, 4, connections),
        Kind::OnDemand => testing::on_demand(rate, 4, connections),
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

/// Percentiles of the result whose interval does not contain the target's constant answer time.
pub(super) fn wrong(result: &WorkerResult, truth_ns: u64) -> Vec<(f64, Span, f64)> {
    wrong_times(&result.http.response_time, |_| truth_ns as f64)
}

/// Percentiles whose interval misses the target's true time by more than the allowed error.
fn wrong_times(times: &CensoredTimes, truth_ns: impl Fn(f64) -> f64) -> Vec<(f64, Span, f64)> {
    let count = times.observed.count() as f64;
    let printed = QUANTILES.iter().filter(|&&quantile| count * (1.0 - quantile) >= 10.0);
    printed
        .filter_map(|&quantile| {
            let (shown, truth_ns) = (times.percentile(quantile), truth_ns(quantile));
            let off_ns = (shown.least - truth_ns).max(truth_ns - shown.most);
            (off_ns > 250_000.0_f64.max(0.1 * truth_ns)).then_some((quantile, shown, truth_ns))
        })
        .collect()
}

/// Serves as many requests at a time as it has servers, in order. Opening a connection takes `opens_ns`.
#[derive(Clone)]
struct Servers {
    service_ns: u64,
    free_ns: Vec<u64>,
    opens_ns: u64,
}

impl Target for Servers {
    fn attempt(&mut self, _: u64, _: SlotId) -> Attempt {
        Attempt::Opens(self.opens_ns)
    }

    fn request(&mut self, _: u64, now_ns: u64) -> Vec<(u64, Action)> {
        let free_ns = self.free_ns.iter_mut().min().unwrap();
        *free_ns = now_ns.max(*free_ns) + self.service_ns;
        vec![(*free_ns, Action::Send(OK.to_vec()))]
    }
}

/// Answers after 5 ms. Its accept queue takes 64 connections of a burst; the others retransmit their SYN after a second.
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

/// Sorts stops, and converts them from milliseconds after the first second.
fn sorted(stops_ms: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let mut stops: Vec<_> = stops_ms.into_iter().map(|(at, by)| (S + at * MS, by * MS)).collect();
    stops.sort_unstable();
    stops
}

/// Connections opened by an open load of 20,000/s for answers of `service_ns`, which get slower by `slower_ns` every second.
fn opened(service_ns: u64, slower_ns: u64, stops: &[(u64, u64)]) -> u64 {
    struct Slower(u64, u64);
    impl Target for Slower {
        fn request(&mut self, _: u64, now_ns: u64) -> Vec<(u64, Action)> {
            vec![(now_ns + self.0 + self.1 * now_ns / S, Action::Send(OK.to_vec()))]
        }
    }
    let plan = testing::on_demand(20_000.0, 3, 10_000);
    let (result, _) = run_stopped(plan, Slower(service_ns, slower_ns), stops, false);
    let counts = &result.http.counts;
    assert_eq!((counts.completed, counts.waited_busy), (counts.scheduled, 0), "all are sent");
    counts.connections_opened
}

#[test]
fn a_stall_of_the_generator_opens_hardly_any_connections() {
    let in_use = opened(3_200_000, 0, &[]);
    assert!((64..70).contains(&in_use), "{in_use}");
    for stall_ms in [5, 10, 20, 50] {
        let opened = opened(3_200_000, 0, &[(2 * S, stall_ms * MS)]);
        assert!(opened <= in_use + in_use / 20, "{opened} of {in_use} after {stall_ms} ms");
    }
}

#[test]
fn a_loop_that_opens_connections_reads_the_answers_that_make_others_free() {
    // Opening a connection takes 70 us, and a request is due every 50 us. At most two hundred are in flight for 10 ms.
    let plan = testing::on_demand(20_000.0, 3, 10_000);
    let (result, _) = run_on(&plan, Share::WHOLE, Steady { after_ns: MS }, u64::MAX, |wire| {
        wire.connect_cost_ns = 70_000;
        wire.stops = [(2 * S, 20 * MS)].into();
    });
    let counts = &result.http.counts;
    assert_eq!(counts.completed, counts.scheduled);
    assert!(counts.connections_opened < 200, "{}", counts.connections_opened);
}

#[test]
fn what_a_target_needs_is_opened_also_while_the_load_recovers() {
    // 20 ms longer each second: 400 connections more each second.
    let needed = opened(3_200_000, 20 * MS, &[]);
    let opened = opened(3_200_000, 20 * MS, &[(2 * S, 50 * MS), (3 * S, 20 * MS)]);
    assert!(opened >= needed * 9 / 10, "{opened} of {needed}");
}

/// The throughput of users, as an interval.
fn throughput_of_users(plan: &HttpPlan, delay_ns: u64, stops: &[(u64, u64)], in_send: bool) -> (f64, f64) {
    let (result, _) = run_stopped(plan.clone(), Steady { after_ns: delay_ns }, stops, in_send);
    let least = result.http.counts.completed as f64 * 1e9 * result.users as f64 / result.users_span_ns;
    (least, least * max_throughput_ratio(plan, &result))
}

#[test]
fn a_user_whose_connection_was_noticed_late_was_delayed_by_that() {
    // The stop begins while the connection is being made.
    let plan = HttpPlan { keepalive: false, ..plan(Kind::Users, 1, MS) };
    for stop in (0..1_000).step_by(5).map(|at_us| (S + 303 * MS + at_us * 1_000, 500 * MS)) {
        let (least, most) = throughput_of_users(&plan, MS, &[stop], false);
        assert!(least <= 980.0 && 980.0 <= 1.01 * most, "{least} to {most} after {stop:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_absence_counts_as_the_targets_time(
        kind in kinds(),
        connections in 4u64..300,
        delay_ms in 1u64..50,
        stops in prop::collection::vec((0u64..3_900, 1u64..1_000), 1..4),
        in_send: bool,
    ) {
        let delay_ns = delay_ms.max(connections / 5) * MS;
        let stops = sorted(stops);
        let (result, rules) = run_stopped(plan(kind, connections, delay_ns), Steady { after_ns: delay_ns }, &stops, in_send);
        prop_assert!(!rules.contains(&VoidRule::LittlesLaw) && !rules.contains(&VoidRule::Accounting), "{rules:?}");
        if rules.is_empty() {
            prop_assert_eq!(wrong(&result, delay_ns), vec![], "{:?}", result.http.away);
        }
    }

    #[test]
    fn the_throughput_of_users_without_stops_lies_in_its_interval(
        users in 1u64..100,
        delay_ms in 1u64..50,
        stops in prop::collection::vec((0u64..2_900, 1u64..500), 0..4),
        in_send: bool,
        keepalive: bool,
    ) {
        // If a send also opens the connection, a stop within it belongs to the connection.
        let (delay_ns, in_send) = (delay_ms * MS, in_send && keepalive);
        let plan = HttpPlan { keepalive, ..plan(Kind::Users, users, delay_ns) };
        let (least, most) = throughput_of_users(&plan, delay_ns, &sorted(stops), in_send);
        // Opening a connection takes some time as well.
        let truth = users as f64 * 1e9 / (delay_ns + if keepalive { 0 } else { 20_000 }) as f64;
        prop_assert!(least <= 1.02 * truth && truth <= 1.02 * most, "{least} to {most}, and not {truth}");
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
    fn a_queue_after_a_burst_is_not_the_targets_service_time(
        on_demand: bool,
        rate_per_s in 200.0f64..2_000.0,
        busy in 0.1f64..0.9,
        stops in prop::collection::vec((0u64..3_900, 1u64..300), 1..4),
    ) {
        let mut plan = testing::open(rate_per_s, 4, 400);
        if let (true, LoadModel::Open { connections, .. }) = (on_demand, &mut plan.load) {
            connections.initial = 0;
        }
        let target = Servers { service_ns: (busy * 1e9 / rate_per_s) as u64, free_ns: vec![0], opens_ns: 20_000 };
        let (truth, _) = run_stopped(plan.clone(), target.clone(), &[], false);
        let stops = sorted(stops);
        let (result, rules) = run_stopped(plan, target, &stops, false);
        if rules.is_empty() {
            for (times, truth) in [(&result.http.response_time, &truth.http.response_time), (&result.http.service_time, &truth.http.service_time)] {
                prop_assert_eq!(wrong_times(times, |quantile| truth.percentile(quantile).value), vec![], "{:?}", result.http.away);
            }
        }
    }

    #[test]
    fn a_queue_that_hardly_ends_is_bounded_by_what_left_late(
        kind in prop::sample::select(vec![Kind::FixedPool, Kind::OnDemand]),
        rate_per_s in 200.0f64..2_000.0,
        busy in 0.85f64..1.15,
        servers in 1usize..9,
        bursts in prop::collection::vec((5u64..50, 0u64..400), 1..30),
        opens_ms in prop::option::of(1u64..40),
    ) {
        let mut plan = match kind {
            Kind::OnDemand => testing::on_demand(rate_per_s, 4, 4_000),
            _ => testing::open(rate_per_s, 4, 400),
        };
        let service_ns = (busy * servers as f64 * 1e9 / rate_per_s) as u64;
        // If opening connections takes long, each request uses a new one.
        plan.keepalive = opens_ms.is_none();
        let opens_ns = opens_ms.map_or(20_000, |ms| ms * MS);
        let target = Servers { service_ns, free_ns: vec![0; servers], opens_ns };
        let (mut at_ns, mut stops) = (S + 200 * MS, Vec::new());
        for (by_ms, pause_ms) in bursts {
            stops.push((at_ns, by_ms * MS));
            at_ns += (by_ms + pause_ms) * MS;
        }
        let truth = run_stopped(plan.clone(), target.clone(), &[], false).0.http.response_time;
        let (result, rules) = run_stopped(plan, target, &stops, false);
        if rules.is_empty() {
            let times = &result.http.response_time;
            prop_assert_eq!(wrong_times(times, |quantile| truth.percentile(quantile).value), vec![], "{:?}", result.http.away);
        }
    }

    #[test]
    fn short_absences_do_not_change_the_lower_percentiles(
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
        prop_assert!(!result.http.response_time.percentile(0.5).is_wide());
        prop_assert!(!result.http.response_time.percentile(0.9).is_wide());
    }

    #[test]
    fn an_answer_with_a_lost_byte_ends_when_the_byte_arrives(
        kind in kinds(),
        connections in 4u64..100,
        delay_ms in 40u64..200,
        hole_ms in 1u64..40,
        stops in prop::collection::vec((0u64..3_900, 1u64..1_000), 0..3),
    ) {
        let delay_ns = delay_ms * MS;
        let target = Steady { after_ns: delay_ns };
        let plan = plan(kind, connections, delay_ns);
        let (result, rules) = run_with_losses(plan, target, hole_ms * MS, &sorted(stops.clone()));
        if stops.is_empty() {
            prop_assert_eq!((&rules[..], result.http.away.times), (&[][..], 0));
            prop_assert!(result.http.response_time.lengthened.is_empty());
        }
        if rules.is_empty() {
            prop_assert_eq!(wrong(&result, delay_ns), vec![], "{:?}", result.http.away);
        }
    }

    #[test]
    fn a_loop_without_absences_reports_none(kind in kinds(), connections in 4u64..300, delay_ms in 1u64..50) {
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
    assert_eq!(rules, [], "p90 is an interval");
    assert_eq!(wrong(&result, MS), []);
    assert!(
        result.http.response_time.percentile(0.9).is_vague()
            && !result.http.response_time.percentile(0.5).is_wide()
    );
    let p99 = result.http.own_lateness.quantile_ns(0.99);
    assert!(p99 > 850 * MS, "not only as many as there are connections: {p99}");
    assert!(
        (result.http.away.longest_s - 1.0).abs() < 0.01 && result.http.away.times == 1,
        "{:?}",
        result.http.away
    );
    // In a closed load, the times are right, but the throughput is not.
    let users = HttpPlan { duration_ns: Some(4 * S), ..testing::closed(10) };
    let (result, rules) = run_stopped(users.clone(), Steady { after_ns: MS }, &[(2 * S, S)], false);
    assert_eq!(rules, []);
    assert_eq!(wrong(&result, MS), []);
    // Ten users get 10,000 answers per second, but had only three of the four seconds.
    assert!((1.3..1.4).contains(&max_throughput_ratio(&users, &result)));
}

#[test]
fn the_effect_of_an_absence_at_the_start_ends() {
    // The load has 23 requests in flight when the first answers come. The loop is absent shortly before and after that.
    for first_ms in [10, 30, 35, 45, 70] {
        let stops: Vec<(u64, u64)> =
            [first_ms, 200, 500, 900, 2_000].into_iter().map(|at| (S + at * MS, 5 * MS)).collect();
        let (result, rules) =
            run_stopped(testing::open(600.0, 3, 83), Steady { after_ns: 38 * MS }, &stops, false);
        assert_eq!(rules, [], "{first_ms}");
        let lengthened = result.http.response_time.lengthened.count();
        // The first two absences come before the usual number of requests in flight is known.
        assert!(lengthened < 400, "{first_ms}: {lengthened} of 1,800");
    }
}

/// Answers requests when the flush that begins after them has ended.
struct GroupCommit {
    flush_ns: u64,
}

impl Target for GroupCommit {
    fn request(&mut self, _: u64, now_ns: u64) -> Vec<(u64, Action)> {
        vec![((now_ns / self.flush_ns + 2) * self.flush_ns, Action::Send(OK.to_vec()))]
    }
}

/// Hands requests to two servers in turn, one of which takes twice as long.
struct TwoInTurn(u64);

impl Target for TwoInTurn {
    fn request(&mut self, _: u64, now_ns: u64) -> Vec<(u64, Action)> {
        self.0 += 1;
        vec![(now_ns + 1_300_000 * (1 + self.0 % 2), Action::Send(OK.to_vec()))]
    }
}

#[test]
fn a_load_whose_requests_in_flight_swing_recovers() {
    fn delayed(target: impl Target) -> f64 {
        let (result, _) = run_stopped(testing::open(1_000.0, 4, 400), target, &[(2 * S, 20 * MS)], false);
        result.http.response_time.lengthened.count() as f64 / 4_000.0
    }
    assert!(delayed(TwoInTurn(0)) < 0.02);
    for flush_ms in [2, 5, 10, 30] {
        let delayed = delayed(GroupCommit { flush_ns: flush_ms * MS });
        assert!(delayed < 0.06, "{flush_ms} ms: {delayed}");
    }
}

#[test]
fn a_load_that_grows_recovers() {
    let mut plan = testing::open(2_000.0, 5, 400);
    if let LoadModel::Open { stages, .. } = &mut plan.load {
        stages[0].from_rate_per_s = 1.0;
    }
    let (result, _) = run_stopped(plan, Steady { after_ns: 50 * MS }, &[(2 * S, 10 * MS)], false);
    let delayed = result.http.response_time.lengthened.count() as f64 / result.http.counts.completed as f64;
    assert!(delayed < 0.3, "{delayed}");
}

#[test]
fn an_absence_before_the_first_request_holds_nothing() {
    let plan = testing::on_demand(200.0, 2, 400);
    let (result, _) = run_stopped(plan, Steady { after_ns: MS }, &[(S, 40 * MS)], false);
    let longest = result.http.response_time.percentile(1.0);
    assert!((39e6..42e6).contains(&longest.most), "the absence and the answer: {longest:?}");
}

#[test]
fn what_an_absence_made_late_fills_no_accept_queue() {
    let mut plan = testing::open(1_000.0, 4, 1_000);
    if let LoadModel::Open { connections, .. } = &mut plan.load {
        connections.initial = 0;
    }
    let (sound, rules) = run_stopped(plan.clone(), ShortQueue::default(), &[], false);
    assert_eq!((rules, sound.http.counts.connects_delayed), (vec![], 0));
    let (result, _) = run_stopped(plan, ShortQueue::default(), &[(2 * S, 200 * MS)], false);
    let late = result.http.connect_time.count() - result.http.connect_time.count_up_to_ns(900 * MS);
    assert_eq!(late, 0, "{:?}", result.http.counts);
    // The wait for a connection is the generator's share, not the target's.
    assert!(wrong(&result, 5 * MS).is_empty(), "{:?}", result.http.away);
}

/// Opens connections after a second, like a target whose accept queue was full, and answers at once.
struct SlowHandshakes;

impl Target for SlowHandshakes {
    fn attempt(&mut self, _: u64, _: SlotId) -> Attempt {
        Attempt::Opens(S + 20 * MS)
    }

    fn request(&mut self, _: u64, now_ns: u64) -> Vec<(u64, Action)> {
        vec![(now_ns + MS, Action::Send(OK.to_vec()))]
    }
}

#[test]
fn waiting_for_a_handshake_is_no_absence() {
    let plan = || HttpPlan { keepalive: false, duration_ns: Some(8 * S), ..testing::closed(4) };
    let (sound, rules) = run_stopped(plan(), SlowHandshakes, &[], false);
    assert_eq!((rules, sound.http.away.times), (vec![], 0), "{:?}", sound.http.away);
    // A real absence is still found.
    let (stopped, _) = run_stopped(plan(), SlowHandshakes, &[(3 * S, 300 * MS)], false);
    assert!(stopped.http.away.total_s > 0.25, "{:?}", stopped.http.away);
}

#[test]
fn an_absence_at_the_end_does_not_shorten_the_drain() {
    let plan = HttpPlan { drain_ns: 500 * MS, ..testing::open(500.0, 2, 20) };
    // The absence lasts from just before the end to far beyond the drain.
    let (result, _) = run_stopped(plan, Steady { after_ns: 20 * MS }, &[(2_900 * MS, 2 * S)], false);
    assert_eq!(
        (result.http.counts.in_flight, result.http.counts.never_sent, result.http.counts.completed),
        (0, 0, 1_000)
    );
}

#[test]
fn an_answer_that_is_read_after_its_timeout_counts_if_it_arrived_in_time() {
    let plan = HttpPlan { timeout_ns: 500 * MS, ..testing::open(100.0, 2, 4) };
    let (result, _) = run_stopped(plan, Steady { after_ns: 20 * MS }, &[(2 * S + 5 * MS, S)], false);
    assert_eq!(result.http.errors.total(), 0, "{:?}", result.http.errors);
}
