//! The state of a connection. Idle connections hold no buffers.

use http1::{Limits, RequestReader};
use sockets::{ConnectionPermit, Token};

use crate::{incoming::IncomingRequest, stream::Stream};

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waits for a request or reads one.
    Reading,
    /// Waits for the body reader or the storage, after a request was read.
    Storing,
    /// Sends an answer.
    Writing,
    /// The listener has closed its side. Received bytes are discarded, because a reset could destroy the answer.
    Lingering,
}

/// What a connection waits for until its deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    Request,
    Head,
    Body,
    Storage,
    Client,
    Linger,
}

/// The state of a client's connection.
#[derive(Debug)]
pub(crate) struct Connection<'a> {
    pub stream: Stream,
    pub token: Token,
    pub reader: RequestReader,
    pub phase: Phase,
    /// Whether the socket may have bytes, or the end of the stream, to read.
    pub readable: bool,
    /// Whether the client has closed its sending side. It may have closed the whole connection, which looks the same.
    pub peer_closed: bool,
    /// Whether the connection came to the admin port.
    pub admin: bool,
    /// Whether the connection is closed after the answer.
    pub close: bool,
    pub wait: Wait,
    /// Received bytes that follow the current request.
    pub unparsed: Option<Box<Remainder>>,
    /// The request whose body is arriving.
    pub incoming: Option<Box<IncomingRequest<'a>>>,
    /// The rest of an answer that the socket did not accept at once.
    pub unsent: Option<Box<Remainder>>,
    /// The request that is waiting for the body reader or the storage.
    pub pending: Token,
    /// Number of requests read so far.
    pub requests: u64,
    /// When `wait` began, in nanoseconds since the start.
    pub since_ns: u64,
    /// When `wait` times out, in nanoseconds since the start.
    pub deadline_ns: u64,
    /// Number of bytes discarded while lingering.
    pub drained_bytes: u64,
    /// The connection's share of the limit; `None` if it is beyond the limit and only gets a 503.
    pub permit: Option<ConnectionPermit<'a>>,
}

/// A buffer whose first `used` bytes are done.
#[derive(Debug)]
pub(crate) struct Remainder {
    pub bytes: Vec<u8>,
    pub used: usize,
}

impl Remainder {
    /// A copy of `bytes`, none of which is done.
    pub(crate) fn new(bytes: &[u8]) -> Box<Self> {
        Box::new(Self { bytes: bytes.to_vec(), used: 0 })
    }
}

impl<'a> Connection<'a> {
    /// Creates the state for an accepted socket.
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
            // Differs from the first wait, so that its deadline is set.
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

    /// Checks whether bytes of a further request have arrived, even if they are still in the kernel. If so, marks the
    /// connection readable.
    #[cold]
    pub(crate) fn check_for_more(&mut self) -> bool {
        let unread = self.unparsed.is_none() && self.stream.has_unread();
        self.readable |= unread;
        self.unparsed.is_some() || unread
    }

    /// What the connection is waiting for.
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
