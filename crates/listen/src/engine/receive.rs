//! Reads and parses requests.

use std::os::fd::{AsFd, BorrowedFd};

use http1::{Request, RequestHead, RequestSink};
use rustix::{io::Errno, net::getpeername};

use super::{Engine, Step};
use crate::{
    answer::{AnswerContext, Reply},
    connection::{Connection, Phase, Remainder},
    incoming::IncomingRequest,
    refusal::Refusal,
    request,
    shared::Shared,
};

impl<'a> Engine<'a> {
    #[inline]
    pub(super) fn read(&mut self, connection: &mut Connection<'a>) -> Step {
        if connection.incoming.as_ref().is_some_and(|incoming| incoming.has_compressed()) {
            return self.inflate(connection);
        }
        if let Some(mut unparsed) = connection.unparsed.take() {
            let (used, step) = self.parse(connection, &unparsed.bytes[unparsed.used..]);
            unparsed.used += used;
            if unparsed.used < unparsed.bytes.len() {
                connection.unparsed = Some(unparsed);
            }
            return step;
        }
        if !connection.readable {
            return Step::Wait;
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let step = match connection.stream.recv(&mut buffer) {
            Ok(0) => Step::Close,
            Ok(received) => {
                // A read that does not fill the buffer has emptied the socket. epoll reports later bytes, but it reports
                // the end of the stream only once, so reading continues after the peer has closed.
                let emptied = received < buffer.len() && connection.stream.is_plain();
                connection.readable = !emptied || connection.peer_closed;
                self.counters.received_bytes.add(received as u64);
                let (used, step) = self.parse(connection, &buffer[..received]);
                if used < received && step != Step::Close {
                    connection.unparsed = Some(Remainder::new(&buffer[used..received]));
                }
                step
            }
            Err(Errno::AGAIN) => {
                connection.readable = false;
                Step::Wait
            }
            Err(Errno::INTR) => Step::Continue,
            Err(_) => Step::Close,
        };
        self.buffer = buffer;
        step
    }

    /// Parses requests until one must wait or the bytes end. Returns the number of bytes used.
    #[inline]
    fn parse(&mut self, connection: &mut Connection<'a>, bytes: &[u8]) -> (usize, Step) {
        let mut used = 0;
        while used < bytes.len() {
            let mut intake = RequestReceiver {
                shared: self.shared,
                incoming: &mut connection.incoming,
                spare: &mut self.spare,
                socket: connection.stream.as_fd(),
                admin: connection.admin,
                now_ns: self.now_ns,
            };
            let fed = match connection.reader.feed(&bytes[used..], &mut intake) {
                Ok(fed) => fed,
                Err(error) => return (bytes.len(), self.refuse_malformed(connection, error)),
            };
            used += fed.used;
            if let Some(incoming) = connection.incoming.as_mut().filter(|incoming| incoming.has_compressed())
            {
                incoming.ended = fed.done;
                return (used, self.inflate(connection));
            }
            let step = match fed.done {
                Some(request) => self.handle_complete(connection, request),
                None => self.handle_incomplete(connection),
            };
            if step == Step::Close || connection.phase != Phase::Reading {
                return (used, step);
            }
        }
        (used, Step::Continue)
    }

    /// Decompresses part of the received body. Limits the work per turn, so that a decompression bomb does not delay
    /// other connections.
    fn inflate(&mut self, connection: &mut Connection<'a>) -> Step {
        let Some(incoming) = &mut connection.incoming else { return Step::Continue };
        if let Err(refusal) = incoming.inflate(&self.shared.config.limits) {
            incoming.reply = Some(Reply::Refused(refusal));
        } else if incoming.has_compressed() {
            return Step::Yield;
        }
        match incoming.ended.take() {
            Some(request) => self.handle_complete(connection, request),
            None => self.handle_incomplete(connection),
        }
    }

    /// Answers a complete request, or submits its events or its body.
    #[inline]
    fn handle_complete(&mut self, connection: &mut Connection<'a>, request: Request) -> Step {
        let Some(mut incoming) = connection.incoming.take() else { return Step::Close };
        connection.requests += 1;
        let last = self.shared.config.limits.requests_per_connection;
        incoming.context.close |=
            !request.keep_alive || last.is_some_and(|most| connection.requests >= most) || self.is_stopping();
        let step = match incoming.reply.take() {
            Some(reply) => self.answer(connection, &reply, &incoming.context),
            None if self.needs_body_reader(connection, &incoming) => {
                return self.submit_to_body_reader(connection, incoming);
            }
            None => self.store(connection, &mut incoming),
        };
        self.recycle(incoming);
        step
    }

    /// Continues a request whose body has not arrived completely.
    #[inline]
    fn handle_incomplete(&mut self, connection: &mut Connection<'a>) -> Step {
        let Some(incoming) = &mut connection.incoming else { return Step::Continue };
        if incoming.reply.is_some() {
            return self.refuse_early(connection);
        }
        if std::mem::take(&mut incoming.expects_continue) {
            // Fits the send buffer, which is empty because the previous answer has been sent.
            return match connection.stream.send(b"HTTP/1.1 100 Continue\r\n\r\n") {
                Ok(25) => Step::Continue,
                _ => Step::Close,
            };
        }
        Step::Continue
    }

    /// Answers before the body has arrived and then closes the connection, because the next request could be found only
    /// by reading the rest of the body.
    #[cold]
    fn refuse_early(&mut self, connection: &mut Connection<'a>) -> Step {
        let Some(mut incoming) = connection.incoming.take() else { return Step::Close };
        let Some(reply) = incoming.reply.take() else { return Step::Close };
        incoming.context.close = true;
        let step = self.answer(connection, &reply, &incoming.context);
        self.recycle(incoming);
        step
    }

    #[cold]
    fn refuse_malformed(&mut self, connection: &mut Connection<'a>, error: http1::Error) -> Step {
        let mut context = AnswerContext::default();
        let mut reply = Reply::Refused(Refusal::Http(error));
        if let Some(mut incoming) = connection.incoming.take() {
            // An earlier refusal of the head takes precedence.
            reply = incoming.reply.take().unwrap_or(reply);
            context = std::mem::take(&mut incoming.context);
            self.recycle(incoming);
        }
        context.close = true;
        // More bytes of the malformed request may be in the socket, because its end is unknown.
        connection.readable = true;
        self.answer(connection, &reply, &context)
    }

    /// Keeps a request's buffers for later requests.
    pub(super) fn recycle(&mut self, mut incoming: Box<IncomingRequest<'a>>) {
        incoming.clear();
        if self.spare.len() < 64 {
            self.spare.push(incoming);
        }
    }
}

/// Handles the parser's callbacks: the head and the body of a request.
struct RequestReceiver<'i, 'a> {
    shared: &'a Shared,
    incoming: &'i mut Option<Box<IncomingRequest<'a>>>,
    #[expect(clippy::vec_box, reason = "they go to connections and come back as they are, without a copy")]
    spare: &'i mut Vec<Box<IncomingRequest<'a>>>,
    socket: BorrowedFd<'i>,
    admin: bool,
    now_ns: u64,
}

impl RequestSink for RequestReceiver<'_, '_> {
    #[inline]
    fn head(&mut self, head: &RequestHead<'_>) {
        let shared = self.shared;
        let incoming = self.incoming.insert(
            self.spare.pop().unwrap_or_else(|| Box::new(IncomingRequest::new(shared.budget.reservation()))),
        );
        let peer = || peer_address(self.socket);
        request::read_head(head, incoming, shared, self.admin, peer, self.now_ns);
    }

    #[inline]
    fn body(&mut self, bytes: &[u8]) {
        let Some(incoming) = self.incoming.as_mut().filter(|incoming| incoming.reply.is_none()) else {
            return;
        };
        if let Err(refusal) = incoming.push_body(bytes, &self.shared.config.limits) {
            incoming.reply = Some(Reply::Refused(refusal));
        }
    }
}

/// The client's IP address as text.
fn peer_address(socket: BorrowedFd<'_>) -> String {
    let address = getpeername(socket).ok().flatten();
    let address = address.and_then(|address| std::net::SocketAddr::try_from(address).ok());
    address.map(|address| address.ip().to_string()).unwrap_or_default()
}
