//! The state of a connection. An idle connection holds no buffers.

use std::os::fd::OwnedFd;

use http1::{Limits, RequestReader};
use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};
use sockets::{ConnectionPermit, Stream, Token};
use tls::{Failure, Session};

use crate::{
    WhenFull,
    answer::{Answers, Kind, Shape},
    asked::{Asked, RequestInfo},
    misbehave::Misbehaviour,
    pages::Page,
    wire::Wire,
};

/// The phase of a connection.
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

/// The target's reaction to the current request.
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
    /// State that only TLS, pages and records need.
    pub extra: Option<Box<Extra>>,
}

/// State of a connection that only TLS, pages and records need.
#[derive(Debug, Default)]
pub(crate) struct Extra {
    /// Its number in the record; 0 without a record.
    pub number: u64,
    /// The TLS session; None if the connection is not encrypted.
    pub session: Option<Session>,
    /// The session's handshake was counted.
    pub is_counted: bool,
    /// The failure that ended the session.
    pub failure: Option<Failure>,
    /// The content of the current request; None if it is not logged.
    pub asked: Option<Asked>,
    /// The page that answers the current request; None if the configured answer does.
    pub page: Option<Page>,
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
            extra: None,
        }
    }

    /// Reads what the client sent, decrypted.
    #[inline]
    pub(crate) fn recv(&mut self, buffer: &mut [u8]) -> Result<usize, Errno> {
        if let Some(extra) = &mut self.extra
            && let Some(session) = &mut extra.session
        {
            return session.receive(&mut Stream(&self.socket), buffer).map_err(|failure| match failure {
                Failure::WouldBlock => Errno::AGAIN,
                Failure::Again => Errno::INTR,
                failure => {
                    extra.failure = Some(failure);
                    Errno::PROTO
                }
            });
        }
        recv(&self.socket, buffer, RecvFlags::empty()).map(|(_, received)| received)
    }

    /// Whether the socket may have more bytes after a read of `received` bytes into a buffer of `room` bytes.
    #[inline]
    pub(crate) fn may_have_more(&mut self, received: usize, room: usize) -> bool {
        match self.session() {
            None => received == room,
            Some(session) => session.may_have_more(),
        }
    }

    /// Sends the handshake bytes that the TLS session holds. The next read reports a failure.
    #[cold]
    pub(crate) fn flush(&mut self) {
        if let Some(extra) = &mut self.extra
            && let Some(session) = &mut extra.session
        {
            let _ = session.flush(&mut Stream(&self.socket));
        }
    }

    /// The TLS session.
    #[inline]
    pub(crate) fn session(&mut self) -> Option<&mut Session> {
        self.extra.as_mut()?.session.as_mut()
    }

    /// The bytes of the current answer.
    #[inline]
    pub(crate) fn wire<'w>(&'w self, answers: &'w Answers) -> &'w Wire {
        match self.page() {
            Some(page) => &page.wire,
            None => answers.wire(self.kind, self.shape),
        }
    }

    /// The page that replaces the configured answer, if any.
    #[inline]
    pub(crate) fn page(&self) -> Option<&Page> {
        self.extra.as_ref()?.page.as_ref().filter(|_| self.kind == Kind::Plain)
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
        assert!(size_of::<Connection>() <= 256, "{}", size_of::<Connection>());
    }
}
