//! Tests of limited capacity with real sockets: FIFO order, a bounded queue, and every way to refuse requests.

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

/// Sends one request on each of `n` connections, and lets the target read them in this order.
fn one_each(target: &Target, n: usize) -> Vec<Client> {
    let clients = (0..n).map(|_| {
        let mut client = target.connect();
        client.send(GET);
        target.has_read();
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
    let service = Duration::from_millis(20);
    let target = Target::start(Config { threads, ..capacity(1, "20ms", None, WhenFull::Reject) });
    let start = Instant::now();
    let mut clients = one_each(&target, 5);
    let answered = |client: &mut Client| {
        client.answer();
        start.elapsed()
    };
    // Each connection has its own reading thread, because a single thread would notice later answers too late.
    let mut times: Vec<Duration> = thread::scope(|scope| {
        let readers: Vec<_> = clients.iter_mut().map(|client| scope.spawn(|| answered(client))).collect();
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });
    times.sort();
    for (done, at) in (1..).zip(&times) {
        assert!(*at >= done * service, "{times:?}");
    }
    let report = target.stop();
    assert_eq!((report.answers, report.rejected), (5, 0));
    assert_eq!((report.queue_wait.count(), report.service_drawn.count()), (5, 5));

    let target = Target::start(Config { threads, ..capacity(1, "10m", None, WhenFull::Reject) });
    let _clients = one_each(&target, 5);
    let report = target.stop();
    assert_eq!((report.unanswered, report.queue_peak, report.queue_wait.count()), (5, 4, 5));
    // The last request waits for four services, less the time before its arrival.
    assert!(report.queue_wait.max_ns() > 3 * 600_000_000_000, "{report}");
}

#[test]
fn the_delay_comes_after_the_service() {
    let config = Config { delay: "80ms".parse().unwrap(), ..capacity(1, "20ms", None, WhenFull::Reject) };
    let target = Target::start(config);
    let start = Instant::now();
    one_each(&target, 1)[0].answer();
    assert!(start.elapsed() >= Duration::from_millis(100));
    assert_eq!(target.stop().delay_drawn.count(), 1);
}

#[test]
fn the_delay_takes_no_server() {
    let config = Config { delay: "1h".parse().unwrap(), ..capacity(1, "20ms", None, WhenFull::Reject) };
    let target = Target::start(config);
    let _clients = one_each(&target, 2);
    let report = target.stop();
    // The second request waits at most for the service of the first. The histogram keeps 3 digits.
    assert!(report.queue_wait.max_ns() < 21_000_000, "{report}");
    assert_eq!((report.delay_drawn.count(), report.unanswered), (2, 2));
}

#[test]
fn a_full_queue_turns_away_as_told() {
    for when_full in [WhenFull::Reject, WhenFull::Close, WhenFull::Reset, WhenFull::Ignore] {
        turns_away(when_full);
    }
}

fn turns_away(when_full: WhenFull) {
    let target = Target::start(capacity(1, "1h", Some(1), when_full));
    let mut clients = one_each(&target, 4);
    let mut turned_away = clients.split_off(2);
    for client in turned_away.iter_mut().filter(|_| when_full != WhenFull::Ignore) {
        let got = client.try_answer();
        match when_full {
            WhenFull::Reject => assert_eq!(got.unwrap().status, 503),
            WhenFull::Reset => assert_eq!(got.unwrap_err(), NoAnswer::Reset),
            _ => assert_eq!(got.unwrap_err(), NoAnswer::Fin(0)),
        }
    }
    if when_full == WhenFull::Ignore {
        clients.append(&mut turned_away);
    }
    let report = target.stop();
    for client in &mut clients {
        assert_eq!(client.try_answer().unwrap_err(), NoAnswer::Fin(0));
    }
    assert_eq!((report.requests, report.rejected, report.unanswered), (4, 2, 2));
    let unanswered = if when_full == WhenFull::Reject { 0 } else { 2 };
    assert_eq!(report.rejected_unanswered, unanswered);
    assert_eq!((report.queue_peak, report.service_drawn.count()), (1, 2));
}

#[test]
fn a_turned_away_client_may_ask_again_on_its_connection() {
    let target = Target::start(capacity(1, "1h", Some(0), WhenFull::Reject));
    let mut clients = one_each(&target, 2);
    assert_eq!(clients[1].answer().status, 503);
    assert_eq!(clients[1].send(GET).answer().status, 503);
    assert_eq!(target.stop().rejected, 2);

    let target = Target::start(capacity(1, "20ms", Some(0), WhenFull::Reject));
    let mut clients = one_each(&target, 2);
    let mut turned_away = 0;
    while clients[1].answer().status == 503 {
        turned_away += 1;
        clients[1].send(GET);
    }
    assert_eq!(clients[0].answer().status, 200);
    let report = target.stop();
    assert_eq!((report.rejected, report.answers_by_status[&200]), (turned_away, 2));
}
