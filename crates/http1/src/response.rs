//! The client side: reads answers.

use crate::body::{Body, Phase};
use crate::framing::{Fields, Framing};
use crate::head::{HeadBuffer, Kind, parse_response};
use crate::{Error, Fed, Limits};
use httparse::Header;

/// A complete answer. Its four byte counts add up to all bytes that the answer took on the connection.
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
    /// Bytes of chunk-size lines, ends of chunks, trailers, and empty lines before the answer.
    pub framing_bytes: u64,
}

/// The head of a final answer.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    /// Status code, 200 to 999.
    pub status: u16,
    /// 0 or 1, for HTTP/1.0 and HTTP/1.1.
    pub minor_version: u8,
    /// The reason phrase; empty if missing or not ASCII.
    pub reason: &'a str,
    /// The headers in the order sent. A folded value still contains its line ends.
    pub headers: &'a [Header<'a>],
    /// How the body ends.
    pub framing: Framing,
    /// The connection may carry another request once the body is read.
    pub keep_alive: bool,
}

/// Receives the parts of an answer as they arrive. The default methods do nothing.
pub trait ResponseSink {
    /// The head of the final answer is complete.
    #[inline]
    fn head(&mut self, head: &ResponseHead<'_>) {
        let _ = head;
    }

    /// The next part of the payload, never empty. The sizes of the parts depend on how the payload was sent and fed.
    #[inline]
    fn body(&mut self, bytes: &[u8]) {
        let _ = bytes;
    }
}

impl ResponseSink for () {}

/// Reads the answers of one connection, one after the other.
///
/// A reader takes at most 64 bytes of memory, plus a buffer of at most [`Limits::head_bytes`] while a head is incomplete.
#[derive(Clone, Debug)]
pub struct ResponseReader {
    head_buffer: HeadBuffer,
    body: Body,
    head_bytes: u32,
    informational_bytes: u32,
    status: u16,
    keep_alive: bool,
    phase: Phase,
}

/// The properties of a head that the reader needs after parsing it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParsedHead {
    pub(crate) status: u16,
    pub(crate) keep_alive: bool,
    pub(crate) framing: Framing,
}

/// The result of parsing a head.
enum HeadResult {
    Informational { head_bytes: u32 },
    Final { head_bytes: u32, parsed_head: ParsedHead },
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
            head_buffer: HeadBuffer::new(limits),
            body: Body::new(Framing::None),
            head_bytes: 0,
            informational_bytes: 0,
            status: 0,
            keep_alive: false,
            phase: Phase::Head,
        }
    }

    /// Reads up to the end of one answer. Consumes all `bytes` unless the answer ends earlier; the rest then belongs to the
    /// next answer (pipelining), for which the reader is ready.
    ///
    /// `is_head_request`: the answer is to a HEAD request and has no body, whatever its headers say. Pass the same value
    /// with every feed of one answer.
    ///
    /// # Errors
    ///
    /// When the answer is malformed. The connection cannot be read any further; another feed returns
    /// [`Error::AfterError`].
    #[inline]
    pub fn feed(
        &mut self,
        bytes: &[u8],
        is_head_request: bool,
        sink: &mut impl ResponseSink,
    ) -> Result<Fed<Response>, Error> {
        match self.read(bytes, is_head_request, sink) {
            Ok(fed) => Ok(fed),
            Err(error) => {
                self.phase = Phase::Failed;
                Err(error)
            }
        }
    }

    /// Number of payload bytes that come next and that the reader need not see: the rest of a body of known length, or of
    /// the current chunk. The caller may drop up to this number of bytes unread, for example within the kernel
    /// (`MSG_TRUNC`), and then calls [`ResponseReader::discarded`].
    #[inline]
    pub fn discardable(&self) -> u64 {
        if self.phase == Phase::Body { self.body.skippable() } else { 0 }
    }

    /// Records that `n` bytes were dropped. They count as payload, but the sink does not get them. Returns the answer if it
    /// is complete now.
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
        self.body.skip(n);
        self.body.is_done().then(|| self.finish())
    }

    /// Handles the end of the peer's stream. Returns the answer that ends with it, or `None` between two answers.
    ///
    /// # Errors
    ///
    /// When the answer is truncated ([`crate::ErrorKind::Truncated`]), or after an earlier error ([`Error::AfterError`]).
    pub fn eof(&mut self) -> Result<Option<Response>, Error> {
        let result = match self.phase {
            Phase::Head if !self.in_message() => Ok(None),
            Phase::Head => Err(Error::TruncatedHead { got: self.head_buffer.buffered_bytes() }),
            Phase::Body => self.body.eof().map(|()| Some(self.finish())),
            Phase::Failed => Err(Error::AfterError),
        };
        if result.is_err() {
            self.phase = Phase::Failed;
        }
        result
    }

    /// Whether an answer has begun and is incomplete. Empty lines before it do not count, informational answers do. False
    /// after an error.
    #[inline]
    pub fn in_message(&self) -> bool {
        match self.phase {
            Phase::Head => self.head_buffer.buffered_bytes() > 0 || self.informational_bytes > 0,
            Phase::Body => true,
            Phase::Failed => false,
        }
    }

    /// Whether the reader has consumed nothing of the next answer.
    #[inline]
    pub(crate) fn is_fresh(&self) -> bool {
        self.phase == Phase::Head && self.informational_bytes == 0 && self.head_buffer.is_fresh()
    }

    /// Skips a cached head of this length and starts its body. Returns false if the head exceeds the limit.
    #[inline]
    pub(crate) fn enter_body(&mut self, head_bytes: usize, parsed_head: ParsedHead) -> bool {
        let Ok(head_bytes) = u32::try_from(head_bytes) else { return false };
        if head_bytes > self.head_buffer.limit() {
            return false;
        }
        self.begin(head_bytes, parsed_head);
        true
    }

    /// The head of the answer that was just fed, if it begins `bytes`. `done`: the answer, if it is complete.
    pub(crate) fn head_at_front<'b>(&self, bytes: &'b [u8], done: Option<&Response>) -> Option<&'b [u8]> {
        let informational = done.map_or(u64::from(self.informational_bytes), |done| done.informational_bytes);
        let alone = informational == 0 && !matches!(bytes.first(), Some(b'\r' | b'\n'));
        alone.then(|| &bytes[..self.head_bytes as usize])
    }

    #[inline]
    fn begin(&mut self, head_bytes: u32, ParsedHead { status, keep_alive, framing }: ParsedHead) {
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
        is_head_request: bool,
        sink: &mut impl ResponseSink,
    ) -> Result<Fed<Response>, Error> {
        let mut used = 0;
        while self.phase == Phase::Head {
            let (taken, seen) = self
                .head_buffer
                .feed(&bytes[used..], Kind::Response, |head| interpret(head, is_head_request, sink))?;
            used += taken;
            match seen {
                None => return Ok(Fed { used, done: None }),
                Some(HeadResult::Informational { head_bytes }) => {
                    let limit = self.head_buffer.limit();
                    self.informational_bytes = self.informational_bytes.saturating_add(head_bytes);
                    if self.informational_bytes > limit {
                        return Err(Error::InformationalTooLarge { limit: limit as usize });
                    }
                }
                Some(HeadResult::Final { head_bytes, parsed_head }) => self.begin(head_bytes, parsed_head),
            }
        }
        if self.phase == Phase::Failed {
            return Err(Error::AfterError);
        }
        used += self.body.feed(&bytes[used..], self.head_buffer.limit(), |part| sink.body(part))?;
        let done = self.body.is_done().then(|| self.finish());
        Ok(Fed { used, done })
    }

    /// Returns the complete answer and prepares for the next.
    #[inline]
    fn finish(&mut self) -> Response {
        self.phase = Phase::Head;
        Response {
            status: self.status,
            keep_alive: self.keep_alive,
            head_bytes: u64::from(self.head_bytes),
            informational_bytes: u64::from(std::mem::take(&mut self.informational_bytes)),
            body_bytes: self.body.payload_bytes(),
            framing_bytes: self.body.framing_bytes() + self.head_buffer.take_empty_bytes(),
        }
    }
}

/// Parses a complete head. Passes it to the sink if the answer is final.
#[inline]
fn interpret(head: &[u8], is_head_request: bool, sink: &mut impl ResponseSink) -> Result<HeadResult, Error> {
    // The length is at most the head limit, a u32, so this never saturates.
    let head_bytes = u32::try_from(head.len()).unwrap_or(u32::MAX);
    parse_response(head, |parsed| {
        let status = parsed.code.unwrap_or(0);
        match status {
            0..=99 => return Err(Error::BadStatus { status }),
            // This client never requests an upgrade (RFC 9110, 15.2.2).
            101 => return Err(Error::UnexpectedUpgrade),
            102..=199 | 100 => return Ok(HeadResult::Informational { head_bytes }),
            _ => {}
        }
        let minor_version = parsed.version.unwrap_or(1);
        let headers = &*parsed.headers;
        let fields = Fields::read(headers);
        let persistent = fields.keep_alive(minor_version);
        let framing = fields.of_response(status, is_head_request, minor_version)?;
        let keep_alive = persistent && framing != Framing::UntilClose;
        let reason = parsed.reason.unwrap_or("");
        sink.head(&ResponseHead { status, minor_version, reason, headers, framing, keep_alive });
        Ok(HeadResult::Final { head_bytes, parsed_head: ParsedHead { status, keep_alive, framing } })
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
    fn after_a_discarded_chunk_its_end_is_read() {
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
    fn nothing_is_read_after_an_error() {
        let mut reader = ResponseReader::new(Limits::default());
        assert_eq!(reader.feed(b"220 smtp", false, &mut ()), Err(Error::NotHttp { at: 0 }));
        assert_eq!(reader.feed(b"HTTP/1.1 ", false, &mut ()), Err(Error::AfterError));
        assert_eq!(reader.eof(), Err(Error::AfterError));
        assert!(!reader.in_message());
    }
}
