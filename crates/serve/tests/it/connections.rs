//! Tests of the number of connections, their lifetime and their end.

use std::{
    net::TcpStream,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use serve::{Config, Error, Server, StartError};
use testing::{
    http::{Client, NoAnswer},
    skipped, unread_bytes, until,
};

use crate::target::{GET, Target};

#[test]
fn connections_over_the_most_are_reset_and_counted() {
    let target = Target::start(Config { max_connections: Some(2), threads: 2, ..Config::default() });
    let (mut first, mut second) = (target.connect(), target.connect());
    first.send(GET).answer();
    second.send(GET).answer();
    for _ in 0..3 {
        assert_eq!(target.connect().try_answer().unwrap_err(), NoAnswer::Reset);
    }
    drop(first);
    // The limit has room only after the target has noticed the close.
    let mut refused = 2;
    until("there is room", || {
        refused += 1;
        target.connect().ask(GET).unwrap().status == 200
    });
    second.send(GET).answer();
    let report = target.stop();
    assert_eq!((report.connections_accepted, report.connections_refused), (3, refused));
    assert_eq!((report.connections_peak, report.requests), (2, 4));
}

#[test]
fn a_connection_carries_so_many_requests() {
    let target = Target::start(Config { keepalive_requests: Some(3), ..Config::default() });
    for _ in 0..2 {
        let mut client = target.connect();
        assert_eq!(client.send(GET).answer().header("connection"), None);
        assert_eq!(client.send(GET).answer().header("connection"), None);
        let last = client.send(GET).answer();
        assert_eq!(last.header("connection"), Some("close"));
        assert_eq!(client.try_answer().unwrap_err(), NoAnswer::Fin(0));
    }
    // Requests after the last allowed one get no answer, but the connection ends with a FIN and not with a reset.
    let mut client = target.connect();
    client.send(GET.repeat(50));
    (0..3).for_each(|_| drop(client.answer()));
    assert_eq!(client.try_answer().unwrap_err(), NoAnswer::Fin(0));
    let report = target.stop();
    assert_eq!((report.requests, report.answers, report.connections_accepted), (9, 9, 3));
}

#[test]
fn an_idle_connection_is_closed_and_not_early() {
    let timeout = Duration::from_millis(50);
    let config = Config { keepalive_timeout_ns: Some(timeout.as_nanos() as u64), ..Config::default() };
    let target = Target::start(config);
    let start = Instant::now();
    assert_eq!(target.connect().try_answer().unwrap_err(), NoAnswer::Fin(0));
    assert!(start.elapsed() >= timeout, "{:?}", start.elapsed());
    assert_eq!(target.stop().connections_idled_out, 1);
}

#[test]
fn several_addresses_and_threads_are_served() {
    let listen = ["127.0.0.1:0", "127.0.0.2:0", "[::1]:0"].map(|a| a.parse().unwrap()).to_vec();
    let bind =
        |listen: &[_]| Server::bind(Config { listen: listen.to_vec(), threads: 2, ..Config::default() });
    let server = match bind(&listen) {
        Err(Error::Start(error @ StartError::Listen { address, .. })) if address.is_ipv6() => {
            skipped("a listener of IPv6", &error.to_string());
            bind(&listen[..2])
        }
        other => other,
    };
    let server = server.unwrap();
    let addresses = server.local_addrs().to_vec();
    let stop = Arc::new(AtomicBool::new(false));
    let thread = std::thread::spawn({
        let stop = stop.clone();
        move || server.run(stop)
    });
    for &address in &addresses {
        for _ in 0..20 {
            Client::connect(address).unwrap().send(GET).answer();
        }
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(thread.join().unwrap().answers, 20 * addresses.len() as u64);
}

#[test]
fn an_address_in_use_is_named() {
    for threads in [1, 2] {
        let first = Server::bind(Config { threads, ..Config::default() }).unwrap();
        let again = Config { listen: first.local_addrs().to_vec(), threads, ..Config::default() };
        let error = Server::bind(again.clone()).unwrap_err().to_string();
        assert!(error.contains(&first.local_addrs()[0].to_string()), "{error}");
        assert!(error.contains("another program"), "{error}");
    }
    let shared = Server::bind(Config { reuse_port: true, ..Config::default() }).unwrap();
    let again = Config { listen: shared.local_addrs().to_vec(), reuse_port: true, ..Config::default() };
    Server::bind(again).unwrap();
}

/// A processor that this test may use.
fn allowed() -> u32 {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    (0..).find(|&cpu| set.is_set(cpu)).unwrap() as u32
}

#[test]
fn processors_that_are_not_there_are_named() {
    let cpus = vec![allowed(), 1_000];
    let error = Server::bind(Config { cpus, ..Config::default() }).unwrap_err().to_string();
    assert!(error.contains("[1000]"), "{error}");
}

#[test]
fn a_pinned_target_serves() {
    let target = Target::start(Config { cpus: vec![allowed()], threads: 2, ..Config::default() });
    target.connect().send(GET).answer();
    assert_eq!(target.stop().answers, 1);
}

#[test]
fn it_stops_by_itself_after_its_duration() {
    let server = Server::bind(Config { duration_ns: Some(120_000_000), ..Config::default() }).unwrap();
    let report = server.run(Arc::new(AtomicBool::new(false)));
    assert!(report.elapsed_s >= 0.12, "{}", report.elapsed_s);
}

#[test]
fn a_stop_closes_everything_and_counts_what_was_owed() {
    let target = Target::start(Config { delay: "1h".parse().unwrap(), ..Config::default() });
    let (mut idle, mut waiting) = (target.connect(), target.connect());
    waiting.send(GET);
    target.has_read();
    let address = target.address;
    let report = target.stop();
    assert_eq!((report.requests, report.answers, report.unanswered), (1, 0, 1));
    assert_eq!(idle.try_answer().unwrap_err(), NoAnswer::Fin(0));
    assert_eq!(waiting.try_answer().unwrap_err(), NoAnswer::Fin(0));
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn clients_that_go_before_their_answer_are_counted() {
    let target = Target::start(Config { delay: "1h".parse().unwrap(), ..Config::default() });
    let mut clients: Vec<_> = (0..6).map(|_| target.connect()).collect();
    for client in &mut clients {
        client.send(GET);
    }
    target.has_read();
    for client in clients.drain(..2) {
        rustix::net::sockopt::set_socket_linger(&client.socket, Some(Duration::ZERO)).unwrap();
    }
    until("two resets have come", || unread_bytes(target.address).len() == 4);
    // Bytes that are not a request get an answer at once. It shows that the target has processed all earlier events.
    assert_eq!(target.connect().send("nonsense\r\n\r\n").answer().status, 400);
    let report = target.stop();
    assert_eq!((report.requests, report.answers, report.clients_gone, report.unanswered), (6, 1, 2, 4));
}

#[test]
fn requests_cut_off_by_the_client_are_no_requests() {
    let target = Target::start(Config::default());
    target.connect().send(&GET[..20]);
    target.connect().send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345");
    drop(target.connect());
    target.has_closed();
    let report = target.stop();
    assert_eq!((report.requests, report.truncated_requests, report.connections_accepted), (0, 2, 3));
}

#[test]
fn thousands_of_connections_come_at_once() {
    let target = Target::start(Config { threads: 2, ..Config::default() });
    let mut clients: Vec<_> = (0..2_000).map(|_| target.connect()).collect();
    for _ in 0..3 {
        for client in &mut clients {
            client.send(GET);
        }
        clients.iter_mut().for_each(|client| assert_eq!(client.answer().status, 200));
    }
    let report = target.stop();
    assert_eq!(
        (report.requests, report.connections_accepted, report.connections_peak),
        (6_000, 2_000, 2_000)
    );
}

#[test]
fn one_greedy_connection_does_not_starve_the_others() {
    let target = Target::start(Config { body: serve::Body::Size(1 << 40), ..Config::default() });
    let greedy = target.connect();
    let (began, begins) = std::sync::mpsc::channel();
    let taken = std::thread::spawn(move || {
        let mut greedy = greedy;
        greedy.send(GET);
        let (mut taken, mut buffer) = (0, vec![0; 1 << 20]);
        while let Ok(n @ 1..) = std::io::Read::read(&mut greedy.socket, &mut buffer) {
            taken += n as u64;
            let _ = began.send(());
        }
        taken
    });
    begins.recv().unwrap();
    let mut other = target.connect();
    let head = b"HEAD / HTTP/1.1\r\nHost: target\r\n\r\n";
    (0..20).for_each(|_| drop(other.send(head).answer()));
    let report = target.stop();
    assert_eq!((report.requests, report.unanswered), (21, 1));
    until("the end of the transfer", || taken.is_finished());
    assert!(taken.join().unwrap() > 1 << 20);
}
