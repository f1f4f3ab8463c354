//! A table of good and bad answers. Each is read in one piece, split at every byte, byte by byte, and
//! with its payload dropped instead of fed; the result must be the same.

mod common;

use common::{Outcome, answers, discarding, ending, every, twice_with_head_cache};
use http1::{Error, ErrorKind, Limits, Response};

/// How a connection ends.
enum End {
    /// The connection closes between two answers.
    Clean,
    /// The close ends the last answer.
    Close,
    /// With this error, while bytes are fed.
    Failed(Error),
    /// With this error, at the close.
    Truncated(Error),
}

/// Reads the stream in all ways and checks status, body and persistence of the complete answers.
#[track_caller]
fn check(
    stream: &[u8],
    limits: Limits,
    is_head_request: &[bool],
    expected: &[(u16, &str, bool)],
    end: End,
) -> Outcome<Response> {
    let whole = answers(stream, &[], limits, is_head_request);
    let shown = String::from_utf8_lossy(&stream[..stream.len().min(300)]);
    let done: Vec<_> = whole
        .messages
        .iter()
        .filter_map(|m| m.done.map(|d| (d.status, m.body.as_slice(), d.keep_alive)))
        .collect();
    let expected: Vec<_> =
        expected.iter().map(|&(status, body, keep)| (status, body.as_bytes(), keep)).collect();
    assert_eq!(done, expected, "{shown:?}");
    let (error, at_close, closed) = match end {
        End::Clean => (None, false, false),
        End::Close => (None, false, true),
        End::Failed(error) => (Some(error), false, false),
        End::Truncated(error) => (Some(error), true, false),
    };
    assert_eq!((&whole.error, whole.at_close, whole.closed), (&error, at_close, closed), "{shown:?}");
    for cut in 1..stream.len() {
        assert_eq!(answers(stream, &[cut], limits, is_head_request), whole, "{shown:?} cut at {cut}");
        for cached in twice_with_head_cache(stream, &[cut], limits, is_head_request) {
            assert_eq!(cached, ending(&whole), "{shown:?} with its head cached, cut at {cut}");
        }
    }
    for size in [1, 2, 7] {
        let cuts = every(size, stream.len());
        assert_eq!(answers(stream, &cuts, limits, is_head_request), whole, "{shown:?} in pieces of {size}");
    }
    // The sink does not get the dropped payload; the rest must be the same.
    let (mut dropped, mut same) = (discarding(stream, limits, is_head_request), whole.clone());
    for message in dropped.messages.iter_mut().chain(&mut same.messages) {
        message.body.clear();
    }
    assert_eq!(dropped, same, "{shown:?} with its payload dropped");
    whole
}

#[track_caller]
fn good(stream: &str, expected: &[(u16, &str, bool)]) -> Outcome<Response> {
    check(stream.as_bytes(), Limits::default(), &[], expected, End::Clean)
}

#[track_caller]
fn closed(stream: &str, expected: &[(u16, &str, bool)]) -> Outcome<Response> {
    check(stream.as_bytes(), Limits::default(), &[], expected, End::Close)
}

/// Checks an error in the first answer.
#[track_caller]
fn bad(stream: impl AsRef<[u8]>, error: Error) {
    check(stream.as_ref(), Limits::default(), &[], &[], End::Failed(error));
}

/// Checks that the close truncates the first answer.
#[track_caller]
fn truncated(stream: &str, error: Error) {
    assert_eq!(error.kind(), ErrorKind::Truncated);
    check(stream.as_bytes(), Limits::default(), &[], &[], End::Truncated(error));
}

fn chunked(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}")
}

fn with(headers: &str, rest: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{headers}\r\n\r\n{rest}")
}

#[test]
fn content_length() {
    good(&with("Content-Length: 5", "hello"), &[(200, "hello", true)]);
    good(&with("content-LENGTH:\t5 \t", "hello"), &[(200, "hello", true)]);
    good(&with("Content-Length: 0", ""), &[(200, "", true)]);
    good(&with("Content-Length: 007", "1234567"), &[(200, "1234567", true)]);
    good(&with("Content-Length: 3, 3\r\nContent-Length: 3", "abc"), &[(200, "abc", true)]);
    good("HTTP/1.1 404\r\nContent-Length: 1\r\n\r\nx", &[(404, "x", true)]);
    good("HTTP/1.1 599 \r\nContent-Length: 1\r\n\r\nx", &[(599, "x", true)]);
    good(&with("Content-Length: 2", "\r\n"), &[(200, "\r\n", true)]);
    good("", &[]);
}

#[test]
fn pipelined() {
    let first = with("Content-Length: 5", "hello");
    let second = chunked("3\r\nabc\r\n0\r\n\r\n");
    let third = "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
    let all = format!("{first}{second}{third}{first}");
    let expected = [(200, "hello", true), (200, "abc", true), (204, "", false), (200, "hello", true)];
    let outcome = good(&all, &expected);
    let counts: Vec<_> = outcome.messages.iter().map(|m| m.done.unwrap()).collect();
    let second = counts[1];
    assert_eq!((second.head_bytes, second.body_bytes, second.framing_bytes), (47, 3, 3 + 2 + 5));
    assert_eq!(counts[0], counts[3], "an answer leaves traces in the next");
}

#[test]
fn empty_lines_before_an_answer() {
    let answer = with("Content-Length: 2", "ok");
    let outcome =
        good(&format!("\r\n\r\n{answer}\n\r\n{answer}\r\n"), &[(200, "ok", true), (200, "ok", true)]);
    assert_eq!(outcome.messages[0].done.unwrap().framing_bytes, 4);
    assert_eq!(outcome.messages[1].done.unwrap().framing_bytes, 3);
    good(&format!("{}{answer}", "\r\n".repeat(8)), &[(200, "ok", true)]);
    bad(format!("{}{answer}", "\r\n".repeat(9)), Error::TooManyEmptyLines);
    bad(format!("\r{answer}"), Error::BareCr { at: 1 });
    good("\r\n\r", &[]);
}

#[test]
fn persistence() {
    let length = "Content-Length: 1";
    for (version, connection, keep) in [
        (1, "keep-alive", true),
        (1, "close", false),
        (1, "Upgrade,  CLOSE", false),
        (1, "keep-alive\r\nconnection: close", false),
        (1, "closed", true),
        (1, "", true),
        (0, "keep-alive", true),
        (0, "Keep-Alive, foo", true),
        (0, "close, keep-alive", false),
        (0, "", false),
    ] {
        let stream = format!("HTTP/1.{version} 200 OK\r\nConnection: {connection}\r\n{length}\r\n\r\nx");
        good(&stream, &[(200, "x", keep)]);
    }
    good(&format!("HTTP/1.0 200 OK\r\n{length}\r\n\r\nx"), &[(200, "x", false)]);
}

#[test]
fn chunks() {
    good(&chunked("5\r\nhello\r\n0\r\n\r\n"), &[(200, "hello", true)]);
    good(&chunked("0\r\n\r\n"), &[(200, "", true)]);
    good(
        &chunked("1\r\na\r\n00a\r\n0123456789\r\nA\r\n0123456789\r\n000\r\n\r\n"),
        &[(200, "a01234567890123456789", true)],
    );
    let extended =
        "2;a\r\nhi\r\n1 ; b = \"x;y\\\"\u{e9}\"\r\n!\r\n0;last\r\nA: 1\r\nB-2:\r\nC: \u{e9}\t\r\n\r\n";
    let outcome = good(&chunked(extended), &[(200, "hi!", true)]);
    assert_eq!(outcome.messages[0].done.unwrap().framing_bytes, extended.len() as u64 - 3);
    good(&chunked("3 \t;\r\nabc\r\n0\t ; a\r\n\r\n"), &[(200, "abc", true)]);
    let digits = "0000000000000001\r\na\r\n".repeat(3) + "0000000000000000\r\n\r\n";
    good(&chunked(&digits), &[(200, "aaa", true)]);
    good(&with("Transfer-Encoding: gzip, Chunked", "1\r\nz\r\n0\r\n\r\n"), &[(200, "z", true)]);
    good(&with("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", "0\r\n\r\n"), &[(200, "", true)]);
    good(&with("Transfer-Encoding: , chunked,", "1\r\nz\r\n0\r\n\r\n"), &[(200, "z", true)]);
}

#[test]
fn bad_chunks() {
    for size in ["0x1", "+1", "-1", " 1", "\t1", "g", "", ";a", "\u{e9}"] {
        bad(
            chunked(&format!("{size}\r\na\r\n0\r\n\r\n")),
            Error::BadChunkSize { at: if size == "0x1" { 1 } else { 0 } },
        );
    }
    bad(chunked("1g\r\na\r\n0\r\n\r\n"), Error::BadChunkSize { at: 1 });
    bad(chunked("1 1\r\na\r\n0\r\n\r\n"), Error::BadChunkSize { at: 2 });
    // RFC 9112, 7.1.1: white space belongs to an extension.
    bad(chunked("1 \r\na\r\n0\r\n\r\n"), Error::BadChunkSize { at: 2 });
    bad(chunked("1\t\r\na\r\n0\r\n\r\n"), Error::BadChunkSize { at: 2 });
    bad(chunked("1\r\na\r\n0 \r\n\r\n"), Error::BadChunkSize { at: 8 });
    bad(chunked("1\na\r\n0\r\n\r\n"), Error::BadChunkSize { at: 1 });
    bad(chunked("1\r\na\r\n\r\n\r\n"), Error::BadChunkSize { at: 6 });
    bad(chunked("1\r\na\r\n;x\r\n\r\n"), Error::BadChunkSize { at: 6 });
    bad(chunked("1\r\ra"), Error::BadChunkExtension { at: 2 });
    bad(chunked("1;a\nb\r\n"), Error::BadChunkExtension { at: 3 });
    bad(chunked("1;a\0\r\n"), Error::BadChunkExtension { at: 3 });
    bad(chunked("00000000000000001\r\na\r\n"), Error::ChunkSizeOverflow { at: 16 });
    truncated(&chunked("ffffffffffffffff\r\na"), Error::TruncatedChunks { got: 19 });
    // The error is in the byte after the data, so that the sink gets the data first.
    for (end, at) in [("\n0\r\n\r\n", 4), ("b\r\n", 4), ("\r0", 5), ("\r\r\n", 5)] {
        bad(chunked(&format!("1\r\na{end}")), Error::BadChunkEnd { at });
    }
}

#[test]
fn bad_trailers() {
    for (trailers, at) in [
        (" folded: 1\r\n\r\n", 3),
        ("A : 1\r\n\r\n", 4),
        ("A\r\n\r\n", 4),
        (": 1\r\n\r\n", 3),
        ("A: 1\n\r\n", 7),
        ("A: 1\r\n x\r\n\r\n", 9),
        ("A: \0\r\n\r\n", 6),
        ("A: 1\rB: 2", 8),
        ("\n", 3),
        ("\rA", 4),
    ] {
        bad(chunked(&format!("0\r\n{trailers}")), Error::BadTrailer { at });
    }
}

#[test]
fn until_close() {
    closed("HTTP/1.1 200 OK\r\n\r\nto the end", &[(200, "to the end", false)]);
    closed("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n", &[(200, "", false)]);
    closed(&with("Transfer-Encoding: gzip", "\x1f\x01"), &[(200, "\x1f\x01", false)]);
    closed(&with("Transfer-Encoding: identity", "x"), &[(200, "x", false)]);
    closed(&(with("Content-Length: 1", "x") + &with("A: b", "y")), &[(200, "x", true), (200, "y", false)]);
}

#[test]
fn answers_without_a_body() {
    let length = with("Content-Length: 5", "");
    let next = with("Content-Length: 2", "ok");
    let chunks = chunked("");
    let plain = "HTTP/1.1 200 OK\r\n\r\n";
    let stream = format!("{length}{chunks}{plain}{next}");
    let expected = [(200, "", true), (200, "", true), (200, "", true), (200, "ok", true)];
    check(stream.as_bytes(), Limits::default(), &[true, true, true], &expected, End::Clean);
    for status in [204, 304] {
        for headers in ["Content-Length: 5", "Transfer-Encoding: chunked", "A: b", "Content-Length: what"] {
            let stream = format!("HTTP/1.1 {status} X\r\n{headers}\r\n\r\n{next}");
            good(&stream, &[(status, "", true), (200, "ok", true)]);
        }
    }
}

#[test]
fn informational_answers() {
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nContent-Length: 7\r\n\r\n";
    let stream = format!("HTTP/1.1 100 Continue\r\n\r\n{hints}\r\n{}", with("Content-Length: 2", "ok"));
    let outcome = good(&stream, &[(200, "ok", true)]);
    let response = outcome.messages[0].done.unwrap();
    assert_eq!(response.informational_bytes, 25 + hints.len() as u64);
    assert_eq!(response.framing_bytes, 2);
    truncated(hints, Error::TruncatedHead { got: 0 });
    bad("HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n", Error::UnexpectedUpgrade);
    let many = "HTTP/1.1 100 Continue\r\n\r\n".repeat(5);
    let limits = Limits { head_bytes: 120 };
    let end = End::Failed(Error::InformationalTooLarge { limit: 120 });
    check(many.as_bytes(), limits, &[], &[], end);
}

#[test]
fn old_and_lax_heads() {
    let folded = with("A: one\r\n\ttwo\r\nContent-Length:\r\n 2", "ok");
    let outcome = good(&folded, &[(200, "ok", true)]);
    assert_eq!(outcome.messages[0].head.headers[0], ("A".into(), b"one\r\n\ttwo".to_vec()));
    good(&with("Transfer-Encoding: gzip,\r\n chunked", "0\r\n\r\n"), &[(200, "", true)]);
    good("HTTP/1.1 200 OK\nContent-Length: 2\n\nok", &[(200, "ok", true)]);
    good("HTTP/1.1 200 OK\r\nContent-Length: 2\n\r\nok", &[(200, "ok", true)]);
    good("HTTP/1.1 200 \u{e9}\r\nContent-Length: 0\r\n\r\n", &[(200, "", true)]);
}

#[test]
fn bad_heads() {
    bad("220 mail\r\n", Error::NotHttp { at: 0 });
    bad("HTTP/2.0 200 OK\r\n\r\n", Error::NotHttp { at: 5 });
    bad("HTTP/1.2 200 OK\r\n\r\n", Error::BadVersion { at: 7 });
    bad("HTTP/1.1  200 OK\r\n\r\n", Error::BadStatusLine { at: 9 });
    bad("HTTP/1.1 20 OK\r\n\r\n", Error::BadStatusLine { at: 11 });
    bad("HTTP/1.1 2000 OK\r\n\r\n", Error::BadStatusLine { at: 12 });
    bad("HTTP/1.1 099 Low\r\n\r\n", Error::BadStatus { status: 99 });
    bad("HTTP/1.1 200 O\rK\r\n\r\n", Error::BadStatusLine { at: 15 });
    bad(with("A: b\rc", ""), Error::BadHeaderValue { at: 22 });
    bad(with("A: b\0c", ""), Error::BadHeaderValue { at: 21 });
    bad(with("A b: c", ""), Error::BadHeaderName { at: 18 });
    bad(with("A : c", ""), Error::BadHeaderName { at: 18 });
    bad(with(": c", ""), Error::BadHeaderName { at: 17 });
    bad(with(" A: c", ""), Error::BadHeaderName { at: 17 });
    bad(with("no colon", ""), Error::BadHeaderName { at: 19 });
    bad("HTTP/1.1 200 OK\r\nA: b\r\n\rX\r\n\r\n", Error::BareCr { at: 24 });
    truncated("HTTP/1.1 200 OK\r\nA: b\r\n", Error::TruncatedHead { got: 23 });
    truncated("H", Error::TruncatedHead { got: 1 });
}

#[test]
fn smuggled_framing() {
    let (cl, te) = ("Content-Length: 5", "Transfer-Encoding: chunked");
    bad(with(&format!("{cl}\r\n{te}"), "0\r\n\r\n"), Error::LengthAndTransferEncoding);
    bad(with(&format!("{te}\r\n{cl}"), "0\r\n\r\n"), Error::LengthAndTransferEncoding);
    bad(with(&format!("Transfer-Encoding: gzip\r\n{cl}"), "0\r\n\r\n"), Error::LengthAndTransferEncoding);
    bad(
        with("Content-Length: 5\r\nContent-Length: 6", "hello"),
        Error::ConflictingContentLength { first: 5, second: 6 },
    );
    bad(with("Content-Length: 5, 6", "hello"), Error::ConflictingContentLength { first: 5, second: 6 });
    bad(with("Content-Length: 18446744073709551616", ""), Error::ContentLengthOverflow);
    for length in ["", "+5", "-5", "0x5", "5 5", "5;", "5,", "five", "5.0", "5\r\n 5"] {
        bad(with(&format!("Content-Length: {length}"), "hello"), Error::BadContentLength);
    }
    bad(with("Transfer-Encoding: chunked, gzip", ""), Error::ChunkedNotLast);
    bad(with("Transfer-Encoding: chunked, chunked", ""), Error::ChunkedNotLast);
    bad(with(&format!("{te}\r\n{te}"), ""), Error::ChunkedNotLast);
    bad(with("Transfer-Encoding: \"chunked\"", ""), Error::BadTransferEncoding);
    bad(with("Transfer-Encoding: ,", ""), Error::BadTransferEncoding);
    bad(with("Transfer-Encoding:", ""), Error::BadTransferEncoding);
    bad(with("Transfer-Encoding : chunked", ""), Error::BadHeaderName { at: 34 });
    bad(with("Transfer-Encoding: \x0bchunked", ""), Error::BadHeaderValue { at: 36 });
    bad(format!("HTTP/1.0 200 OK\r\n{te}\r\n\r\n"), Error::TransferEncodingInHttp10);
    truncated(&with(cl, "hell"), Error::TruncatedBody { missing: 1 });
    truncated(
        &with("Content-Length: 18446744073709551615", "x"),
        Error::TruncatedBody { missing: u64::MAX - 1 },
    );
    for body in ["", "5", "5\r\nhello", "5\r\nhello\r\n", "0\r\n", "0\r\n\r", "0\r\nA: 1\r\n"] {
        truncated(&chunked(body), Error::TruncatedChunks { got: body.len() as u64 });
    }
}

#[test]
fn limits() {
    let head = with(&format!("A: {}", "a".repeat(100)), "");
    let exact = Limits { head_bytes: head.len() };
    check(head.as_bytes(), exact, &[], &[(200, "", false)], End::Close);
    let short = Limits { head_bytes: head.len() - 1 };
    check(head.as_bytes(), short, &[], &[], End::Failed(Error::HeadTooLarge { limit: head.len() - 1 }));
    check(b"HTTP/1.1 2", Limits { head_bytes: 0 }, &[], &[], End::Failed(Error::HeadTooLarge { limit: 0 }));
    let headers = |n: usize| "a: b\r\n".repeat(n) + "Content-Length: 0";
    good(&with(&headers(127), ""), &[(200, "", true)]);
    bad(with(&headers(128), ""), Error::TooManyHeaders);
    let extension = |n: usize| chunked(&format!("1;{}\r\na\r\n0\r\n\r\n", "e".repeat(n - 4)));
    good(&extension(8192), &[(200, "a", true)]);
    bad(extension(8193), Error::ChunkLineTooLarge);
    let trailer = chunked(&format!("0\r\nA: {}\r\n\r\n", "t".repeat(93)));
    check(trailer.as_bytes(), Limits { head_bytes: 100 }, &[], &[(200, "", true)], End::Clean);
    let end = End::Failed(Error::TrailersTooLarge { limit: 99 });
    check(trailer.as_bytes(), Limits { head_bytes: 99 }, &[], &[], end);
}

#[test]
fn the_default_limit_holds_for_a_head_in_any_pieces() {
    let limit = Limits::default().head_bytes;
    let frame = with("Content-Length: 0\r\nA: ", "").len();
    for (len, fits) in [(limit, true), (limit + 1, false)] {
        let head = with(&format!("Content-Length: 0\r\nA: {}", "a".repeat(len - frame)), "");
        for size in [1, 1000, 65535, 70000] {
            let outcome = answers(head.as_bytes(), &every(size, head.len()), Limits::default(), &[]);
            assert_eq!(outcome.error.is_none(), fits, "{len} bytes in pieces of {size}");
            assert!(fits || outcome.error == Some(Error::HeadTooLarge { limit }));
        }
    }
}
