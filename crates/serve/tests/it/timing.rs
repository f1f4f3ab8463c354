//! Delays, slow heads and stalls: never early, and late by no more than the report says.

use std::time::{Duration, Instant};

use serve::{Config, Stall};

use crate::target::{GET, Target};

#[test]
fn a_delay_is_never_shorter_than_drawn() {
    let target = Target::start(Config { delay: "uniform:1ms..8ms".parse().unwrap(), ..Config::default() });
    let address = target.address;
    let clients = (0..8).map(|_| {
        std::thread::spawn(move || {
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
    // The mean of what was applied is that of what was drawn and the lateness; 3 digits are kept of each.
    let sum = drawn.mean_ns() + report.late_by.mean_ns();
    assert!((applied.mean_ns() / sum - 1.0).abs() < 0.002, "{report}");
    // Half of what is drawn at the median: a crowded machine makes some.
    assert!(report.late_by.quantile_ns(0.5) < 2_000_000, "{report}");
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
    let slow = Duration::from_millis(150);
    let config = Config { slow_head_ns: slow.as_nanos() as u64, ..Config::default() };
    let target = Target::start(config);
    let mut client = target.connect();
    for _ in 0..2 {
        let start = Instant::now();
        client.send(GET);
        let mut arrivals = Vec::new();
        let mut bytes = Vec::new();
        let end = loop {
            let mut buffer = [0; 4096];
            let n = std::io::Read::read(&mut client.socket, &mut buffer).unwrap();
            arrivals.push(start.elapsed());
            bytes.extend_from_slice(&buffer[..n]);
            if bytes.windows(4).any(|w| w == b"\r\n\r\n") && bytes.ends_with(b"proofload-ser") {
                break start.elapsed();
            }
        };
        assert!(arrivals.len() > 20, "{} pieces", arrivals.len());
        assert!(arrivals[0] < slow / 2, "the first byte came after {:?}", arrivals[0]);
        assert!(end >= slow, "all came within {end:?}");
    }
    let report = target.stop();
    assert_eq!((report.answers, report.delay_applied.count()), (2, 2));
    assert!(report.delay_applied.min_ns() >= 149_900_000, "{report}");
    // Lateness does not add up over the pieces; a crowded machine makes some.
    assert!(report.late_by.max_ns() < 500_000_000, "{report}");
}

#[test]
fn a_stall_freezes_everything() {
    // Stalls from 0.5 to 1 s and from 1.5 to 2 s. On a crowded machine the client is late by tens of milliseconds.
    let stall = Stall { every_ns: 1_000_000_000, for_ns: 500_000_000 };
    let start = Instant::now();
    let target = Target::start(Config { stall: Some(stall), threads: 2, ..Config::default() });
    let mut times = Vec::new();
    while start.elapsed() < Duration::from_millis(2_200) {
        // Every other request on a new connection: accepts stand still as well.
        let mut client = target.connect();
        for _ in 0..2 {
            let sent = start.elapsed();
            client.send(GET).answer();
            times.push((sent, start.elapsed() - sent));
        }
        // A client that asks now and then, so that its times are spread.
        std::thread::sleep(Duration::from_millis(1));
    }
    let report = target.stop();
    assert!(report.stalls >= 2, "{report}");
    let long: Vec<_> = times.iter().filter(|(_, took)| *took > Duration::from_millis(250)).collect();
    assert!(long.len() >= 2, "{long:?}");
    // Nothing was answered within a stall, but for what the client saw late.
    let within = |at: Duration| (750..1_000).contains(&(at.as_millis() % 1_000));
    assert!(!times.iter().any(|(sent, took)| within(*sent + *took)), "{times:?}");
}
