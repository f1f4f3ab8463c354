//! Lifetimes of connections and timeouts of parts of requests, on virtual time.

use record::{ConnectionPlan, ErrorClass, HttpPlan};

use super::{MS, OK, S, Steady, run};
use crate::{
    testing,
    wire::{
        SlotId,
        simulated::{Action, Attempt, Target},
    },
    worker_result::WorkerResult,
};

/// Two users with 50 requests each, which a target answers after 1 ms.
fn with_lifetime(max_requests: Option<u64>, max_age_ns: Option<u64>) -> WorkerResult {
    let connection = ConnectionPlan { max_requests, max_age_ns, ..ConnectionPlan::default() };
    let plan = HttpPlan { connection, requests: Some(100), ..testing::closed(2) };
    let (result, rules) = run(plan, Steady { after_ns: MS });
    assert!(rules.is_empty() && result.http.counts.completed == 100, "{rules:?}, {:?}", result.http.counts);
    assert!(result.http.errors.is_empty() && result.http.connection_errors.is_empty());
    result
}

#[test]
fn a_connection_ends_after_its_last_request() {
    for (most, opened) in [(1, 100), (7, 16), (10, 10), (50, 2), (1_000, 2)] {
        let counts = with_lifetime(Some(most), None).http.counts;
        assert_eq!(counts.connections_opened, opened, "{most} requests on each");
    }
}

#[test]
fn a_connection_ends_with_the_first_answer_after_its_time() {
    // Each answer takes slightly more than 1.0 ms, so the tenth is the first one after 10 ms.
    let counts = with_lifetime(None, Some(10 * MS)).http.counts;
    assert!((10..=12).contains(&counts.connections_opened), "{counts:?}");
    let both = with_lifetime(Some(5), Some(10 * MS)).http.counts;
    assert_eq!(both.connections_opened, 20, "{both:?}");
}

/// Answers each third request of a connection late, or opens no connection.
struct Slow {
    connects_after_ns: Option<u64>,
    late_ns: u64,
}

impl Target for Slow {
    fn attempt(&mut self, _: u64, _: SlotId) -> Attempt {
        self.connects_after_ns.map_or(Attempt::Silence, Attempt::Opens)
    }

    fn request(&mut self, n: u64, now_ns: u64) -> Vec<(u64, Action)> {
        let after_ns = if n % 3 == 2 { self.late_ns } else { MS };
        vec![(now_ns + after_ns, Action::Send(OK.to_vec()))]
    }
}

fn errors(connection: ConnectionPlan, target: Slow) -> (Vec<(ErrorClass, u64)>, u64) {
    let plan = HttpPlan { connection, requests: Some(30), timeout_ns: 20 * S, ..testing::closed(1) };
    let result = run(plan, target).0;
    (result.http.errors.iter().collect(), result.elapsed_ns)
}

#[test]
fn an_answer_has_a_time_of_its_own() {
    let limited = ConnectionPlan { answer_timeout_ns: Some(100 * MS), ..ConnectionPlan::default() };
    // The connection took 1 s, which does not count for the answer's timeout.
    let target = |late_ns| Slow { connects_after_ns: Some(S), late_ns };
    let (found, elapsed_ns) = errors(limited.clone(), target(5 * S));
    assert_eq!(found, [(ErrorClass::Timeout, 10)]);
    // Ten rounds of a connection, two answers, and the timeout of the third.
    assert!((11 * S..11 * S + 200 * MS).contains(&elapsed_ns), "{elapsed_ns} ns");
    assert_eq!(errors(limited, target(99 * MS)).0, []);
    assert_eq!(errors(ConnectionPlan::default(), target(5 * S)).0, []);
}

#[test]
fn a_connection_attempt_has_a_time_of_its_own() {
    let limited = ConnectionPlan { connect_timeout_ns: Some(200 * MS), ..ConnectionPlan::default() };
    let silent = Slow { connects_after_ns: None, late_ns: MS };
    let (found, elapsed_ns) = errors(limited.clone(), silent);
    assert_eq!(found, [(ErrorClass::ConnectTimeout, 30)]);
    assert!((6 * S..6 * S + 200 * MS).contains(&elapsed_ns), "{elapsed_ns} ns");
    // An answer may take longer than a connection.
    let slow = Slow { connects_after_ns: Some(199 * MS), late_ns: 2 * S };
    assert_eq!(errors(limited, slow).0, []);
}
