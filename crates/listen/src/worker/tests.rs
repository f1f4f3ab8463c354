//! Tests that run a worker round by round, without its thread.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    net::sockopt::set_socket_linger,
};
use segments::{Level, Store};
use testing::{PATIENCE, http::post_json, until};

use super::*;
use crate::{
    Compat, Config, Report, Statistics, engine::BodyReader, idempotency::Found, listeners::Listeners, render,
};

/// Runs a test with a worker that answers at level `accepted`.
fn with_worker(test: impl FnOnce(&mut Worker<'_>, TcpStream)) {
    with_worker_of(|config| config.level = Level::Accepted, test);
}

/// Runs a test with a worker whose configuration is changed by `change`.
fn with_worker_of(change: impl FnOnce(&mut Config), test: impl FnOnce(&mut Worker<'_>, TcpStream)) {
    with_helper_of(change, |worker, client, helper| {
        drop(helper);
        test(worker, client);
    });
}

/// Runs a test with a worker and its body reader, which the test drives.
fn with_helper_of(
    change: impl FnOnce(&mut Config),
    test: impl for<'a> FnOnce(&mut Worker<'a>, TcpStream, BodyReader<'a>),
) {
    let folder = tempfile::TempDir::new().unwrap();
    let template = format!("{}/${{tag}}", folder.path().display()).parse().unwrap();
    let mut config = Config::new(segments::Config::new(template));
    let timeouts = &mut config.timeouts;
    for time in
        [&mut timeouts.head, &mut timeouts.body, &mut timeouts.idle, &mut timeouts.store, &mut timeouts.drain]
    {
        *time = PATIENCE;
    }
    config.store.close_wait = PATIENCE;
    change(&mut config);
    let mut listeners = Listeners::open(&config, Vec::new()).unwrap();
    let (store, mut ports, _) = Store::open(config.store.clone(), 1).unwrap();
    let shared = Shared::new(config, store).unwrap();
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let client = TcpStream::connect(listeners.addresses[0]).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let (body_reader_queue, helper) = BodyReaderQueue::new(&shared).unwrap();
    let mut worker =
        Worker::new(&shared, 0, epoll, listeners.threads.remove(0), ports.remove(0), body_reader_queue);
    test(&mut worker, client, helper);
    shared.store.close().unwrap();
}

fn rounds_until(worker: &mut Worker<'_>, what: &str, holds: impl Fn(&Worker<'_>) -> bool) {
    let mut events = [const { MaybeUninit::<Event>::uninit() }; EVENTS];
    for _ in 0..1_000 {
        if holds(worker) {
            return;
        }
        worker.round(&mut events);
    }
    panic!("never: {what}");
}

/// The engine, and the worker's only connection.
fn connection<'w, 'a>(worker: &'w mut Worker<'a>) -> (&'w mut Engine<'a>, &'w mut Connection<'a>) {
    let token = worker.connections.tokens()[0];
    (&mut worker.engine, worker.connections.find(token).unwrap())
}

/// Runs rounds until the connection is accepted. Returns the time of the last round.
fn let_in(worker: &mut Worker<'_>) -> u64 {
    rounds_until(worker, "it is let in", |worker| !worker.connections.is_empty());
    worker.engine.now_ns
}

/// Sends bytes and waits until they have arrived at the worker's socket.
fn send(worker: &mut Worker<'_>, mut client: &TcpStream, bytes: impl AsRef<[u8]>) {
    client.write_all(bytes.as_ref()).unwrap();
    let (_, connection) = connection(worker);
    until("it has come", || {
        let mut asked = [PollFd::from_borrowed_fd(connection.stream.as_fd(), PollFlags::IN)];
        poll(&mut asked, Some(&Timespec::default())).unwrap() == 1
    });
}

/// Lets the worker read bytes at the given time.
fn take_at(now_ns: u64, worker: &mut Worker<'_>, client: &TcpStream, bytes: impl AsRef<[u8]>) {
    send(worker, client, bytes);
    let (engine, connection) = connection(worker);
    engine.now_ns = now_ns;
    let mut next = engine.event(connection, EventFlags::IN);
    while next == NextStep::Continue {
        next = engine.proceed(connection);
    }
    assert_eq!(next, NextStep::Wait);
}

/// Checks the connection's deadline at the given time. Returns the next step.
fn check_at(now_ns: u64, worker: &mut Worker<'_>) -> NextStep {
    let (engine, connection) = connection(worker);
    engine.now_ns = now_ns;
    engine.check_deadline(connection)
}

const MS: u64 = 1_000_000;

#[test]
fn a_head_has_its_time_however_often_a_part_of_it_comes() {
    with_worker_of(
        |config| config.timeouts.head = Duration::from_millis(200),
        |worker, mut client| {
            let begin_ns = let_in(worker);
            take_at(begin_ns + 1_000 * MS, worker, &client, "POST /a HT");
            take_at(begin_ns + 1_199 * MS, worker, &client, "TP/1.1\r\nHo");
            assert_eq!(check_at(begin_ns + 1_200 * MS - 1, worker), NextStep::Wait);
            check_at(begin_ns + 1_200 * MS, worker);
            let mut answer = [0; 12];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"HTTP/1.1 408");
        },
    );
}

#[test]
fn a_body_is_read_to_its_end_as_long_as_it_keeps_its_rate() {
    let change = |config: &mut Config| {
        config.timeouts.body = Duration::from_millis(200);
        config.timeouts.body_bytes_per_s = 1_000;
    };
    let head = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n";
    let body = format!("{{\"a\":\"{}\"}}", "x".repeat(992));
    with_worker_of(change, |worker, client| {
        let begin_ns = let_in(worker);
        take_at(begin_ns, worker, &client, head);
        // The body takes much longer than `timeouts.body`, after which the minimum rate applies.
        for (number, part) in (1..).zip(body.as_bytes().chunks(125)) {
            let now_ns = begin_ns + number * 100 * MS;
            assert_eq!(check_at(now_ns, worker), NextStep::Wait);
            take_at(now_ns, worker, &client, part);
        }
        assert_eq!(connection(worker).1.phase, Phase::Storing);
        rounds_until(worker, "it is stored", |worker| worker.engine.is_done());
    });
    with_worker_of(change, |worker, mut client| {
        let begin_ns = let_in(worker);
        take_at(begin_ns, worker, &client, [head, &body[..10]].concat());
        assert_eq!(check_at(begin_ns + 210 * MS - 1, worker), NextStep::Wait);
        check_at(begin_ns + 210 * MS, worker);
        let mut answer = [0; 12];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 408");
    });
}

#[test]
fn an_idle_connection_is_kept_as_long_as_it_may_be() {
    with_worker_of(
        |config| config.timeouts.idle = Duration::from_millis(300),
        |worker, client| {
            let begin_ns = let_in(worker);
            for number in 1..=4 {
                let now_ns = begin_ns + number * 299 * MS;
                assert_eq!(check_at(now_ns, worker), NextStep::Wait);
                take_at(now_ns, worker, &client, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
            }
            let end_ns = begin_ns + 4 * 299 * MS + 300 * MS;
            assert_eq!(check_at(end_ns - 1, worker), NextStep::Wait);
            assert_eq!(check_at(end_ns, worker), NextStep::Close);
        },
    );
}

#[test]
fn the_rest_of_a_refused_body_is_discarded_from_the_close_on() {
    with_worker(|worker, client| {
        // Later than the linger timeout, so the linger time must start at the close and not before.
        let closed_ns = let_in(worker) + 5_000 * MS;
        let refused = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n";
        take_at(closed_ns, worker, &client, [&post_json("/a", "", b"x")[..], refused].concat());
        assert_eq!(connection(worker).1.phase, Phase::Lingering);
        let end_ns = closed_ns + worker.shared.config.timeouts.linger.as_nanos() as u64;
        for now_ns in [closed_ns + 500 * MS, end_ns - 1] {
            assert_eq!(check_at(now_ns, worker), NextStep::Wait);
            take_at(now_ns, worker, &client, "the rest of a body that is not wanted");
        }
        assert_eq!(check_at(end_ns, worker), NextStep::Close);
    });
}

/// Sets a sync delay so long that only a stop ends it.
fn synced_later(config: &mut Config) {
    config.level = Level::Synced;
    config.store.sync_delay = Duration::from_secs(3_600);
}

#[test]
fn a_client_that_is_answered_after_the_stop_is_not_waited_for() {
    with_worker_of(synced_later, |worker, mut client| {
        client.write_all(post("1").as_bytes()).unwrap();
        rounds_until(worker, "the storage has it", |worker| !worker.engine.is_done());
        worker.shared.drain();
        // The client keeps the connection open without sending more.
        rounds_until(worker, "it ends", |worker| worker.is_over());
        assert!(worker.connections.is_empty());
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 204 ") && answer.contains("Connection: close"), "{answer}");
    });
}

#[test]
fn what_has_come_behind_a_request_is_answered_after_the_stop_too() {
    for in_one_piece in [true, false] {
        with_worker_of(synced_later, |worker, mut client| {
            let (first, second) = (post("1"), post("2"));
            client.write_all(if in_one_piece { first + &second } else { first }.as_bytes()).unwrap();
            rounds_until(worker, "the storage has it", |worker| !worker.engine.is_done());
            if !in_one_piece {
                send(worker, &client, second);
            }
            worker.shared.drain();
            rounds_until(worker, "it ends", |worker| worker.is_over());
            let mut answers = String::new();
            client.read_to_string(&mut answers).unwrap();
            let [first, second] = answers.split("HTTP/1.1 ").skip(1).collect::<Vec<_>>()[..] else {
                panic!("{answers}")
            };
            assert!(first.starts_with("204 ") && !first.contains("Connection: close"), "{first}");
            assert!(second.starts_with("204 ") && second.contains("Connection: close"), "{second}");
        });
    }
}

fn post(key: &str) -> String {
    format!("POST /a HTTP/1.1\r\nHost: x\r\nIdempotency-Key: {key}\r\nContent-Length: 2\r\n\r\n{{}}")
}

#[test]
fn a_request_behind_an_accepted_one_does_not_wait_for_the_disk() {
    with_worker(|worker, mut client| {
        client.write_all((post("1") + &post("2")).as_bytes()).unwrap();
        rounds_until(worker, "the second is in the batch", |worker| worker.engine.has_lines());
        let sleep = worker.sleep().map(|sleep| (sleep.tv_sec, sleep.tv_nsec));
        assert_eq!(sleep, Some((0, 0)));
        rounds_until(worker, "both are stored", |worker| {
            worker.engine.counters.events(Level::Accepted) == 2 && worker.engine.is_done()
        });
        let mut answers = [0; 512];
        let received = client.read(&mut answers).unwrap();
        assert!(answers[..received].starts_with(b"HTTP/1.1 202"));
    });
}

#[test]
fn a_key_whose_client_went_before_it_was_told_is_not_stored_again() {
    with_worker(|worker, mut client| {
        client.write_all((post("1") + &post("2")).as_bytes()).unwrap();
        rounds_until(worker, "the second is in the batch", |worker| worker.engine.has_lines());
        // The reset removes the connection, so none can be answered when the second request is submitted.
        set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
        drop(client);
        rounds_until(worker, "both are stored", |worker| {
            !worker.engine.has_lines() && worker.engine.is_done()
        });
        assert_eq!(worker.engine.counters.events(Level::Accepted), 1, "the second was not answered");
        let found = worker.shared.idempotency.look_up(
            "a",
            "2",
            (events::Kind::Json, &b"{}"[..]),
            worker.engine.now_ns,
        );
        let Found::Answered(answered) = found else { panic!("forgotten: {found:?}") };
        assert_eq!(answered.level, Level::Accepted);
    });
}

#[test]
fn what_was_accepted_is_told_until_it_is_stored() {
    with_worker(|worker, mut client| {
        client.write_all(post("1").as_bytes()).unwrap();
        rounds_until(worker, "it is accepted", |worker| worker.engine.counters.events(Level::Accepted) == 1);
        assert_eq!(Statistics::of(worker.shared).accepted_events_pending, 1);
        let hung = Report::of(worker.shared, Some("the disk hangs".to_owned()));
        assert_eq!(hung.statistics.accepted_events_pending, 1);
        assert!(render(&hung).contains("ACCEPTED, MAYBE NOT STORED  1\n"), "{}", render(&hung));
        let closed = Report::of(worker.shared, None);
        assert_eq!(closed.statistics.accepted_events_pending, 0);
        rounds_until(worker, "it is stored", |worker| worker.engine.is_done());
        assert_eq!(Statistics::of(worker.shared).accepted_events_pending, 0);
    });
}

#[test]
fn a_large_body_that_nobody_is_there_to_read_is_refused_at_once() {
    with_worker(|worker, mut client| {
        let body = "{}\n".repeat(10_000);
        let head = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson";
        let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        client.write_all(request.as_bytes()).unwrap();
        rounds_until(worker, "it is answered", |worker| {
            worker.engine.counters.statuses().any(|(status, _)| status == 500)
        });
        let mut answer = [0; 512];
        let received = client.read(&mut answer).unwrap();
        assert!(String::from_utf8_lossy(&answer[..received]).contains("\"fault\""));
        assert!(worker.engine.is_done(), "a stop waits for nothing");
    });
}

#[test]
fn a_body_that_is_not_read_in_time_is_not_stored_and_not_called_the_disks() {
    for is_read_before in [false, true] {
        with_helper_of(
            |_| {},
            |worker, mut client, mut helper| {
                let body = "{}\n".repeat(10_000);
                let head = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson";
                let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                client.write_all(request.as_bytes()).unwrap();
                rounds_until(worker, "the helper has it", |worker| !worker.engine.is_done());
                let mut read = || helper.read_next().unwrap();
                if is_read_before {
                    read();
                }
                let token = worker.connections.tokens()[0];
                let connection = worker.connections.find(token).unwrap();
                worker.engine.now_ns = connection.deadline_ns;
                let next_step = worker.engine.check_deadline(connection);
                worker.settle(token, next_step);
                let mut answer = String::new();
                client.read_to_string(&mut answer).unwrap();
                assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("\"not_read_in_time\""));
                assert!(answer.contains("Retry-After") && !answer.contains("Proofload-Stored"), "{answer}");
                if !is_read_before {
                    read();
                }
                rounds_until(worker, "it is dropped", |worker| worker.engine.is_done());
                assert_eq!((worker.engine.has_lines(), worker.shared.budget.used()), (false, 0));
                assert!(worker.shared.storage_refusal().is_none());
            },
        );
    }
}

#[test]
fn an_answer_for_want_of_time_is_in_the_manner_of_its_request() {
    let compat = Compat::Fluentd {
        cors_allow_origins: vec!["http://a".to_owned()],
        cors_allow_credentials: false,
        empty_img: false,
        use_204: false,
    };
    with_worker_of(
        |config| config.compat = compat,
        |worker, mut client| {
            let headers = "Origin: http://a\r\nProofload-Ack: written\r\nContent-Type: application/json";
            let request =
                format!("POST /a HTTP/1.1\r\nHost: x\r\n{headers}\r\nContent-Length: 2\r\n\r\n{{}}");
            client.write_all(request.as_bytes()).unwrap();
            rounds_until(worker, "the storage has it", |worker| !worker.engine.is_done());
            let token = worker.connections.tokens()[0];
            let connection = worker.connections.find(token).unwrap();
            worker.engine.now_ns = connection.deadline_ns;
            let next_step = worker.engine.check_deadline(connection);
            worker.settle(token, next_step);
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            for part in [
                "HTTP/1.1 500 ",
                "\r\nProofload-Stored: maybe\r\n",
                "\r\nAccess-Control-Allow-Origin: http://a\r\n",
            ] {
                assert!(answer.contains(part), "{part} in {answer}");
            }
        },
    );
}
