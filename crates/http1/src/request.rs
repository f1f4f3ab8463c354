//! The server side: reads requests.

use crate::body::Body;
use crate::framing::{Fields, Framing};
use crate::head::{Heads, Kind, parse_request};
use crate::{Error, Fed, Limits};
use httparse::Header;

/// A complete request. Its counts of bytes add up to what was taken from the connection for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The client keeps the connection open for another request.
    pub keep_alive: bool,
    /// Bytes of the head.
    pub head_bytes: u64,
    /// Bytes of the payload, after de-chunking.
    pub body_bytes: u64,
    /// Bytes of chunk lines, ends of chunks and trailers, and of empty lines before the request.
    pub framing_bytes: u64,
}

/// The head of a request. That HTTP/1.1 asks for exactly one Host header (RFC 9112, 3.2) is left to the
/// server to check.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// The method as sent, a token; methods are case-sensitive.
    pub method: &'a str,
    /// The target as sent, not empty.
    pub target: &'a str,
    /// 0 or 1, for HTTP/1.0 and HTTP/1.1.
    pub minor_version: u8,
    /// The headers in their order.
    pub headers: &'a [Header<'a>],
    /// How the body ends; never [`Framing::UntilClose`].
    pub framing: Framing,
    /// The client keeps the connection open for another request.
    pub keep_alive: bool,
    /// The client waits for `100 Continue` before it sends the body (RFC 9110, 10.1.1). Only ever true if a
    /// body is announced.
    pub expect_continue: bool,
}

/// What to do with the parts of a request as they arrive; by default nothing.
pub trait RequestSink {
    /// The head is complete.
    #[inline]
    fn head(&mut self, head: &RequestHead<'_>) {
        let _ = head;
    }

    /// More of the payload, never empty. How it is cut depends on how it was sent and fed.
    #[inline]
    fn body(&mut self, bytes: &[u8]) {
        let _ = bytes;
    }
}

impl RequestSink for () {}

/// Reads the requests of one connection, one after the other.
///
/// At most 64 bytes, plus at most [`Limits::head_bytes`] (and what a growing vector adds) while a head has
/// come in part. The size of bodies is not bounded here, since nothing of them is held.
#[derive(Clone, Debug)]
pub struct RequestReader {
    heads: Heads,
    body: Body,
    head_bytes: u32,
    keep_alive: bool,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Before or within a head.
    Head,
    /// After a head.
    Body,
    /// A fault was reported.
    Failed,
}

/// What is kept of a head.
struct Seen {
    head_bytes: u32,
    keep_alive: bool,
    framing: Framing,
}

impl RequestReader {
    /// A reader for a new connection.
    pub fn new(limits: Limits) -> Self {
        RequestReader {
            heads: Heads::new(limits),
            body: Body::new(Framing::None),
            head_bytes: 0,
            keep_alive: false,
            phase: Phase::Head,
        }
    }

    /// Reads up to the end of one request. Takes all `bytes` unless the request ends before; then it leaves
    /// the rest, which belongs to the next (pipelining), and the reader is ready for that.
    ///
    /// # Errors
    ///
    /// What is wrong with the request. The connection cannot be read any further; feeding again is
    /// [`Error::AfterFault`].
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

    /// The peer closed, or will not send more. `Ok`: between two requests.
    ///
    /// # Errors
    ///
    /// The request is truncated ([`crate::Fault::Truncated`]), or a fault had been reported before
    /// ([`Error::AfterFault`]).
    pub fn eof(&mut self) -> Result<(), Error> {
        let result = match self.phase {
            Phase::Head if !self.in_message() => Ok(()),
            Phase::Head => Err(Error::TruncatedHead { got: self.heads.held() }),
            Phase::Body => self.body.eof(),
            Phase::Failed => Err(Error::AfterFault),
        };
        if result.is_err() {
            self.phase = Phase::Failed;
        }
        result
    }

    /// Some bytes of a request have been read, and it is not complete. Empty lines before it do not count.
    /// False after a fault.
    #[inline]
    pub fn in_message(&self) -> bool {
        match self.phase {
            Phase::Head => self.heads.held() > 0,
            Phase::Body => true,
            Phase::Failed => false,
        }
    }

    /// The head of a request has been read, and its body is not complete.
    #[inline]
    pub fn awaiting_body(&self) -> bool {
        self.phase == Phase::Body
    }

    #[inline]
    fn read(&mut self, bytes: &[u8], sink: &mut impl RequestSink) -> Result<Fed<Request>, Error> {
        let mut used = 0;
        match self.phase {
            Phase::Head => {
                let (taken, seen) = self.heads.feed(bytes, Kind::Request, |head| see(head, sink))?;
                used = taken;
                let Some(seen) = seen else { return Ok(Fed { used, done: None }) };
                self.head_bytes = seen.head_bytes;
                self.keep_alive = seen.keep_alive;
                self.body = Body::new(seen.framing);
                self.phase = Phase::Body;
            }
            Phase::Body => {}
            Phase::Failed => return Err(Error::AfterFault),
        }
        used += self.body.feed(&bytes[used..], self.heads.limit(), |part| sink.body(part))?;
        let done = self.body.is_done().then(|| self.finish());
        Ok(Fed { used, done })
    }

    /// The request is complete: gives it and makes ready for the next.
    #[inline]
    fn finish(&mut self) -> Request {
        self.phase = Phase::Head;
        Request {
            keep_alive: self.keep_alive,
            head_bytes: u64::from(self.head_bytes),
            body_bytes: self.body.payload_bytes(),
            framing_bytes: self.body.framing_bytes() + self.heads.take_empty(),
        }
    }
}

/// Judges a complete head and shows it to the sink.
#[inline]
fn see(head: &[u8], sink: &mut impl RequestSink) -> Result<Seen, Error> {
    // Not more than the limit, which is an u32.
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
        Ok(Seen { head_bytes, keep_alive, framing })
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
    fn another_protocol_is_told_at_its_first_byte() {
        let mut reader = RequestReader::new(Limits::default());
        let tls = [0x16, 0x03, 0x01];
        assert_eq!(reader.feed(&tls, &mut ()), Err(Error::BadMethod { at: 0 }));
        assert_eq!(reader.feed(&tls, &mut ()), Err(Error::AfterFault));
        assert_eq!(reader.eof(), Err(Error::AfterFault));
    }
}
