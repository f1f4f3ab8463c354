//! The state of a connection. An idle connection holds no buffers.

use http1::{Limits, RequestReader};
use sockets::{ConnectionPermit, Token};

use crate::{incoming::IncomingRequest, stream::Stream};

/// The activity of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waiting for a request, or reading one.
    Reading,
    /// A request was read, and waits for the body reader or the storage.
    Storing,
    /// Sending an answer.
    Writing,
    /// Closed by the listener; received bytes are discarded, because a reset would destroy the answer.
    Lingering,
}

/// The event that a connection waits for until its deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    Request,
    Head,
    Body,
    Storage,
    Client,
    Linger,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection<'a> {
    pub stream: Stream,
    pub token: Token,
    pub reader: RequestReader,
    pub phase: Phase,
    /// The socket may have bytes, or an end of stream, to read.
    pub readable: bool,
    /// The client has closed its sending side or the whole connection: the two look alike.
    pub peer_closed: bool,
    /// The connection came to the admin port.
    pub admin: bool,
    /// The connection is closed after the answer.
    pub close: bool,
    pub wait: Wait,
    /// Received bytes after the current request.
    pub unparsed: Option<Box<Remainder>>,
    /// The request whose body is arriving.
    pub incoming: Option<Box<IncomingRequest<'a>>>,
    /// The rest of an answer that the client did not take at once.
    pub unsent: Option<Box<Remainder>>,
    /// The request that waits for the body reader or the storage.
    pub pending: Token,
    /// Number of requests read.
    pub requests: u64,
    /// When the connection began to wait for `wait`, in nanoseconds since the start.
    pub since_ns: u64,
    /// The deadline of this wait, in nanoseconds since the start.
    pub deadline_ns: u64,
    /// Bytes discarded while lingering.
    pub drained_bytes: u64,
    /// Counts the connection in the limit; None if it is beyond the limit and is only answered 503.
    pub permit: Option<ConnectionPermit<'a>>,
}

/// A buffer of which the first `used` bytes are done.
#[derive(Debug)]
pub(crate) struct Remainder {
    pub bytes: Vec<u8>,
    pub used: usize,
}

impl Remainder {
    /// A copy of `bytes`, none of them used.
    pub(crate) fn new(bytes: &[u8]) -> Box<Self> {
        Box::new(Self { bytes: bytes.to_vec(), used: 0 })
    }
}

impl<'a> Connection<'a> {
    /// The connection of an accepted socket.
    pub(crate) fn new(
        stream: Stream,
        token: Token,
        permit: Option<ConnectionPermit<'a>>,
        admin: bool,
        head_bytes: u32,
        now_ns: u64,
    ) -> Self {
        Self {
            stream,
            token,
            reader: RequestReader::new(Limits { head_bytes: head_bytes as usize }),
            phase: Phase::Reading,
            readable: false,
            peer_closed: false,
            admin,
            close: false,
            // Differs from the actual wait, so that the first deadline is set.
            wait: Wait::Linger,
            unparsed: None,
            incoming: None,
            unsent: None,
            pending: token,
            requests: 0,
            since_ns: now_ns,
            deadline_ns: u64::MAX,
            drained_bytes: 0,
            permit,
        }
    }

    /// Checks whether unparsed bytes have arrived, including those still in the kernel: they belong to a request in
    /// flight. If so, marks the connection readable.
    #[cold]
    pub(crate) fn check_for_more(&mut self) -> bool {
        let unread = self.unparsed.is_none() && self.stream.has_unread();
        self.readable |= unread;
        self.unparsed.is_some() || unread
    }

    /// The event that the connection waits for.
    pub(crate) fn waits_for(&self) -> Wait {
        match self.phase {
            Phase::Reading if self.incoming.is_some() => Wait::Body,
            Phase::Reading if self.reader.in_message() => Wait::Head,
            Phase::Reading => Wait::Request,
            Phase::Storing => Wait::Storage,
            Phase::Writing => Wait::Client,
            Phase::Lingering => Wait::Linger,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_takes_little_memory() {
        assert!(size_of::<Connection<'_>>() <= 256, "{}", size_of::<Connection<'_>>());
    }
}
