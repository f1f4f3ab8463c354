//! Tests of limits on sizes and times.

use std::{
    io::Write,
    time::{Duration, Instant},
};

use flate2::{Compression, write::GzEncoder};
use listen::Compat;
use testing::{
    http::{Answer, Client, post_json},
    until,
};

use crate::testbed::Testbed;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn small(config: &mut listen::Config) {
    config.limits.body_bytes = 10_000;
    config.limits.inflated_bytes = 50_000;
}

/// Asserts that the answer is a 413 with this message.
#[track_caller]
fn assert_too_large(answer: &Answer, why: &str) {
    assert_eq!((answer.status, answer.json()["reason"].as_str()), (413, Some("too_large")), "{answer:?}");
    assert!(answer.text().contains(why), "{answer:?}");
}

/// An event of `bytes` bytes.
fn event(bytes: usize) -> String {
    format!("{{\"a\":\"{}\"}}", "x".repeat(bytes - 8))
}

#[test]
fn a_body_beyond_the_limit_is_refused_before_it_is_read() {
    let testbed = Testbed::with(small);
    let mut client = testbed.connect();
    client.send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 10001\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.status, answer.header("connection")), (413, Some("close")));
    assert!(client.is_closed());
    assert_eq!(testbed.connect().post("/a", event(10_000)).status, 204);
}

#[test]
fn chunks_do_not_pass_the_limit() {
    let testbed = Testbed::with(small);
    let mut client = testbed.connect();
    client.send("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunk = format!("400\r\n{}\r\n", "x".repeat(1024));
    // The listener answers but keeps reading for a while, so that no reset destroys the answer.
    client.send(chunk.repeat(100));
    assert_too_large(&client.answer(), "the body is larger than the limit of 10000 bytes");
    assert_eq!(testbed.stored("a"), "");
}

#[test]
fn chunks_within_the_limit_are_taken_however_small_it_is() {
    let testbed = Testbed::with(small);
    let chunked = |bytes: &[u8]| {
        let head = "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
        let chunk = |part: &[u8]| [format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat();
        let chunks: Vec<u8> = bytes.chunks(1_000).flat_map(chunk).collect();
        [head.as_bytes(), &chunks, b"0\r\n\r\n"].concat()
    };
    let mut client = testbed.connect();
    client.send(chunked(event(10_000).as_bytes()));
    assert_eq!(client.answer().status, 204);
    assert_eq!(testbed.stored("a").len(), 10_001);
    client.send(chunked(event(10_001).as_bytes()));
    assert_too_large(&client.answer(), "the body is larger than the limit of 10000 bytes");
}

#[test]
fn a_long_compressed_body_takes_several_turns_and_what_follows_waits() {
    let testbed = Testbed::start();
    let lines = (event(1_000) + "\n").repeat(2_000);
    let compressed = gzip(lines.as_bytes());
    assert!(compressed.len() < 32 << 10, "all in one receive buffer: {}", compressed.len());
    let mut client = testbed.connect();
    let long = post_json("/a", "Content-Encoding: gzip\r\n", &compressed);
    client.send([long, post_json("/b", "", b"{}")].concat());
    assert_eq!((client.answer().status, client.answer().status), (204, 204));
    assert_eq!(testbed.stored("a").lines().count(), 2_000);
    assert_eq!(testbed.stored("b").lines().count(), 1);
}

#[test]
fn compressed_bodies_are_inflated_within_their_limit() {
    let testbed = Testbed::with(small);
    let mut client = testbed.connect();
    let gzipped = "Content-Encoding: gzip\r\n";
    assert_eq!(client.post_with("/a", gzipped, gzip(event(49_999).as_bytes())).status, 204);
    assert_eq!(testbed.stored("a").len(), 50_000);
    let bomb = gzip(&vec![b' '; 5_000_000]);
    assert!(bomb.len() < 10_000, "within the limit of the body: {}", bomb.len());
    let too_large = "the body inflates beyond the limit of 50000 bytes";
    assert_too_large(&testbed.connect().post_with("/a", gzipped, &bomb), too_large);
    // A decompression bomb in chunks, whose length the listener does not know.
    let mut client = testbed.connect();
    client
        .send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(format!("{:x}\r\n", bomb.len()));
    client.send([&bomb[..], b"\r\n0\r\n\r\n"].concat());
    assert_too_large(&client.answer(), too_large);
    let half = gzip(event(100).as_bytes());
    let answer = testbed.connect().post_with("/a", gzipped, &half[..half.len() - 4]);
    assert_eq!(
        (answer.status, answer.json()["error"].as_str()),
        (400, Some("the body is not valid gzip data"))
    );
    assert_eq!(testbed.connect().post_with("/a", gzipped, "{}").status, 400);
    assert_eq!(testbed.stored("a").len(), 50_000);
    testbed.has_free_budget();
}

#[test]
fn a_head_beyond_the_limit_is_refused() {
    let testbed = Testbed::with(|config| config.limits.head_bytes = 1024);
    let mut client = testbed.connect();
    client.send(format!("POST /a HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "x".repeat(2_000)));
    assert_eq!(client.answer().status, 431);
    assert!(client.is_closed());
}

#[test]
fn too_many_header_fields_are_told_to_be_in_either_dress() {
    for compat in [Compat::None, Compat::fluentd()] {
        let testbed = Testbed::with(|config| config.compat = compat.clone());
        let mut client = testbed.connect();
        let fields: String = (0..150).map(|n| format!("X-{n}: v\r\n")).collect();
        client.send(format!("POST /a HTTP/1.1\r\nHost: x\r\n{fields}\r\n"));
        let answer = client.answer();
        assert!(answer.status == 431 && answer.text().contains("128 headers"), "{compat:?}: {answer:?}");
        assert!(client.is_closed());
    }
}

#[test]
fn an_answer_to_what_is_no_request_is_not_destroyed_by_a_reset() {
    let testbed = Testbed::start();
    let large_head = format!("POST /a HTTP/1.1\r\nHost: x\r\nX: {}", "x".repeat(36_000));
    let unknown_coding = "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n".to_owned();
    for (start, status) in [(large_head, 431), (unknown_coding, 501), ("nonsense\r\n\r\n".to_owned(), 400)] {
        let mut client = testbed.connect();
        let refused = || testbed.handle.statistics().requests.get(&status).copied();
        client.send(start);
        until("it is answered", || refused() == Some(1));
        // Sends the rest in several parts, like a client that sends everything before it reads.
        for _ in 0..20 {
            client.send("x".repeat(4_000));
            testbed.has_read();
        }
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("connection")), (status, Some("close")));
        assert!(client.is_closed());
    }
}

#[test]
fn a_small_compressed_body_in_chunks_fits_a_small_budget() {
    let testbed = Testbed::with(|config| {
        small(config);
        config.limits.budget_bytes = 100_000;
    });
    let compressed = gzip(event(1_000).as_bytes());
    let mut client = testbed.connect();
    client
        .send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send([format!("{:x}\r\n", compressed.len()).as_bytes(), &compressed, b"\r\n0\r\n\r\n"].concat());
    assert_eq!(client.answer().status, 204);
    // Together with its decompressor, this request exceeds the whole budget, so a retry would not help.
    let large = gzip(event(49_999).as_bytes());
    let answer = client.post_with("/a", "Content-Encoding: gzip\r\n", large);
    assert_too_large(&answer, "this request needs more than the 100000 bytes");
    assert_eq!(answer.header("retry-after"), None);
}

#[test]
fn slow_heads_and_bodies_and_idle_connections_are_not_waited_for() {
    const SHORT: Duration = Duration::from_millis(50);
    let slow = |change: fn(&mut listen::Timeouts), bytes: &str, reason: &str| {
        let testbed = Testbed::with(|config| change(&mut config.timeouts));
        let mut client = testbed.connect();
        client.send(bytes);
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("connection")), (408, Some("close")));
        assert!(client.is_closed());
        drop(client);
        let (report, _folder) = testbed.stop();
        assert_eq!(report.statistics.refused[reason], 1);
    };
    slow(|timeouts| timeouts.head = SHORT, "POST /a HTTP/1.1\r\nHo", "slow_head");
    let body = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{";
    slow(|timeouts| timeouts.body = SHORT, body, "slow_body");
    let testbed = Testbed::with(|config| config.timeouts.idle = SHORT);
    let start = Instant::now();
    assert!(testbed.connect().is_closed());
    assert!(start.elapsed() >= SHORT, "{:?}", start.elapsed());
}

#[test]
fn connections_beyond_the_limit_are_told_so() {
    let testbed = Testbed::with(|config| config.limits.connections = Some(2));
    let mut first = testbed.connect();
    let mut second = testbed.connect();
    assert_eq!((first.post("/a", "{}").status, second.post("/a", "{}").status), (204, 204));
    let mut third = testbed.connect();
    // No reset destroys the answer, even if the client has already sent bytes.
    third.send(post_json("/a", "", b"{}"));
    let answer = third.answer();
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
    assert!(third.is_closed());
    assert_eq!(first.post("/a", "{}").status, 204);
    drop(second);
    until("a place is free", || {
        let mut client = Client::connect(testbed.address).unwrap();
        client.post("/a", "{}").status == 204
    });
}

#[test]
fn the_admin_address_has_seats_of_its_own_and_not_many() {
    let testbed = Testbed::with(|config| {
        config.limits.connections = Some(1);
        config.admin = Some("127.0.0.1:0".parse().unwrap());
    });
    let admin = testbed.admin.unwrap();
    let mut first = testbed.connect();
    assert_eq!(first.post("/a", "{}").status, 204);
    assert_eq!(testbed.connect().answer().status, 503);
    let mut asking: Vec<_> = (0..16).map(|_| Client::connect(admin).unwrap()).collect();
    asking.iter_mut().for_each(|client| assert_eq!(client.get("/health").status, 200));
    assert_eq!(Client::connect(admin).unwrap().answer().status, 503);
    drop(asking);
    until("a connection may be opened", || Client::connect(admin).unwrap().get("/health").status == 200);
    assert_eq!(first.post("/a", "{}").status, 204);
}

#[test]
fn an_answer_behind_another_is_not_destroyed_by_a_reset() {
    let testbed = Testbed::start();
    let mut client = testbed.connect();
    let refused = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n";
    client.send([&post_json("/a", "", b"x")[..], refused].concat());
    until("it is answered", || testbed.handle.statistics().requests.contains_key(&404));
    for _ in 0..3 {
        client.send("the rest of a body that is not wanted");
        testbed.has_read();
    }
    assert_eq!((client.answer().status, client.answer().status), (400, 404));
    assert!(client.is_closed());
}

#[test]
fn many_empty_members_of_a_compressed_body_are_read() {
    let testbed = Testbed::start();
    let mut body = gzip(b"").repeat(3_000);
    body.extend(gzip(b"{\"n\":1}"));
    assert_eq!(testbed.connect().post_with("/a", "Content-Encoding: gzip\r\n", body).status, 204);
    assert_eq!(testbed.stored("a"), "{\"n\":1}\n");
}
