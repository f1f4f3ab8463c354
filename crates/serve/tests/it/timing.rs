//! Tests of delays, slow heads and stalls: never too early, and as late as the report says.

use std::{
    thread,
    time::{Duration, Instant},
};

use serve::{Config, Stall};
use testing::http::NoAnswer;

use crate::target::{GET, Target};

#[test]
fn a_delay_is_never_shorter_than_drawn() {
    let target = Target::start(Config { delay: "uniform:1ms..8ms".parse().unwrap(), ..Config::default() });
    let address = target.address;
    let clients = (0..8).map(|_| {
        thread::spawn(move || {
            let mut client = testing::http::Client::connect(address).unwrap();
            (0..40).for_each(|_| drop(client.send(GET).answer()));
        })
    });
    clients.collect::<Vec<_>>().into_iter().for_each(|client| client.join().unwrap());
    let report = target.stop();
    let (drawn, applied) = (&report.delay_drawn, &report.delay_applied);
    assert_eq!((drawn.count(), applied.count(), report.late_by.count()), (320, 320, 320));
    assert!(drawn.min_ns() >= 999_000 && drawn.max_ns() <= 8_010_000, "{report}");
    for quantile in [0.0, 0.1, 0.5, 0.9, 1.0] {
        let (drawn, applied) = (drawn.quantile_ns(quantile), applied.quantile_ns(quantile));
        assert!(applied >= drawn, "quantile {quantile}: applied {applied} ns, drawn {drawn} ns");
    }
    // The mean applied delay is the mean drawn delay plus the mean lateness; each histogram keeps 3 digits.
    let sum = drawn.mean_ns() + report.late_by.mean_ns();
    assert!((applied.mean_ns() / sum - 1.0).abs() < 0.002, "{report}");
}

#[test]
fn the_same_seed_draws_the_same_delays() {
    let drawn = |seed| {
        let target = Target::start(Config { delay: "exp:1ms".parse().unwrap(), seed, ..Config::default() });
        let mut client = target.connect();
        (0..30).for_each(|_| drop(client.send(GET).answer()));
        target.stop().delay_drawn
    };
    assert_eq!(drawn(1), drawn(1));
    assert_ne!(drawn(1), drawn(2));
}

#[test]
fn a_client_sees_no_answer_before_its_time() {
    let target = Target::start(Config { delay: "20ms".parse().unwrap(), ..Config::default() });
    let mut client = target.connect();
    for _ in 0..10 {
        let start = Instant::now();
        client.send(GET).answer();
        assert!(start.elapsed() >= Duration::from_millis(20), "{:?}", start.elapsed());
    }
    target.stop();
}

#[test]
fn a_slow_head_comes_bit_by_bit() {
    let target = Target::start(Config { slow_head_ns: 3_600_000_000_000, ..Config::default() });
    let mut client = target.connect();
    client.send(GET);
    let mut begin = [0; 2];
    let first = std::io::Read::read(&mut client.socket, &mut begin).unwrap();
    assert_eq!(&begin[..first], &b"HT"[..first]);
    let report = target.stop();
    // The head has about a hundred bytes, one every 36 s, so few are sent before the stop.
    assert!(matches!(client.try_answer(), Err(NoAnswer::Fin(0..50) | NoAnswer::Wrong(_))));
    assert_eq!((report.answers, report.unanswered), (0, 1));
    assert!((1..50).contains(&report.response_bytes), "{report}");
}

#[test]
fn a_slow_head_is_whole_not_before_its_time() {
    let slow = Duration::from_millis(50);
    let target = Target::start(Config { slow_head_ns: slow.as_nanos() as u64, ..Config::default() });
    let mut client = target.connect();
    for _ in 0..2 {
        let start = Instant::now();
        client.send(GET).answer();
        assert!(start.elapsed() >= slow, "{:?}", start.elapsed());
    }
    let report = target.stop();
    assert_eq!((report.answers, report.delay_applied.count()), (2, 2));
    assert!(report.delay_applied.min_ns() >= 49_900_000, "{report}");
}

#[test]
fn a_stall_freezes_everything() {
    // Stalls last from 0.3 to 0.6 s, from 0.9 to 1.2 s and so on.
    let (every, stalled) = (Duration::from_millis(600), Duration::from_millis(300));
    let stall = Stall { every_ns: every.as_nanos() as u64, for_ns: stalled.as_nanos() as u64 };
    // The target's clock starts between `earliest` and `latest`, so its stalls are known up to that difference.
    let earliest = Instant::now();
    let target = Target::start(Config { stall: Some(stall), threads: 2, ..Config::default() });
    let mut client = target.connect();
    client.send(GET).answer();
    let latest = Instant::now();
    let ended = (1..).find_map(|period| {
        thread::sleep((latest + period * every - stalled).saturating_duration_since(Instant::now()));
        // During a stall, the target does not accept connections either.
        client.send(GET);
        let mut other = target.connect();
        other.send(GET);
        let is_sent_within = Instant::now() < earliest + period * every;
        let answered = [&mut client, &mut other].map(|client| {
            client.answer();
            Instant::now()
        });
        is_sent_within.then_some((period, answered))
    });
    let (period, answered) = ended.unwrap();
    assert!(answered.iter().all(|at| *at >= earliest + period * every), "{answered:?}");
    assert!(target.stop().stalls >= u64::from(period));
}

#[test]
fn a_stop_ends_a_stall() {
    let stall = Stall { every_ns: 3_600_000_000_000, for_ns: 3_599_999_999_999 };
    let target = Target::start(Config { stall: Some(stall), ..Config::default() });
    let mut client = target.connect();
    client.send(GET);
    let report = target.stop();
    assert!(client.try_answer().is_err());
    assert_eq!((report.answers, report.stalls), (0, 1));
}
