//! Reads any bytes as a connection, from both sides, whole and cut: the outcome must be the same, and what the
//! readers promise must hold. The functions of `common` check most of that; they are those of the crate's tests.
//!
//! Input: a byte of flags (1: a small limit, of four times the upper five bits; 2: the first answer is to HEAD;
//! 4: the second is), three bytes with the sizes of the pieces, repeated, and the bytes of the connection.

#[path = "../../crates/http1/tests/common/mod.rs"]
mod common;

use common::{Message, Outcome, answers, discarding, ending, every, requests, twice_with_head_cache};
use http1::{Framing, Limits, Request};

/// Panics when a promise is broken; false for bytes that say nothing.
pub(super) fn check(data: &[u8]) -> bool {
    let Some(([flags, sizes @ ..], stream)) = data.split_first_chunk::<4>() else {
        return false;
    };
    let limits =
        if flags & 1 != 0 { Limits { head_bytes: usize::from(flags >> 3) * 4 } } else { Limits::default() };
    let is_head_request = [flags & 2 != 0, flags & 4 != 0];
    let cuts = repeated(sizes, stream.len());

    let whole = answers(stream, &[], limits, &is_head_request);
    assert_eq!(answers(stream, &cuts, limits, &is_head_request), whole);
    assert_eq!(answers(stream, &every(1, stream.len()), limits, &is_head_request), whole);
    for cuts in [&[][..], &cuts] {
        for cached in twice_with_head_cache(stream, cuts, limits, &is_head_request) {
            assert_eq!(cached, ending(&whole));
        }
    }
    let counts = done(&whole)
        .map(|done| [done.informational_bytes, done.head_bytes, done.framing_bytes, done.body_bytes]);
    chunks_as_sent(&whole, counts, stream);
    let (mut dropped, mut same) = (discarding(stream, limits, &is_head_request), whole);
    dropped.messages.iter_mut().chain(&mut same.messages).for_each(|message| message.body.clear());
    assert_eq!(dropped, same);

    let whole = requests(stream, &[], limits);
    assert_eq!(requests(stream, &cuts, limits), whole);
    assert_eq!(requests(stream, &every(1, stream.len()), limits), whole);
    let counts = done(&whole).map(|done| [0, done.head_bytes, done.framing_bytes, done.body_bytes]);
    chunks_as_sent(&whole, counts, stream);
    whole.messages.iter().for_each(unambiguous);
    true
}

/// A request which was let through has one end, which no other reader of its headers can see elsewhere.
fn unambiguous(message: &Message<Request>) {
    let count = |wanted: &str| {
        message.head.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(wanted)).count()
    };
    let (lengths, codings) = (count("content-length"), count("transfer-encoding"));
    match message.head.framing {
        Framing::None => assert_eq!((lengths, codings), (0, 0)),
        Framing::Length(length) => {
            assert!(lengths > 0 && codings == 0);
            let done = message.done.is_some();
            assert_eq!(message.body.len() as u64 == length, done);
        }
        Framing::Chunked => assert_eq!((lengths, codings), (0, 1)),
        Framing::UntilClose => panic!("a request which ends by the close"),
    }
}

/// The messages which are complete, in order.
fn done<T: Copy>(outcome: &Outcome<T>) -> impl Iterator<Item = T> {
    outcome.messages.iter().map_while(|message| message.done)
}

/// The chunked bodies which were let through are what a decoder as plain as can be makes of them. `counts` are of
/// each complete message the bytes of informational heads, of the head, of framing, and of the body.
fn chunks_as_sent<T>(outcome: &Outcome<T>, counts: impl Iterator<Item = [u64; 4]>, stream: &[u8]) {
    let mut end = 0;
    for (message, counts) in outcome.messages.iter().zip(counts) {
        let [informational, head, ..] = counts.map(|count| count as usize);
        let sent = &stream[end..][..counts.iter().sum::<u64>() as usize];
        end += sent.len();
        // Where informational heads came before, empty lines may stand anywhere among the heads.
        if message.head.framing == Framing::Chunked && informational == 0 {
            let empty = sent.iter().take_while(|&&byte| byte == b'\r' || byte == b'\n').count();
            assert_eq!(plainly_decoded(&sent[empty + head..]).as_ref(), Some(&message.body));
        }
    }
}

/// The data of the chunks, without a look at extensions and trailers.
fn plainly_decoded(mut sent: &[u8]) -> Option<Vec<u8>> {
    let mut data = Vec::new();
    loop {
        let line = sent.windows(2).position(|two| two == b"\r\n")?;
        let digits = sent[..line].split(|b| b"; \t".contains(b)).next()?;
        if digits.is_empty() || digits.len() > 16 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let size = usize::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        sent = &sent[line + 2..];
        if size == 0 {
            return sent.ends_with(b"\r\n").then_some(data);
        }
        data.extend_from_slice(sent.get(..size)?);
        sent = sent[size..].strip_prefix(b"\r\n")?;
    }
}

/// The offsets which cut a stream of `len` bytes in pieces of 1 to 256 bytes, of these sizes less one in turn.
fn repeated(sizes: &[u8], len: usize) -> Vec<usize> {
    let pieces = sizes.iter().cycle().map(|&size| usize::from(size) + 1);
    let ends = pieces.scan(0, |end, size| {
        *end += size;
        Some(*end)
    });
    ends.take_while(|&end| end < len).collect()
}
