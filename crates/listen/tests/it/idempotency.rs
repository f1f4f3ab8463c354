//! Tests of requests that repeat an idempotency key.

use listen::{Compat, Config, Level};
use testing::{http::post_json, until};

use crate::testbed::Testbed;

/// Configures a path with the event's `kind`, so that each kind has a folder.
fn by_kind(config: &mut Config) {
    let template = format!("{}/${{tag}}-${{kind}}/e", config.store.template.folder().display());
    config.store.template = template.parse().unwrap();
}

#[test]
fn a_repeat_is_answered_as_the_first_and_stored_once() {
    let testbed = Testbed::with(|config| config.threads = 2);
    let key = "Idempotency-Key: 4711\r\n";
    let first = testbed.connect().post_with("/a", key, "{\"n\":1}");
    assert_eq!((first.status, first.header("proofload-replayed")), (204, None));
    for _ in 0..8 {
        let again = testbed.connect().post_with("/a", key, "{\"n\":1}");
        assert_eq!((again.status, again.header("proofload-replayed")), (204, Some("true")));
        assert_eq!(again.header("proofload-receipt"), first.header("proofload-receipt"));
    }
    assert_eq!(testbed.connect().post_with("/a", key, "{\"n\":2}").status, 422);
    assert_eq!(testbed.connect().post_with("/b", key, "{\"n\":1}").status, 204);
    assert_eq!(testbed.stored("a"), "{\"n\":1}\n");
    assert_eq!(testbed.stored("b"), "{\"n\":1}\n");
    assert_eq!(testbed.handle.statistics().replayed, 8);
}

#[test]
fn a_repeat_is_not_told_more_than_the_first_came_to() {
    let testbed = Testbed::start();
    let ask = |level: &str| format!("Idempotency-Key: 1\r\nProofload-Ack: {level}\r\n");
    let first = testbed.connect().post_with("/a", &ask("accepted"), "{}");
    assert_eq!((first.status, first.header("proofload-receipt")), (202, Some("level=accepted")));
    let again = testbed.connect().post_with("/a", &ask("synced"), "{}");
    assert_eq!((again.status, again.header("proofload-replayed")), (202, Some("true")));
    assert_eq!(again.header("proofload-receipt"), Some("level=accepted"));
    until("it is stored", || testbed.stored("a") == "{}\n");
}

#[test]
fn a_key_whose_request_failed_can_be_used_again() {
    let testbed = Testbed::start();
    let key = "Idempotency-Key: 4711\r\n";
    assert_eq!(testbed.connect().post_with("/a", key, "x").status, 400);
    assert_eq!(testbed.connect().post_with("/a", key, "{}").status, 204);
    for wrong in ["Idempotency-Key:\r\n", &format!("Idempotency-Key: {}\r\n", "x".repeat(256))] {
        assert_eq!(testbed.connect().post_with("/a", wrong, "{}").status, 400, "{wrong}");
    }
}

#[test]
fn repeats_at_the_same_time_are_stored_once() {
    let testbed = Testbed::with(|config| {
        config.threads = 2;
        config.level = Level::Synced;
    });
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let post = || {
            let mut client = testbed.connect();
            loop {
                client.send(post_json("/a", "Idempotency-Key: k\r\n", b"{}"));
                let answer = client.answer();
                if answer.status != 409 {
                    return answer.status;
                }
                assert_eq!(answer.header("retry-after"), Some("1"));
            }
        };
        let clients: Vec<_> = (0..16).map(|_| scope.spawn(post)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert_eq!(statuses, [204; 16]);
    assert_eq!(testbed.stored("a"), "{}\n");
}

#[test]
fn a_repeat_of_what_was_stored_in_part_stores_the_rest() {
    let testbed = Testbed::with(by_kind);
    // A file with the folder's name prevents the creation of the folder.
    let obstacle = testbed.folder().join("a-y");
    std::fs::write(&obstacle, "").unwrap();
    let line = |kind: &str| format!("{{\"kind\":\"{kind}\"}}\n");
    let body = ["x", "y", "z", "y"].map(line).concat();
    let post = || testbed.connect().post_with("/a", "Idempotency-Key: 1\r\n", &body);
    let answer = post();
    assert_eq!((answer.status, answer.header("proofload-stored")), (500, Some("maybe")), "{answer:?}");
    std::fs::remove_file(&obstacle).unwrap();
    let mut last = None;
    until("the rest is stored", || last.insert(post()).status == 204);
    let mut segments: Vec<_> = last
        .unwrap()
        .receipts()
        .into_iter()
        .map(|receipt| (receipt.segment, receipt.offset, receipt.bytes))
        .collect();
    segments.sort();
    let place = |kind: &str, bytes: usize| (format!("a-{kind}/e.log"), 0, bytes);
    assert_eq!(segments, [place("x", 13), place("y", 26), place("z", 13)]);
    for (kind, count) in [("x", 1), ("y", 2), ("z", 1)] {
        assert_eq!(testbed.stored(&format!("a-{kind}/e")), line(kind).repeat(count));
    }
    assert_eq!(post().header("proofload-replayed"), Some("true"));
    assert_eq!(testbed.handle.statistics().stored_bytes, 52);
}

#[test]
fn the_rest_of_what_was_stored_in_part_is_as_the_first_request_would_have_made_it() {
    let testbed = Testbed::with(|config| {
        by_kind(config);
        config.compat = Compat::fluentd();
        config.rules = events::Rules::fluentd();
        config.request_fields.http_headers = true;
    });
    let obstacle = testbed.folder().join("a-y");
    std::fs::write(&obstacle, "").unwrap();
    // 1.5 MiB of each kind. That is two pieces with the first request's headers, and one or three with those of a
    // repeat.
    let line = |number: usize| format!("{{\"kind\":\"{}\",\"n\":{number}}}\n", ["x", "y"][number / 5_000]);
    let body: String = (0..10_000).map(line).collect();
    let post = |name: &str, value: usize| {
        let headers = format!(
            "Content-Type: application/x-ndjson\r\nIdempotency-Key: 1\r\n{name}: {}\r\n",
            "v".repeat(value)
        );
        testbed.connect().post_with("/a?time=1", &headers, &body)
    };
    assert_eq!(post("First", 180).status, 500);
    assert_eq!(post("Second", 600).status, 500);
    std::fs::remove_file(&obstacle).unwrap();
    until("the rest is stored", || post("Third", 1).status == 200);
    let stored = testbed.stored("a-x/e") + &testbed.stored("a-y/e");
    let mut numbers = Vec::new();
    for line in stored.lines() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        numbers.push(event["n"].as_u64().unwrap());
        assert!(event["HTTP_FIRST"].is_string(), "{line}");
    }
    assert!(numbers.into_iter().eq(0..10_000), "each once");
}

#[test]
fn another_type_or_another_query_that_holds_the_events_is_another_body() {
    let key = "Idempotency-Key: 1\r\n";
    let testbed = Testbed::start();
    let mut client = testbed.connect();
    assert_eq!(client.post_with("/a", key, "{}").status, 204);
    let ndjson = format!("{key}Content-Type: application/x-ndjson\r\n");
    assert_eq!(client.post_with("/a", &ndjson, "{}").status, 422);
    assert_eq!(client.post_with("/a", key, "{}").status, 204);
    let testbed = Testbed::with(|config| {
        config.compat = Compat::fluentd();
        config.rules = events::Rules::fluentd();
    });
    let mut client = testbed.connect();
    let mut post = |query: &str| {
        let headers = format!("{key}Content-Type: \r\n");
        client.post_with(&format!("/a?json={query}"), &headers, "").status
    };
    assert_eq!([post("{%22n%22:1}"), post("{%22n%22:1}"), post("{%22n%22:2}")], [200, 200, 422]);
    assert_eq!(testbed.stored("a"), "{\"n\":1}\n");
}
