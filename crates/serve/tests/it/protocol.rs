//! Tests of HTTP/1.1 as the standards define it.

use std::{io::Write, net::Shutdown, time::Duration};

use serve::{Body, Config};
use testing::{http::NoAnswer, until};

use crate::target::{GET, GET_CLOSE, Target};

#[test]
fn many_requests_on_a_connection_are_counted_exactly() {
    let target = Target::start(Config::default());
    let mut client = target.connect();
    for _ in 0..1_000 {
        let answer = client.send(GET).answer();
        assert_eq!((answer.status, answer.header("connection")), (200, None));
        assert_eq!(answer.body, b"proofload-ser");
    }
    let answer = client.send(GET_CLOSE).answer();
    assert_eq!(answer.header("connection"), Some("close"));
    let received = answer.whole().len() as u64;
    assert_eq!(client.try_answer().unwrap_err(), NoAnswer::Fin(0));
    let report = target.stop();
    assert_eq!((report.requests, report.answers, report.answers_by_status[&200]), (1_001, 1_001, 1_001));
    assert_eq!(report.request_bytes, (1_000 * GET.len() + GET_CLOSE.len()) as u64);
    assert_eq!(report.response_bytes, 1_001 * received - 1_000 * "Connection: close\r\n".len() as u64);
    assert_eq!((report.connections_accepted, report.connections_peak), (1, 1));
    assert!(report.delay_applied.is_empty() && report.misbehaved.is_empty());
}

#[test]
fn the_head_says_what_it_must() {
    let target = Target::start(Config { status: 404, ..Config::default() });
    let answer = target.connect().send(GET).answer();
    assert_eq!(answer.status, 404);
    assert_eq!(answer.header("server"), Some("proofload"));
    assert_eq!(answer.header("content-type"), Some("application/octet-stream"));
    assert_eq!(answer.header("content-length"), Some("13"));
    assert_eq!(answer.header("connection"), None);
    assert_eq!(target.stop().answers_by_status[&404], 1);
}

#[test]
fn a_request_may_come_byte_by_byte() {
    let target = Target::start(Config::default());
    let mut client = target.connect();
    for byte in GET {
        client.send([*byte]);
        target.has_read();
    }
    assert_eq!(client.answer().status, 200);
    let report = target.stop();
    assert_eq!((report.requests, report.request_bytes), (1, GET.len() as u64));
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    // The requests exceed one receive buffer.
    let target = Target::start(Config::default());
    let mut client = target.connect();
    let requests = [GET.repeat(2_999), GET_CLOSE.to_vec()].concat();
    let mut sender = client.socket.try_clone().unwrap();
    let sending = std::thread::spawn(move || sender.write_all(&requests).unwrap());
    for _ in 0..2_999 {
        assert_eq!(client.answer().header("connection"), None);
    }
    assert_eq!(client.answer().header("connection"), Some("close"));
    assert_eq!(client.try_answer().unwrap_err(), NoAnswer::Fin(0));
    sending.join().unwrap();
    assert_eq!(target.stop().answers, 3_000);
}

#[test]
fn pipelined_requests_wait_for_the_delays_of_those_before() {
    let delay = "5ms".parse().unwrap();
    let target = Target::start(Config { delay, ..Config::default() });
    let mut client = target.connect();
    let start = std::time::Instant::now();
    let head = b"HEAD / HTTP/1.1\r\nHost: target\r\n\r\n";
    client.send([GET, GET, GET, &head[..]].concat());
    for _ in 0..3 {
        assert_eq!(client.answer().body.len(), 13);
    }
    assert!(start.elapsed() >= Duration::from_millis(15));
    client.send(b"HEAD ");
    assert_eq!(client.answer().body.len(), 0);
    assert_eq!(target.stop().delay_applied.count(), 4);
}

#[test]
fn http_1_0_keeps_the_connection_only_if_asked() {
    let target = Target::start(Config { chunk_bytes: Some(4), ..Config::default() });
    let mut client = target.connect();
    let keep = b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n";
    for _ in 0..3 {
        let answer = client.send(keep).answer();
        assert_eq!(answer.header("connection"), Some("keep-alive"));
        assert_eq!(answer.header("content-length"), Some("13"));
        assert_eq!(answer.header("transfer-encoding"), None);
    }
    let answer = client.send(b"GET / HTTP/1.0\r\n\r\n").answer();
    assert_eq!(answer.header("connection"), Some("close"));
    assert_eq!(client.try_answer().unwrap_err(), NoAnswer::Fin(0));
    assert_eq!(target.stop().answers, 4);
}

#[test]
fn head_gets_the_head_only() {
    let target = Target::start(Config { body: Body::Size(100_000), ..Config::default() });
    let mut client = target.connect();
    for _ in 0..2 {
        let answer = client.send(b"HEAD / HTTP/1.1\r\nHost: target\r\n\r\n").answer();
        assert_eq!(answer.header("content-length"), Some("100000"));
        assert!(answer.body.is_empty());
    }
    assert_eq!(client.send(GET).answer().body.len(), 100_000);
    target.stop();
}

#[test]
fn statuses_without_a_body_leave_the_connection_usable() {
    let target = Target::start(Config { status: 204, ..Config::default() });
    let mut client = target.connect();
    for _ in 0..3 {
        let answer = client.send(GET).answer();
        assert_eq!((answer.status, answer.body.len()), (204, 0));
    }
    target.stop();
}

#[test]
fn chunks_have_the_size_asked_for() {
    let bytes: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
    for (body, size) in
        [(Body::Bytes(bytes), 200_000), (Body::Size(3_000_001), 3_000_001), (Body::Size(0), 0)]
    {
        let config = Config { body: body.clone(), chunk_bytes: Some(1_000), ..Config::default() };
        let target = Target::start(config);
        let mut client = target.connect();
        for _ in 0..2 {
            let answer = client.send(GET).answer();
            assert_eq!(answer.header("transfer-encoding"), Some("chunked"));
            assert_eq!(answer.body.len(), size);
            // 7 bytes per full chunk: "3e8" and two line ends. The shorter chunk and the last chunk have their own
            // framing.
            let (whole, rest) = (size / 1_000, size % 1_000);
            let framing = whole * 7 + if rest > 0 { format!("{rest:x}").len() + 4 } else { 0 } + 5;
            assert_eq!(answer.framing_bytes, framing);
            if let Body::Bytes(expected) = &body {
                assert!(answer.body == *expected);
            }
        }
        target.stop();
    }
}

#[test]
fn large_bodies_arrive_whole_however_slowly_they_are_read() {
    let target = Target::start(Config { body: Body::Size(30_000_000), ..Config::default() });
    let mut client = target.connect();
    client.send(GET);
    // When no more bytes arrive, the socket buffers of both sides are full.
    let (mut before, mut buffer) = (0, vec![0; 1 << 20]);
    until("nothing more comes", || {
        let come = client.socket.peek(&mut buffer).unwrap();
        std::mem::replace(&mut before, come) == come
    });
    let answer = client.answer();
    assert_eq!(answer.body.len(), 30_000_000);
    assert!(answer.body.chunks(16).all(|c| c == &b"proofload-serve\n"[..c.len()]));
    client.send(GET);
    target.has_read();
    drop(client);
    target.has_closed();
    // This answer shows that the target has processed the close.
    target.connect().send("HEAD / HTTP/1.1\r\nHost: target\r\n\r\n").answer();
    let report = target.stop();
    assert_eq!((report.requests, report.answers, report.clients_gone), (3, 2, 1));
}

#[test]
fn request_bodies_of_any_size_are_read_and_dropped() {
    let target = Target::start(Config::default());
    let mut client = target.connect();
    let mut request = b"POST / HTTP/1.1\r\nHost: target\r\nContent-Length: 20000000\r\n\r\n".to_vec();
    let head_bytes = request.len();
    request.resize(head_bytes + 20_000_000, b'x');
    assert_eq!(client.send(&request).answer().status, 200);
    let chunked =
        b"PUT / HTTP/1.1\r\nHost: target\r\nTransfer-Encoding: chunked\r\n\r\n3;ext\r\nabc\r\n0\r\nT: 1\r\n\r\n";
    assert_eq!(client.send(chunked).answer().status, 200);
    assert_eq!(client.send(GET).answer().status, 200);
    let report = target.stop();
    assert_eq!(report.requests, 3);
    assert_eq!(report.request_bytes, (request.len() + chunked.len() + GET.len()) as u64);
}

#[test]
fn a_client_that_expects_100_is_told_to_go_on() {
    let target = Target::start(Config::default());
    let mut client = target.connect();
    for _ in 0..2 {
        client.send(b"POST / HTTP/1.1\r\nHost: target\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
        assert_eq!(client.answer().whole(), "HTTP/1.1 100 Continue\r\n\r\n");
        assert_eq!(client.send("abc").answer().status, 200);
    }
    let report = target.stop();
    assert_eq!((report.requests, report.answers), (2, 2));
}

#[test]
fn what_is_no_request_gets_400_and_a_close() {
    for bad in [
        &b"\x16\x03\x01\x02\x00\x01\x00"[..],
        b"GET / HTTP/2.0\r\nHost: target\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        &[b"GET / HTTP/1.1\r\nX: ", &[b'x'; 70_000][..]].concat(),
    ] {
        let target = Target::start(Config::default());
        let mut client = target.connect();
        // The bytes after the request exceed one read, and must not turn the FIN into a reset. They are sent in one
        // piece, because the target waits only 2 s for more.
        client.send([GET, bad, &[b'x'; 80_000]].concat());
        assert_eq!(client.answer().status, 200);
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("connection")), (400, Some("close")));
        assert_eq!(client.try_answer().unwrap_err(), NoAnswer::Fin(0));
        drop(client);
        let report = target.stop();
        assert_eq!((report.requests, report.bad_requests, report.answers), (1, 1, 2));
        assert_eq!(report.answers_by_status[&400], 1);
    }
}

#[test]
fn a_client_that_closes_its_side_is_still_answered() {
    let target = Target::start(Config { delay: "20ms".parse().unwrap(), ..Config::default() });
    let mut client = target.connect();
    client.send(GET);
    client.socket.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.answer().status, 200);
    assert_eq!(client.try_answer().unwrap_err(), NoAnswer::Fin(0));
    let report = target.stop();
    assert_eq!((report.answers, report.clients_gone), (1, 0));
}
