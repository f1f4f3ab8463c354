use super::*;

const SENT: InFlight = InFlight {
    intended_ns: 5,
    started_ns: 10,
    sent_ns: 10,
    sent_whole_ns: 10,
    own_ns: 0,
    own_queue_ns: 0,
    own_service_ns: 0,
};
const UNSENT: InFlight = InFlight { sent_ns: 0, ..SENT };

fn events(plan: EventPlan) -> Events {
    Events::new(&plan, Share::WHOLE, 7, 2, 1)
}

fn outcomes(events: Events) -> Vec<(u32, u32, EventOutcome, u8)> {
    events.ledger().runs().map(|run| (run.client, run.to - run.from + 1, run.outcome, run.attempts)).collect()
}

#[test]
fn an_event_is_retried_until_it_is_acknowledged_or_retries_are_used_up() {
    let mut events = events(EventPlan { retries: 2, ..crate::testing::events() });
    assert_eq!(events.current(1), (8, 0));
    let due_ns = events.failed(1, &SENT, ErrorClass::Timeout, None, 1_000).unwrap();
    let retry = events.take_pending_retry(1).unwrap();
    assert_eq!((retry.due_ns, retry.intended_ns), (due_ns, 5), "the intended time is kept");
    events.acknowledged(1);
    for _ in 0..2 {
        assert!(events.failed(1, &SENT, ErrorClass::Status, Some(503), 1_000).is_some());
    }
    assert!(events.failed(1, &SENT, ErrorClass::Status, Some(503), 1_000).is_none());
    assert_eq!(events.current(1), (8, 2));
    assert_eq!(outcomes(events), [(8, 1, EventOutcome::Acknowledged, 2), (8, 1, EventOutcome::Refused, 3)]);
}

#[test]
fn an_attempt_without_an_answer_leaves_the_event_unknown_whatever_comes_after() {
    let mut events = events(EventPlan { retries: 2, per_request: 10, ..crate::testing::events() });
    events.failed(0, &SENT, ErrorClass::Reset, None, 1_000).unwrap();
    events.failed(0, &UNSENT, ErrorClass::ConnectRefused, None, 1_000).unwrap();
    assert!(events.failed(0, &SENT, ErrorClass::Status, Some(400), 1_000).is_none());
    assert!(events.failed(0, &UNSENT, ErrorClass::Ports, None, 1_000).is_none());
    events.trial_ended(0, true);
    events.given_up(0);
    assert_eq!(
        outcomes(events),
        [
            (7, 10, EventOutcome::Unknown, 2),
            (7, 10, EventOutcome::Unsent, 0),
            (7, 10, EventOutcome::Unknown, 1),
            (7, 10, EventOutcome::Unsent, 0),
        ]
    );
}

#[test]
fn the_head_gives_level_location_and_time_of_the_retry() {
    let receipts = Some(record::ReceiptPlan::new("nowhere"));
    let mut events = events(EventPlan { retries: 1, receipts, ..crate::testing::events() });
    let expect = StatusSet::acknowledged();
    let feed = |events: &mut Events, answer: &str| {
        let mut reader = http1::ResponseReader::new(http1::Limits::default());
        reader.feed(answer.as_bytes(), false, &mut events.head_sink(0, &expect)).unwrap();
    };
    feed(&mut events, "HTTP/1.1 503 Busy\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n");
    let due_ns = events.failed(0, &SENT, ErrorClass::Status, Some(503), 0).unwrap();
    assert_eq!(due_ns, 3_000_000_000);
    let receipt = "proofload-receipt: segment=\"x.log\"; offset=12; bytes=34; level=synced";
    feed(&mut events, &format!("HTTP/1.1 204 No Content\r\n{receipt}\r\n\r\n"));
    events.acknowledged(0);
    let ledger = events.ledger();
    let runs: Vec<_> = ledger.runs().map(|run| (run.outcome, run.attempts)).collect();
    assert_eq!(runs, [(EventOutcome::Synced, 2)]);
    let location = StoredAt { client: 7, number: 0, segment: "x.log".to_owned(), offset: 12, bytes: 34 };
    assert_eq!(ledger.locations, [location]);
}

#[test]
fn an_answer_that_may_have_stored_leaves_the_event_unknown() {
    let expect = StatusSet::acknowledged();
    let outcome_of = |plan: EventPlan, status: u16, field: &str| {
        let mut events = events(plan);
        let answer = format!("HTTP/1.1 {status} No\r\n{field}Content-Length: 2\r\n\r\nno");
        let mut reader = http1::ResponseReader::new(http1::Limits::default());
        for part in answer.as_bytes().chunks(50) {
            reader.feed(part, false, &mut events.head_sink(0, &expect)).unwrap();
        }
        assert!(events.failed(0, &SENT, ErrorClass::Status, Some(status), 0).is_none());
        outcomes(events)[0].2
    };
    let keyed = || EventPlan { idempotency: true, ..crate::testing::events() };
    let maybe = "Proofload-Stored: maybe\r\n";
    for (plan, status, field, expected) in [
        (crate::testing::events(), 503, "", EventOutcome::Refused),
        (crate::testing::events(), 503, "Retry-After: 1\r\n", EventOutcome::Refused),
        (crate::testing::events(), 503, maybe, EventOutcome::Unknown),
        (crate::testing::events(), 500, maybe, EventOutcome::Unknown),
        (crate::testing::events(), 502, "", EventOutcome::Unknown),
        (crate::testing::events(), 504, "", EventOutcome::Unknown),
        (crate::testing::events(), 409, "", EventOutcome::Refused),
        (keyed(), 409, "", EventOutcome::Unknown),
        (keyed(), 422, "", EventOutcome::Refused),
    ] {
        assert_eq!(outcome_of(plan, status, field), expected, "{status} {field}");
    }
}

#[test]
fn a_request_whose_first_copy_is_still_being_stored_is_retried_if_it_has_a_key() {
    let mut events = events(EventPlan { retries: 1, idempotency: true, ..crate::testing::events() });
    assert!(events.failed(0, &SENT, ErrorClass::Status, Some(409), 0).is_some());
    assert!(events.failed(1, &SENT, ErrorClass::Status, Some(422), 0).is_none());
}
