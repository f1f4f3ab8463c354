//! The loop with numbered events, on virtual time: compares the events that a receiver stored with the ledger.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use proptest::prelude::*;
use record::{
    ErrorClass, EventOutcome, EventPlan, HttpPlan, LoadModel, VoidRule,
    receipt::{EventRange, Marker},
};
use rustix::io::Errno;

use crate::{
    events::Ledger,
    testing,
    wire::{
        SlotId,
        simulated::{Action, Attempt, Target},
    },
    worker::tests::{run_with_ledger, with_loops},
    worker_result::WorkerResult,
};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
const TAKEN: &str =
    "HTTP/1.1 204 No Content\r\nProofload-Receipt: segment=\"a\"; offset=1; bytes=2; level=written\r\n\r\n";
const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
const WRONG: &str = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";

/// The reaction of a receiver to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behaviour {
    Store,
    Busy,
    Wrong,
    /// Does not answer; true: after storing the events.
    Mute(bool),
    /// Closes the connection; true: after storing the events.
    Close(bool),
    Reset(bool),
}

/// Events stored, by client and number, in their order.
type Stored = Arc<Mutex<Vec<(u32, u32)>>>;

struct Receiver {
    behaviours: Vec<Behaviour>,
    /// Whether each connection attempt is refused.
    refusals: Vec<bool>,
    taken: Vec<(u32, u32)>,
    stored: Stored,
}

impl Target for Receiver {
    fn attempt(&mut self, n: u64, _: SlotId) -> Attempt {
        match self.refusals.get(n as usize % self.refusals.len().max(1)) {
            Some(true) => Attempt::FailsAfter(20_000, Errno::CONNREFUSED),
            _ => Attempt::Opens(10_000),
        }
    }

    fn receive(&mut self, request: &[u8]) {
        let key = b"\"proofload\":\"";
        let found = request.windows(key.len()).enumerate().filter(|(_, window)| window == key);
        self.taken = found
            .map(|(at, _)| Marker::parse(&request[at + key.len()..]).expect("a marker follows").id)
            .map(|id| (id.client, id.number))
            .collect();
    }

    fn request(&mut self, n: u64, now_ns: u64) -> Vec<(u64, Action)> {
        let behaviour = self.behaviours[n as usize % self.behaviours.len()];
        if matches!(
            behaviour,
            Behaviour::Store | Behaviour::Mute(true) | Behaviour::Close(true) | Behaviour::Reset(true)
        ) {
            self.stored.lock().unwrap().append(&mut self.taken);
        }
        let send = |text: &str| vec![(now_ns + MS, Action::Send(text.as_bytes().to_vec()))];
        match behaviour {
            Behaviour::Store => send(TAKEN),
            Behaviour::Busy => send(BUSY),
            Behaviour::Wrong => send(WRONG),
            Behaviour::Mute(_) => Vec::new(),
            Behaviour::Close(_) => vec![(now_ns + MS, Action::Close)],
            Behaviour::Reset(_) => vec![(now_ns + MS, Action::Reset)],
        }
    }
}

struct Outcome {
    result: WorkerResult,
    rules: Vec<VoidRule>,
    ledger: Ledger,
    stored: Vec<(u32, u32)>,
}

fn run(plan: HttpPlan, behaviours: &[Behaviour], refusals: &[bool], after_requests: u64) -> Outcome {
    let stored = Stored::default();
    let receiver = Receiver {
        behaviours: behaviours.to_vec(),
        refusals: refusals.to_vec(),
        taken: Vec::new(),
        stored: Arc::clone(&stored),
    };
    let (result, rules, ledger) = run_with_ledger(plan, receiver, after_requests, 0);
    let stored = stored.lock().unwrap().clone();
    Outcome { result, rules, ledger: ledger.expect("there are events"), stored }
}

fn with_events(plan: HttpPlan, retries: u32) -> HttpPlan {
    HttpPlan { events: Some(EventPlan { retries, ..testing::events() }), ..plan }
}

fn outcome_counts(ledger: &Ledger) -> Vec<(EventOutcome, u8, u32)> {
    let mut by_outcome = BTreeMap::new();
    for EventRange { from, to, outcome, attempts, .. } in ledger.runs() {
        *by_outcome.entry((outcome, attempts)).or_insert(0) += to - from + 1;
    }
    by_outcome.into_iter().map(|((outcome, attempts), n)| (outcome, attempts, n)).collect()
}

#[test]
fn events_are_numbered_client_by_client_without_a_gap() {
    for plan in [with_loops(3, 50), testing::open(100.0, 1, 3)] {
        let Outcome { result, rules, ledger, stored } =
            run(with_events(plan, 0), &[Behaviour::Store], &[], u64::MAX);
        assert_eq!((rules, result.http.counts.completed), (vec![], stored.len() as u64));
        for client in 0..3 {
            let numbers: Vec<u32> = stored.iter().filter(|(c, _)| *c == client).map(|(_, n)| *n).collect();
            assert!(numbers.iter().enumerate().all(|(i, &n)| n == i as u32), "{numbers:?}");
        }
        assert_eq!(outcome_counts(&ledger), [(EventOutcome::Written, 1, stored.len() as u32)]);
    }
}

#[test]
fn a_retried_request_counts_once_with_its_time_from_the_first_attempt() {
    for plan in [with_loops(1, 30), testing::open(2.0, 15, 2)] {
        let behaviours = [Behaviour::Busy, Behaviour::Store, Behaviour::Close(true), Behaviour::Store];
        let Outcome { result, rules, ledger, stored } = run(with_events(plan, 3), &behaviours, &[], u64::MAX);
        let counts = &result.http.counts;
        assert_eq!(rules, []);
        assert_eq!((counts.scheduled, counts.completed, counts.failed), (30, 30, 0));
        assert_eq!((counts.retried, counts.sent, counts.retried_unsent), (30, 60, 0));
        assert_eq!(result.http.retried_errors.of(ErrorClass::Status), 15);
        assert_eq!(result.http.retried_errors.of(ErrorClass::ClosedEarly), 15);
        assert!(result.http.response_time.observed.min_ns() > 25 * MS, "the wait is part of it");
        assert!(result.http.service_time.observed.max_ns() < 2 * MS, "that of the last attempt");
        assert_eq!(outcome_counts(&ledger), [(EventOutcome::Written, 2, 30)]);
        assert_eq!(stored.len(), 45, "every other was stored twice");
    }
}

#[test]
fn a_request_without_retries_left_counts_as_one_failure() {
    let Outcome { result, rules, ledger, .. } =
        run(with_events(with_loops(2, 10), 2), &[Behaviour::Busy], &[], u64::MAX);
    assert_eq!(rules, []);
    assert_eq!(
        (result.http.counts.failed, result.http.counts.retried, result.http.counts.sent),
        (20, 40, 60)
    );
    assert_eq!((result.http.errors.total(), result.http.retried_errors.total()), (20, 40));
    assert_eq!(outcome_counts(&ledger), [(EventOutcome::Refused, 3, 20)]);
}

#[test]
fn a_request_refused_as_wrong_is_not_retried() {
    let Outcome { result, ledger, .. } =
        run(with_events(with_loops(2, 10), 5), &[Behaviour::Wrong], &[], u64::MAX);
    assert_eq!((result.http.counts.failed, result.http.counts.retried), (20, 0));
    assert_eq!(outcome_counts(&ledger), [(EventOutcome::Refused, 1, 20)]);
}

#[test]
fn refused_connections_are_retried_and_leave_the_event_unsent() {
    let refused = [true, true, false];
    let plan = HttpPlan { keepalive: false, ..with_loops(1, 10) };
    let Outcome { result, rules, ledger, .. } =
        run(with_events(plan, 5), &[Behaviour::Store], &refused, u64::MAX);
    assert_eq!(rules, []);
    assert_eq!(
        (result.http.counts.completed, result.http.counts.retried, result.http.counts.retried_unsent),
        (10, 20, 20)
    );
    assert_eq!(outcome_counts(&ledger), [(EventOutcome::Written, 1, 10)]);
    let Outcome { ledger, .. } =
        run(with_events(with_loops(1, 10), 2), &[Behaviour::Store], &[true], u64::MAX);
    assert_eq!(outcome_counts(&ledger), [(EventOutcome::Unsent, 0, 10)]);
}

fn behaviours() -> impl Strategy<Value = Behaviour> {
    prop_oneof![
        6 => Just(Behaviour::Store),
        1 => Just(Behaviour::Busy),
        1 => Just(Behaviour::Wrong),
        1 => any::<bool>().prop_map(Behaviour::Mute),
        1 => any::<bool>().prop_map(Behaviour::Close),
        1 => any::<bool>().prop_map(Behaviour::Reset),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn whatever_the_receiver_does_the_ledger_is_right(
        behaviours in prop::collection::vec(behaviours(), 1..40), refusals in prop::collection::vec(prop::bool::weighted(0.2), 0..9),
        slots in 1u64..9, retries in 0u32..4, per_request in 1u32..4, keepalive: bool, open: bool,
        after_requests in prop_oneof![2 => Just(u64::MAX), 1 => 0u64..200],
    ) {
        let mut plan = if open { testing::open(200.0, 1, slots) } else { with_loops(slots, 20) };
        if let (true, LoadModel::Closed { think_time, .. }) = (retries == 1, &mut plan.load) {
            *think_time = record::Distribution::Fixed { ns: 50_000 };
        }
        (plan.keepalive, plan.timeout_ns) = (keepalive, S / 20);
        let framing = if per_request > 1 { record::EventFraming::Ndjson } else { record::EventFraming::Json };
        plan.events = Some(EventPlan { retries, per_request, framing, ..testing::events() });
        let Outcome { result, rules, ledger, stored } = run(plan, &behaviours, &refusals, after_requests);
        prop_assert!(!rules.contains(&VoidRule::Accounting), "{:?}", result.http.counts);
        prop_assert!(!rules.contains(&VoidRule::LittlesLaw), "{:?}", result.http.counts);

        let mut copies: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        for event in &stored {
            *copies.entry(*event).or_default() += 1;
        }
        let mut acknowledged = 0;
        for run in ledger.runs() {
            for number in run.from..=run.to {
                let copies = copies.remove(&(run.client, number)).unwrap_or(0);
                prop_assert!(copies <= u32::from(run.attempts), "{copies} copies, {run:?}");
                match run.outcome {
                    EventOutcome::Written => prop_assert!(copies > 0, "{run:?}"),
                    EventOutcome::Refused | EventOutcome::Unsent => prop_assert_eq!(copies, 0, "{:?}", run),
                    EventOutcome::Unknown => {}
                    other => prop_assert!(false, "{other:?}"),
                }
                acknowledged += u64::from(run.outcome.is_acknowledged());
            }
        }
        prop_assert_eq!(copies, BTreeMap::new(), "stored, and not in the ledger");
        prop_assert_eq!(acknowledged, result.http.counts.completed * u64::from(per_request));
    }
}
