//! Properties: well-formed connections are read as they were written, and no bytes make a reader panic
//! or depend on how they were split.

mod common;

use common::{answers, discarding, ending, requests, twice_with_head_cache};
use http1::{Framing, Limits};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::FileFailurePersistence;

/// How the body of a message is sent.
#[derive(Clone, Debug)]
enum Sent {
    Nothing,
    Length,
    /// In chunks of these sizes and a last chunk with the rest, with extensions and trailers.
    Chunked {
        sizes: Vec<usize>,
        extension: String,
        trailers: Vec<(String, String)>,
        upper: bool,
    },
}

/// A well-formed message: its bytes, and the expected result.
#[derive(Clone, Debug)]
struct Written {
    bytes: Vec<u8>,
    line: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    framing: Framing,
    keep_alive: bool,
    head_bytes: u64,
    informational_bytes: u64,
    is_head_request: bool,
}

fn name() -> impl Strategy<Value = String> {
    // The prefix avoids names that the reader interprets.
    "[Xx]-[!#$%&'*+.^_`|~0-9A-Za-z-]{0,12}"
}

fn value() -> impl Strategy<Value = String> {
    "([!-~\u{80}-\u{ff}]([ \t!-~]{0,20}[!-~])?)?"
}

fn headers() -> impl Strategy<Value = Vec<(String, String)>> {
    prop::collection::vec((name(), value()), 0..10)
}

fn sent() -> impl Strategy<Value = Sent> {
    let chunked = (
        prop::collection::vec(1..40usize, 0..6),
        "([ \t]{0,2};[ \t]{0,2}[a-z]{1,5}(=[a-z]{1,5}|=\"[ -!#-~]{0,5}\")?){0,2}",
        prop::collection::vec((name(), value()), 0..3),
        any::<bool>(),
    )
        .prop_map(|(sizes, extension, trailers, upper)| Sent::Chunked {
            sizes,
            extension,
            trailers,
            upper,
        });
    prop_oneof![1 => Just(Sent::Nothing), 2 => Just(Sent::Length), 3 => chunked]
}

/// Headers and bytes of a body.
fn write_body(sent: &Sent, body: &[u8]) -> (Option<(String, String)>, Vec<u8>, Framing) {
    match sent {
        Sent::Nothing => (None, Vec::new(), Framing::None),
        Sent::Length => {
            let header = ("Content-Length".to_owned(), body.len().to_string());
            (Some(header), body.to_vec(), Framing::Length(body.len() as u64))
        }
        Sent::Chunked { sizes, extension, trailers, upper } => {
            let (mut out, mut rest) = (Vec::new(), body);
            for &size in sizes.iter().chain([&usize::MAX]) {
                let (chunk, after) = rest.split_at(size.min(rest.len()));
                rest = after;
                if chunk.is_empty() {
                    break;
                }
                let size = if *upper { format!("{:X}", chunk.len()) } else { format!("0{:x}", chunk.len()) };
                out.extend_from_slice(format!("{size}{extension}\r\n").as_bytes());
                out.extend_from_slice(chunk);
                out.extend_from_slice(b"\r\n");
            }
            out.extend_from_slice(format!("0{extension}\r\n").as_bytes());
            for (name, value) in trailers {
                out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
            }
            out.extend_from_slice(b"\r\n");
            (Some(("Transfer-Encoding".to_owned(), "chunked".to_owned())), out, Framing::Chunked)
        }
    }
}

fn write_head(line: &str, headers: &[(String, String)], spaces: &str) -> Vec<u8> {
    let mut out = format!("{line}\r\n").into_bytes();
    for (name, value) in headers {
        out.extend_from_slice(format!("{name}:{spaces}{value}{spaces}\r\n").as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    out
}

/// A message without its start line and the headers that a side adds.
fn written(
    sent: &Sent,
    mut headers: Vec<(String, String)>,
    body: &[u8],
    place: Index,
    spaces: &str,
    line: &str,
    bodyless: bool,
) -> Written {
    let (header, sent_body, framing) = write_body(sent, body);
    headers.extend(header);
    if let Some(last) = headers.len().checked_sub(1) {
        headers.swap(place.index(last + 1), last);
    }
    let mut bytes = write_head(line, &headers, spaces);
    let head_bytes = bytes.len() as u64;
    let seen = !(bodyless || matches!(sent, Sent::Nothing));
    if seen {
        bytes.extend_from_slice(&sent_body);
    }
    Written {
        bytes,
        line: String::new(),
        headers: headers.into_iter().map(|(name, value)| (name, value.into_bytes())).collect(),
        body: if seen { body.to_vec() } else { Vec::new() },
        framing: if bodyless { Framing::None } else { framing },
        keep_alive: true,
        head_bytes,
        informational_bytes: 0,
        is_head_request: false,
    }
}

fn answer() -> impl Strategy<Value = Written> {
    let interim = prop::collection::vec(select(vec![100u16, 102, 103, 199]), 0..3);
    (
        (select(vec![200u16, 204, 304, 404, 503, 999]), any::<bool>(), interim, "[ -~]{0,20}"),
        (headers(), sent(), prop::collection::vec(any::<u8>(), 0..200), any::<Index>(), "[ \t]{0,3}"),
    )
        .prop_map(
            |((status, is_head_request, interim, reason), (headers, sent, body, place, spaces))| {
                let bodyless = is_head_request || matches!(status, 204 | 304);
                // A body without a length ends at the close, which pipelined answers cannot have.
                let sent = if matches!(sent, Sent::Nothing) && !bodyless { Sent::Length } else { sent };
                let line = format!("HTTP/1.1 {status} {reason}");
                let mut written = written(&sent, headers, &body, place, &spaces, &line, bodyless);
                let before: Vec<u8> = interim
                    .iter()
                    .flat_map(|s| format!("HTTP/1.1 {s} \r\nX: y\r\n\r\n").into_bytes())
                    .collect();
                written.informational_bytes = before.len() as u64;
                written.bytes.splice(0..0, before);
                written.line = format!("1 {status} {reason}");
                written.is_head_request = is_head_request;
                written
            },
        )
}

fn request() -> impl Strategy<Value = Written> {
    (
        ("[A-Z!#$%&'*+.^_`|~0-9-]{1,20}", "[!-~]{1,30}", any::<bool>()),
        (headers(), sent(), prop::collection::vec(any::<u8>(), 0..200), any::<Index>(), "[ \t]{0,3}"),
    )
        .prop_map(|((method, target, close), (mut headers, sent, body, place, spaces))| {
            if close {
                headers.push(("Connection".to_owned(), "close".to_owned()));
            }
            let line = format!("{method} {target} HTTP/1.1");
            let mut written = written(&sent, headers, &body, place, &spaces, &line, false);
            written.keep_alive = !close;
            written.line = format!("{method} {target} 1");
            written
        })
}

/// The ascending offsets at which a stream is split; an offset that occurs twice makes an empty piece.
fn offsets(cuts: &[Index], len: usize) -> Vec<usize> {
    let mut offsets: Vec<usize> = cuts.iter().map(|cut| cut.index(len + 1)).collect();
    offsets.sort_unstable();
    offsets
}

fn cuts() -> impl Strategy<Value = Vec<Index>> {
    prop::collection::vec(any::<Index>(), 0..12)
}

/// Bytes that exercise much of a reader: pieces of messages in any order.
fn shards() -> impl Strategy<Value = Vec<u8>> {
    let fragment = select(vec![
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.0 200 OK\n",
        "HTTP/1.1 100 C\r\n\r\n",
        "HTTP/1.1 304 N\r\n",
        "GET / HTTP/1.1\r\n",
        "POST /x HTTP/1.0\r\n",
        "Content-Length: 5\r\n",
        "Content-Length: 3, 3\r\n",
        "Content-Length:",
        "18446744073709551615",
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Connection: close\r\n",
        "Expect: 100-continue\r\n",
        "A: b\r\n c\r\n",
        "\r\n",
        "\n",
        "\r",
        "0\r\n\r\n",
        "5\r\nhello\r\n",
        "ffffffffffffffff\r\n",
        ";a=b\r\n",
        "0\r\nT: x\r\n\r\n",
        " ",
        ":",
        "hello",
        "\0",
    ]);
    let shard = prop_oneof![
        8 => fragment.prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ];
    prop::collection::vec(shard, 0..16).prop_map(|shards| shards.concat())
}

/// A well-formed connection with some bytes changed, inserted or removed.
fn mutated(message: impl Strategy<Value = Written>) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![any::<u8>(), select(b"\r\n :;,0159afx\t\0".to_vec())];
    let changes = prop::collection::vec((any::<Index>(), 0..3u8, byte), 0..5);
    (prop::collection::vec(message, 1..3), changes).prop_map(|(messages, changes)| {
        let mut bytes: Vec<u8> = messages.into_iter().flat_map(|message| message.bytes).collect();
        for (place, change, byte) in changes {
            let at = place.index(bytes.len());
            match change {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ if bytes.len() > 1 => drop(bytes.remove(at)),
                _ => {}
            }
        }
        bytes
    })
}

fn limits() -> impl Strategy<Value = Limits> {
    prop_oneof![Just(Limits::default()), (0..200usize).prop_map(|head_bytes| Limits { head_bytes })]
}

/// Reads the bytes as both sides, in one piece and split; the results must agree. The functions of `common` check the rest.
fn agree(bytes: &[u8], cuts: &[usize], limits: Limits, is_head_request: bool) -> Result<(), TestCaseError> {
    let is_head_request = [is_head_request, false, true];
    let whole = answers(bytes, &[], limits, &is_head_request);
    prop_assert_eq!(&answers(bytes, cuts, limits, &is_head_request), &whole);
    for cached in twice_with_head_cache(bytes, cuts, limits, &is_head_request) {
        prop_assert_eq!(cached, ending(&whole));
    }
    let (mut dropped, mut same) = (discarding(bytes, limits, &is_head_request), whole);
    dropped.messages.iter_mut().chain(&mut same.messages).for_each(|message| message.body.clear());
    prop_assert_eq!(dropped, same);
    prop_assert_eq!(requests(bytes, cuts, limits), requests(bytes, &[], limits));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1024,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("tests/properties.regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn answers_are_read_as_written(sent in prop::collection::vec(answer(), 0..5), cuts in cuts()) {
        let stream: Vec<u8> = sent.iter().flat_map(|message| message.bytes.clone()).collect();
        let is_head_request: Vec<bool> = sent.iter().map(|message| message.is_head_request).collect();
        let outcome = answers(&stream, &offsets(&cuts, stream.len()), Limits::default(), &is_head_request);
        prop_assert_eq!(&outcome.error, &None);
        prop_assert_eq!(outcome.messages.len(), sent.len());
        for (read, sent) in outcome.messages.iter().zip(&sent) {
            prop_assert_eq!(&read.head.line, &sent.line);
            prop_assert_eq!(&read.head.headers, &sent.headers);
            prop_assert_eq!(read.head.framing, sent.framing);
            prop_assert_eq!(&read.body, &sent.body);
            let done = read.done.expect("all answers are complete");
            prop_assert_eq!(done.keep_alive, sent.keep_alive);
            prop_assert_eq!(done.head_bytes, sent.head_bytes);
            prop_assert_eq!(done.informational_bytes, sent.informational_bytes);
            prop_assert_eq!(done.body_bytes, sent.body.len() as u64);
        }
    }

    #[test]
    fn requests_are_read_as_written(sent in prop::collection::vec(request(), 0..5), cuts in cuts()) {
        let stream: Vec<u8> = sent.iter().flat_map(|message| message.bytes.clone()).collect();
        let outcome = requests(&stream, &offsets(&cuts, stream.len()), Limits::default());
        prop_assert_eq!(&outcome.error, &None);
        prop_assert_eq!(outcome.messages.len(), sent.len());
        for (read, sent) in outcome.messages.iter().zip(&sent) {
            prop_assert_eq!(&read.head.line, &sent.line);
            prop_assert_eq!(&read.head.headers, &sent.headers);
            prop_assert_eq!(read.head.framing, sent.framing);
            prop_assert_eq!(&read.body, &sent.body);
            let done = read.done.expect("all requests are complete");
            prop_assert_eq!(done.keep_alive, sent.keep_alive);
            prop_assert_eq!(done.head_bytes, sent.head_bytes);
            prop_assert_eq!(done.body_bytes, sent.body.len() as u64);
        }
    }

    #[test]
    fn any_bytes_have_one_result_however_split(
        bytes in prop::collection::vec(any::<u8>(), 0..300), cuts in cuts(), limits in limits(),
    ) {
        agree(&bytes, &offsets(&cuts, bytes.len()), limits, false)?;
    }

    #[test]
    fn shards_have_one_result_however_split(
        bytes in shards(), cuts in cuts(), limits in limits(), is_head_request in any::<bool>(),
    ) {
        agree(&bytes, &offsets(&cuts, bytes.len()), limits, is_head_request)?;
    }

    #[test]
    fn mutated_answers_have_one_result_however_split(
        bytes in mutated(answer()), cuts in cuts(), limits in limits(), is_head_request in any::<bool>(),
    ) {
        agree(&bytes, &offsets(&cuts, bytes.len()), limits, is_head_request)?;
    }

    #[test]
    fn mutated_requests_have_one_result_however_split(
        bytes in mutated(request()), cuts in cuts(), limits in limits(),
    ) {
        agree(&bytes, &offsets(&cuts, bytes.len()), limits, false)?;
    }
}
