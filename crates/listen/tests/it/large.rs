//! Tests of bodies that go to the body reader and whose lines are written in pieces.

use std::{
    fs,
    time::{Duration, Instant},
};

use listen::Level;
use testing::{http::post_json, until};

use crate::testbed::Testbed;

const NDJSON: &str = "Content-Type: application/x-ndjson\r\n";

/// Numbered events, `bytes` bytes in total.
fn lines(bytes: usize) -> String {
    let mut lines = String::new();
    for number in 0.. {
        if lines.len() >= bytes {
            break;
        }
        lines += &format!("{{\"n\":{number}}}\n");
    }
    lines
}

#[test]
fn a_large_body_is_stored_whole_and_in_its_order_at_every_level() {
    for level in [Level::Accepted, Level::Written, Level::Synced] {
        let testbed = Testbed::with(|config| config.level = level);
        let (large, mut client) = (lines(5 << 20), testbed.connect());
        // The next request on the connection must be stored after the large one.
        client.send(post_json("/a", NDJSON, large.as_bytes()));
        client.send(post_json("/a", NDJSON, b"{\"last\":1}\n"));
        let (first, second) = (client.answer(), client.answer());
        let status = if level == Level::Accepted { 202 } else { 204 };
        assert_eq!((first.status, second.status), (status, status), "{level:?}");
        let expected = format!("{large}{{\"last\":1}}\n");
        until("it is stored", || testbed.stored("a").len() == expected.len());
        assert!(testbed.stored("a") == expected, "{level:?}: other bytes");
        if level != Level::Accepted {
            // No other client has written to this file in between, so the pieces are adjacent and have one receipt.
            let level = if level == Level::Written { "written" } else { "synced" };
            let whole = format!("segment=\"a.log\"; offset=0; bytes={}; level={level}", large.len());
            assert_eq!(first.header("proofload-receipt"), Some(whole.as_str()));
        }
        let (report, _folder) = testbed.stop();
        assert_eq!((report.statistics.accepted_events_lost, report.unanswered), (0, 0));
    }
}

#[test]
fn large_bodies_share_their_syncs() {
    const DELAY: Duration = Duration::from_millis(500);
    let testbed = Testbed::with(|config| {
        config.level = Level::Synced;
        config.store.sync_delay = DELAY;
    });
    let (many, one) = (lines(20 << 10), lines(10 << 20));
    let mut clients: Vec<_> = (0..24).map(|_| testbed.connect()).collect();
    // Syncs are at least one delay apart. A written line is part of the next sync or of the one after it.
    let stored = |bytes: usize, begun: Instant| {
        let length = || fs::metadata(testbed.folder().join("a.log")).map_or(0, |file| file.len());
        until("it is written", || length() == bytes as u64);
        begun.elapsed().as_millis() / DELAY.as_millis() + 2
    };
    let begun = Instant::now();
    for client in &mut clients {
        client.send(post_json("/a", NDJSON, many.as_bytes()));
    }
    let mut most = stored(24 * many.len(), begun);
    clients.iter_mut().for_each(|client| assert_eq!(client.answer().status, 204));
    let begun = Instant::now();
    clients[0].send(post_json("/a", NDJSON, one.as_bytes()));
    most += stored(24 * many.len() + one.len(), begun);
    assert_eq!(clients[0].answer().status, 204);
    let syncs = testbed.handle.statistics().syncs;
    assert!(u128::from(syncs) <= most, "{syncs} syncs, at most {most} expected");
}

#[test]
fn a_large_body_with_a_mistake_is_refused_with_its_place_and_its_key_is_free() {
    let testbed = Testbed::start();
    let key = format!("{NDJSON}Idempotency-Key: k\r\n");
    let good = lines(100 << 10);
    let mut client = testbed.connect();
    let refused = client.post_with("/a", &key, good.clone() + "{\"bad\n");
    assert_eq!((refused.status, refused.json()["byte"].as_u64()), (400, Some(good.len() as u64 + 5)));
    assert_eq!(testbed.stored("a"), "");
    let stored = client.post_with("/a", &key, &good);
    let again = client.post_with("/a", &key, &good);
    assert_eq!((stored.status, again.status), (204, 204));
    assert_eq!(again.header("proofload-replayed"), Some("true"));
    assert_eq!(client.post_with("/a", &key, good.clone() + "{}\n").status, 422);
    assert!(testbed.stored("a") == good);
    // A request without events has no piece.
    assert_eq!(client.post("/a", format!("[{}]", " ".repeat(100 << 10))).status, 204);
}

#[test]
fn a_stop_waits_for_a_body_that_is_being_read() {
    let testbed = Testbed::start();
    let large = lines(8 << 20);
    let mut client = testbed.connect();
    client.send(post_json("/a", NDJSON, large.as_bytes()));
    until("it has come", || testbed.handle.statistics().received_bytes as usize >= large.len());
    let (report, folder) = testbed.stop();
    assert_eq!((client.answer().status, report.unanswered), (204, 0));
    assert!(fs::read_to_string(folder.path().join("a.log")).unwrap() == large);
}
