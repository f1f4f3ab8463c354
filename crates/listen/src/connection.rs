//! A connection's state. Idle connections hold no buffers.

use http1::{Limits, RequestReader};
use sockets::{Seat, Token};

use crate::{incoming::IncomingRequest, stream::Stream};

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waits for a request, or for more of one.
    Reading,
    /// A request was read; the storage has its events.
    Storing,
    /// An answer goes out as fast as the client takes it.
    Writing,
    /// Closed by us; what the client still sends is thrown away, for a reset would destroy the answer.
    Lingering,
}

/// What a connection's deadline is for.
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
    /// There may be bytes, or an end, to read.
    pub readable: bool,
    /// The client has closed its side, or all of the connection: the two look alike.
    pub peer_closed: bool,
    /// Of the admin port.
    pub admin: bool,
    /// To be closed behind the answer.
    pub close: bool,
    pub wait: Wait,
    /// Requests that came behind the current one and were read with it.
    pub unparsed: Option<Box<Remainder>>,
    /// The request whose body is coming.
    pub incoming: Option<Box<IncomingRequest<'a>>>,
    /// The rest of an answer that the client did not take at once.
    pub unsent: Option<Box<Remainder>>,
    /// The request whose events the storage has.
    pub pending: Token,
    /// Requests carried so far.
    pub requests: u64,
    /// When that which is waited for began, in nanoseconds since the start.
    pub since_ns: u64,
    /// When it is too late.
    pub deadline_ns: u64,
    /// Bytes thrown away while lingering.
    pub drained_bytes: u64,
    /// Its place among the connections that are let in; without, it is only told that there are too many.
    pub permit: Option<Seat<'a>>,
}

/// Bytes of which some have been used.
#[derive(Debug)]
pub(crate) struct Remainder {
    pub bytes: Vec<u8>,
    pub used: usize,
}

impl Remainder {
    /// Nothing used yet.
    pub(crate) fn new(bytes: &[u8]) -> Box<Self> {
        Box::new(Self { bytes: bytes.to_vec(), used: 0 })
    }
}

impl<'a> Connection<'a> {
    /// Of a socket just accepted.
    pub(crate) fn new(
        stream: Stream,
        token: Token,
        permit: Option<Seat<'a>>,
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
            // Not what it waits for, so that its first deadline is set.
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

    /// Whether more than was taken has come already: what the kernel has and has not told yet is a request in flight too.
    /// It is read then.
    #[cold]
    pub(crate) fn check_for_more(&mut self) -> bool {
        let unread = self.unparsed.is_none() && self.stream.has_unread();
        self.readable |= unread;
        self.unparsed.is_some() || unread
    }

    /// What it waits for.
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
