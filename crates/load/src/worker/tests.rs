//! The loop on virtual time, against targets with known answers.

mod absences;
mod connections;
mod ending;
mod events;
mod failures;
mod handshakes;
mod loads;
mod users_time;
mod windows;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
    mpsc,
};

use proptest::prelude::*;
use record::{Distribution, Fault, HttpPlan, LoadModel, VoidRule};
use rustix::io::Errno;

use crate::{
    events::Ledger,
    exchange::{Exchange, Fixed, Numbered},
    recorder::Recorder,
    request::RequestBytes,
    share::Share,
    testing,
    validity::judge,
    wire::{
        SlotId, Wire,
        simulated::{Action, Attempt, SimulatedWire, Target},
    },
    worker::{Finished, Worker},
    worker_result::WorkerResult,
};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
pub(crate) const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// Runs a plan against a target; returns the result and the validity rules that it breaks.
pub(crate) fn run<T: Target>(plan: HttpPlan, target: T) -> (WorkerResult, Vec<VoidRule>) {
    run_costly(plan, target, u64::MAX, 0)
}

struct Stopping<T> {
    target: T,
    stop: Arc<AtomicBool>,
    after_requests: u64,
}

impl<T: Target> Target for Stopping<T> {
    fn attempt(&mut self, n: u64, slot: SlotId) -> Attempt {
        self.target.attempt(n, slot)
    }

    fn receive(&mut self, request: &[u8]) {
        self.target.receive(request);
    }

    fn request(&mut self, n: u64, now_ns: u64) -> Vec<(u64, Action)> {
        if n >= self.after_requests {
            self.stop.store(true, Ordering::Relaxed);
        }
        self.target.request(n, now_ns)
    }
}

/// Same as [`run`], but stops after `after_requests` requests, and each send takes `send_cost_ns`.
pub(crate) fn run_costly<T: Target>(
    plan: HttpPlan,
    target: T,
    after_requests: u64,
    send_cost_ns: u64,
) -> (WorkerResult, Vec<VoidRule>) {
    let (result, rules, _) = run_with_ledger(plan, target, after_requests, send_cost_ns);
    (result, rules)
}

/// Same as `run_costly`, and returns the ledger of events.
pub(crate) fn run_with_ledger<T: Target>(
    plan: HttpPlan,
    target: T,
    after_requests: u64,
    send_cost_ns: u64,
) -> (WorkerResult, Vec<VoidRule>, Option<Ledger>) {
    let (result, ledger) = run_share(&plan, Share::WHOLE, target, after_requests, send_cost_ns);
    let rules = judge(&plan, &result).into_iter().map(|reason| reason.rule).collect();
    (result, rules, ledger)
}

/// Runs one worker's share of a plan.
pub(crate) fn run_share<T: Target>(
    plan: &HttpPlan,
    share: Share,
    target: T,
    after_requests: u64,
    send_cost_ns: u64,
) -> (WorkerResult, Option<Ledger>) {
    run_on(plan, share, target, after_requests, |wire| wire.send_cost_ns = send_cost_ns)
}

/// Runs a plan with stops of the loop, given as time and length.
pub(crate) fn run_stopped<T: Target>(
    plan: HttpPlan,
    target: T,
    stops: &[(u64, u64)],
    in_send: bool,
) -> (WorkerResult, Vec<VoidRule>) {
    let (result, _) = run_on(&plan, Share::WHOLE, target, u64::MAX, |wire| {
        wire.stops = stops.iter().copied().collect();
        wire.stops_in_send = in_send;
    });
    let rules = judge(&plan, &result).into_iter().map(|reason| reason.rule).collect();
    (result, rules)
}

/// Same as `run_stopped`, on a path that loses a byte of each answer: the last byte waits `hole_ns` for the retransmission.
pub(crate) fn run_with_losses<T: Target>(
    plan: HttpPlan,
    target: T,
    hole_ns: u64,
    stops: &[(u64, u64)],
) -> (WorkerResult, Vec<VoidRule>) {
    let (result, _) = run_on(&plan, Share::WHOLE, target, u64::MAX, |wire| {
        wire.hole_ns = hole_ns;
        wire.stops = stops.iter().copied().collect();
    });
    let rules = judge(&plan, &result).into_iter().map(|reason| reason.rule).collect();
    (result, rules)
}

fn run_on<T: Target>(
    plan: &HttpPlan,
    share: Share,
    target: T,
    after_requests: u64,
    set_up: impl FnOnce(&mut SimulatedWire<Stopping<T>>),
) -> (WorkerResult, Option<Ledger>) {
    let stop = Arc::new(AtomicBool::new(false));
    let target = Stopping { target, stop: Arc::clone(&stop), after_requests };
    let (tick_sender, ticks) = mpsc::channel();
    let (_spares, spare) = mpsc::channel();
    let recorder = Recorder::new(0, tick_sender, spare, plan);
    let plan = Arc::new(plan.clone());
    let length = RequestBytes::new(&plan).length();
    let wire = |slots| {
        let mut wire = SimulatedWire::new(target, length, slots);
        set_up(&mut wire);
        Ok::<_, Errno>(wire)
    };
    let run = if plan.events.is_some() { run_exchange::<_, Numbered> } else { run_exchange::<_, Fixed> };
    let Finished { mut result, ledger, .. } = run(&plan, share, recorder, stop, wire);
    let mut by_second = 0;
    for tick in ticks {
        result.http.response_time.observed.merge(&tick.response_time);
        by_second += tick.completed;
    }
    assert_eq!(by_second, result.http.counts.completed, "the ticks must add up to the total");
    assert_users_time_adds_up(&plan, &result);
    (result, ledger)
}

/// The states of the users of a closed load add up to the time of all users, if each of them has requests to the end.
fn assert_users_time_adds_up(plan: &HttpPlan, result: &WorkerResult) {
    let LoadModel::Closed { users, loops: None, ramp_up_ns: 0, .. } = plan.load else { return };
    let (Some(duration_ns), None) = (plan.duration_ns, plan.requests) else { return };
    let is_whole = !result.interrupted && result.http.counts.connections_unopened == 0;
    if is_whole && plan.pipeline == 1 && plan.events.is_none() {
        let (wanted_s, s) = (users as f64 * duration_ns as f64 / 1e9, result.http.users_time.total_s());
        assert!((s / wanted_s - 1.0).abs() < 1e-6, "{s} s of {wanted_s} s: {:?}", result.http.users_time);
    }
}

fn run_exchange<W: Wire, X: Exchange>(
    plan: &Arc<HttpPlan>,
    share: Share,
    recorder: Recorder,
    stop: Arc<AtomicBool>,
    wire: impl FnOnce(usize) -> Result<W, Errno>,
) -> Finished<W> {
    let mut worker = Worker::<W, X>::new(Arc::clone(plan), share, None, recorder, stop, wire).unwrap();
    worker.prepare();
    let t0_ns = worker.now_ns() + MS;
    worker.run(t0_ns)
}

/// Answers every request with success after a fixed time.
#[derive(Clone)]
pub(crate) struct Steady {
    pub after_ns: u64,
}

impl Target for Steady {
    fn request(&mut self, _: u64, now_ns: u64) -> Vec<(u64, Action)> {
        vec![(now_ns + self.after_ns, Action::Send(OK.to_vec()))]
    }
}

pub(crate) fn with_loops(users: u64, n: u64) -> HttpPlan {
    let load =
        LoadModel::Closed { users, loops: Some(n), ramp_up_ns: 0, think_time: Distribution::Fixed { ns: 0 } };
    HttpPlan { load, ..testing::closed(users) }
}

#[test]
fn users_waiting_300_ms_each_are_served_at_the_rate_of_littles_law() {
    let plan = HttpPlan { duration_ns: Some(30 * S), ..testing::closed(200) };
    let (result, rules) = run(plan, Steady { after_ns: 300 * MS });
    assert_eq!(rules, []);
    let rate = result.http.counts.completed as f64 / (result.users_span_ns / result.users as f64 / 1e9);
    assert!((rate - 200.0 / 0.3).abs() < 0.1, "{rate}");
    let p50_ns = result.http.response_time.percentile(0.5).value as u64;
    assert!(p50_ns.abs_diff(300 * MS) < MS, "{p50_ns}");
}

#[test]
fn an_open_load_is_sent_when_it_is_due() {
    let (result, rules) = run(testing::open(1_000.0, 2, 10), Steady { after_ns: 5 * MS });
    assert_eq!(rules, []);
    assert_eq!(
        (result.http.counts.scheduled, result.http.counts.sent, result.http.counts.completed),
        (2_000, 2_000, 2_000)
    );
    assert_eq!(result.http.lateness.max_ns(), 0);
    assert_eq!(result.http.counts.connections_opened, 10);
    assert!(result.http.response_time.observed.max_ns().abs_diff(5 * MS) < MS / 100);
}

#[test]
fn requests_that_wait_for_a_busy_connection_are_late_but_not_by_our_fault() {
    // 10 connections × 100/s = 1,000/s is the capacity; 2,000/s are planned.
    let (result, rules) = run(testing::open(2_000.0, 2, 10), Steady { after_ns: 10 * MS });
    assert_eq!(rules, [], "the target was slow, not the instrument");
    assert_eq!(result.http.own_lateness.max_ns(), 0);
    assert!(result.http.lateness.max_ns() > S, "{}", result.http.lateness.max_ns());
    assert_eq!(
        result.http.counts.completed + result.http.counts.never_sent_busy + result.http.counts.in_flight,
        4_000
    );
}

#[test]
fn answers_in_single_bytes_and_requests_in_pieces_change_nothing() {
    struct Dribbles;
    impl Target for Dribbles {
        fn request(&mut self, _: u64, now_ns: u64) -> Vec<(u64, Action)> {
            OK.iter()
                .enumerate()
                .map(|(i, &b)| (now_ns + (i as u64 + 1) * 1_000, Action::Send(vec![b])))
                .collect()
        }
    }
    let (result, rules) = run(with_loops(3, 50), Dribbles);
    assert_eq!((result.http.counts.completed, rules), (150, vec![]));
    assert!(result.http.first_byte_time.max_ns() < result.http.service_time.observed.min_ns());
}

#[test]
fn without_keepalive_each_request_has_a_connection() {
    for plan in [with_loops(4, 25), testing::open(100.0, 1, 4)] {
        let plan = HttpPlan { keepalive: false, ..plan };
        let (result, rules) = run(plan, Steady { after_ns: MS });
        assert_eq!(
            (result.http.counts.completed, result.http.counts.connections_opened, rules),
            (100, 100, vec![])
        );
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let plan = HttpPlan { pipeline: 4, ..with_loops(2, 50) };
    let (result, rules) = run(plan, Steady { after_ns: MS });
    assert_eq!((result.http.counts.completed, rules), (100, vec![]));
    assert!(result.in_flight_integral_ns / result.elapsed_ns as f64 > 7.0, "8 at a time");
}

#[test]
fn connections_on_demand_are_opened_when_all_are_busy() {
    let mut plan = testing::open(1_000.0, 1, 1);
    if let LoadModel::Open { connections, .. } = &mut plan.load {
        (connections.initial, connections.most) = (0, 500);
    }
    let (result, rules) = run(plan, Steady { after_ns: 50 * MS });
    assert_eq!((result.http.counts.completed, rules), (1_000, vec![]));
    // 1,000/s × 50 ms, plus one for the last handshake.
    assert!(
        (50..=52).contains(&result.http.counts.connections_opened),
        "{}",
        result.http.counts.connections_opened
    );
}

#[test]
fn users_start_over_the_ramp_and_think_between_requests() {
    let mut plan = HttpPlan { duration_ns: Some(10 * S), ..testing::closed(10) };
    if let LoadModel::Closed { ramp_up_ns, think_time, .. } = &mut plan.load {
        *ramp_up_ns = S;
        *think_time = Distribution::Fixed { ns: 100 * MS };
    }
    let (result, rules) = run(plan, Steady { after_ns: MS });
    assert_eq!(rules, []);
    // User i starts at i × 0.1 s, then every 101 ms (the first time plus the handshake).
    let expected: u64 = (0..10).map(|i| (10 * S - i * S / 10).div_ceil(101 * MS)).sum();
    assert!(
        result.http.counts.completed.abs_diff(expected) <= 10,
        "{} of {expected}",
        result.http.counts.completed
    );
}

#[test]
fn users_that_begin_together_have_send_times_of_their_own() {
    /// Answers all requests at the next tenth of a second, so that all users begin at the same time.
    struct InStep;
    impl Target for InStep {
        fn request(&mut self, _: u64, now_ns: u64) -> Vec<(u64, Action)> {
            vec![((now_ns / (100 * MS) + 1) * 100 * MS, Action::Send(OK.to_vec()))]
        }
    }
    let mut plan = HttpPlan { duration_ns: Some(5 * S), ..testing::closed(1_000) };
    if let LoadModel::Closed { think_time, .. } = &mut plan.load {
        *think_time = Distribution::Fixed { ns: 30 * MS };
    }
    // A thousand sends of 20 µs take 20 ms. If all used the send time of the first, they would seem to be in flight for too
    // long.
    let (result, rules) = run_costly(plan, InStep, u64::MAX, 20_000);
    assert_eq!(rules, []);
    assert!(result.http.own_lateness.max_ns() > 15 * MS, "{}", result.http.own_lateness.max_ns());
}

#[test]
fn an_interrupted_trial_accounts_for_all_begun_requests() {
    for plan in [with_loops(20, 1_000), testing::open(1_000.0, 30, 20)] {
        let (result, rules) = run_costly(plan, Steady { after_ns: 5 * MS }, 500, 0);
        assert!(result.interrupted && result.http.counts.sent < 1_000, "{:?}", result.http.counts);
        assert_eq!(rules, []);
        assert!(result.http.counts.in_flight > 0);
    }
}

#[test]
fn every_deliberate_fault_breaks_its_own_validity_rule() {
    for (fault, rule) in [
        (Fault::DropSamples { every: 100 }, VoidRule::Accounting),
        (Fault::DoubleCount { every: 100 }, VoidRule::Accounting),
        (Fault::NeverSend { every: 100 }, VoidRule::Accounting),
    ] {
        let sound = testing::open(1_000.0, 2, 10);
        let (_, rules) = run(sound.clone(), Steady { after_ns: MS });
        assert_eq!(rules, []);
        let (_, rules) = run(HttpPlan { fault: Some(fault), ..sound }, Steady { after_ns: MS });
        assert!(rules.contains(&rule), "{fault:?}: {rules:?}");
    }
    // The intervals of the percentiles cover late sends.
    let late = Fault::LateSends { every: 12, by_ns: 2 * MS };
    let plan = HttpPlan { fault: Some(late), ..testing::open(1_000.0, 2, 10) };
    let (result, rules) = run(plan, Steady { after_ns: MS });
    assert_eq!((rules, absences::wrong(&result, MS)), (vec![], vec![]));
    assert!(result.http.response_time.percentile(0.9).is_wide());
    // A fault in one request of ten also breaks Little's law, which does not depend on the counts.
    for fault in [Fault::DropSamples { every: 10 }, Fault::DoubleCount { every: 10 }] {
        let plan = HttpPlan { fault: Some(fault), ..testing::open(1_000.0, 2, 10) };
        let (_, rules) = run(plan, Steady { after_ns: MS });
        assert!(rules.contains(&VoidRule::LittlesLaw), "{fault:?}: {rules:?}");
    }
}

/// A target that chooses its behaviour for each request and connection by a list of random numbers.
struct RandomTarget(Vec<u8>);

impl RandomTarget {
    fn choice(&self, n: u64) -> u8 {
        self.0[n as usize % self.0.len()]
    }
}

impl Target for RandomTarget {
    fn attempt(&mut self, n: u64, _: SlotId) -> Attempt {
        match self.choice(n + 3) % 16 {
            0 => Attempt::FailsAtOnce(Errno::NETUNREACH),
            1 => Attempt::FailsAfter(20_000, Errno::CONNREFUSED),
            2 => Attempt::Silence,
            _ => Attempt::Opens(u64::from(self.choice(n)) * 500),
        }
    }

    fn request(&mut self, n: u64, now_ns: u64) -> Vec<(u64, Action)> {
        let soon = now_ns + u64::from(self.choice(n / 2)) * 10_000 + 1;
        let later = soon + u64::from(self.choice(n / 3)) * 10_000;
        let cut = usize::from(self.choice(n + 1)) % OK.len();
        let (head, tail) = (OK[..cut].to_vec(), OK[cut..].to_vec());
        match self.choice(n) % 12 {
            0 => vec![(soon, Action::Reset)],
            1 => vec![(soon, Action::Close)],
            2 => vec![(soon, Action::Send(head)), (later, Action::Close)],
            3 => vec![],
            4 => vec![(soon, Action::Send([OK, OK].concat()))],
            5 => vec![(soon, Action::Send(b"\0\0junk\r\n\r\n".to_vec()))],
            6 => {
                vec![
                    (soon, Action::Send(b"HTTP/1.1 200 OK\r\n\r\nuntil close".to_vec())),
                    (later, Action::Close),
                ]
            }
            _ => vec![(soon, Action::Send(head)), (later, Action::Send(tail))],
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn whatever_the_target_does_the_counts_add_up_and_the_trial_ends(
        behaviours in prop::collection::vec(any::<u8>(), 1..60),
        slots in 1u64..20, pipeline in 1u32..4, keepalive: bool, open: bool, think: bool,
    ) {
        let mut plan = if open { testing::open(500.0, 1, slots) } else { with_loops(slots, 30) };
        if let (true, LoadModel::Closed { think_time, .. }) = (think, &mut plan.load) {
            *think_time = Distribution::Fixed { ns: 50_000 };
        }
        plan.keepalive = keepalive;
        plan.pipeline = if keepalive { pipeline } else { 1 };
        plan.timeout_ns = S / 20;
        let (result, rules) = run(plan, RandomTarget(behaviours));
        prop_assert!(!rules.contains(&VoidRule::Accounting), "{:?}", result.http.counts);
        prop_assert!(!rules.contains(&VoidRule::LittlesLaw), "{:?}", result.http.counts);
        prop_assert!(!rules.contains(&VoidRule::RateNotReached), "{:?}", result.http.counts);
    }
}
