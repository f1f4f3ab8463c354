//! Tests of each misbehaviour: its effect on the client, and its count in the report.

use std::collections::BTreeMap;

use http1::{ErrorKind, HeadCache, Limits, ResponseReader};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use serve::{Body, Config, Misbehaviour, Report};
use testing::http::{Client, NoAnswer};

use crate::target::{GET, Target};

fn misbehaving(kind: Misbehaviour) -> Config {
    Config { misbehave: vec![(kind, 1.0)], ..Config::default() }
}

fn only(report: &Report, kind: Misbehaviour, count: u64) {
    assert_eq!(report.misbehaved, BTreeMap::from([(kind, count)]));
}

/// The kind of error that proofload's HTTP parser reports.
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
    target.connect().send(GET);
    target.has_closed();
    let mut second = target.connect();
    second.send(GET);
    target.has_read();
    let report = target.stop();
    assert_eq!(second.try_answer().unwrap_err(), NoAnswer::Fin(0));
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
fn a_mixture_comes_as_the_seed_draws_it() {
    const SHARE: f64 = 0.08;
    let misbehave = Misbehaviour::ALL.iter().map(|&kind| (kind, SHARE)).collect();
    let target = Target::start(Config { misbehave, seed: 7, ..Config::default() });
    let mut rng = Pcg64Mcg::seed_from_u64(7);
    let (mut open, mut drawn) = (Vec::new(), BTreeMap::new());
    for _ in 0..300 {
        let kind = Misbehaviour::ALL.get((rng.random::<f64>() / SHARE) as usize).copied();
        let mut client = target.connect();
        client.send(GET);
        if kind == Some(Misbehaviour::Silent) {
            target.has_read();
        } else {
            assert_eq!(seen(&mut client, kind == Some(Misbehaviour::Unsolicited)), kind);
        }
        if let Some(kind) = kind {
            *drawn.entry(kind).or_default() += 1;
        }
        if matches!(kind, None | Some(Misbehaviour::Error | Misbehaviour::Silent)) {
            open.push(client);
        }
    }
    let report = target.stop();
    // Nothing but the FIN arrived in the meantime.
    for client in &mut open {
        assert_eq!(client.try_answer().unwrap_err(), NoAnswer::Fin(0));
    }
    assert_eq!((report.requests, report.connections_accepted, &report.misbehaved), (300, 300, &drawn));
    assert_eq!(drawn.len(), Misbehaviour::ALL.len());
}

/// The misbehaviour that a client detects. `is_stray_expected` makes it wait for stray bytes.
fn seen(client: &mut Client, is_stray_expected: bool) -> Option<Misbehaviour> {
    match client.try_answer() {
        Ok(answer) if answer.status == 503 => Some(Misbehaviour::Error),
        Ok(_) if is_stray_expected => {
            assert!(matches!(client.try_answer(), Err(NoAnswer::Wrong(_))));
            Some(Misbehaviour::Unsolicited)
        }
        Ok(_) => None,
        Err(NoAnswer::Reset) => Some(Misbehaviour::Reset),
        Err(NoAnswer::Fin(0)) => Some(Misbehaviour::Close),
        Err(NoAnswer::Fin(_)) => Some(Misbehaviour::Truncate),
        Err(NoAnswer::Nothing) => Some(Misbehaviour::Silent),
        Err(NoAnswer::Wrong(bytes)) => Some(match fault_of(&bytes) {
            ErrorKind::Malformed => Misbehaviour::Malformed,
            ErrorKind::Framing => Misbehaviour::BadFraming,
            _ => Misbehaviour::HugeHead,
        }),
    }
}
