//! The loop on virtual time against targets that fail or stall.

use record::{Decision, ErrorClass, HttpPlan, LoadModel, VoidRule};
use rustix::io::Errno;

use crate::{
    testing,
    wire::{
        SlotId,
        simulated::{Action, Attempt, Target},
    },
    worker::tests::{OK, Steady, run, run_costly, with_loops},
};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// Answers at once, but not in the last second of every ten.
struct Stalls {
    since_ns: Option<u64>,
}

impl Target for Stalls {
    fn request(&mut self, _: u64, now_ns: u64) -> Vec<(u64, Action)> {
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        let into_period = (now_ns - since_ns) % (10 * S);
        let wait_ns = if into_period >= 9 * S { 10 * S - into_period } else { 0 };
        vec![(now_ns + wait_ns + 10_000, Action::Send(OK.to_vec()))]
    }
}

#[test]
fn a_stall_shows_in_the_response_times_of_all_its_arrivals() {
    let (result, rules) = run(testing::open(1_000.0, 20, 64), Stalls { since_ns: None });
    assert_eq!(rules, []);
    // P(R > x) = 0.1 · (1 − x) for x in seconds.
    for (quantile, expected_s) in [(0.95, 0.5), (0.99, 0.9)] {
        let seconds = result.http.response_time.percentile(quantile).value / 1e9;
        assert!((seconds / expected_s - 1.0).abs() < 0.01, "{quantile}: {seconds}");
    }
    // In service times, only 64 of 10,000 requests show the stall.
    assert!(result.http.service_time.percentile(0.99).value < MS as f64);
}

/// Answers every request with the same actions, after a millisecond.
struct Always(Vec<Action>);

impl Target for Always {
    fn request(&mut self, _: u64, now_ns: u64) -> Vec<(u64, Action)> {
        self.0.iter().map(|action| (now_ns + MS, action.clone())).collect()
    }
}

/// A target to which no connection opens.
struct Unreachable(fn() -> Attempt);

impl Target for Unreachable {
    fn attempt(&mut self, _: u64, _: SlotId) -> Attempt {
        (self.0)()
    }

    fn request(&mut self, _: u64, _: u64) -> Vec<(u64, Action)> {
        Vec::new()
    }
}

#[test]
fn the_share_of_an_unopened_connection_is_never_sent() {
    struct Scarce;
    impl Target for Scarce {
        fn attempt(&mut self, n: u64, _: SlotId) -> Attempt {
            if n < 250 { Attempt::Opens(1_000) } else { Attempt::FailsAtOnce(Errno::MFILE) }
        }
        fn request(&mut self, n: u64, now_ns: u64) -> Vec<(u64, Action)> {
            Steady { after_ns: MS }.request(n, now_ns)
        }
    }
    let (result, rules) = run(testing::open(4_000.0, 1, 400), Scarce);
    assert_eq!(result.http.counts.connections_unopened, 150);
    assert_eq!(result.http.counts.never_sent, 4_000 * 150 / 400);
    assert_eq!(result.http.counts.failed, 0, "no failure of the target");
    assert_eq!(rules, [VoidRule::RateNotReached, VoidRule::UnopenedConnections, VoidRule::LocalExhaustion]);

    let (result, rules) = run(with_loops(400, 10), Scarce);
    assert_eq!(
        (result.http.counts.scheduled, result.http.counts.completed, result.http.counts.never_sent),
        (4_000, 2_500, 1_500)
    );
    assert!(
        rules.contains(&VoidRule::UnopenedConnections) && !rules.contains(&VoidRule::Accounting),
        "{rules:?}"
    );
}

#[test]
fn every_failure_is_counted_once_in_its_own_class() {
    let send = |text: &str| Action::Send(text.as_bytes().to_vec());
    let half = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf";
    for (class, actions) in [
        (ErrorClass::Reset, vec![Action::Reset]),
        (ErrorClass::ClosedEarly, vec![Action::Close]),
        (ErrorClass::Truncated, vec![send(half), Action::Close]),
        (ErrorClass::Malformed, vec![send("220 mail.example ESMTP\r\n\r\n")]),
        (ErrorClass::Framing, vec![send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")]),
        (ErrorClass::Status, vec![send("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")]),
        (ErrorClass::Timeout, vec![]),
        (ErrorClass::TooLarge, vec![send(&format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "y".repeat(70_000)))]),
    ] {
        let (result, rules) = run(with_loops(5, 20), Always(actions));
        assert_eq!(result.http.errors.of(class), 100, "{class}: {:?}", result.http.errors);
        assert_eq!(
            (result.http.counts.failed, result.http.counts.sent, result.http.counts.completed),
            (100, 100, 0),
            "{class}"
        );
        assert_eq!(rules, [], "{class}");
    }
}

#[test]
fn a_target_that_refuses_everything_decides_the_trial_even_if_the_generator_is_late() {
    // The loop can send 1,000/s, but the plan requires 1,500/s.
    let plan = testing::open(1_500.0, 2, 3_500);
    let (result, rules) = run_costly(plan.clone(), Always(vec![Action::Reset]), u64::MAX, MS);
    assert_eq!((result.http.counts.completed, rules), (0, vec![]));
    let (_, rules) = run_costly(plan, Steady { after_ns: MS }, u64::MAX, MS);
    assert_eq!(rules, [VoidRule::Late]);
}

#[test]
fn connections_that_do_not_open_fail_in_their_own_classes() {
    for (class, attempt) in [
        (ErrorClass::ConnectRefused, (|| Attempt::FailsAfter(1_000, Errno::CONNREFUSED)) as fn() -> Attempt),
        (ErrorClass::Unreachable, || Attempt::FailsAtOnce(Errno::NETUNREACH)),
        (ErrorClass::ConnectTimeout, || Attempt::Silence),
        (ErrorClass::ConnectReset, || Attempt::FailsAfter(1_000, Errno::CONNRESET)),
    ] {
        for plan in [with_loops(5, 20), HttpPlan { timeout_ns: S / 10, ..testing::open(100.0, 1, 5) }] {
            let (result, rules) = run(plan, Unreachable(attempt));
            assert_eq!(
                result.http.errors.of(class),
                100,
                "{class}: {:?} {:?}",
                result.http.errors,
                result.http.counts
            );
            assert_eq!((result.http.counts.failed_unsent, result.http.counts.sent), (100, 0), "{class}");
            assert_eq!(rules, [], "{class}");
        }
    }
}

#[test]
fn unsolicited_bytes_are_an_error_of_the_connection() {
    let stray = Action::Send([OK, b"stray"].concat());
    let (result, _) = run(with_loops(2, 10), Always(vec![stray]));
    assert_eq!((result.http.counts.completed, result.http.counts.failed), (20, 0));
    assert_eq!(result.http.connection_errors.of(ErrorClass::Unsolicited), 20);
    assert_eq!(result.http.counts.reconnects, 18);
}

#[test]
fn a_timeout_is_censored_and_still_raises_the_percentiles() {
    struct Mute;
    impl Target for Mute {
        fn request(&mut self, n: u64, now_ns: u64) -> Vec<(u64, Action)> {
            if n.is_multiple_of(10) { Vec::new() } else { Steady { after_ns: MS }.request(n, now_ns) }
        }
    }
    let plan = HttpPlan { timeout_ns: S, ..with_loops(1, 100) };
    let (result, _) = run(plan, Mute);
    assert_eq!((result.http.errors.of(ErrorClass::Timeout), result.http.counts.completed), (10, 90));
    assert_eq!(result.http.response_time.censored.count(), 10);
    let p99 = result.http.response_time.percentile(0.99);
    assert!(p99.at_least && (p99.value as u64).abs_diff(S) < MS, "{p99:?}");
}

#[test]
fn a_connection_that_the_target_closes_after_an_answer_is_reopened() {
    let last = Action::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec());
    for plan in [with_loops(4, 25), testing::open(100.0, 1, 4)] {
        let (result, rules) = run(plan, Always(vec![last.clone(), Action::Close]));
        assert_eq!((result.http.counts.completed, result.http.counts.failed, rules), (100, 0, vec![]));
        assert!(result.http.counts.reconnects >= 96, "{:?}", result.http.counts);
    }
}

/// Closes every connection some time after it opened.
struct ClosesAll {
    after_ns: u64,
}

impl Target for ClosesAll {
    fn attempt(&mut self, _: u64, _: SlotId) -> Attempt {
        Attempt::OpensAndCloses(10_000, self.after_ns)
    }

    fn request(&mut self, _: u64, now_ns: u64) -> Vec<(u64, Action)> {
        vec![(now_ns + MS, Action::Send(OK.to_vec()))]
    }
}

#[test]
fn an_unused_connection_that_the_target_closes_counts_once_and_is_reopened_on_demand() {
    // Ten arrivals a second on forty connections, each of which lives for 100 ms.
    let plan = HttpPlan { timeout_ns: S, ..testing::open(10.0, 1, 40) };
    let (result, rules) = run(plan.clone(), ClosesAll { after_ns: 100 * MS });
    assert_eq!((result.http.counts.completed, result.http.counts.failed, &rules[..]), (10, 0, &[][..]));
    let unused = result.http.connection_errors.of(ErrorClass::ClosedUnused);
    // Connections that have carried a request are reopened, and closed once more.
    assert!((38..=50).contains(&unused), "{unused}");
    // The target may close a connection at any time after an answer.
    let (result, _) = run(plan, ClosesAll { after_ns: 100 * S });
    assert_eq!(result.http.connection_errors.total(), 0);
}

/// Closes each connection after some answers, however many requests are queued behind them; the last answer may announce the close.
struct Last {
    answers: u64,
    announced: bool,
    /// Answers to requests of the current connection.
    given: u64,
}

impl Target for Last {
    fn attempt(&mut self, _: u64, _: SlotId) -> Attempt {
        self.given = 0;
        Attempt::Opens(1_000)
    }

    fn request(&mut self, _: u64, now_ns: u64) -> Vec<(u64, Action)> {
        self.given += 1;
        let at_ns = now_ns + MS;
        match self.given.cmp(&self.answers) {
            std::cmp::Ordering::Less => vec![(at_ns, Action::Send(OK.to_vec()))],
            std::cmp::Ordering::Equal => {
                let last = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                let bytes = if self.announced { last } else { OK };
                vec![(at_ns, Action::Send(bytes.to_vec())), (at_ns + 1, Action::Close)]
            }
            std::cmp::Ordering::Greater => Vec::new(),
        }
    }
}

#[test]
fn requests_behind_the_last_answer_of_a_connection_are_sent_again() {
    for announced in [false, true] {
        for plan in [with_loops(1, 200), testing::open(100.0, 2, 1)] {
            let plan = HttpPlan { pipeline: 8, timeout_ns: 100 * S, ..plan };
            let target = Last { answers: 10, announced, given: 0 };
            let (result, rules) = run(plan, target);
            let counts = &result.http.counts;
            assert_eq!((counts.completed, counts.failed, rules), (200, 0, vec![]), "{counts:?}");
            assert_eq!(result.http.errors.total(), 0);
            assert_eq!(counts.sent, 200 + counts.retried);
            assert_eq!(result.http.retried_errors.of(ErrorClass::ClosedEarly), counts.retried);
        }
    }
    // A request that may have taken effect must not be repeated.
    let mut plan = HttpPlan { pipeline: 8, ..with_loops(1, 200) };
    plan.request.method = "POST".to_owned();
    let (result, rules) = run(plan, Last { answers: 10, announced: true, given: 0 });
    let counts = &result.http.counts;
    assert_eq!((counts.completed + counts.failed, counts.retried, rules), (200, 0, vec![]), "{counts:?}");
    assert!(counts.failed > 0 && result.http.errors.of(ErrorClass::ClosedEarly) == counts.failed);
}

#[test]
fn a_connection_without_an_answer_repeats_nothing() {
    let plan = HttpPlan { pipeline: 4, ..with_loops(2, 20) };
    let (result, rules) = run(plan, Always(vec![Action::Close]));
    assert_eq!((result.http.errors.of(ErrorClass::ClosedEarly), result.http.counts.retried), (40, 0));
    assert_eq!(rules, []);
}

#[test]
fn requests_behind_an_answer_that_ends_the_connection_fail_by_its_class() {
    let send = |text: &str| Action::Send(text.as_bytes().to_vec());
    for (class, action, cause) in [
        (
            ErrorClass::Malformed,
            send("HTTQ/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
            "not an HTTP/1 answer",
        ),
        (ErrorClass::Malformed, Action::Send(vec![21, 3, 1, 0, 2, 2, 70]), "it looks like TLS"),
        (ErrorClass::Framing, send("HTTP/1.1 101 Switching\r\n\r\n"), "status 101"),
        (
            ErrorClass::Framing,
            send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"),
            "both Content-Length and Transfer-Encoding",
        ),
        (ErrorClass::Reset, Action::Reset, ""),
    ] {
        let plan = HttpPlan { pipeline: 4, ..with_loops(2, 50) };
        let (result, rules) = run(plan, Always(vec![action]));
        assert_eq!((result.http.errors.of(class), result.http.errors.total()), (100, 100), "{class}");
        let told = result.http.causes.get(&class).map_or("", |cause| cause);
        assert!(told.starts_with(cause), "{class}: {told}");
        assert_eq!(rules, []);
    }
}

#[test]
fn users_whose_connections_are_refused_wait_longer_and_longer() {
    let plan = HttpPlan { duration_ns: Some(10 * S), ..testing::closed(10) };
    let (result, rules) = run(plan, Unreachable(|| Attempt::FailsAfter(1_000, Errno::CONNREFUSED)));
    // Pauses of 1, 2, 4, … 64 ms, and then of a tenth of a second each.
    let each = 7 + (10 * S - 127 * MS).div_ceil(100 * MS) + 1;
    let failed = result.http.errors.of(ErrorClass::ConnectRefused);
    assert!(failed.abs_diff(10 * each) <= 20, "{failed}");
    assert_eq!((result.http.counts.failed, rules), (failed, vec![]));
}

#[test]
fn a_user_goes_on_at_once_when_the_target_is_there_again() {
    /// Refuses the first eleven attempts.
    struct Returns;
    impl Target for Returns {
        fn attempt(&mut self, n: u64, _: SlotId) -> Attempt {
            if n < 11 { Attempt::FailsAfter(1_000, Errno::CONNREFUSED) } else { Attempt::Opens(1_000) }
        }
        fn request(&mut self, n: u64, now_ns: u64) -> Vec<(u64, Action)> {
            Steady { after_ns: MS }.request(n, now_ns)
        }
    }
    let (result, rules) = run(with_loops(1, 1_000), Returns);
    assert_eq!((result.http.counts.failed, result.http.counts.completed, rules), (11, 989, vec![]));
    assert!(result.last_answer_ns < 2 * S, "{}", result.last_answer_ns);
}

#[test]
fn a_connection_that_never_answered_was_not_kept() {
    let (result, _) = run(with_loops(5, 20), Always(vec![Action::Reset]));
    assert_eq!((result.http.counts.connections_opened, result.http.counts.reconnects), (100, 0));
}

#[test]
fn what_closes_kept_connections_is_told_apart() {
    struct Idle;
    impl Target for Idle {
        fn request(&mut self, _: u64, now_ns: u64) -> Vec<(u64, Action)> {
            vec![(now_ns + MS, Action::Send(OK.to_vec())), (now_ns + 50 * MS, Action::Close)]
        }
    }
    let mut thinking = with_loops(2, 50);
    if let LoadModel::Closed { think_time, .. } = &mut thinking.load {
        *think_time = record::Distribution::Fixed { ns: 100 * MS };
    }
    let (result, _) = run(thinking, Idle);
    let counts = &result.http.counts;
    assert_eq!((counts.reconnects, counts.completed), (98, 100), "{counts:?}");
    assert!(counts.closed_idle >= 98, "{counts:?}");
    let (result, _) = run(with_loops(1, 200), Last { answers: 10, announced: true, given: 0 });
    assert_eq!((result.http.counts.reconnects, result.http.counts.closed_idle), (19, 0));
}

/// Answers ever more slowly and, after a second, fails one request in a thousand.
struct Overloaded {
    failing: bool,
    asked: u64,
}

impl Target for Overloaded {
    fn request(&mut self, _: u64, now_ns: u64) -> Vec<(u64, Action)> {
        self.asked += 1;
        let fails = self.failing && now_ns >= S && self.asked.is_multiple_of(1_000);
        let answer: &[u8] = if fails { b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n" } else { OK };
        vec![(now_ns + MS + now_ns / 20, Action::Send(answer.to_vec()))]
    }
}

#[test]
fn a_load_that_has_missed_every_goal_opens_no_more_connections() {
    let opened = |failing, loss_ratio| {
        let mut plan = testing::open(5_000.0, 4, 10_000);
        plan.decides = Some(Decision { response_time_ns: 10 * S, longest_ns: 10 * S, loss_ratio });
        if let LoadModel::Open { connections, .. } = &mut plan.load {
            connections.initial = 0;
        }
        let (result, rules) = run(plan, Overloaded { failing, asked: 0 });
        assert_eq!(rules, [], "it is missed, not void");
        (result.http.counts.connections_opened, result.opened_no_more)
    };
    // 5,000 requests a second that take up to 200 ms.
    let (needed, missed) = opened(false, 0.0);
    assert!(needed > 900 && !missed, "{needed}");
    let (in_use, missed) = opened(true, 0.0);
    assert!(in_use < 350 && missed, "{in_use}: as many as at the first failure, after a second");
    let (allowed, missed) = opened(true, 0.01);
    assert!(allowed > 900 && !missed, "{allowed}: the goal allows so many failures");
}
