//! Misbehaviour: what the client sees, and that it is counted.

use std::{collections::BTreeMap, time::Duration};

use http1::{ErrorKind, HeadCache, Limits, ResponseReader};
use serve::{Body, Config, Misbehaviour, Report};
use testing::http::{Client, NoAnswer};

use crate::target::{GET, Target};

fn misbehaving(kind: Misbehaviour) -> Config {
    Config { misbehave: vec![(kind, 1.0)], ..Config::default() }
}

fn only(report: &Report, kind: Misbehaviour, count: u64) {
    assert_eq!(report.misbehaved, BTreeMap::from([(kind, count)]));
}

/// What our own client calls it.
fn fault_of(bytes: &[u8]) -> ErrorKind {
    let mut reader = ResponseReader::new(Limits::default());
    reader.feed_cached(bytes, false, &mut HeadCache::default()).unwrap_err().kind()
}

#[test]
fn error_answers_with_the_error_status() {
    let target = Target::start(Config { error_status: 500, ..misbehaving(Misbehaviour::Error) });
    let mut client = target.connect();
    for _ in 0..3 {
        let answer = client.send(GET).answer();
        assert_eq!((answer.status, answer.header("connection")), (500, None));
    }
    let report = target.stop();
    only(&report, Misbehaviour::Error, 3);
    assert_eq!((report.answers, report.answers_by_status[&500]), (3, 3));
}

#[test]
fn reset_is_a_reset() {
    let target = Target::start(misbehaving(Misbehaviour::Reset));
    assert_eq!(target.connect().send(GET).try_answer().unwrap_err(), NoAnswer::Reset);
    let report = target.stop();
    only(&report, Misbehaviour::Reset, 1);
    assert_eq!((report.requests, report.answers, report.response_bytes), (1, 0, 0));
}

#[test]
fn close_is_a_fin_even_when_more_was_sent() {
    let target = Target::start(misbehaving(Misbehaviour::Close));
    assert_eq!(target.connect().send(GET).try_answer().unwrap_err(), NoAnswer::Fin(0));
    assert_eq!(target.connect().send(GET.repeat(10)).try_answer().unwrap_err(), NoAnswer::Fin(0));
    let report = target.stop();
    only(&report, Misbehaviour::Close, 2);
    assert_eq!((report.requests, report.response_bytes), (2, 0));
}

#[test]
fn truncate_sends_half_the_body() {
    for (size, chunk_bytes) in [(1_000, None), (1_000_000, None), (1_000, Some(100)), (1, None)] {
        let body = Body::Size(size);
        let target = Target::start(Config { body, chunk_bytes, ..misbehaving(Misbehaviour::Truncate) });
        let mut client = target.connect();
        client.send(GET);
        let got = client.try_answer().unwrap_err();
        let report = target.stop();
        only(&report, Misbehaviour::Truncate, 1);
        assert_eq!(got, NoAnswer::Fin(report.response_bytes as usize));
        if chunk_bytes.is_none() {
            let head = 96 + size.to_string().len() as u64 - 1;
            assert!(report.response_bytes.abs_diff(head + size / 2) < 40, "{}", report.response_bytes);
        }
    }
}

#[test]
fn truncate_of_an_answer_without_a_body_cuts_the_head() {
    let target = Target::start(misbehaving(Misbehaviour::Truncate));
    let mut client = target.connect();
    client.send(b"HEAD / HTTP/1.1\r\nHost: target\r\n\r\n");
    assert!(matches!(client.try_answer().unwrap_err(), NoAnswer::Fin(30..100)));
    only(&target.stop(), Misbehaviour::Truncate, 1);
}

#[test]
fn malformed_and_bad_framing_and_huge_head_are_faults_of_their_class() {
    for (kind, fault) in [
        (Misbehaviour::Malformed, ErrorKind::Malformed),
        (Misbehaviour::BadFraming, ErrorKind::Framing),
        (Misbehaviour::HugeHead, ErrorKind::TooLarge),
    ] {
        let target = Target::start(misbehaving(kind));
        match target.connect().send(GET).try_answer().unwrap_err() {
            NoAnswer::Wrong(bytes) => assert_eq!(fault_of(&bytes), fault),
            other => panic!("{kind}: {other:?}"),
        }
        let report = target.stop();
        only(&report, kind, 1);
        assert_eq!(report.answers, 0);
    }
}

#[test]
fn silent_never_answers_and_goes_when_the_client_does() {
    let target = Target::start(misbehaving(Misbehaviour::Silent));
    let mut client = target.connect();
    client.send(GET).timeout(Duration::from_millis(200));
    assert_eq!(client.try_answer().unwrap_err(), NoAnswer::Nothing);
    drop(client);
    target.has_closed();
    let mut second = target.connect();
    second.send(GET).timeout(Duration::from_millis(100));
    assert_eq!(second.try_answer().unwrap_err(), NoAnswer::Nothing);
    let report = target.stop();
    only(&report, Misbehaviour::Silent, 2);
    assert_eq!((report.answers, report.clients_gone, report.unanswered), (0, 0, 0));
    assert_eq!(report.connections_peak, 1, "the first connection must be closed when its client is gone");
}

#[test]
fn unsolicited_is_a_correct_answer_and_stray_bytes() {
    let target = Target::start(misbehaving(Misbehaviour::Unsolicited));
    let mut client = target.connect();
    client.send(GET);
    assert_eq!(client.answer().status, 200);
    match client.try_answer().unwrap_err() {
        NoAnswer::Wrong(bytes) => assert_eq!(fault_of(&bytes), ErrorKind::Malformed),
        other => panic!("{other:?}"),
    }
    let report = target.stop();
    only(&report, Misbehaviour::Unsolicited, 1);
    assert_eq!(report.answers, 1);
}

#[test]
fn a_mixture_is_counted_as_the_client_sees_it() {
    let share = |kind| (kind, 0.08);
    let config = Config {
        misbehave: Misbehaviour::ALL.iter().map(|&kind| share(kind)).collect(),
        threads: 2,
        seed: 7,
        ..Config::default()
    };
    let target = Target::start(config);
    let address = target.address;
    // Many at once: those who get no answer wait in vain for a while.
    let clients = (0..48).map(|_| std::thread::spawn(move || seen(address, 25))).collect::<Vec<_>>();
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for client in clients {
        for (what, count) in client.join().unwrap() {
            *counts.entry(what).or_default() += count;
        }
    }
    let report = target.stop();
    assert_eq!((report.requests, report.connections_accepted), (1_200, 1_200));
    for &kind in Misbehaviour::ALL {
        assert_eq!(counts.get(kind.name()), report.misbehaved.get(&kind), "{kind} {counts:?} {report}");
    }
    assert_eq!(counts["sound"] + counts["unsolicited"], report.answers_by_status[&200]);
}

/// What a client sees in `n` requests, each on its own connection, under the name of the misbehaviour.
fn seen(address: std::net::SocketAddr, n: u32) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for _ in 0..n {
        let mut client = Client::connect(address).unwrap();
        client.send(GET).timeout(Duration::from_millis(400));
        let what = match client.try_answer() {
            Ok(answer) if answer.status == 503 => "error",
            Ok(_) => match client.timeout(Duration::from_millis(5)).try_answer() {
                Err(NoAnswer::Wrong(_)) => "unsolicited",
                _ => "sound",
            },
            Err(NoAnswer::Reset) => "reset",
            Err(NoAnswer::Fin(0)) => "close",
            Err(NoAnswer::Fin(_)) => "truncate",
            Err(NoAnswer::Nothing) => "silent",
            Err(NoAnswer::Wrong(bytes)) => match fault_of(&bytes) {
                ErrorKind::Malformed => "malformed",
                ErrorKind::Framing => "bad-framing",
                _ => "huge-head",
            },
        };
        *counts.entry(what.to_owned()).or_default() += 1;
    }
    counts
}
