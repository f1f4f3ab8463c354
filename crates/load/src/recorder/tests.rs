use super::*;
use crate::testing;

/// A request that was due a microsecond after the start and sent a microsecond later.
const REQUEST: InFlight = InFlight {
    intended_ns: 2_000,
    started_ns: 2_500,
    sent_ns: 3_000,
    sent_whole_ns: 3_000,
    own_ns: 0,
    own_queue_ns: 0,
    own_service_ns: 0,
};

/// A recorder of a trial that starts at 1,000 ns, and the receiver of its ticks.
fn recorder() -> (Recorder, mpsc::Receiver<Tick>) {
    let ((ticks, received), (_, spare)) = (mpsc::channel(), mpsc::channel());
    let mut recorder = Recorder::new(5, ticks, spare, &testing::open(1_000.0, 10, 10));
    recorder.start(1_000, u64::MAX);
    (recorder, received)
}

fn totals(scheduled: u64, planned: Option<u64>) -> SourceTotals {
    SourceTotals { scheduled, planned, left_out: 0 }
}

#[test]
fn an_interval_has_what_happened_in_it_and_what_is_open_at_its_end() {
    let (mut recorder, received) = recorder();
    assert_eq!(recorder.tick_due_ns(), 1_000_001_000);
    recorder.connected(500, false);
    recorder.connected(700, true);
    recorder.disconnected();
    (0..4).for_each(|_| recorder.sent(&REQUEST, false));
    recorder.failed(&REQUEST, ErrorClass::Reset, 5_000);
    recorder.tick(1_000_001_500);
    assert_eq!(recorder.tick_due_ns(), 2_000_001_000);
    let tick = received.recv().unwrap();
    assert_eq!((tick.worker, tick.index, tick.end_ns), (5, 0, 1_000_000_500));
    assert_eq!((tick.sent, tick.completed, tick.failed), (4, 0, 1));
    assert_eq!((tick.open_connections, tick.in_flight), (1, 3));
    recorder.sent(&REQUEST, false);
    recorder.attempt_failed(&REQUEST, 6_000);
    recorder.left_in_flight(&REQUEST, (true, false), 7_000);
    let result = recorder.finish(11_000, totals(5, Some(5)), true, Away::default());
    let tick = received.recv().unwrap();
    assert_eq!((tick.index, tick.end_ns, tick.sent, tick.failed), (1, 10_000, 1, 0));
    assert_eq!((tick.open_connections, tick.in_flight), (1, 2));
    let counts = &result.http.counts;
    assert_eq!((counts.connections_opened, counts.reconnects, counts.connections_peak), (2, 1, 2));
    assert_eq!((counts.scheduled, counts.in_flight, counts.lost_delayed), (5, 1, 0));
    assert_eq!((result.planned, result.interrupted, result.elapsed_ns), (Some(5), true, 10_000));
    assert_eq!(result.failed_in_flight_ns, 2_000.0 + 3_000.0);
}

#[test]
fn no_burst_causes_a_status_that_refuses_what_is_asked() {
    let failures = [
        (401, ErrorClass::Status, 0),
        (404, ErrorClass::Status, 0),
        (404, ErrorClass::Check, 1),
        (408, ErrorClass::Status, 1),
        (429, ErrorClass::Status, 1),
        (503, ErrorClass::Status, 1),
    ];
    for (status, class, delayed) in failures {
        let (mut recorder, _received) = recorder();
        let request = InFlight { own_ns: MIN_ABSENCE_NS, ..REQUEST };
        recorder.sent(&request, false);
        let response = Response {
            status,
            keep_alive: true,
            head_bytes: 20,
            informational_bytes: 0,
            body_bytes: 0,
            framing_bytes: 0,
        };
        let time = ReceiveTime { received_ns: 9_000, uncertainty_ns: 0, read_ns: 9_000 };
        recorder.answered(&request, &response, Some(class), 8_000, time);
        let counts = recorder.finish(10_000, totals(1, None), false, Away::default()).http.counts;
        assert_eq!((counts.failed, counts.lost_delayed), (1, delayed), "{status}");
    }
}

#[test]
fn losses_while_the_generator_caught_up_may_be_its_own() {
    for (own_ns, lost) in [(MIN_ABSENCE_NS - 1, 0), (MIN_ABSENCE_NS, 1)] {
        let request = InFlight { own_ns, ..REQUEST };
        let retry = PendingRetry {
            intended_ns: 2_000,
            due_ns: 4_000,
            class: ErrorClass::Reset,
            was_sent: true,
            own_ns,
        };
        type Loss = fn(&mut Recorder, &InFlight, &PendingRetry);
        let losses: [(Loss, u64); 6] = [
            (|recorder, request, _| recorder.failed(request, ErrorClass::Reset, 9_000), lost),
            (|recorder, request, _| recorder.left_in_flight(request, (true, false), 9_000), lost),
            (|recorder, request, _| recorder.left_in_flight(request, (false, false), 9_000), 0),
            (|recorder, request, _| recorder.left_in_flight(request, (false, true), 9_000), 0),
            (|recorder, _, retry| recorder.given_up(retry, 9_000), lost),
            (|recorder, _, retry| recorder.never_sent_busy(retry.intended_ns, retry.own_ns, 9_000), lost),
        ];
        for (number, (loss, expected)) in losses.into_iter().enumerate() {
            let (mut recorder, _received) = recorder();
            recorder.sent(&request, false);
            loss(&mut recorder, &request, &retry);
            let result = recorder.finish(10_000, totals(1, None), false, Away::default());
            assert_eq!(result.http.counts.lost_delayed, expected, "loss {number} at {own_ns} ns");
        }
    }
}
