//! A table of good and bad requests. Each is read in one piece, split at every byte, and byte by byte; the
//! result must be the same.

mod common;

use common::{Outcome, every, requests};
use http1::{Error, ErrorKind, Framing, Limits, Request};

/// Reads the stream in all ways and checks head line, body and persistence of the complete requests.
#[track_caller]
fn check(
    stream: &[u8],
    limits: Limits,
    expected: &[(&str, &str, bool)],
    error: Option<Error>,
) -> Outcome<Request> {
    let whole = requests(stream, &[], limits);
    let shown = String::from_utf8_lossy(&stream[..stream.len().min(300)]);
    let done: Vec<_> = whole
        .messages
        .iter()
        .filter_map(|m| m.done.map(|d| (m.head.line.as_str(), m.body.as_slice(), d.keep_alive)))
        .collect();
    let expected: Vec<_> = expected.iter().map(|&(line, body, keep)| (line, body.as_bytes(), keep)).collect();
    assert_eq!(done, expected, "{shown:?}");
    let at_close = error.as_ref().is_some_and(|error| error.kind() == ErrorKind::Truncated);
    assert_eq!((&whole.error, whole.at_close), (&error, at_close), "{shown:?}");
    for cut in 1..stream.len() {
        assert_eq!(requests(stream, &[cut], limits), whole, "{shown:?} cut at {cut}");
    }
    for size in [1, 2, 7] {
        let cuts = every(size, stream.len());
        assert_eq!(requests(stream, &cuts, limits), whole, "{shown:?} in pieces of {size}");
    }
    whole
}

#[track_caller]
fn good(stream: &str, expected: &[(&str, &str, bool)]) -> Outcome<Request> {
    check(stream.as_bytes(), Limits::default(), expected, None)
}

/// Checks an error in the first request: while bytes are fed or, for a truncation, at the close.
#[track_caller]
fn bad(stream: impl AsRef<[u8]>, error: Error) {
    check(stream.as_ref(), Limits::default(), &[], Some(error));
}

fn get(headers: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{headers}\r\n")
}

fn post(headers: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\n{headers}\r\n\r\n{body}")
}

#[test]
fn without_a_body() {
    let outcome = good(&get(""), &[("GET / 1", "", true)]);
    let head = &outcome.messages[0].head;
    assert_eq!(head.headers, [("Host".into(), b"a".to_vec())]);
    assert_eq!((head.framing, head.expect_continue), (Framing::None, false));
    assert_eq!(outcome.messages[0].done.unwrap().head_bytes, 27);
    good("OPTIONS * HTTP/1.1\r\n\r\n", &[("OPTIONS * 1", "", true)]);
    good("M-SEARCH http://a/?b=%20&c#d HTTP/1.1\r\n\r\n", &[("M-SEARCH http://a/?b=%20&c#d 1", "", true)]);
    good(
        "AVERYLONGMETHODOFMANYBYTES /\u{e9} HTTP/1.0\r\n\r\n",
        &[("AVERYLONGMETHODOFMANYBYTES /\u{e9} 0", "", false)],
    );
    good("", &[]);
}

#[test]
fn with_a_body() {
    let outcome = good(&post("Content-Length: 5", "hello"), &[("POST / 1", "hello", true)]);
    assert_eq!(outcome.messages[0].head.framing, Framing::Length(5));
    good(&post("Content-Length: 3, 3\r\nContent-length: 3", "abc"), &[("POST / 1", "abc", true)]);
    good(&post("Content-Length: 0", ""), &[("POST / 1", "", true)]);
    let body = "5;x=\"y\"\r\nhello\r\n1\r\n!\r\n0\r\nDigest: 1\r\n\r\n";
    let outcome = good(&post("Transfer-Encoding: chunked", body), &[("POST / 1", "hello!", true)]);
    assert_eq!(outcome.messages[0].head.framing, Framing::Chunked);
    assert_eq!(outcome.messages[0].done.unwrap().framing_bytes, body.len() as u64 - 6);
}

#[test]
fn pipelined() {
    let stream = format!(
        "\r\n{}{}\r\n\r\n{}{}",
        get(""),
        post("Content-Length: 2", "ok"),
        post("Transfer-Encoding: chunked", "1\r\nx\r\n0\r\n\r\n"),
        get("Connection: close\r\n"),
    );
    let expected =
        [("GET / 1", "", true), ("POST / 1", "ok", true), ("POST / 1", "x", true), ("GET / 1", "", false)];
    let outcome = good(&stream, &expected);
    let framing: Vec<_> = outcome.messages.iter().map(|m| m.done.unwrap().framing_bytes).collect();
    assert_eq!(framing, [2, 0, 4 + 3 + 2 + 5, 0]);
}

#[test]
fn persistence() {
    for (version, connection, keep) in [
        (1, "keep-alive", true),
        (1, "Close", false),
        (1, "te, close", false),
        (0, "Keep-Alive", true),
        (0, "te", false),
    ] {
        let stream = format!("GET / HTTP/1.{version}\r\nConnection: {connection}\r\n\r\n");
        good(&stream, &[(&format!("GET / {version}"), "", keep)]);
    }
}

#[test]
fn expectations() {
    let length = "Content-Length: 1\r\nExpect:";
    for (stream, expected) in [
        (post(&format!("{length} 100-continue"), "x"), true),
        (post(&format!("{length} other, 100-CONTINUE"), "x"), true),
        (post(&format!("{length} 200-ok"), "x"), false),
        (post("Expect: 100-continue\r\nTransfer-Encoding: chunked", "0\r\n\r\n"), true),
        (post("Expect: 100-continue\r\nContent-Length: 0", ""), false),
        (get("Expect: 100-continue\r\n"), false),
        (format!("POST / HTTP/1.0\r\n{length} 100-continue\r\n\r\nx"), false),
    ] {
        let outcome = check(stream.as_bytes(), Limits::default(), &expected_line(&stream), None);
        assert_eq!(outcome.messages[0].head.expect_continue, expected, "{stream:?}");
    }
}

/// The expected request of the streams above, derived from its text.
fn expected_line(stream: &str) -> [(&str, &str, bool); 1] {
    let line = match &stream[..15] {
        "POST / HTTP/1.1" => "POST / 1",
        "POST / HTTP/1.0" => "POST / 0",
        _ => "GET / 1",
    };
    [(line, if stream.ends_with('x') { "x" } else { "" }, !line.ends_with('0'))]
}

#[test]
fn bad_heads() {
    bad(" GET / HTTP/1.1\r\n\r\n", Error::BadMethod { at: 0 });
    bad("G\0T / HTTP/1.1\r\n\r\n", Error::BadMethod { at: 1 });
    bad("GET\t/ HTTP/1.1\r\n\r\n", Error::BadMethod { at: 3 });
    bad("AVERYLONGMETHODOFMANYBYTES:/ HTTP/1.1\r\n\r\n", Error::BadMethod { at: 26 });
    bad("GET  / HTTP/1.1\r\n\r\n", Error::BadTarget { at: 4 });
    bad("GET /\t HTTP/1.1\r\n\r\n", Error::BadTarget { at: 5 });
    bad(b"GET /\xff HTTP/1.1\r\n\r\n", Error::BadTarget { at: 6 });
    bad("GET /\r\n\r\n", Error::BadTarget { at: 5 });
    bad("GET / \r\n\r\n", Error::BadVersion { at: 6 });
    bad("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Error::BadVersion { at: 11 });
    bad("GET / HTTP/1.2\r\n\r\n", Error::BadVersion { at: 13 });
    bad("GET / HTTP/1.1 \r\n\r\n", Error::BareCr { at: 14 });
    bad("GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", Error::BadHeaderName { at: 22 });
    bad(get(" A: b\r\n"), Error::BadHeaderName { at: 25 });
    bad(get("A : b\r\n"), Error::BadHeaderName { at: 26 });
    bad(get("A: b\rc\r\n"), Error::BadHeaderValue { at: 30 });
    bad(get("A: b\x7f\r\n"), Error::BadHeaderValue { at: 29 });
    bad("GET / HTTP/1.1\r\nA: b\r\n\rX\r\n\r\n", Error::BareCr { at: 23 });
    bad("\rGET / HTTP/1.1\r\n\r\n", Error::BareCr { at: 1 });
    bad("GET", Error::TruncatedHead { got: 3 });
    bad("GET / HTTP/1.1\r\n", Error::TruncatedHead { got: 16 });
}

#[test]
fn bare_line_feeds() {
    bad("\nGET / HTTP/1.1\r\n\r\n", Error::BareLf { at: 0 });
    bad("GET / HTTP/1.1\n\r\n", Error::BareLf { at: 14 });
    bad("GET / HTTP/1.1\r\nA: b\nB: c\r\n\r\n", Error::BareLf { at: 20 });
    bad("GET / HTTP/1.1\r\nA: b\r\n\n", Error::BareLf { at: 22 });
}

#[test]
fn smuggled_framing() {
    let (cl, te) = ("Content-Length: 5", "Transfer-Encoding: chunked");
    bad(post(&format!("{cl}\r\n{te}"), "0\r\n\r\n"), Error::LengthAndTransferEncoding);
    bad(post(&format!("{te}\r\n{cl}"), "0\r\n\r\n"), Error::LengthAndTransferEncoding);
    bad(post(&format!("Transfer-Encoding: gzip\r\n{cl}"), ""), Error::LengthAndTransferEncoding);
    for headers in ["Content-Length: 5\r\nContent-Length: 6", "Content-Length: 5, 6"] {
        bad(post(headers, "hello"), Error::ConflictingContentLength { first: 5, second: 6 });
    }
    for length in ["", "+5", "-5", "0x5", "5 5", "5,", "\u{665}"] {
        bad(post(&format!("Content-Length: {length}"), "hello"), Error::BadContentLength);
    }
    bad(post("Content-Length: 99999999999999999999", ""), Error::ContentLengthOverflow);
    bad(post("Transfer-Encoding: gzip", ""), Error::RequestNotChunked);
    bad(post("Transfer-Encoding: identity", ""), Error::RequestNotChunked);
    bad(post("Transfer-Encoding: gzip, chunked", ""), Error::UnsupportedCoding);
    bad(post("Transfer-Encoding: chunked, gzip", ""), Error::ChunkedNotLast);
    bad(post(&format!("{te}\r\n{te}"), ""), Error::ChunkedNotLast);
    bad(post("Transfer-Encoding: xchunked", ""), Error::RequestNotChunked);
    bad(post("Transfer-Encoding: chunked;a=b", ""), Error::BadTransferEncoding);
    bad(post("Transfer-Encoding: , chunked,", ""), Error::BadTransferEncoding);
    bad(post("Transfer-Encoding : chunked", ""), Error::BadHeaderName { at: 34 });
    bad(format!("POST / HTTP/1.0\r\n{te}\r\n\r\n0\r\n\r\n"), Error::TransferEncodingInHttp10);
    bad(post(cl, "hell"), Error::TruncatedBody { missing: 1 });
    bad(post(te, "5\r\nhello\r\n0\r\n"), Error::TruncatedChunks { got: 13 });
    bad(post(te, "5\nhello\r\n"), Error::BadChunkSize { at: 1 });
    bad(post(te, "5\r\nhelloX\r\n"), Error::BadChunkEnd { at: 8 });
    bad(post(te, "0\r\nA: b\n\r\n"), Error::BadTrailer { at: 7 });
}

#[test]
fn limits() {
    let head = get(&format!("A: {}\r\n", "a".repeat(100)));
    let fits = Limits { head_bytes: head.len() };
    check(head.as_bytes(), fits, &[("GET / 1", "", true)], None);
    let limit = head.len() - 1;
    check(head.as_bytes(), Limits { head_bytes: limit }, &[], Some(Error::HeadTooLarge { limit }));
    // An error after the limit is reported as an exceeded limit; one before it is not.
    let lf = "GET / HTTP/1.1\r\nA: b\nB: c\r\n\r\n";
    check(lf.as_bytes(), Limits { head_bytes: 20 }, &[], Some(Error::HeadTooLarge { limit: 20 }));
    check(lf.as_bytes(), Limits { head_bytes: 21 }, &[], Some(Error::BareLf { at: 20 }));
    bad(get(&"a: b\r\n".repeat(128)), Error::TooManyHeaders);
    good(&get(&"a: b\r\n".repeat(127)), &[("GET / 1", "", true)]);
    bad("\r\n".repeat(9), Error::TooManyEmptyLines);
    good(&"\r\n".repeat(8), &[]);
}
