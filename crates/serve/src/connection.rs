//! The state of a connection. An idle connection holds no buffers.

use std::os::fd::OwnedFd;

use http1::{Limits, RequestHead, RequestReader, RequestSink};
use sockets::{ConnectionPermit, Token};

use crate::{
    WhenFull,
    answer::{Kind, Shape},
    misbehave::Misbehaviour,
};

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waiting for a request, or reading one.
    Reading,
    /// A request was read; its answer is not due yet.
    Waiting,
    /// Sending the head of an answer in small pieces.
    Dribbling,
    /// Sending an answer as fast as the client takes it.
    Writing,
    /// The request is never answered.
    Silent,
    /// Closed by the target; received bytes are discarded, because a reset would destroy the answer.
    Lingering,
}

/// What the target does about the current request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Answer it.
    Answer,
    /// Misbehave.
    Misbehave(Misbehaviour),
    /// Refuse it: the queue is full.
    Reject(WhenFull),
    /// Answer 400.
    BadRequest,
    /// Ask for its body with `100 Continue`.
    Continue,
}

/// Facts from the head of the current request.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RequestInfo {
    /// The request is HEAD: the answer has no body.
    pub is_head: bool,
    /// The client speaks HTTP/1.0.
    pub http10: bool,
    /// The client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// HTTP/1.1 without exactly one Host, which must be refused (RFC 9112, 3.2).
    pub wrong_host: bool,
}

impl RequestSink for RequestInfo {
    #[inline]
    fn head(&mut self, head: &RequestHead<'_>) {
        let hosts = head.headers.iter().filter(|h| h.name.len() == 4 && h.name.eq_ignore_ascii_case("host"));
        let hosts = hosts.count();
        *self = Self {
            is_head: head.method == "HEAD",
            http10: head.minor_version == 0,
            expects_continue: head.expect_continue,
            wrong_host: hosts > 1 || (hosts == 0 && head.minor_version > 0),
        };
    }
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection<'a> {
    /// Counts the connection in the limit of all threads until it is dropped.
    pub _permit: ConnectionPermit<'a>,
    pub socket: OwnedFd,
    pub token: Token,
    pub reader: RequestReader,
    pub request_info: RequestInfo,
    pub phase: Phase,
    /// The socket may have bytes, or an end of stream, to read.
    pub readable: bool,
    /// The client has closed its sending side or the whole connection: the two look alike.
    pub peer_closed: bool,
    /// Received bytes after the current request.
    pub unparsed: Option<Box<Remainder>>,
    /// Number of requests read.
    pub requests: u64,
    pub action: Action,
    pub kind: Kind,
    pub shape: Shape,
    /// Bytes of the answer that the kernel has taken.
    pub sent: u64,
    /// Bytes of the answer to send in total.
    pub end: u64,
    /// When the current request was complete, in nanoseconds since the start.
    pub read_ns: u64,
    /// When its answer is due.
    pub due_ns: u64,
    /// When the last byte arrived, or the last answer ended.
    pub active_ns: u64,
}

/// Bytes read but not yet parsed.
#[derive(Debug)]
pub(crate) struct Remainder {
    pub bytes: Vec<u8>,
    pub used: usize,
}

impl<'a> Connection<'a> {
    pub(crate) fn new(socket: OwnedFd, token: Token, permit: ConnectionPermit<'a>, now_ns: u64) -> Self {
        Self {
            _permit: permit,
            socket,
            token,
            reader: RequestReader::new(Limits::default()),
            request_info: RequestInfo::default(),
            phase: Phase::Reading,
            readable: false,
            peer_closed: false,
            unparsed: None,
            requests: 0,
            action: Action::Answer,
            kind: Kind::Plain,
            shape: Shape { http10: false, close: false },
            sent: 0,
            end: 0,
            read_ns: now_ns,
            due_ns: now_ns,
            active_ns: now_ns,
        }
    }

    /// Whether a complete request is not answered yet.
    pub(crate) fn is_unanswered(&self) -> bool {
        match self.phase {
            Phase::Waiting | Phase::Dribbling | Phase::Writing => self.action != Action::Continue,
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
