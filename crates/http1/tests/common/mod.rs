//! Reads whole connections in pieces and notes everything a caller can see of it.

// Each test binary compiles this file for itself and uses a part of it.
#![allow(dead_code)]

use http1::{
    Error, Framing, KnownHead, Limits, Request, RequestHead, RequestReader, RequestSink, Response,
    ResponseHead, ResponseReader, ResponseSink,
};

/// What became of one message. `done` is missing if it did not end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Message<T> {
    pub head: Head,
    pub body: Vec<u8>,
    pub done: Option<T>,
}

/// What a sink saw of a head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    /// Version and status or method and target, and the flags.
    pub line: String,
    pub headers: Vec<(String, Vec<u8>)>,
    pub framing: Framing,
    pub keep_alive: bool,
    pub expect_continue: bool,
}

/// What became of a connection, from its first byte to its close.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Outcome<T> {
    pub messages: Vec<Message<T>>,
    /// The fault of a feed, or of the close if every feed was well.
    pub fault: Option<Error>,
    /// The fault is one of the close.
    pub at_close: bool,
    /// The last message ended by the close.
    pub closed: bool,
}

impl<T> Outcome<T> {
    fn new() -> Self {
        Outcome { messages: Vec::new(), fault: None, at_close: false, closed: false }
    }

    fn current(&mut self) -> &mut Message<T> {
        self.messages.last_mut().expect("the head comes first")
    }
}

impl ResponseSink for Outcome<Response> {
    fn head(&mut self, head: &ResponseHead<'_>) {
        let line = format!("{} {} {}", head.minor_version, head.status, head.reason);
        self.messages.push(Message {
            head: Head {
                line,
                headers: owned(head.headers),
                framing: head.framing,
                keep_alive: head.keep_alive,
                expect_continue: false,
            },
            body: Vec::new(),
            done: None,
        });
    }

    fn body(&mut self, bytes: &[u8]) {
        assert!(!bytes.is_empty());
        self.current().body.extend_from_slice(bytes);
    }
}

impl RequestSink for Outcome<Request> {
    fn head(&mut self, head: &RequestHead<'_>) {
        assert_ne!(head.framing, Framing::UntilClose);
        let line = format!("{} {} {}", head.method, head.target, head.minor_version);
        self.messages.push(Message {
            head: Head {
                line,
                headers: owned(head.headers),
                framing: head.framing,
                keep_alive: head.keep_alive,
                expect_continue: head.expect_continue,
            },
            body: Vec::new(),
            done: None,
        });
    }

    fn body(&mut self, bytes: &[u8]) {
        assert!(!bytes.is_empty());
        self.current().body.extend_from_slice(bytes);
    }
}

fn owned(headers: &[http1::Header<'_>]) -> Vec<(String, Vec<u8>)> {
    headers.iter().map(|header| (header.name.to_owned(), header.value.to_owned())).collect()
}

/// Reads answers from `stream`, cut at the offsets `cuts`, which ascend. `to_head` says of each answer whether
/// a HEAD request asked for it; where it ends, none did.
pub(crate) fn answers(stream: &[u8], cuts: &[usize], limits: Limits, to_head: &[bool]) -> Outcome<Response> {
    let mut outcome = Outcome::new();
    let mut reader = ResponseReader::new(limits);
    let (mut read, mut told, mut done) = (0, 0, 0);
    for mut piece in pieces(stream, cuts) {
        while !piece.is_empty() {
            let to_head = to_head.get(done).copied().unwrap_or(false);
            let fed = match reader.feed(piece, to_head, &mut outcome) {
                Ok(fed) => fed,
                Err(error) => {
                    assert_eq!(reader.feed(piece, false, &mut outcome), Err(Error::AfterFault));
                    assert_eq!(reader.eof(), Err(Error::AfterFault));
                    outcome.fault = Some(error);
                    return outcome;
                }
            };
            assert!(fed.used <= piece.len());
            assert!(fed.done.is_some() || fed.used == piece.len(), "bytes left of an open message");
            read += fed.used as u64;
            piece = &piece[fed.used..];
            if let Some(response) = fed.done {
                told += total(&response);
                assert_eq!(told, read, "bytes of the answers and bytes read differ");
                assert!(!reader.in_message());
                assert_eq!(reader.discardable(), 0);
                outcome.current().done = Some(response);
                done += 1;
            }
        }
    }
    assert_eq!(read, stream.len() as u64);
    match reader.eof() {
        Ok(None) => assert!(outcome.messages.iter().all(|message| message.done.is_some())),
        Ok(Some(response)) => {
            assert!(!response.keep_alive);
            assert_eq!(told + total(&response), read, "bytes of the answers and bytes read differ");
            outcome.current().done = Some(response);
            outcome.closed = true;
        }
        Err(error) => {
            outcome.fault = Some(error);
            outcome.at_close = true;
        }
    }
    outcome
}

/// Reads answers as [`answers`] does, but drops all payload that the reader lets it drop.
pub(crate) fn discarding(stream: &[u8], limits: Limits, to_head: &[bool]) -> Outcome<Response> {
    let mut outcome = Outcome::new();
    let mut reader = ResponseReader::new(limits);
    let (mut rest, mut done) = (stream, 0);
    while !rest.is_empty() {
        let n = reader.discardable().min(rest.len() as u64);
        let (used, response) = if n > 0 {
            (n as usize, reader.discarded(n))
        } else {
            // One byte at a time, for the reader not to see payload which may be dropped.
            let to_head = to_head.get(done).copied().unwrap_or(false);
            match reader.feed(&rest[..1], to_head, &mut outcome) {
                Ok(fed) => (fed.used, fed.done),
                Err(error) => {
                    outcome.fault = Some(error);
                    return outcome;
                }
            }
        };
        rest = &rest[used..];
        if let Some(response) = response {
            outcome.current().done = Some(response);
            done += 1;
        }
    }
    match reader.eof() {
        Ok(None) => {}
        Ok(Some(response)) => {
            outcome.current().done = Some(response);
            outcome.closed = true;
        }
        Err(error) => {
            outcome.fault = Some(error);
            outcome.at_close = true;
        }
    }
    outcome
}

/// The complete answers and the fault of a connection that ends so.
pub(crate) type Ending = (Vec<Response>, Option<Error>);

/// What an outcome comes to without its heads and bodies.
pub(crate) fn ending(outcome: &Outcome<Response>) -> Ending {
    (outcome.messages.iter().filter_map(|message| message.done).collect(), outcome.fault.clone())
}

/// Reads answers as [`answers`] does, with a known head carried over from one connection to the next: twice
/// the same connection, so that the second finds known what the first has read.
pub(crate) fn twice_with_known_head(
    stream: &[u8],
    cuts: &[usize],
    limits: Limits,
    to_head: &[bool],
) -> [Ending; 2] {
    let mut known = KnownHead::default();
    [(), ()].map(|()| {
        let mut reader = ResponseReader::new(limits);
        let mut done = Vec::new();
        for mut piece in pieces(stream, cuts) {
            while !piece.is_empty() {
                let to_head = to_head.get(done.len()).copied().unwrap_or(false);
                match reader.feed_known(piece, to_head, &mut known) {
                    Ok(fed) => {
                        piece = &piece[fed.used..];
                        done.extend(fed.done);
                    }
                    Err(error) => return (done, Some(error)),
                }
            }
        }
        match reader.eof() {
            Ok(last) => {
                done.extend(last);
                (done, None)
            }
            Err(error) => (done, Some(error)),
        }
    })
}

/// Reads requests from `stream`, cut at the offsets `cuts`, which ascend.
pub(crate) fn requests(stream: &[u8], cuts: &[usize], limits: Limits) -> Outcome<Request> {
    let mut outcome = Outcome::new();
    let mut reader = RequestReader::new(limits);
    let (mut read, mut told) = (0, 0);
    for mut piece in pieces(stream, cuts) {
        while !piece.is_empty() {
            let fed = match reader.feed(piece, &mut outcome) {
                Ok(fed) => fed,
                Err(error) => {
                    assert_eq!(reader.feed(piece, &mut outcome), Err(Error::AfterFault));
                    assert_eq!(reader.eof(), Err(Error::AfterFault));
                    outcome.fault = Some(error);
                    return outcome;
                }
            };
            assert!(fed.used <= piece.len());
            assert!(fed.done.is_some() || fed.used == piece.len(), "bytes left of an open message");
            assert_eq!(
                reader.awaiting_body(),
                outcome.messages.last().is_some_and(|m| m.done.is_none()) && fed.done.is_none()
            );
            read += fed.used as u64;
            piece = &piece[fed.used..];
            if let Some(request) = fed.done {
                told += request.head_bytes + request.body_bytes + request.framing_bytes;
                assert_eq!(told, read, "bytes of the requests and bytes read differ");
                assert!(!reader.in_message());
                outcome.current().done = Some(request);
            }
        }
    }
    assert_eq!(read, stream.len() as u64);
    if let Err(error) = reader.eof() {
        outcome.fault = Some(error);
        outcome.at_close = true;
    }
    outcome
}

/// The offsets which cut a stream of `len` bytes in pieces of `size`.
pub(crate) fn every(size: usize, len: usize) -> Vec<usize> {
    (size..len).step_by(size).collect()
}

fn total(response: &Response) -> u64 {
    response.head_bytes + response.informational_bytes + response.body_bytes + response.framing_bytes
}

fn pieces<'a>(stream: &'a [u8], cuts: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    let starts = std::iter::once(0).chain(cuts.iter().copied());
    let ends = cuts.iter().copied().chain(std::iter::once(stream.len()));
    starts.zip(ends).map(|(start, end)| &stream[start..end])
}
