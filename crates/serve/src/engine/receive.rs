//! Requests in: reading, parsing, and deciding what becomes of each.

use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};

use super::{Engine, Step};
use crate::{
    Admission,
    answer::{Kind, Shape},
    connection::{Connection, Deed, Held, Phase},
    timers::Alarm,
};

impl Engine<'_> {
    #[inline]
    pub(super) fn read(&mut self, connection: &mut Connection) -> Step {
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
        let step = match recv(&connection.socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((_, 0)) => self.eof(connection),
            Ok((_, received)) => {
                // A buffer that was not filled means that there was no more; epoll tells when there is. Not
                // so of the end, which it has told already.
                connection.readable = received == buffer.len() || connection.peer_closed;
                connection.active_ns = self.now_ns;
                self.report.request_bytes += received as u64;
                let (used, step) = self.parse(connection, &buffer[..received]);
                if used < received && step != Step::Gone {
                    connection.held =
                        Some(Box::new(Held { bytes: buffer[used..received].to_vec(), used: 0 }));
                }
                step
            }
            Err(Errno::AGAIN) => {
                connection.readable = false;
                Step::Wait
            }
            Err(Errno::INTR) => Step::On,
            Err(_) => self.eof(connection),
        };
        self.buffer = buffer;
        step
    }

    /// The client closed or reset the connection.
    fn eof(&mut self, connection: &Connection) -> Step {
        self.report.truncated_requests += u64::from(connection.reader.in_message());
        Step::Gone
    }

    /// Takes requests from `bytes` until one must wait; returns how many bytes that took.
    #[inline]
    fn parse(&mut self, connection: &mut Connection, bytes: &[u8]) -> (usize, Step) {
        let mut used = 0;
        while used < bytes.len() {
            let fed = connection.reader.feed(&bytes[used..], &mut connection.seen);
            let Ok(fed) = fed else { return (bytes.len(), self.bad_request(connection)) };
            used += fed.used;
            let step = match fed.done {
                _ if connection.seen.wrong_host => return (bytes.len(), self.bad_request(connection)),
                Some(request) => self.request(connection, request.keep_alive),
                None if connection.seen.expects_continue && connection.reader.awaiting_body() => {
                    connection.seen.expects_continue = false;
                    connection.deed = Deed::Continue;
                    self.start(connection, Kind::Continue)
                }
                None => Step::On,
            };
            if step == Step::Gone || connection.phase != Phase::Reading {
                return (used, step);
            }
        }
        (used, Step::On)
    }

    /// A request was read whole.
    #[inline]
    fn request(&mut self, connection: &mut Connection, keep_alive: bool) -> Step {
        let config = self.shared.config;
        self.report.requests += 1;
        connection.requests += 1;
        let last = config.keepalive_requests.is_some_and(|most| connection.requests >= most);
        connection.shape = Shape { http10: connection.seen.http10, close: last || !keep_alive };
        connection.deed = self.draw.next(&mut self.rng).map_or(Deed::Answer, Deed::Misbehave);
        if !self.measured {
            return self.perform(connection);
        }
        let now_ns = self.look_at_clock();
        (connection.read_ns, connection.due_ns) = (now_ns, now_ns);
        if let Some(capacity) = &config.capacity {
            match self.admit(now_ns) {
                Some(done_ns) => connection.due_ns = done_ns,
                None => {
                    self.report.rejected += 1;
                    connection.deed = Deed::Reject(capacity.when_full);
                    return self.perform(connection);
                }
            }
        }
        if !config.delay.is_zero() {
            let delay_ns = config.delay.sample_ns(&mut self.rng);
            self.report.delay_drawn.record_ns(delay_ns);
            connection.due_ns = connection.due_ns.saturating_add(delay_ns);
        }
        if connection.due_ns <= now_ns {
            return self.perform(connection);
        }
        connection.phase = Phase::Waiting;
        self.timers.set(connection.due_ns, connection.token, Alarm::Answer);
        Step::Wait
    }

    /// Joins the queue; the end of the service, or nothing if it is full.
    fn admit(&mut self, now_ns: u64) -> Option<u64> {
        let service_time = &self.shared.config.capacity.as_ref()?.service_time;
        // A thread that panicked leaves the queue as it was between two calls.
        let mut queue = self.shared.queue?.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match queue.arrive(now_ns, || service_time.sample_ns(&mut self.rng)) {
            Admission::Served { arrived_ns, start_ns, done_ns } => {
                self.report.queue_wait.record_ns(start_ns - arrived_ns);
                self.report.service_drawn.record_ns(done_ns - start_ns);
                Some(done_ns)
            }
            Admission::Full => None,
        }
    }

    fn bad_request(&mut self, connection: &mut Connection) -> Step {
        self.report.bad_requests += 1;
        connection.deed = Deed::BadRequest;
        connection.shape = Shape { http10: false, close: true };
        connection.seen.to_head = false;
        self.start(connection, Kind::BadRequest)
    }
}
