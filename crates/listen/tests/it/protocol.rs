//! Tests of requests and their answers.

use std::{io::Write, net::Shutdown};

use testing::{
    http::{Client, post_json},
    until,
};

use crate::testbed::Testbed;

const EVENT: &str = r#"{"board_id":10,"playtime":5}"#;

#[test]
fn events_are_stored_as_they_were_sent() {
    let testbed = Testbed::start();
    let mut client = testbed.connect();
    assert_eq!(client.post("/a/b", EVENT).status, 204);
    assert_eq!(client.post("/a/b", format!("[{EVENT},{EVENT}]")).status, 204);
    assert_eq!(client.post("/a/b", format!("{EVENT}\n{EVENT}\n")).status, 204);
    let ndjson = "Content-Type: application/x-ndjson\r\n";
    assert_eq!(client.post_with("/a/b", ndjson, format!("{EVENT}\n{EVENT}")).status, 204);
    client.send("PUT /a/b HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}");
    assert_eq!(client.answer().status, 204);
    assert_eq!(testbed.stored("a.b"), format!("{}{{}}\n", format!("{EVENT}\n").repeat(7)));
}

#[test]
fn an_empty_array_stores_nothing_and_is_a_success() {
    let testbed = Testbed::start();
    let answer = testbed.connect().post("/a", "[]");
    assert_eq!((answer.status, answer.header("proofload-receipt")), (204, Some("level=written")));
    assert_eq!(testbed.stored("a"), "");
}

#[test]
fn a_mistake_is_named_with_its_place_and_nothing_is_stored() {
    let testbed = Testbed::start();
    let mut client = testbed.connect();
    let answer = client.post("/a", "{\"a\":1}\n{\"b\":}\n");
    assert_eq!((answer.status, answer.header("content-type")), (400, Some("application/json")));
    let error = answer.json();
    assert_eq!((error["line"].as_u64(), error["column"].as_u64()), (Some(2), Some(6)), "{error}");
    assert_eq!(client.post("/a", "7").status, 400);
    assert_eq!(client.post("/a", "").status, 400);
    // The connection stays open.
    assert_eq!(client.post("/a", EVENT).status, 204);
    assert_eq!(testbed.stored("a"), format!("{EVENT}\n"));
}

#[test]
fn a_request_may_come_in_any_pieces() {
    let testbed = Testbed::start();
    let mut client = testbed.connect();
    let bytes = post_json("/a", "", EVENT.as_bytes());
    for piece in [1, 2, 7] {
        for part in bytes.chunks(piece) {
            client.send(part);
        }
        assert_eq!(client.answer().status, 204);
    }
    let chunked = "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"a\":\r\n2;x=y\r\n1}\r\n0\r\nT: u\r\n\r\n";
    for byte in chunked.as_bytes().chunks(1) {
        client.send(byte);
    }
    assert_eq!(client.answer().status, 204);
    assert_eq!(testbed.stored("a"), format!("{0}\n{0}\n{0}\n{{\"a\":1}}\n", EVENT));
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let testbed = Testbed::start();
    let mut client = testbed.connect();
    let mut bytes = Vec::new();
    for number in 0..200 {
        let level = ["accepted", "written", "synced"][number % 3];
        let ack = format!("Proofload-Ack: {level}\r\n");
        bytes.extend(post_json("/a", &ack, format!("{{\"n\":{number}}}").as_bytes()));
        if number % 50 == 7 {
            bytes.extend(post_json("/a", "", b"nonsense"));
        }
    }
    client.send(&bytes);
    for number in 0..200 {
        assert_eq!(client.answer().status, [202, 204, 204][number % 3]);
        if number % 50 == 7 {
            assert_eq!(client.answer().status, 400);
        }
    }
    let expected: String = (0..200).map(|number| format!("{{\"n\":{number}}}\n")).collect();
    assert_eq!(testbed.stored("a"), expected);
}

#[test]
fn lists_have_empty_elements_and_what_can_count_once_comes_once() {
    let testbed = Testbed::start();
    let status = |fields: &str| {
        let mut client = testbed.connect();
        client.send(format!("POST /a HTTP/1.1\r\nHost: x\r\n{fields}Content-Length: 2\r\n\r\n{{}}"));
        let answer = client.answer();
        // An interim answer is optional if the body has already arrived.
        if answer.status == 100 { client.answer().status } else { answer.status }
    };
    for sound in [
        "Content-Encoding: identity\r\n",
        "Content-Encoding: ,identity,\r\n",
        "Content-Encoding:\r\n",
        "Expect: 100-continue,\r\n",
        "Expect: , 100-Continue\r\n",
        "Authorization: Bearer a\r\n",
    ] {
        assert_eq!(status(sound), 204, "{sound}");
    }
    assert_eq!(status("Content-Encoding: gzip, gzip\r\n"), 415);
    assert_eq!(status("Expect: 100-continue, a pony\r\n"), 417);
    for name in ["Authorization", "Content-Encoding", "Idempotency-Key"] {
        let two = format!("{name}: a\r\n{}: a\r\n", name.to_lowercase());
        let mut client = testbed.connect();
        client.send(format!("POST /a HTTP/1.1\r\nHost: x\r\n{two}Content-Length: 2\r\n\r\n{{}}"));
        let answer = client.answer();
        assert_eq!(answer.status, 400, "{name}");
        assert!(answer.json()["error"].as_str().is_some_and(|why| why.contains(name)), "{answer:?}");
    }
    // Some clients send the encoding as a list with one element.
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(b"{}").unwrap();
    let gzip = gzip.finish().unwrap();
    for fields in ["Content-Encoding: gzip,\r\n", "Content-Encoding: ,x-gzip, identity\r\n"] {
        assert_eq!(testbed.connect().post_with("/a", fields, &gzip).status, 204, "{fields}");
    }
}

#[test]
fn what_cannot_be_taken_is_told_why() {
    let testbed = Testbed::start();
    for (request, status, header) in [
        ("GET /a HTTP/1.1\r\nHost: x\r\n\r\n", 405, Some(("allow", "POST, PUT"))),
        ("DELETE /a HTTP/1.1\r\nHost: x\r\n\r\n", 405, Some(("allow", "POST, PUT"))),
        ("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", 404, None),
        ("POST /a%ff/b HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", 400, None),
        ("POST /a%2 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", 400, None),
        ("POST /a HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", 400, Some(("connection", "close"))),
        ("POST /a HTTP/1.1\r\nHost: x\r\nHost: y\r\nContent-Length: 2\r\n\r\n{}", 400, None),
        ("POST /a HTTP/1.1\r\nHost: x\r\nContent-Type: image/png\r\nContent-Length: 2\r\n\r\n{}", 415, None),
        (
            "POST /a HTTP/1.1\r\nHost: x\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\n{}",
            415,
            Some(("accept-encoding", "gzip, deflate, zstd")),
        ),
        ("POST /a HTTP/1.1\r\nHost: x\r\nExpect: a pony\r\nContent-Length: 2\r\n\r\n{}", 417, None),
        ("POST /a HTTP/1.1\r\nHost: x\r\nProofload-Ack: maybe\r\nContent-Length: 2\r\n\r\n{}", 400, None),
        ("POST /a?time=soon HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", 400, None),
        ("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n", 400, Some(("connection", "close"))),
        ("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501, None),
        ("POST /a HTTP/2.0\r\nHost: x\r\n\r\n", 505, None),
        ("EHLO mail\r\n\r\n", 400, None),
        ("\u{16}\u{3}\u{1}", 400, None),
    ] {
        let mut client = testbed.connect();
        client.send(request);
        let answer = client.answer();
        assert_eq!(answer.status, status, "{request:?}: {answer:?}");
        assert!(answer.json()["error"].as_str().is_some_and(|why| why.len() > 10), "{answer:?}");
        if let Some((name, value)) = header {
            assert_eq!(answer.header(name), Some(value), "{request:?}");
        }
    }
    assert_eq!(testbed.stored("a"), "");
}

#[test]
fn a_continuation_is_only_asked_for_what_is_wanted() {
    let testbed = Testbed::start();
    let mut client = testbed.connect();
    client.send("POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    assert_eq!(client.answer().status, 100);
    client.send("{}");
    assert_eq!(client.answer().status, 204);
    client.send("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.status, answer.header("connection")), (404, Some("close")));
    assert!(client.is_closed());
}

#[test]
fn connections_end_as_the_client_asks() {
    let testbed = Testbed::with(|config| config.limits.requests_per_connection = Some(2));
    let mut client = testbed.connect();
    assert_eq!(client.post_with("/a", "Connection: close\r\n", "{}").header("connection"), Some("close"));
    assert!(client.is_closed());
    let mut client = testbed.connect();
    client.send("POST /a HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}");
    assert_eq!(client.answer().header("connection"), Some("close"));
    assert!(client.is_closed());
    let mut client = testbed.connect();
    client.send("POST /a HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n{}");
    assert_eq!(client.answer().header("connection"), Some("keep-alive"));
    assert_eq!(client.post("/a", "{}").header("connection"), Some("close"));
    assert!(client.is_closed());
}

#[test]
fn a_client_that_closes_its_side_gets_its_answer() {
    let testbed = Testbed::start();
    let mut client = testbed.connect();
    client.send(post_json("/a", "Proofload-Ack: synced\r\n", b"{}"));
    client.socket.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.answer().status, 204);
    assert!(client.is_closed());
}

#[test]
fn a_client_that_goes_away_leaves_what_it_sent_whole() {
    let testbed = Testbed::start();
    let mut client = testbed.connect();
    client.send(post_json("/a", "", b"{\"whole\":1}"));
    drop(client);
    let mut client = testbed.connect();
    let half = post_json("/a", "", b"{\"half\":1}");
    client.send(&half[..half.len() - 3]);
    drop(client);
    until("the whole one is stored", || testbed.stored("a") == "{\"whole\":1}\n");
    until("both are closed", || testbed.handle.statistics().connections_open == 0);
    assert_eq!(testbed.stored("a"), "{\"whole\":1}\n");
}

#[test]
fn only_who_has_a_credential_may_post() {
    let testbed = Testbed::with(|config| {
        config.credentials = vec![
            listen::Credential::Bearer("s3cret".into()),
            listen::Credential::Basic { user: "u".into(), password: "p".into() },
        ];
    });
    let mut client = testbed.connect();
    let answer = client.post("/a", "{}");
    let challenge = "Bearer realm=\"proofload\", Basic realm=\"proofload\"";
    assert_eq!((answer.status, answer.header("www-authenticate")), (401, Some(challenge)));
    assert_eq!(client.post_with("/a", "Authorization: Bearer s3cre\r\n", "{}").status, 401);
    assert_eq!(client.post_with("/a", "Authorization: Bearer s3cret\r\n", "{}").status, 204);
    assert_eq!(client.post_with("/a", "Authorization: Basic dTpw\r\n", "{}").status, 204);
    assert_eq!(client.get("/metrics").status, 401);
    assert_eq!(client.get("/health").status, 200);
    assert_eq!(testbed.stored("a"), "{}\n{}\n");
}

#[test]
fn health_and_metrics_are_told_on_both_ports() {
    let testbed = Testbed::with(|config| config.admin = Some("127.0.0.1:0".parse().unwrap()));
    let mut client = testbed.connect();
    assert_eq!(client.post("/a", "[{},{}]").status, 204);
    assert_eq!(client.post("/a", "x").status, 400);
    for address in [testbed.address, testbed.admin.unwrap()] {
        let mut client = Client::connect(address).unwrap();
        let health = client.get("/health");
        assert_eq!((health.status, health.json()["status"].as_str()), (200, Some("ok")));
        let head = client.send("HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n").answer();
        assert!(head.status == 200 && head.header("content-length") != Some("0"), "{head:?}");
        let metrics = client.get("/metrics");
        for line in [
            "proofload_listen_requests_total{status=\"204\"} 1",
            "proofload_listen_requests_total{status=\"400\"} 1",
            "proofload_listen_events_total{level=\"written\"} 2",
            "proofload_listen_refused_total{reason=\"malformed\"} 1",
            "proofload_listen_stored_bytes_total 6",
            "proofload_listen_budget_used_bytes 0",
            "proofload_listen_sync_failures_total 0",
            "proofload_listen_answer_seconds_count 1",
            "# EOF",
        ] {
            assert!(metrics.text().lines().any(|found| found == line), "{line} in {}", metrics.text());
        }
    }
    assert_eq!(Client::connect(testbed.admin.unwrap()).unwrap().post("/a", "{}").status, 405);
}

#[test]
fn a_path_names_the_tag() {
    let testbed = Testbed::with(|config| config.tag_prefix = Some("p".into()));
    let mut client = testbed.connect();
    for path in ["/a/b", "//a//b/", "/a/%62", "http://host/a/b"] {
        assert_eq!(client.post(path, "{}").status, 204, "{path}");
    }
    assert_eq!(testbed.stored("p.a.b"), "{}\n".repeat(4));
    // An event's file is inside the folder, whatever the tag is.
    assert_eq!(client.post("/..%2f..%2fx", "{}").status, 204);
    assert!(!testbed.folder().parent().unwrap().join("x.log").exists());
}

#[test]
fn a_tag_is_not_of_any_length() {
    let testbed = Testbed::with(|config| config.tag_prefix = Some("p".into()));
    let mut client = testbed.connect();
    assert_eq!(client.post(&format!("/{}", "a".repeat(1_022)), "{}").status, 204);
    for path in [format!("/{}", "a".repeat(1_023)), "/a".repeat(600), format!("/{}", "%C3%A4".repeat(600))] {
        let answer = client.post(&path, "{}");
        assert_eq!(answer.status, 414, "{answer:?}");
        assert!(answer.text().contains("1024"), "{answer:?}");
    }
    assert_eq!(testbed.handle.statistics().refused["path"], 3);
}

#[test]
fn a_time_in_the_query_is_that_of_the_events() {
    let testbed =
        Testbed::with(|config| config.format = events::LineFormat::OutFile { time: true, tag: true });
    let mut client = testbed.connect();
    assert_eq!(client.post("/a?time=1578905529.25", "{}").status, 204);
    assert_eq!(client.post("/a?time=2020-01-13T17%3A52%3A09%2B09%3A00", "{}").status, 204);
    assert_eq!(testbed.stored("a"), "2020-01-13T08:52:09Z\ta\t{}\n".repeat(2));
}

#[test]
fn answers_carry_a_date_if_asked_to() {
    let testbed = Testbed::with(|config| config.date = true);
    let before = jiff::Timestamp::now().as_second();
    let answer = testbed.connect().post("/a", "{}");
    let date = answer.header("date").unwrap();
    assert!(date.len() == 29 && date.ends_with(" GMT"), "{date}");
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(date).unwrap();
    assert!((before..=jiff::Timestamp::now().as_second()).contains(&date.as_second()), "{date}");
}

#[test]
fn answers_that_are_not_taken_do_not_stop_others() {
    let testbed = Testbed::start();
    let mut deaf = testbed.connect();
    // More answers than the socket buffers of both sides can hold.
    let bytes = post_json("/a", "Proofload-Ack: accepted\r\n", b"x").repeat(2_000);
    deaf.socket.set_nonblocking(true).unwrap();
    let mut before = 0;
    until("nothing more is taken", || {
        let is_full = deaf.socket.write(&bytes).is_err();
        let received = testbed.handle.statistics().received_bytes;
        is_full && std::mem::replace(&mut before, received) == received
    });
    assert_eq!(testbed.connect().post("/b", "{}").status, 204);
}
