//! Reads whole connections in pieces, and records all results.

// Each test binary compiles this file and uses a part of it.
#![allow(dead_code)]

use http1::{
    Error, Framing, HeadCache, Limits, Request, RequestHead, RequestReader, RequestSink, Response,
    ResponseHead, ResponseReader, ResponseSink,
};

/// The result of reading one message. `done` is `None` if the message is incomplete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Message<T> {
    pub head: Head,
    pub body: Vec<u8>,
    pub done: Option<T>,
}

/// The parts of a head that a sink received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    /// Version and status or method and target, and the flags.
    pub line: String,
    pub headers: Vec<(String, Vec<u8>)>,
    pub framing: Framing,
    pub keep_alive: bool,
    pub expect_continue: bool,
}

/// The result of reading a connection, from its first byte to its close.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Outcome<T> {
    pub messages: Vec<Message<T>>,
    /// The error of a feed or, if there is none, of the close.
    pub error: Option<Error>,
    /// The error comes from the close.
    pub at_close: bool,
    /// The close completed the last message.
    pub closed: bool,
}

impl<T> Outcome<T> {
    fn new() -> Self {
        Outcome { messages: Vec::new(), error: None, at_close: false, closed: false }
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

/// Reads answers from `stream`, split at the ascending offsets `cuts`. `is_head_request`: whether each answer is to a HEAD
/// request; false for answers beyond its end.
pub(crate) fn answers(
    stream: &[u8],
    cuts: &[usize],
    limits: Limits,
    is_head_request: &[bool],
) -> Outcome<Response> {
    let mut outcome = Outcome::new();
    let mut reader = ResponseReader::new(limits);
    let (mut read, mut told, mut done) = (0, 0, 0);
    for mut piece in pieces(stream, cuts) {
        while !piece.is_empty() {
            let is_head_request = is_head_request.get(done).copied().unwrap_or(false);
            let fed = match reader.feed(piece, is_head_request, &mut outcome) {
                Ok(fed) => fed,
                Err(error) => {
                    assert_eq!(reader.feed(piece, false, &mut outcome), Err(Error::AfterError));
                    assert_eq!(reader.eof(), Err(Error::AfterError));
                    outcome.error = Some(error);
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
            outcome.error = Some(error);
            outcome.at_close = true;
        }
    }
    outcome
}

/// Reads answers as [`answers`] does, but drops all payload that may be dropped.
pub(crate) fn discarding(stream: &[u8], limits: Limits, is_head_request: &[bool]) -> Outcome<Response> {
    let mut outcome = Outcome::new();
    let mut reader = ResponseReader::new(limits);
    let (mut rest, mut done) = (stream, 0);
    while !rest.is_empty() {
        let n = reader.discardable().min(rest.len() as u64);
        let (used, response) = if n > 0 {
            (n as usize, reader.discarded(n))
        } else {
            // One byte at a time, so that the reader gets no payload that may be dropped.
            let is_head_request = is_head_request.get(done).copied().unwrap_or(false);
            match reader.feed(&rest[..1], is_head_request, &mut outcome) {
                Ok(fed) => (fed.used, fed.done),
                Err(error) => {
                    outcome.error = Some(error);
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
            outcome.error = Some(error);
            outcome.at_close = true;
        }
    }
    outcome
}

/// The complete answers of a connection, and its error.
pub(crate) type Ending = (Vec<Response>, Option<Error>);

/// The ending of an outcome, without heads and bodies.
pub(crate) fn ending(outcome: &Outcome<Response>) -> Ending {
    (outcome.messages.iter().filter_map(|message| message.done).collect(), outcome.error.clone())
}

/// Reads answers as [`answers`] does, but reads the same connection twice with one head cache, so that the second
/// reading finds the heads of the first.
pub(crate) fn twice_with_head_cache(
    stream: &[u8],
    cuts: &[usize],
    limits: Limits,
    is_head_request: &[bool],
) -> [Ending; 2] {
    let mut cache = HeadCache::default();
    [(), ()].map(|()| {
        let mut reader = ResponseReader::new(limits);
        let mut done = Vec::new();
        for mut piece in pieces(stream, cuts) {
            while !piece.is_empty() {
                let is_head_request = is_head_request.get(done.len()).copied().unwrap_or(false);
                match reader.feed_cached(piece, is_head_request, &mut cache) {
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

/// Reads requests from `stream`, split at the ascending offsets `cuts`.
pub(crate) fn requests(stream: &[u8], cuts: &[usize], limits: Limits) -> Outcome<Request> {
    let mut outcome = Outcome::new();
    let mut reader = RequestReader::new(limits);
    let (mut read, mut told) = (0, 0);
    for mut piece in pieces(stream, cuts) {
        while !piece.is_empty() {
            let fed = match reader.feed(piece, &mut outcome) {
                Ok(fed) => fed,
                Err(error) => {
                    assert_eq!(reader.feed(piece, &mut outcome), Err(Error::AfterError));
                    assert_eq!(reader.eof(), Err(Error::AfterError));
                    outcome.error = Some(error);
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
        outcome.error = Some(error);
        outcome.at_close = true;
    }
    outcome
}

/// The offsets that split a stream of `len` bytes in pieces of `size`.
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
