//! Limited capacity over real sockets: FIFO, bounded, and with every way to turn requests away.

use std::{
    thread,
    time::{Duration, Instant},
};

use serve::{Capacity, Config, WhenFull};
use testing::http::{Client, NoAnswer};

use crate::target::{GET, Target};

fn capacity(servers: u32, service_time: &str, queue: Option<u64>, when_full: WhenFull) -> Config {
    let service_time = service_time.parse().unwrap();
    Config { capacity: Some(Capacity { servers, service_time, queue, when_full }), ..Config::default() }
}

/// Sends a request on each of `n` connections, some milliseconds apart, so that their order is known. Times of service
/// are many times as long: on a crowded machine it takes longer.
fn one_each(target: &Target, n: usize) -> Vec<Client> {
    let clients = (0..n).map(|_| {
        let mut client = target.connect();
        client.send(GET);
        thread::sleep(Duration::from_millis(5));
        client
    });
    clients.collect()
}

#[test]
fn one_server_serves_one_after_the_other() {
    thread::scope(|scope| {
        for threads in [1, 2] {
            scope.spawn(move || one_after_the_other(threads));
        }
    });
}

fn one_after_the_other(threads: u32) {
    let target = Target::start(Config { threads, ..capacity(1, "200ms", None, WhenFull::Reject) });
    let start = Instant::now();
    let mut clients = one_each(&target, 5);
    let mut last = Duration::ZERO;
    for (i, client) in clients.iter_mut().enumerate() {
        client.answer();
        let at = start.elapsed();
        assert!(at >= Duration::from_millis(200) * (i as u32 + 1) && at > last, "{i}: {at:?}");
        last = at;
    }
    let report = target.stop();
    assert_eq!((report.answers, report.rejected, report.queue_peak), (5, 0, 4));
    assert_eq!((report.queue_wait.count(), report.service_drawn.count()), (5, 5));
    assert!(report.queue_wait.max_ns() > 200_000_000, "{report}");
    assert!(report.late_by.quantile_ns(0.5) < 50_000_000, "{report}");
}

#[test]
fn the_delay_comes_after_the_service_and_takes_no_server() {
    let config = Config { delay: "800ms".parse().unwrap(), ..capacity(1, "200ms", None, WhenFull::Reject) };
    let target = Target::start(config);
    let start = Instant::now();
    let mut clients = one_each(&target, 2);
    clients[0].answer();
    assert!(start.elapsed() >= Duration::from_millis(1_000));
    clients[1].answer();
    // The second was served while the first was only delayed: 1.2 s. One after the other it would be 2 s.
    assert!((1_200..1_900).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    assert_eq!(target.stop().delay_drawn.count(), 2);
}

#[test]
fn a_full_queue_turns_away_as_told() {
    thread::scope(|scope| {
        for when_full in [WhenFull::Reject, WhenFull::Close, WhenFull::Reset, WhenFull::Ignore] {
            scope.spawn(move || turns_away(when_full));
        }
    });
}

fn turns_away(when_full: WhenFull) {
    let target = Target::start(capacity(1, "400ms", Some(1), when_full));
    let mut clients = one_each(&target, 4);
    for client in &mut clients[2..] {
        if when_full == WhenFull::Ignore {
            client.timeout(Duration::from_millis(40));
        }
        let got = client.try_answer();
        match when_full {
            WhenFull::Reject => assert_eq!(got.unwrap().status, 503),
            WhenFull::Close => assert_eq!(got.unwrap_err(), NoAnswer::Fin(0)),
            WhenFull::Reset => assert_eq!(got.unwrap_err(), NoAnswer::Reset),
            WhenFull::Ignore => assert_eq!(got.unwrap_err(), NoAnswer::Nothing),
        }
    }
    for client in &mut clients[..2] {
        assert_eq!(client.answer().status, 200);
    }
    let report = target.stop();
    assert_eq!((report.requests, report.answers_by_status[&200], report.rejected), (4, 2, 2));
    let unanswered = if when_full == WhenFull::Reject { 0 } else { 2 };
    assert_eq!(report.rejected_unanswered, unanswered);
    assert_eq!((report.queue_peak, report.service_drawn.count()), (1, 2));
}

#[test]
fn a_turned_away_client_may_ask_again_on_its_connection() {
    let target = Target::start(capacity(1, "400ms", Some(0), WhenFull::Reject));
    let mut clients = one_each(&target, 2);
    assert_eq!(clients[1].answer().status, 503);
    clients[0].answer();
    assert_eq!(clients[1].send(GET).answer().status, 200);
    assert_eq!(target.stop().rejected, 1);
}
