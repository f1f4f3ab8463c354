//! HTTP/1.1 on the wire, both sides: incremental parsing and framing (RFC 9112, RFC 9110).
//!
//! Sans-IO: the caller reads from its socket and feeds the bytes in pieces of any size. A reader returns how many of them
//! belong to the current message, and the message once it is complete. Neither results nor errors depend on how the bytes
//! were split.
//!
//! * [`ResponseReader`] is the client side, [`RequestReader`] the server side.
//! * Heads and body bytes go to a sink as they arrive; `()` is the sink that drops them.
//! * A head that arrives in one piece is parsed in place, without a copy or an allocation.
//! * [`Limits`] bounds the memory, and no input makes a reader panic.
//!
//! A head is parsed only once it is complete, so that the result does not depend on the split. Only its first bytes are
//! checked earlier, so that another protocol is recognised at once.
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
mod head_cache;
mod request;
mod response;

pub use error::{Error, ErrorKind};
pub use framing::{Framing, is_token, list};
pub use head_cache::HeadCache;
pub use httparse::Header;
pub use request::{Request, RequestHead, RequestReader, RequestSink};
pub use response::{Response, ResponseHead, ResponseReader, ResponseSink};

/// Maximum number of headers in a head.
pub(crate) const MAX_HEADERS: usize = 128;

/// Maximum size of a chunk-size line in bytes, including extensions and CRLF.
pub(crate) const MAX_CHUNK_LINE: usize = 8 * 1024;

/// Maximum bytes of empty lines that are skipped before a message (RFC 9112, 2.2).
pub(crate) const MAX_EMPTY_LINE_BYTES: usize = 16;

/// Limits on what a peer may send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Maximum size of a head in bytes, including the start line and the last empty line. The same limit holds for the
    /// trailers of a chunked body, and for all informational (1xx) heads before one answer. Values above `u32::MAX` count as
    /// `u32::MAX`. Default: 64 KiB.
    pub head_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { head_bytes: 64 * 1024 }
    }
}

/// The result of one feed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fed<T> {
    /// Number of bytes consumed: all of them, unless a message ended earlier.
    pub used: usize,
    /// The message that ended after `used` bytes.
    pub done: Option<T>,
}
