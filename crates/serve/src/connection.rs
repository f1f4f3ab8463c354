//! A connection's state. Idle connections hold no buffers.

use std::os::fd::OwnedFd;

use http1::{Limits, RequestHead, RequestReader, RequestSink};
use sockets::{ConnectionPermit, Token};

use crate::{
    WhenFull,
    answer::{Kind, Shape},
    misbehave::Misbehaviour,
};

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waits for a request, or for more of one.
    Reading,
    /// A request was read; its answer is not due yet.
    Waiting,
    /// The head of the answer goes out bit by bit.
    Dribbling,
    /// The answer goes out as fast as the client takes it.
    Writing,
    /// The request is never answered.
    Silent,
    /// Closed by us; what the client still sends is thrown away, for a reset would destroy the answer.
    Lingering,
}

/// What is to be done about the current request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Answer it.
    Answer,
    /// Misbehave.
    Misbehave(Misbehaviour),
    /// Turn it away.
    Reject(WhenFull),
    /// Say that it was no request.
    BadRequest,
    /// Ask for its body.
    Continue,
}

/// What the head of the current request said.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    /// It is a HEAD request: the answer has no body.
    pub to_head: bool,
    /// The client speaks HTTP/1.0.
    pub http10: bool,
    /// The client waits for leave to send the body.
    pub expects_continue: bool,
    /// HTTP/1.1 without exactly one Host, which must be refused (RFC 9112, 3.2).
    pub wrong_host: bool,
}

impl RequestSink for Seen {
    #[inline]
    fn head(&mut self, head: &RequestHead<'_>) {
        let hosts = head.headers.iter().filter(|h| h.name.len() == 4 && h.name.eq_ignore_ascii_case("host"));
        let hosts = hosts.count();
        *self = Self {
            to_head: head.method == "HEAD",
            http10: head.minor_version == 0,
            expects_continue: head.expect_continue,
            wrong_host: hosts > 1 || (hosts == 0 && head.minor_version > 0),
        };
    }
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection<'a> {
    /// Its place among those of all threads, given back with it.
    pub _seat: ConnectionPermit<'a>,
    pub socket: OwnedFd,
    pub token: Token,
    pub reader: RequestReader,
    pub seen: Seen,
    pub phase: Phase,
    /// There may be bytes, or an end, to read.
    pub readable: bool,
    /// The client has closed its side, or all of the connection: the two look alike.
    pub peer_closed: bool,
    /// Requests that came behind the current one and were read with it.
    pub held: Option<Box<Held>>,
    /// Requests carried so far.
    pub requests: u64,
    pub deed: Deed,
    pub kind: Kind,
    pub shape: Shape,
    /// Bytes of the answer handed to the kernel.
    pub sent: u64,
    /// Bytes of the answer to hand over.
    pub end: u64,
    /// When the current request had been read whole, in nanoseconds since the start.
    pub read_ns: u64,
    /// When its answer is due.
    pub due_ns: u64,
    /// When the last byte came, or the last answer was done.
    pub active_ns: u64,
}

/// Bytes read but not yet parsed.
#[derive(Debug)]
pub(crate) struct Held {
    pub bytes: Vec<u8>,
    pub used: usize,
}

impl<'a> Connection<'a> {
    pub(crate) fn new(socket: OwnedFd, token: Token, seat: ConnectionPermit<'a>, now_ns: u64) -> Self {
        Self {
            _seat: seat,
            socket,
            token,
            reader: RequestReader::new(Limits::default()),
            seen: Seen::default(),
            phase: Phase::Reading,
            readable: false,
            peer_closed: false,
            held: None,
            requests: 0,
            deed: Deed::Answer,
            kind: Kind::Plain,
            shape: Shape { http10: false, close: false },
            sent: 0,
            end: 0,
            read_ns: now_ns,
            due_ns: now_ns,
            active_ns: now_ns,
        }
    }

    /// A request was read, and nothing has come of it yet.
    pub(crate) fn owes_an_answer(&self) -> bool {
        match self.phase {
            Phase::Waiting | Phase::Dribbling | Phase::Writing => self.deed != Deed::Continue,
            Phase::Reading | Phase::Silent | Phase::Lingering => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_takes_little_memory() {
        assert!(size_of::<Connection>() <= 248, "{}", size_of::<Connection>());
    }
}
