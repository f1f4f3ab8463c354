//! Tests of stopping with and without requests in flight.

use std::{
    fs,
    time::{Duration, Instant},
};

use listen::{Config, Level, Server};
use testing::{
    http::{Client, post_json},
    until,
};

use crate::testbed::{Testbed, store};

#[test]
fn requests_in_flight_are_finished_and_idle_connections_closed() {
    let testbed = Testbed::start();
    let mut idle = testbed.connect();
    assert_eq!(idle.post("/a", "{}").status, 204);
    let mut half = testbed.connect();
    let bytes = post_json("/a", "", b"{\"late\":1}");
    half.send(&bytes[..bytes.len() - 4]);
    // The listener must have read the request before it stops.
    until("it came", || testbed.handle.statistics().received_bytes >= 2 * bytes.len() as u64 - 20);
    testbed.handle.stop();
    assert!(idle.is_closed());
    half.send(&bytes[bytes.len() - 4..]);
    let answer = half.answer();
    assert_eq!((answer.status, answer.header("connection")), (204, Some("close")));
    assert!(half.is_closed());
    let (report, folder) = testbed.stop();
    assert_eq!(fs::read_to_string(folder.path().join("a.log")).unwrap(), "{}\n{\"late\":1}\n");
    assert_eq!((report.close_error, report.unanswered), (None, 0));
    assert_eq!(report.statistics.connections_open, 0);
    assert_eq!(report.statistics.requests[&204], 2);
}

#[test]
fn everybody_who_has_connected_is_let_in_at_the_end() {
    let folder = tempfile::TempDir::new().unwrap();
    let server = Server::bind(Config::new(store(folder.path())), Vec::new()).unwrap();
    let (address, handle) = (server.local_addrs()[0], server.handle());
    // More connections than one turn accepts. All are in the kernel's queue before the first turn.
    let mut clients: Vec<_> = (0..300).map(|_| Client::connect(address).unwrap()).collect();
    for client in &mut clients {
        client.send(post_json("/a", "", b"{}"));
    }
    handle.stop();
    let testbed = Testbed::run(server, folder);
    for client in &mut clients {
        assert_eq!(client.answer().status, 204);
    }
    let (report, _folder) = testbed.stop();
    assert_eq!(report.statistics.requests[&204], 300);
}

#[test]
fn draining_ends_even_if_clients_do_not() {
    let testbed = Testbed::with(|config| config.timeouts.drain = Duration::from_millis(200));
    let mut half = testbed.connect();
    let start = Instant::now();
    half.send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{");
    until("it came", || testbed.handle.statistics().received_bytes >= 50);
    let (report, folder) = testbed.stop();
    assert!(start.elapsed() >= Duration::from_millis(200), "{:?}", start.elapsed());
    assert_eq!(report.statistics.requests.len(), 0);
    assert!(!folder.path().join("a.log").exists());
}

#[test]
fn everything_accepted_is_on_the_disk_when_it_has_stopped() {
    let testbed = Testbed::with(|config| config.level = Level::Accepted);
    let mut client = testbed.connect();
    let bytes: Vec<u8> =
        (0..500).flat_map(|n| post_json("/a", "", format!("{{\"n\":{n}}}").as_bytes())).collect();
    client.send(&bytes);
    (0..500).for_each(|_| assert_eq!(client.answer().status, 202));
    let (report, folder) = testbed.stop();
    assert_eq!(fs::read_to_string(folder.path().join("a.log")).unwrap().lines().count(), 500);
    assert_eq!((report.close_error, report.statistics.accepted_events_lost), (None, 0));
}

#[test]
fn a_next_run_goes_on_where_the_last_ended() {
    let testbed = Testbed::start();
    assert_eq!(testbed.connect().post("/a", "{\"n\":1}").status, 204);
    let (_, folder) = testbed.stop();
    let testbed = Testbed::at(folder, |_| {});
    let answer = testbed.connect().post("/a", "{\"n\":2}");
    assert_eq!(answer.receipts()[0].offset, 8);
    assert_eq!(testbed.stored("a"), "{\"n\":1}\n{\"n\":2}\n");
}

#[test]
fn files_renamed_by_others_are_opened_anew_on_reload() {
    let testbed = Testbed::start();
    let mut client = testbed.connect();
    assert_eq!(client.post("/a", "{\"n\":1}").status, 204);
    let (live, rotated) = (testbed.folder().join("a.log"), testbed.folder().join("a.log.1"));
    fs::rename(&live, &rotated).unwrap();
    testbed.handle.reload().unwrap();
    until("a new file is written", || {
        assert_eq!(client.post("/a", "{\"n\":2}").status, 204);
        live.exists()
    });
    assert!(fs::read_to_string(&rotated).unwrap().starts_with("{\"n\":1}\n"));
}

#[test]
fn sockets_can_be_handed_in() {
    let folder = tempfile::TempDir::new().unwrap();
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = Config::new(store(folder.path()));
    config.listen.clear();
    config.threads = 2;
    config.format = events::LineFormat::Json;
    let wrong = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let error = Server::bind(config.clone(), vec![wrong.into()]).unwrap_err().to_string();
    assert!(error.contains("handed in is not usable"), "{error}");
    let address = socket.local_addr().unwrap();
    let server = Server::bind(config, vec![socket.into()]).unwrap();
    assert_eq!(server.local_addrs(), [address]);
    let testbed = Testbed::run(server, folder);
    for _ in 0..10 {
        assert_eq!(testbed.connect().post("/a", "{}").status, 204);
    }
}

#[test]
fn one_accept_queue_can_serve_all_threads() {
    let testbed = Testbed::with(|config| {
        config.threads = 3;
        config.accept = listen::Accept::Shared;
    });
    let mut clients: Vec<_> = (0..60).map(|_| testbed.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.post("/a", "{}").status, 204);
    }
    drop(clients);
    let (report, _folder) = testbed.stop();
    assert_eq!(report.connections_per_thread.iter().sum::<u64>(), 60);
    assert_eq!(report.connections_per_thread.len(), 3);
}

#[test]
fn every_mistake_of_a_configuration_is_told() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut config = Config::new(store(folder.path()));
    config.listen.clear();
    config.threads = 0;
    config.limits.budget_bytes = 1;
    config.timeouts.idle = Duration::ZERO;
    let error = Server::bind(config, Vec::new()).unwrap_err().to_string();
    for mistake in ["no address", "--threads must", "--budget must", "no timeout may"] {
        assert!(error.contains(mistake), "{mistake} in {error}");
    }
}
