//! Rounds of a worker, one at a time.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use rustix::net::sockopt::set_socket_linger;
use segments::{Level, Store};

use super::*;
use crate::{
    Compat, Config, Report, Statistics, engine::BodyReader, idempotency::Found, listeners::Listeners, render,
};

/// A worker whose rounds are made by the test; it answers what is accepted.
fn with_worker(test: impl FnOnce(&mut Worker<'_>, TcpStream)) {
    with_worker_of(|config| config.level = Level::Accepted, test);
}

/// A worker whose rounds are made by the test.
fn with_worker_of(change: impl FnOnce(&mut Config), test: impl FnOnce(&mut Worker<'_>, TcpStream)) {
    with_helper_of(change, |worker, client, helper| {
        drop(helper);
        test(worker, client);
    });
}

/// A worker and its helper, which both do what the test says.
fn with_helper_of(
    change: impl FnOnce(&mut Config),
    test: impl for<'a> FnOnce(&mut Worker<'a>, TcpStream, BodyReader<'a>),
) {
    let folder = tempfile::TempDir::new().unwrap();
    let template = format!("{}/${{tag}}", folder.path().display()).parse().unwrap();
    let mut config = Config::new(segments::Config::new(template));
    change(&mut config);
    let mut listeners = Listeners::open(&config, Vec::new()).unwrap();
    let (store, mut ports, _) = Store::open(config.store.clone(), 1).unwrap();
    let shared = Shared::new(config, store).unwrap();
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let client = TcpStream::connect(listeners.addresses[0]).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
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
        // A reset: nobody is there to be answered when the second is handed over.
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
                let fate = worker.engine.check_deadline(connection);
                worker.settle(token, fate);
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
            let fate = worker.engine.check_deadline(connection);
            worker.settle(token, fate);
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
