//! HTTP/1.1 on the wire, both sides: incremental parsing and framing (RFC 9112, RFC 9110).
//!
//! Sans-IO: the caller reads from its socket and feeds what came, in pieces of any size; a reader says how
//! much of it belonged to the current message and whether that message is complete. The result does not
//! depend on how the bytes were split, faults included.
//!
//! * [`ResponseReader`] is the client side, [`RequestReader`] the server side.
//! * Heads and body bytes go to a sink as they arrive; `()` is the sink which drops them.
//! * A head which arrives in one piece is parsed in place, without a copy and without an allocation.
//! * Memory is bounded by [`Limits`], and no input makes a reader panic.
//!
//! A head is judged when it has ended, so that the verdict is the same however it was split; only its first
//! bytes are looked at before, so that another protocol is recognised at once.
//!
//! ```
//! let mut reader = http1::ResponseReader::new(http1::Limits::default());
//! let fed = reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", false, &mut ()).unwrap();
//! assert!(fed.done.is_none());
//! let fed = reader.feed(b"loHTTP/1.1 204 No Content\r\n\r\n", false, &mut ()).unwrap();
//! assert_eq!(fed.used, 2);
//! let response = fed.done.unwrap();
//! assert_eq!((response.status, response.body_bytes, response.keep_alive), (200, 5, true));
//! ```

mod body;
mod error;
mod framing;
mod head;
mod known;
mod request;
mod response;

pub use error::{Error, Fault};
pub use framing::Framing;
pub use httparse::Header;
pub use known::KnownHead;
pub use request::{Request, RequestHead, RequestReader, RequestSink};
pub use response::{Response, ResponseHead, ResponseReader, ResponseSink};

/// The most headers a head may have.
pub(crate) const MAX_HEADERS: usize = 128;

/// The most bytes the line of a chunk's size may have, extensions and CRLF included.
pub(crate) const MAX_CHUNK_LINE: usize = 8 * 1024;

/// The most bytes of empty lines which are skipped before a message (RFC 9112, 2.2).
pub(crate) const MAX_EMPTY_LINE_BYTES: usize = 16;

/// Bounds on what a peer may send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The most bytes a head may have, its start line and last empty line included; also the most bytes of
    /// the trailers of a chunked body, and of all informational (1xx) heads before one answer. Values above
    /// `u32::MAX` count as `u32::MAX`. Default: 64 KiB.
    pub head_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { head_bytes: 64 * 1024 }
    }
}

/// What one feed came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fed<T> {
    /// Bytes consumed: all of them, unless a message ended before.
    pub used: usize,
    /// The message which ended after `used` bytes.
    pub done: Option<T>,
}
