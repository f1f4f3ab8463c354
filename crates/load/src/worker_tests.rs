//! The loop on virtual time, against targets whose every answer is known.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
    mpsc,
};

use proptest::prelude::*;
use record::{Distribution, ErrorClass, Fault, HttpPlan, LoadModel, VoidRule};
use rustix::io::Errno;

use crate::{
    book::Book,
    events::Ledger,
    part::Part,
    request::RequestBytes,
    share::Share,
    testing,
    validity::judge,
    wire::{
        SlotId,
        simulated::{Attempt, Deed, SimulatedWire, Target},
    },
    worker::{Finished, Worker},
};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
pub(crate) const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// Runs a plan against a target; gives what was written down and the rules it breaks.
pub(crate) fn run<T: Target>(plan: HttpPlan, target: T) -> (Part, Vec<VoidRule>) {
    run_until(plan, target, u64::MAX)
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

    fn took(&mut self, request: &[u8]) {
        self.target.took(request);
    }

    fn request(&mut self, n: u64, now_ns: u64) -> Vec<(u64, Deed)> {
        if n >= self.after_requests {
            self.stop.store(true, Ordering::Relaxed);
        }
        self.target.request(n, now_ns)
    }
}

fn run_until<T: Target>(plan: HttpPlan, target: T, after_requests: u64) -> (Part, Vec<VoidRule>) {
    run_costly(plan, target, after_requests, 0)
}

/// As `run_until`, with a loop whose every send takes a while.
fn run_costly<T: Target>(
    plan: HttpPlan,
    target: T,
    after_requests: u64,
    send_cost_ns: u64,
) -> (Part, Vec<VoidRule>) {
    let (part, rules, _) = run_whole(plan, target, after_requests, send_cost_ns);
    (part, rules)
}

/// As `run_costly`, with what is known of every event.
pub(crate) fn run_whole<T: Target>(
    plan: HttpPlan,
    target: T,
    after_requests: u64,
    send_cost_ns: u64,
) -> (Part, Vec<VoidRule>, Option<Ledger>) {
    let (part, ledger) = run_share(&plan, Share::WHOLE, target, after_requests, send_cost_ns);
    let rules = judge(&plan, &part).into_iter().map(|reason| reason.rule).collect();
    (part, rules, ledger)
}

/// One worker's share of a plan.
pub(crate) fn run_share<T: Target>(
    plan: &HttpPlan,
    share: Share,
    target: T,
    after_requests: u64,
    send_cost_ns: u64,
) -> (Part, Option<Ledger>) {
    run_on(plan, share, target, after_requests, |wire| wire.send_cost_ns = send_cost_ns)
}

/// Runs a plan with a loop that is stopped at these times, for so long each.
pub(crate) fn run_stopped<T: Target>(
    plan: HttpPlan,
    target: T,
    stops: &[(u64, u64)],
    in_send: bool,
) -> (Part, Vec<VoidRule>) {
    let (part, _) = run_on(&plan, Share::WHOLE, target, u64::MAX, |wire| {
        wire.stops = stops.iter().copied().collect();
        wire.stops_in_send = in_send;
    });
    let rules = judge(&plan, &part).into_iter().map(|reason| reason.rule).collect();
    (part, rules)
}

/// The same over a path on which the last byte of each answer overtakes one that was lost, and waits so long for it.
pub(crate) fn run_behind_holes<T: Target>(
    plan: HttpPlan,
    target: T,
    hole_ns: u64,
    stops: &[(u64, u64)],
) -> (Part, Vec<VoidRule>) {
    let (part, _) = run_on(&plan, Share::WHOLE, target, u64::MAX, |wire| {
        wire.hole_ns = hole_ns;
        wire.stops = stops.iter().copied().collect();
    });
    let rules = judge(&plan, &part).into_iter().map(|reason| reason.rule).collect();
    (part, rules)
}

fn run_on<T: Target>(
    plan: &HttpPlan,
    share: Share,
    target: T,
    after_requests: u64,
    set_up: impl FnOnce(&mut SimulatedWire<Stopping<T>>),
) -> (Part, Option<Ledger>) {
    let stop = Arc::new(AtomicBool::new(false));
    let target = Stopping { target, stop: Arc::clone(&stop), after_requests };
    let (tick_sender, ticks) = mpsc::channel();
    let (_spares, spare) = mpsc::channel();
    let book = Book::new(0, tick_sender, spare, plan);
    let plan = Arc::new(plan.clone());
    let length = RequestBytes::new(&plan).length();
    let wire = |slots| {
        let mut wire = SimulatedWire::new(target, length, slots);
        set_up(&mut wire);
        Ok::<_, Errno>(wire)
    };
    let mut worker = Worker::new(Arc::clone(&plan), share, book, stop, wire).unwrap();
    worker.prepare();
    let t0_ns = worker.now_ns() + MS;
    let Finished { mut part, ledger, .. } = worker.run(t0_ns);
    let mut by_second = 0;
    for tick in ticks {
        part.response_time.observed.merge(&tick.response_time);
        by_second += tick.completed;
    }
    assert_eq!(by_second, part.counts.completed, "the seconds must add up to the whole");
    (part, ledger)
}

/// Answers every request well after a fixed time.
pub(crate) struct Steady {
    pub after_ns: u64,
}

impl Target for Steady {
    fn request(&mut self, _: u64, now_ns: u64) -> Vec<(u64, Deed)> {
        vec![(now_ns + self.after_ns, Deed::Send(OK.to_vec()))]
    }
}

/// Does the same about every request, after a millisecond.
struct Always(Vec<Deed>);

impl Target for Always {
    fn request(&mut self, _: u64, now_ns: u64) -> Vec<(u64, Deed)> {
        self.0.iter().map(|deed| (now_ns + MS, deed.clone())).collect()
    }
}

/// Makes no connection.
struct Unreachable(fn() -> Attempt);

impl Target for Unreachable {
    fn attempt(&mut self, _: u64, _: SlotId) -> Attempt {
        (self.0)()
    }

    fn request(&mut self, _: u64, _: u64) -> Vec<(u64, Deed)> {
        Vec::new()
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
    let (part, rules) = run(plan, Steady { after_ns: 300 * MS });
    assert_eq!(rules, []);
    let rate = part.counts.completed as f64 / (part.users_span_ns / part.users as f64 / 1e9);
    assert!((rate - 200.0 / 0.3).abs() < 0.1, "{rate}");
    let p50_ns = part.response_time.percentile(0.5).ns;
    assert!(p50_ns.abs_diff(300 * MS) < MS, "{p50_ns}");
}

#[test]
fn an_open_load_is_sent_when_it_is_due() {
    let (part, rules) = run(testing::open(1_000.0, 2, 10), Steady { after_ns: 5 * MS });
    assert_eq!(rules, []);
    assert_eq!((part.counts.scheduled, part.counts.sent, part.counts.completed), (2_000, 2_000, 2_000));
    assert_eq!(part.lateness.max_ns(), 0);
    assert_eq!(part.counts.connections_opened, 10);
    assert!(part.response_time.observed.max_ns().abs_diff(5 * MS) < MS / 100);
}

#[test]
fn requests_that_wait_for_a_busy_connection_are_late_but_not_by_our_fault() {
    // 10 connections × 100/s = 1,000/s are carried; 2,000/s are asked for.
    let (part, rules) = run(testing::open(2_000.0, 2, 10), Steady { after_ns: 10 * MS });
    assert_eq!(rules, [], "the target was slow, not the instrument");
    assert_eq!(part.own_lateness.max_ns(), 0);
    assert!(part.lateness.max_ns() > S, "{}", part.lateness.max_ns());
    assert_eq!(part.counts.completed + part.counts.never_sent_busy + part.counts.in_flight, 4_000);
}

/// Answers at once, but not in the last second of every ten.
struct Stalls {
    since_ns: Option<u64>,
}

impl Target for Stalls {
    fn request(&mut self, _: u64, now_ns: u64) -> Vec<(u64, Deed)> {
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        let into_period = (now_ns - since_ns) % (10 * S);
        let wait_ns = if into_period >= 9 * S { 10 * S - into_period } else { 0 };
        vec![(now_ns + wait_ns + 10_000, Deed::Send(OK.to_vec()))]
    }
}

#[test]
fn a_stall_shows_in_the_response_times_of_all_who_arrived_in_it() {
    let (part, rules) = run(testing::open(1_000.0, 20, 64), Stalls { since_ns: None });
    assert_eq!(rules, []);
    // P(R > x) = 0.1 · (1 − x) for x in seconds.
    for (quantile, expected_s) in [(0.95, 0.5), (0.99, 0.9)] {
        let seconds = part.response_time.percentile(quantile).ns as f64 / 1e9;
        assert!((seconds / expected_s - 1.0).abs() < 0.01, "{quantile}: {seconds}");
    }
    // The service-time view: 64 requests of 10,000 saw the stall.
    assert!(part.service_time.percentile(0.99).ns < MS);
}

#[test]
fn an_unopened_connections_part_of_the_schedule_is_never_sent() {
    struct Scarce;
    impl Target for Scarce {
        fn attempt(&mut self, n: u64, _: SlotId) -> Attempt {
            if n < 250 { Attempt::Made(1_000) } else { Attempt::FailsAtOnce(Errno::MFILE) }
        }
        fn request(&mut self, n: u64, now_ns: u64) -> Vec<(u64, Deed)> {
            Steady { after_ns: MS }.request(n, now_ns)
        }
    }
    let (part, rules) = run(testing::open(4_000.0, 1, 400), Scarce);
    assert_eq!(part.counts.connections_unopened, 150);
    assert_eq!(part.counts.never_sent, 4_000 * 150 / 400);
    assert_eq!(part.counts.failed, 0, "no failure of the target");
    assert_eq!(rules, [VoidRule::RateNotReached, VoidRule::UnopenedConnections, VoidRule::LocalExhaustion]);

    let (part, rules) = run(with_loops(400, 10), Scarce);
    assert_eq!((part.counts.scheduled, part.counts.completed, part.counts.never_sent), (4_000, 2_500, 1_500));
    assert!(
        rules.contains(&VoidRule::UnopenedConnections) && !rules.contains(&VoidRule::Accounting),
        "{rules:?}"
    );
}

#[test]
fn every_failure_is_counted_once_in_its_own_class() {
    let send = |text: &str| Deed::Send(text.as_bytes().to_vec());
    let half = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf";
    for (class, deeds) in [
        (ErrorClass::Reset, vec![Deed::Reset]),
        (ErrorClass::ClosedEarly, vec![Deed::Close]),
        (ErrorClass::Truncated, vec![send(half), Deed::Close]),
        (ErrorClass::Malformed, vec![send("220 mail.example ESMTP\r\n\r\n")]),
        (ErrorClass::Framing, vec![send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")]),
        (ErrorClass::Status, vec![send("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")]),
        (ErrorClass::Timeout, vec![]),
        (ErrorClass::TooLarge, vec![send(&format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "y".repeat(70_000)))]),
    ] {
        let (part, rules) = run(with_loops(5, 20), Always(deeds));
        assert_eq!(part.errors.of(class), 100, "{class}: {:?}", part.errors);
        assert_eq!((part.counts.failed, part.counts.sent, part.counts.completed), (100, 100, 0), "{class}");
        assert_eq!(rules, [], "{class}");
    }
}

#[test]
fn a_target_that_refuses_everything_is_to_blame_however_late_the_generator_was() {
    // A loop that can send 1,000/s is asked for 1,500.
    let plan = testing::open(1_500.0, 2, 3_500);
    let (part, rules) = run_costly(plan.clone(), Always(vec![Deed::Reset]), u64::MAX, MS);
    assert_eq!((part.counts.completed, rules), (0, vec![]));
    let (_, rules) = run_costly(plan, Steady { after_ns: MS }, u64::MAX, MS);
    assert_eq!(rules, [VoidRule::Late]);
}

#[test]
fn connections_that_are_not_made_fail_in_their_own_classes() {
    for (class, attempt) in [
        (ErrorClass::ConnectRefused, (|| Attempt::FailsAfter(1_000, Errno::CONNREFUSED)) as fn() -> Attempt),
        (ErrorClass::Unreachable, || Attempt::FailsAtOnce(Errno::NETUNREACH)),
        (ErrorClass::ConnectTimeout, || Attempt::Silence),
        (ErrorClass::ConnectReset, || Attempt::FailsAfter(1_000, Errno::CONNRESET)),
    ] {
        for plan in [with_loops(5, 20), HttpPlan { timeout_ns: S / 10, ..testing::open(100.0, 1, 5) }] {
            let (part, rules) = run(plan, Unreachable(attempt));
            assert_eq!(part.errors.of(class), 100, "{class}: {:?} {:?}", part.errors, part.counts);
            assert_eq!((part.counts.failed_unsent, part.counts.sent), (100, 0), "{class}");
            assert_eq!(rules, [], "{class}");
        }
    }
}

#[test]
fn bytes_nobody_asked_for_are_the_connections_failure() {
    let stray = Deed::Send([OK, b"stray"].concat());
    let (part, _) = run(with_loops(2, 10), Always(vec![stray]));
    assert_eq!((part.counts.completed, part.counts.failed), (20, 0));
    assert_eq!(part.connection_errors.of(ErrorClass::Unsolicited), 20);
    assert_eq!(part.counts.reconnects, 18);
}

#[test]
fn a_timeout_is_censored_and_still_raises_the_percentiles() {
    struct Mute;
    impl Target for Mute {
        fn request(&mut self, n: u64, now_ns: u64) -> Vec<(u64, Deed)> {
            if n.is_multiple_of(10) { Vec::new() } else { Steady { after_ns: MS }.request(n, now_ns) }
        }
    }
    let plan = HttpPlan { timeout_ns: S, ..with_loops(1, 100) };
    let (part, _) = run(plan, Mute);
    assert_eq!((part.errors.of(ErrorClass::Timeout), part.counts.completed), (10, 90));
    assert_eq!(part.response_time.censored.count(), 10);
    let p99 = part.response_time.percentile(0.99);
    assert!(p99.at_least && p99.ns.abs_diff(S) < MS, "{p99:?}");
}

#[test]
fn answers_in_single_bytes_and_requests_in_pieces_change_nothing() {
    struct Dribbles;
    impl Target for Dribbles {
        fn request(&mut self, _: u64, now_ns: u64) -> Vec<(u64, Deed)> {
            OK.iter()
                .enumerate()
                .map(|(i, &b)| (now_ns + (i as u64 + 1) * 1_000, Deed::Send(vec![b])))
                .collect()
        }
    }
    let (part, rules) = run(with_loops(3, 50), Dribbles);
    assert_eq!((part.counts.completed, rules), (150, vec![]));
    assert!(part.first_byte_time.max_ns() < part.service_time.observed.min_ns());
}

#[test]
fn a_connection_that_the_target_closes_after_an_answer_is_made_anew() {
    let last = Deed::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec());
    for plan in [with_loops(4, 25), testing::open(100.0, 1, 4)] {
        let (part, rules) = run(plan, Always(vec![last.clone(), Deed::Close]));
        assert_eq!((part.counts.completed, part.counts.failed, rules), (100, 0, vec![]));
        assert!(part.counts.reconnects >= 96, "{:?}", part.counts);
    }
}

/// Takes back every connection a while after it accepted it.
struct TakesBack {
    after_ns: u64,
}

impl Target for TakesBack {
    fn attempt(&mut self, _: u64, _: SlotId) -> Attempt {
        Attempt::MadeAndClosed(10_000, self.after_ns)
    }

    fn request(&mut self, _: u64, now_ns: u64) -> Vec<(u64, Deed)> {
        vec![(now_ns + MS, Deed::Send(OK.to_vec()))]
    }
}

#[test]
fn a_connection_of_the_pool_that_is_taken_back_unused_counts_once_and_is_made_anew_when_needed() {
    // Ten arrivals on forty connections, of which each lives for 100 ms.
    let plan = HttpPlan { timeout_ns: S, ..testing::open(10.0, 1, 40) };
    let (part, rules) = run(plan.clone(), TakesBack { after_ns: 100 * MS });
    assert_eq!((part.counts.completed, part.counts.failed, &rules[..]), (10, 0, &[][..]));
    let unused = part.connection_errors.of(ErrorClass::ClosedUnused);
    // Those that answered are made anew, and taken back once more.
    assert!((38..=50).contains(&unused), "{unused}");
    // One that has answered may be closed whenever the target likes.
    let (part, _) = run(plan, TakesBack { after_ns: 100 * S });
    assert_eq!(part.connection_errors.total(), 0);
}

#[test]
fn no_keepalive_takes_a_connection_for_every_request() {
    for plan in [with_loops(4, 25), testing::open(100.0, 1, 4)] {
        let plan = HttpPlan { keepalive: false, ..plan };
        let (part, rules) = run(plan, Steady { after_ns: MS });
        assert_eq!((part.counts.completed, part.counts.connections_opened, rules), (100, 100, vec![]));
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let plan = HttpPlan { pipeline: 4, ..with_loops(2, 50) };
    let (part, rules) = run(plan, Steady { after_ns: MS });
    assert_eq!((part.counts.completed, rules), (100, vec![]));
    assert!(part.in_flight_integral_ns / part.elapsed_ns as f64 > 7.0, "8 at a time");
}

#[test]
fn connections_on_demand_are_opened_when_all_are_busy() {
    let mut plan = testing::open(1_000.0, 1, 1);
    if let LoadModel::Open { connections, .. } = &mut plan.load {
        (connections.initial, connections.most) = (0, 500);
    }
    let (part, rules) = run(plan, Steady { after_ns: 50 * MS });
    assert_eq!((part.counts.completed, rules), (1_000, vec![]));
    // 1,000/s × 50 ms, and one more for the handshake of the last.
    assert!((50..=52).contains(&part.counts.connections_opened), "{}", part.counts.connections_opened);
}

#[test]
fn users_start_over_the_ramp_and_think_between_requests() {
    let mut plan = HttpPlan { duration_ns: Some(10 * S), ..testing::closed(10) };
    if let LoadModel::Closed { ramp_up_ns, think_time, .. } = &mut plan.load {
        *ramp_up_ns = S;
        *think_time = Distribution::Fixed { ns: 100 * MS };
    }
    let (part, rules) = run(plan, Steady { after_ns: MS });
    assert_eq!(rules, []);
    // User i starts at i × 0.1 s, then every 101 ms (the first time the handshake comes on top).
    let expected: u64 = (0..10).map(|i| (10 * S - i * S / 10).div_ceil(101 * MS)).sum();
    assert!(part.counts.completed.abs_diff(expected) <= 10, "{} of {expected}", part.counts.completed);
}

#[test]
fn users_that_begin_together_are_stamped_one_by_one() {
    /// Answers everybody at the next tenth of a second, so that all think, and begin, at the same time.
    struct InStep;
    impl Target for InStep {
        fn request(&mut self, _: u64, now_ns: u64) -> Vec<(u64, Deed)> {
            vec![((now_ns / (100 * MS) + 1) * 100 * MS, Deed::Send(OK.to_vec()))]
        }
    }
    let mut plan = HttpPlan { duration_ns: Some(5 * S), ..testing::closed(1_000) };
    if let LoadModel::Closed { think_time, .. } = &mut plan.load {
        *think_time = Distribution::Fixed { ns: 30 * MS };
    }
    // A thousand sends of 20 µs take 20 ms. Stamped with the time of the first, they would have been in
    // flight for longer than they were.
    let (part, rules) = run_costly(plan, InStep, u64::MAX, 20_000);
    assert_eq!(rules, [VoidRule::Late]);
    assert!(part.own_lateness.max_ns() > 15 * MS, "{}", part.own_lateness.max_ns());
}

#[test]
fn an_interrupt_accounts_for_everything_begun() {
    for plan in [with_loops(20, 1_000), testing::open(1_000.0, 30, 20)] {
        let (part, rules) = run_until(plan, Steady { after_ns: 5 * MS }, 500);
        assert!(part.interrupted && part.counts.sent < 1_000, "{:?}", part.counts);
        assert_eq!(rules, []);
        assert!(part.counts.in_flight > 0);
    }
}

#[test]
fn every_deliberate_fault_voids_the_trial_by_the_rule_that_is_there_for_it() {
    for (fault, rule) in [
        (Fault::LateSends { every: 8, by_ns: 2 * MS }, VoidRule::Late),
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
    // One in ten: Little's law sees it as well, without trusting any count.
    for fault in [Fault::DropSamples { every: 10 }, Fault::DoubleCount { every: 10 }] {
        let plan = HttpPlan { fault: Some(fault), ..testing::open(1_000.0, 2, 10) };
        let (_, rules) = run(plan, Steady { after_ns: MS });
        assert!(rules.contains(&VoidRule::LittlesLaw), "{fault:?}: {rules:?}");
    }
}

/// Does something else about every request and connection, as told by a list of numbers.
struct Wild(Vec<u8>);

impl Wild {
    fn whim(&self, n: u64) -> u8 {
        self.0[n as usize % self.0.len()]
    }
}

impl Target for Wild {
    fn attempt(&mut self, n: u64, _: SlotId) -> Attempt {
        match self.whim(n + 3) % 16 {
            0 => Attempt::FailsAtOnce(Errno::NETUNREACH),
            1 => Attempt::FailsAfter(20_000, Errno::CONNREFUSED),
            2 => Attempt::Silence,
            _ => Attempt::Made(u64::from(self.whim(n)) * 500),
        }
    }

    fn request(&mut self, n: u64, now_ns: u64) -> Vec<(u64, Deed)> {
        let soon = now_ns + u64::from(self.whim(n / 2)) * 10_000 + 1;
        let later = soon + u64::from(self.whim(n / 3)) * 10_000;
        let cut = usize::from(self.whim(n + 1)) % OK.len();
        let (head, tail) = (OK[..cut].to_vec(), OK[cut..].to_vec());
        match self.whim(n) % 12 {
            0 => vec![(soon, Deed::Reset)],
            1 => vec![(soon, Deed::Close)],
            2 => vec![(soon, Deed::Send(head)), (later, Deed::Close)],
            3 => vec![],
            4 => vec![(soon, Deed::Send([OK, OK].concat()))],
            5 => vec![(soon, Deed::Send(b"\0\0junk\r\n\r\n".to_vec()))],
            6 => {
                vec![(soon, Deed::Send(b"HTTP/1.1 200 OK\r\n\r\nuntil close".to_vec())), (later, Deed::Close)]
            }
            _ => vec![(soon, Deed::Send(head)), (later, Deed::Send(tail))],
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn whatever_the_target_does_the_books_balance_and_the_trial_ends(
        whims in prop::collection::vec(any::<u8>(), 1..60),
        slots in 1u64..20, pipeline in 1u32..4, keepalive: bool, open: bool, think: bool,
    ) {
        let mut plan = if open { testing::open(500.0, 1, slots) } else { with_loops(slots, 30) };
        if let (true, LoadModel::Closed { think_time, .. }) = (think, &mut plan.load) {
            *think_time = Distribution::Fixed { ns: 50_000 };
        }
        plan.keepalive = keepalive;
        plan.pipeline = if keepalive { pipeline } else { 1 };
        plan.timeout_ns = S / 20;
        let (part, rules) = run(plan, Wild(whims));
        prop_assert!(!rules.contains(&VoidRule::Accounting), "{:?}", part.counts);
        prop_assert!(!rules.contains(&VoidRule::LittlesLaw), "{:?}", part.counts);
        prop_assert!(!rules.contains(&VoidRule::RateNotReached), "{:?}", part.counts);
    }
}
