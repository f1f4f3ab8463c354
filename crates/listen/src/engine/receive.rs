//! Requests in: reading and parsing.

use std::os::fd::{AsFd, BorrowedFd};

use http1::{Request, RequestHead, RequestSink};
use rustix::{io::Errno, net::getpeername};

use super::{Engine, Step};
use crate::{
    answer::{Manner, Reply},
    connection::{Connection, Held, Phase},
    flight::Flight,
    refusal::Refusal,
    request,
    shared::Shared,
};

impl<'a> Engine<'a> {
    #[inline]
    pub(super) fn read(&mut self, connection: &mut Connection<'a>) -> Step {
        if connection.flight.as_ref().is_some_and(|flight| flight.is_packed()) {
            return self.unpack(connection);
        }
        if let Some(mut held) = connection.held.take() {
            let (used, step) = self.parse(connection, &held.bytes[held.used..]);
            held.used += used;
            if held.used < held.bytes.len() {
                connection.held = Some(held);
            }
            return step;
        }
        if !connection.readable {
            return Step::Wait;
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let step = match connection.stream.recv(&mut buffer) {
            Ok(0) => Step::Gone,
            Ok(received) => {
                // A buffer that was not filled means that there was no more; epoll tells when there is. Not
                // so of the end, which it has told already.
                let emptied = received < buffer.len() && connection.stream.tells_the_end();
                connection.readable = !emptied || connection.peer_closed;
                self.counters.received_bytes.add(received as u64);
                let (used, step) = self.parse(connection, &buffer[..received]);
                if used < received && step != Step::Gone {
                    connection.held = Some(Held::new(&buffer[used..received]));
                }
                step
            }
            Err(Errno::AGAIN) => {
                connection.readable = false;
                Step::Wait
            }
            Err(Errno::INTR) => Step::On,
            Err(_) => Step::Gone,
        };
        self.buffer = buffer;
        step
    }

    /// Takes requests from `bytes` until one must wait; returns how many bytes that took.
    #[inline]
    fn parse(&mut self, connection: &mut Connection<'a>, bytes: &[u8]) -> (usize, Step) {
        let mut used = 0;
        while used < bytes.len() {
            let mut intake = Intake {
                shared: self.shared,
                flight: &mut connection.flight,
                spare: &mut self.spare,
                socket: connection.stream.as_fd(),
                admin: connection.admin,
                now_ns: self.now_ns,
            };
            let fed = match connection.reader.feed(&bytes[used..], &mut intake) {
                Ok(fed) => fed,
                Err(error) => return (bytes.len(), self.not_http(connection, error)),
            };
            used += fed.used;
            if let Some(flight) = connection.flight.as_mut().filter(|flight| flight.is_packed()) {
                flight.ended = fed.done;
                return (used, self.unpack(connection));
            }
            let step = match fed.done {
                Some(request) => self.ended(connection, request),
                None => self.not_ended(connection),
            };
            if step == Step::Gone || connection.phase != Phase::Reading {
                return (used, step);
            }
        }
        (used, Step::On)
    }

    /// Inflates more of what has come. A bomb must not hold up the others.
    fn unpack(&mut self, connection: &mut Connection<'a>) -> Step {
        let Some(flight) = &mut connection.flight else { return Step::On };
        if let Err(refusal) = flight.unpack(&self.shared.config.limits) {
            flight.reply = Some(Reply::Refused(refusal));
        } else if flight.is_packed() {
            return Step::Later;
        }
        match flight.ended.take() {
            Some(request) => self.ended(connection, request),
            None => self.not_ended(connection),
        }
    }

    /// A request was read whole.
    #[inline]
    fn ended(&mut self, connection: &mut Connection<'a>, request: Request) -> Step {
        let Some(mut flight) = connection.flight.take() else { return Step::Gone };
        connection.requests += 1;
        let last = self.shared.config.limits.requests_per_connection;
        flight.manner.close |=
            !request.keep_alive || last.is_some_and(|most| connection.requests >= most) || self.is_stopping();
        let step = match flight.reply.take() {
            Some(reply) => self.answer(connection, &reply, &flight.manner),
            None if self.is_for_helper(connection, &flight) => {
                return self.leave_to_helper(connection, flight);
            }
            None => self.store(connection, &mut flight),
        };
        self.recycle(flight);
        step
    }

    /// More of a request is to come.
    #[inline]
    fn not_ended(&mut self, connection: &mut Connection<'a>) -> Step {
        let Some(flight) = &mut connection.flight else { return Step::On };
        if flight.reply.is_some() {
            return self.refuse_early(connection);
        }
        if std::mem::take(&mut flight.expects_continue) {
            // So few bytes always have room behind an answer that was taken.
            return match connection.stream.send(b"HTTP/1.1 100 Continue\r\n\r\n") {
                Ok(25) => Step::On,
                _ => Step::Gone,
            };
        }
        Step::On
    }

    /// Answers before the body has come. What comes of it cannot be told from a next request without reading
    /// it, so that the connection ends.
    #[cold]
    fn refuse_early(&mut self, connection: &mut Connection<'a>) -> Step {
        let Some(mut flight) = connection.flight.take() else { return Step::Gone };
        let Some(reply) = flight.reply.take() else { return Step::Gone };
        flight.manner.close = true;
        let step = self.answer(connection, &reply, &flight.manner);
        self.recycle(flight);
        step
    }

    #[cold]
    fn not_http(&mut self, connection: &mut Connection<'a>, error: http1::Error) -> Step {
        let mut manner = Manner::default();
        let mut reply = Reply::Refused(Refusal::Http(error));
        if let Some(mut flight) = connection.flight.take() {
            // A request that was refused for its head is told so, whatever follows.
            reply = flight.reply.take().unwrap_or(reply);
            manner = std::mem::take(&mut flight.manner);
            self.recycle(flight);
        }
        manner.close = true;
        // Where the request would end nobody knows: more of it may be here, or come yet.
        connection.readable = true;
        self.answer(connection, &reply, &manner)
    }

    /// Keeps a request's memory for another.
    pub(super) fn recycle(&mut self, mut flight: Box<Flight<'a>>) {
        flight.clear();
        if self.spare.len() < 64 {
            self.spare.push(flight);
        }
    }
}

/// Where the parts of a request go.
struct Intake<'i, 'a> {
    shared: &'a Shared,
    flight: &'i mut Option<Box<Flight<'a>>>,
    #[expect(clippy::vec_box, reason = "they go to connections and come back as they are, without a copy")]
    spare: &'i mut Vec<Box<Flight<'a>>>,
    socket: BorrowedFd<'i>,
    admin: bool,
    now_ns: u64,
}

impl RequestSink for Intake<'_, '_> {
    #[inline]
    fn head(&mut self, head: &RequestHead<'_>) {
        let shared = self.shared;
        let flight = self
            .flight
            .insert(self.spare.pop().unwrap_or_else(|| Box::new(Flight::new(shared.budget.share()))));
        let peer = || peer_address(self.socket);
        request::judge(head, flight, shared, self.admin, peer, self.now_ns);
    }

    #[inline]
    fn body(&mut self, bytes: &[u8]) {
        let Some(flight) = self.flight.as_mut().filter(|flight| flight.reply.is_none()) else { return };
        if let Err(refusal) = flight.take_in(bytes, &self.shared.config.limits) {
            flight.reply = Some(Reply::Refused(refusal));
        }
    }
}

/// The client's address, without its port.
fn peer_address(socket: BorrowedFd<'_>) -> String {
    let address = getpeername(socket).ok().flatten();
    let address = address.and_then(|address| std::net::SocketAddr::try_from(address).ok());
    address.map(|address| address.ip().to_string()).unwrap_or_default()
}
