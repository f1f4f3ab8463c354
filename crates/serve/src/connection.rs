//! The state of a connection. Idle connections hold no buffers.

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

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waits for a request or reads one.
    Reading,
    /// Waits until the answer to a request is due.
    Waiting,
    /// Sends the head of an answer in small pieces.
    Dribbling,
    /// Sends an answer as fast as the client accepts it.
    Writing,
    /// Never answers the request.
    Silent,
    /// The target has closed its side. Received bytes are discarded, because a reset could destroy the answer.
    Lingering,
}

/// The target's reaction to the current request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Sends the configured answer or a page.
    Answer,
    /// Misbehaves deliberately.
    Misbehave(Misbehaviour),
    /// Refuses the request, because the queue is full.
    Reject(WhenFull),
    /// Answers with 400.
    BadRequest,
    /// Sends `100 Continue` to get the body.
    Continue,
}

/// The state of a client's connection.
#[derive(Debug)]
pub(crate) struct Connection<'a> {
    /// The connection's share of the limit for all threads, which is released when it is dropped.
    pub _permit: ConnectionPermit<'a>,
    pub socket: OwnedFd,
    pub token: Token,
    pub reader: RequestReader,
    pub request_info: RequestInfo,
    pub phase: Phase,
    /// Whether the socket may have bytes, or the end of the stream, to read.
    pub readable: bool,
    /// Whether the client has closed its sending side. It may have closed the whole connection, which looks the same.
    pub peer_closed: bool,
    /// Received bytes that follow the current request.
    pub unparsed: Option<Box<Remainder>>,
    /// Number of requests read so far.
    pub requests: u64,
    pub action: Action,
    pub kind: Kind,
    pub shape: Shape,
    /// Number of bytes of the answer that the kernel has accepted.
    pub sent: u64,
    /// Number of bytes of the answer to send in total.
    pub end: u64,
    /// When the current request was completely read, in nanoseconds since the start.
    pub read_ns: u64,
    /// When the answer is due, in nanoseconds since the start.
    pub due_ns: u64,
    /// When the last bytes arrived or the last answer ended, in nanoseconds since the start.
    pub active_ns: u64,
    /// State for TLS, pages and records; `None` if none of them is enabled.
    pub extra: Option<Box<Extra>>,
}

/// State of a connection that is needed only for TLS, pages and records.
#[derive(Debug, Default)]
pub(crate) struct Extra {
    /// The connection's number in the record; 0 without a record.
    pub number: u64,
    /// The TLS session; `None` without TLS.
    pub session: Option<Session>,
    /// Whether the session's handshake has been counted.
    pub is_counted: bool,
    /// The error that ended the session.
    pub failure: Option<Failure>,
    /// The content of the current request; `None` if neither pages nor a record need it.
    pub asked: Option<Asked>,
    /// The page that answers the current request; `None` for the configured answer.
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

    /// Reads bytes from the client, decrypted if the connection uses TLS.
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

    /// Whether more bytes may be available after `received` bytes were read into a buffer of `room` bytes.
    #[inline]
    pub(crate) fn may_have_more(&mut self, received: usize, room: usize) -> bool {
        match self.session() {
            None => received == room,
            Some(session) => session.may_have_more(),
        }
    }

    /// Sends handshake bytes that the TLS session has buffered. Ignores errors, because the next read reports them.
    #[cold]
    pub(crate) fn flush(&mut self) {
        if let Some(extra) = &mut self.extra
            && let Some(session) = &mut extra.session
        {
            let _ = session.flush(&mut Stream(&self.socket));
        }
    }

    /// The TLS session, if any.
    #[inline]
    pub(crate) fn session(&mut self) -> Option<&mut Session> {
        self.extra.as_mut()?.session.as_mut()
    }

    /// The bytes of the current answer, from its page or from `answers`.
    #[inline]
    pub(crate) fn wire<'w>(&'w self, answers: &'w Answers) -> &'w Wire {
        match self.page() {
            Some(page) => &page.wire,
            None => answers.wire(self.kind, self.shape),
        }
    }

    /// The page that replaces the configured answer; `None` for other answers.
    #[inline]
    pub(crate) fn page(&self) -> Option<&Page> {
        self.extra.as_ref()?.page.as_ref().filter(|_| self.kind == Kind::Plain)
    }

    /// Whether a request has been read completely but not answered.
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
