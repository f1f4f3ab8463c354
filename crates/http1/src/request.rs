//! The server side: reads requests.

use crate::body::{Body, Phase};
use crate::framing::{Fields, Framing};
use crate::head::{HeadBuffer, Kind, parse_request};
use crate::{Error, Fed, Limits};
use httparse::Header;

/// A complete request. Its byte counts add up to all bytes that the request took on the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The client keeps the connection open for another request.
    pub keep_alive: bool,
    /// Bytes of the head.
    pub head_bytes: u64,
    /// Bytes of the payload, after de-chunking.
    pub body_bytes: u64,
    /// Bytes of chunk-size lines, ends of chunks, trailers, and empty lines before the request.
    pub framing_bytes: u64,
}

/// The head of a request. The reader does not check that an HTTP/1.1 request has exactly one Host header (RFC 9112, 3.2).
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// The method as sent, a token; methods are case-sensitive.
    pub method: &'a str,
    /// The target as sent, not empty.
    pub target: &'a str,
    /// 0 or 1, for HTTP/1.0 and HTTP/1.1.
    pub minor_version: u8,
    /// The headers in the order sent.
    pub headers: &'a [Header<'a>],
    /// How the body ends; never [`Framing::UntilClose`].
    pub framing: Framing,
    /// The client keeps the connection open for another request.
    pub keep_alive: bool,
    /// The client waits for `100 Continue` before it sends the body (RFC 9110, 10.1.1). False without a body.
    pub expect_continue: bool,
}

/// Receives the parts of a request as they arrive. The default methods do nothing.
pub trait RequestSink {
    /// The head is complete.
    #[inline]
    fn head(&mut self, head: &RequestHead<'_>) {
        let _ = head;
    }

    /// The next part of the payload, never empty. The sizes of the parts depend on how the payload was sent and fed.
    #[inline]
    fn body(&mut self, bytes: &[u8]) {
        let _ = bytes;
    }
}

impl RequestSink for () {}

/// Reads the requests of one connection, one after the other.
///
/// A reader takes at most 64 bytes of memory, plus a buffer of at most [`Limits::head_bytes`] while a head is incomplete.
/// Bodies may have any size, because they are not stored.
#[derive(Clone, Debug)]
pub struct RequestReader {
    head_buffer: HeadBuffer,
    body: Body,
    head_bytes: u32,
    keep_alive: bool,
    phase: Phase,
}

/// The properties of a head that the reader needs after parsing it.
struct HeadResult {
    head_bytes: u32,
    keep_alive: bool,
    framing: Framing,
}

impl RequestReader {
    /// A reader for a new connection.
    pub fn new(limits: Limits) -> Self {
        RequestReader {
            head_buffer: HeadBuffer::new(limits),
            body: Body::new(Framing::None),
            head_bytes: 0,
            keep_alive: false,
            phase: Phase::Head,
        }
    }

    /// Reads up to the end of one request. Consumes all `bytes` unless the request ends earlier; the rest then belongs to
    /// the next request (pipelining), for which the reader is ready.
    ///
    /// # Errors
    ///
    /// When the request is malformed. The connection cannot be read any further; another feed returns
    /// [`Error::AfterError`].
    #[inline]
    pub fn feed(&mut self, bytes: &[u8], sink: &mut impl RequestSink) -> Result<Fed<Request>, Error> {
        match self.read(bytes, sink) {
            Ok(fed) => Ok(fed),
            Err(error) => {
                self.phase = Phase::Failed;
                Err(error)
            }
        }
    }

    /// Handles the end of the peer's stream. `Ok` between two requests.
    ///
    /// # Errors
    ///
    /// When the request is truncated ([`crate::ErrorKind::Truncated`]), or after an earlier error ([`Error::AfterError`]).
    pub fn eof(&mut self) -> Result<(), Error> {
        let result = match self.phase {
            Phase::Head if !self.in_message() => Ok(()),
            Phase::Head => Err(Error::TruncatedHead { got: self.head_buffer.buffered_bytes() }),
            Phase::Body => self.body.eof(),
            Phase::Failed => Err(Error::AfterError),
        };
        if result.is_err() {
            self.phase = Phase::Failed;
        }
        result
    }

    /// Whether a request has begun and is incomplete. Empty lines before it do not count. False after an error.
    #[inline]
    pub fn in_message(&self) -> bool {
        match self.phase {
            Phase::Head => self.head_buffer.buffered_bytes() > 0,
            Phase::Body => true,
            Phase::Failed => false,
        }
    }

    /// Whether the head of a request was read and its body is incomplete.
    #[inline]
    pub fn awaiting_body(&self) -> bool {
        self.phase == Phase::Body
    }

    #[inline]
    fn read(&mut self, bytes: &[u8], sink: &mut impl RequestSink) -> Result<Fed<Request>, Error> {
        let mut used = 0;
        match self.phase {
            Phase::Head => {
                let (taken, seen) =
                    self.head_buffer.feed(bytes, Kind::Request, |head| interpret(head, sink))?;
                used = taken;
                let Some(seen) = seen else { return Ok(Fed { used, done: None }) };
                self.head_bytes = seen.head_bytes;
                self.keep_alive = seen.keep_alive;
                self.body = Body::new(seen.framing);
                self.phase = Phase::Body;
            }
            Phase::Body => {}
            Phase::Failed => return Err(Error::AfterError),
        }
        used += self.body.feed(&bytes[used..], self.head_buffer.limit(), |part| sink.body(part))?;
        let done = self.body.is_done().then(|| self.finish());
        Ok(Fed { used, done })
    }

    /// Returns the complete request and prepares for the next.
    #[inline]
    fn finish(&mut self) -> Request {
        self.phase = Phase::Head;
        Request {
            keep_alive: self.keep_alive,
            head_bytes: u64::from(self.head_bytes),
            body_bytes: self.body.payload_bytes(),
            framing_bytes: self.body.framing_bytes() + self.head_buffer.take_empty_bytes(),
        }
    }
}

/// Parses a complete head and passes it to the sink.
#[inline]
fn interpret(head: &[u8], sink: &mut impl RequestSink) -> Result<HeadResult, Error> {
    // The length is at most the head limit, a u32, so this never saturates.
    let head_bytes = u32::try_from(head.len()).unwrap_or(u32::MAX);
    parse_request(head, |parsed| {
        let minor_version = parsed.version.unwrap_or(1);
        let headers = &*parsed.headers;
        let fields = Fields::read(headers);
        let keep_alive = fields.keep_alive(minor_version);
        let expects = fields.expect_continue(minor_version);
        let framing = fields.of_request(minor_version)?;
        sink.head(&RequestHead {
            method: parsed.method.unwrap_or(""),
            target: parsed.path.unwrap_or(""),
            minor_version,
            headers,
            framing,
            keep_alive,
            expect_continue: expects && !matches!(framing, Framing::None | Framing::Length(0)),
        });
        Ok(HeadResult { head_bytes, keep_alive, framing })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reader_stays_small() {
        assert!(size_of::<RequestReader>() <= 64, "{}", size_of::<RequestReader>());
    }

    #[test]
    fn the_body_is_awaited_from_the_end_of_the_head() {
        let mut reader = RequestReader::new(Limits::default());
        let head = b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n";
        assert_eq!(reader.feed(&head[..20], &mut ()), Ok(Fed { used: 20, done: None }));
        assert!(reader.in_message() && !reader.awaiting_body());
        assert_eq!(reader.feed(&head[20..], &mut ()), Ok(Fed { used: head.len() - 20, done: None }));
        assert!(reader.in_message() && reader.awaiting_body());
        let fed = reader.feed(b"abGET", &mut ()).unwrap();
        assert_eq!((fed.used, fed.done.map(|request| request.body_bytes)), (2, Some(2)));
        assert!(!reader.in_message() && !reader.awaiting_body());
        assert_eq!(reader.eof(), Ok(()));
    }

    #[test]
    fn another_protocol_is_recognised_at_its_first_byte() {
        let mut reader = RequestReader::new(Limits::default());
        let tls = [0x16, 0x03, 0x01];
        assert_eq!(reader.feed(&tls, &mut ()), Err(Error::BadMethod { at: 0 }));
        assert_eq!(reader.feed(&tls, &mut ()), Err(Error::AfterError));
        assert_eq!(reader.eof(), Err(Error::AfterError));
    }
}
