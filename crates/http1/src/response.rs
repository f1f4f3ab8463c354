//! The client side: reads answers.

use crate::body::Body;
use crate::framing::{Fields, Framing};
use crate::head::{Heads, Kind, parse_response};
use crate::{Error, Fed, Limits};
use httparse::Header;

/// A complete answer. Its four counts of bytes add up to what was taken from the connection for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Response {
    /// Status code of the final answer, 200 to 999.
    pub status: u16,
    /// The connection may carry another request.
    pub keep_alive: bool,
    /// Bytes of the final answer's head.
    pub head_bytes: u64,
    /// Bytes of the informational (1xx) heads before it.
    pub informational_bytes: u64,
    /// Bytes of the payload, after de-chunking and before any content or other transfer decoding.
    pub body_bytes: u64,
    /// Bytes of chunk lines, ends of chunks and trailers, and of empty lines before the answer.
    pub framing_bytes: u64,
}

/// The head of a final answer.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    /// Status code, 200 to 999.
    pub status: u16,
    /// 0 or 1, for HTTP/1.0 and HTTP/1.1.
    pub minor_version: u8,
    /// The reason; empty if missing or not ASCII.
    pub reason: &'a str,
    /// The headers in their order. A folded value still holds its line ends.
    pub headers: &'a [Header<'a>],
    /// How the body ends.
    pub framing: Framing,
    /// The connection may carry another request once the body is read.
    pub keep_alive: bool,
}

/// What to do with the parts of an answer as they arrive; by default nothing.
pub trait ResponseSink {
    /// The head of the final answer is complete.
    #[inline]
    fn head(&mut self, head: &ResponseHead<'_>) {
        let _ = head;
    }

    /// More of the payload, never empty. How it is cut depends on how it was sent and fed.
    #[inline]
    fn body(&mut self, bytes: &[u8]) {
        let _ = bytes;
    }
}

impl ResponseSink for () {}

/// Reads the answers of one connection, one after the other.
///
/// At most 64 bytes, plus at most [`Limits::head_bytes`] (and what a growing vector adds) while a head has
/// come in part.
#[derive(Clone, Debug)]
pub struct ResponseReader {
    heads: Heads,
    body: Body,
    head_bytes: u32,
    informational_bytes: u32,
    status: u16,
    keep_alive: bool,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Before or within a head.
    Head,
    /// After the head of a final answer.
    Body,
    /// A fault was reported.
    Failed,
}

/// What a head means for reading on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meaning {
    pub(crate) status: u16,
    pub(crate) keep_alive: bool,
    pub(crate) framing: Framing,
}

/// What a head came to.
enum Seen {
    Informational { head_bytes: u32 },
    Final { head_bytes: u32, meaning: Meaning },
}

impl Default for ResponseReader {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl ResponseReader {
    /// A reader for a new connection.
    pub fn new(limits: Limits) -> Self {
        ResponseReader {
            heads: Heads::new(limits),
            body: Body::new(Framing::None),
            head_bytes: 0,
            informational_bytes: 0,
            status: 0,
            keep_alive: false,
            phase: Phase::Head,
        }
    }

    /// Reads up to the end of one answer. Takes all `bytes` unless the answer ends before; then it leaves the
    /// rest, which belongs to the next (pipelining), and the reader is ready for that.
    ///
    /// `to_head`: the request this answers was HEAD, so that there is no body whatever the headers say. It
    /// matters in the feed in which the head ends; give the same value with every feed of one answer.
    ///
    /// # Errors
    ///
    /// What is wrong with the answer. The connection cannot be read any further; feeding again is
    /// [`Error::AfterFault`].
    #[inline]
    pub fn feed(
        &mut self,
        bytes: &[u8],
        to_head: bool,
        sink: &mut impl ResponseSink,
    ) -> Result<Fed<Response>, Error> {
        match self.read(bytes, to_head, sink) {
            Ok(fed) => Ok(fed),
            Err(error) => {
                self.phase = Phase::Failed;
                Err(error)
            }
        }
    }

    /// Payload bytes which come next and which the reader need not see: what is left of a body of known
    /// length, or of the current chunk. The caller may read and drop up to this many without feeding them,
    /// for example within the kernel (`MSG_TRUNC`), and then says so to [`ResponseReader::discarded`].
    #[inline]
    pub fn discardable(&self) -> u64 {
        if self.phase == Phase::Body { self.body.run() } else { 0 }
    }

    /// `n` bytes were read and dropped. They count as payload, but the sink does not see them. Returns the
    /// answer if that ended it.
    ///
    /// # Panics
    ///
    /// If `n` is more than [`ResponseReader::discardable`].
    #[inline]
    pub fn discarded(&mut self, n: u64) -> Option<Response> {
        assert!(n <= self.discardable(), "discarded {n} bytes of {} discardable", self.discardable());
        if n == 0 {
            return None;
        }
        self.body.pass(n);
        self.body.is_done().then(|| self.finish())
    }

    /// The peer closed. `Some` is an answer which ends by that; `None` means the connection ended between
    /// two answers.
    ///
    /// # Errors
    ///
    /// The answer is truncated ([`crate::Fault::Truncated`]), or a fault had been reported before
    /// ([`Error::AfterFault`]).
    pub fn eof(&mut self) -> Result<Option<Response>, Error> {
        let result = match self.phase {
            Phase::Head if !self.in_message() => Ok(None),
            Phase::Head => Err(Error::TruncatedHead { got: self.heads.held() }),
            Phase::Body => self.body.eof().map(|()| Some(self.finish())),
            Phase::Failed => Err(Error::AfterFault),
        };
        if result.is_err() {
            self.phase = Phase::Failed;
        }
        result
    }

    /// Some bytes of an answer have been read, and it is not complete. Empty lines before it do not count,
    /// informational answers do. False after a fault.
    #[inline]
    pub fn in_message(&self) -> bool {
        match self.phase {
            Phase::Head => self.heads.held() > 0 || self.informational_bytes > 0,
            Phase::Body => true,
            Phase::Failed => false,
        }
    }

    /// Nothing has been taken of the next answer.
    #[inline]
    pub(crate) fn is_fresh(&self) -> bool {
        self.phase == Phase::Head && self.informational_bytes == 0 && self.heads.is_fresh()
    }

    /// Goes on behind a head of that many bytes, without reading it; false if it is beyond the limit.
    #[inline]
    pub(crate) fn enter_body(&mut self, head_bytes: usize, meaning: Meaning) -> bool {
        let Ok(head_bytes) = u32::try_from(head_bytes) else { return false };
        if head_bytes > self.heads.limit() {
            return false;
        }
        self.begin(head_bytes, meaning);
        true
    }

    /// The head of the answer just fed, if it was the first thing in `bytes`; `done` if that also ended it.
    pub(crate) fn head_at_front<'b>(&self, bytes: &'b [u8], done: Option<&Response>) -> Option<&'b [u8]> {
        let informational = done.map_or(u64::from(self.informational_bytes), |done| done.informational_bytes);
        let alone = informational == 0 && !matches!(bytes.first(), Some(b'\r' | b'\n'));
        alone.then(|| &bytes[..self.head_bytes as usize])
    }

    #[inline]
    fn begin(&mut self, head_bytes: u32, Meaning { status, keep_alive, framing }: Meaning) {
        self.head_bytes = head_bytes;
        self.status = status;
        self.keep_alive = keep_alive;
        self.body = Body::new(framing);
        self.phase = Phase::Body;
    }

    #[inline]
    fn read(
        &mut self,
        bytes: &[u8],
        to_head: bool,
        sink: &mut impl ResponseSink,
    ) -> Result<Fed<Response>, Error> {
        let mut used = 0;
        while self.phase == Phase::Head {
            let (taken, seen) =
                self.heads.feed(&bytes[used..], Kind::Response, |head| see(head, to_head, sink))?;
            used += taken;
            match seen {
                None => return Ok(Fed { used, done: None }),
                Some(Seen::Informational { head_bytes }) => {
                    let limit = self.heads.limit();
                    self.informational_bytes = self.informational_bytes.saturating_add(head_bytes);
                    if self.informational_bytes > limit {
                        return Err(Error::InformationalTooLarge { limit: limit as usize });
                    }
                }
                Some(Seen::Final { head_bytes, meaning }) => self.begin(head_bytes, meaning),
            }
        }
        if self.phase == Phase::Failed {
            return Err(Error::AfterFault);
        }
        used += self.body.feed(&bytes[used..], self.heads.limit(), |part| sink.body(part))?;
        let done = self.body.is_done().then(|| self.finish());
        Ok(Fed { used, done })
    }

    /// The answer is complete: gives it and makes ready for the next.
    #[inline]
    fn finish(&mut self) -> Response {
        self.phase = Phase::Head;
        Response {
            status: self.status,
            keep_alive: self.keep_alive,
            head_bytes: u64::from(self.head_bytes),
            informational_bytes: u64::from(std::mem::take(&mut self.informational_bytes)),
            body_bytes: self.body.payload_bytes(),
            framing_bytes: self.body.framing_bytes() + self.heads.take_empty(),
        }
    }
}

/// Judges a complete head and shows a final one to the sink.
#[inline]
fn see(head: &[u8], to_head: bool, sink: &mut impl ResponseSink) -> Result<Seen, Error> {
    // Not more than the limit, which is an u32.
    let head_bytes = u32::try_from(head.len()).unwrap_or(u32::MAX);
    parse_response(head, |parsed| {
        let status = parsed.code.unwrap_or(0);
        match status {
            0..=99 => return Err(Error::BadStatus { status }),
            // This side never asks for an upgrade (RFC 9110, 15.2.2).
            101 => return Err(Error::UnexpectedUpgrade),
            102..=199 | 100 => return Ok(Seen::Informational { head_bytes }),
            _ => {}
        }
        let minor_version = parsed.version.unwrap_or(1);
        let headers = &*parsed.headers;
        let fields = Fields::read(headers);
        let persistent = fields.keep_alive(minor_version);
        let framing = fields.of_response(status, to_head, minor_version)?;
        let keep_alive = persistent && framing != Framing::UntilClose;
        let reason = parsed.reason.unwrap_or("");
        sink.head(&ResponseHead { status, minor_version, reason, headers, framing, keep_alive });
        Ok(Seen::Final { head_bytes, meaning: Meaning { status, keep_alive, framing } })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reader_stays_small() {
        assert!(size_of::<ResponseReader>() <= 64, "{}", size_of::<ResponseReader>());
    }

    #[test]
    fn discarding_counts_and_ends_the_answer() {
        let mut reader = ResponseReader::new(Limits::default());
        assert_eq!(reader.discardable(), 0);
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n";
        assert_eq!(reader.feed(head, false, &mut ()).unwrap(), Fed { used: head.len(), done: None });
        assert_eq!(reader.feed(b"012", false, &mut ()).unwrap(), Fed { used: 3, done: None });
        assert_eq!(reader.discardable(), 7);
        assert_eq!(reader.discarded(0), None);
        assert_eq!(reader.discarded(6), None);
        let response = reader.discarded(1).unwrap();
        assert_eq!((response.body_bytes, response.head_bytes), (10, head.len() as u64));
        assert!(!reader.in_message());
        assert_eq!(reader.eof(), Ok(None));
    }

    #[test]
    fn discarding_a_chunk_goes_on_with_its_end() {
        let mut reader = ResponseReader::new(Limits::default());
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n";
        assert_eq!(reader.feed(head, false, &mut ()).unwrap().done, None);
        assert_eq!(reader.discardable(), 255);
        assert_eq!(reader.discarded(255), None);
        assert_eq!(reader.discardable(), 0);
        let response = reader.feed(b"\r\n0\r\n\r\n", false, &mut ()).unwrap().done.unwrap();
        assert_eq!((response.body_bytes, response.framing_bytes), (255, 4 + 2 + 5));
    }

    #[test]
    #[should_panic(expected = "discarded 1 bytes of 0 discardable")]
    fn discarding_too_much_panics() {
        ResponseReader::new(Limits::default()).discarded(1);
    }

    #[test]
    fn nothing_is_read_after_a_fault() {
        let mut reader = ResponseReader::new(Limits::default());
        assert_eq!(reader.feed(b"220 smtp", false, &mut ()), Err(Error::NotHttp { at: 0 }));
        assert_eq!(reader.feed(b"HTTP/1.1 ", false, &mut ()), Err(Error::AfterFault));
        assert_eq!(reader.eof(), Err(Error::AfterFault));
        assert!(!reader.in_message());
    }
}
