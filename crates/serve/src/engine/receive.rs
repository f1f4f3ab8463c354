//! Reads and parses requests, and determines the reaction to each.

use rustix::io::Errno;

use super::{Engine, Step};
use crate::{
    Admission,
    answer::{Kind, Shape},
    asked::{Asked, Intake},
    connection::{Action, Connection, Phase, Remainder},
    timers::TimerKind,
};

impl Engine<'_> {
    #[inline]
    pub(super) fn read(&mut self, connection: &mut Connection) -> Step {
        if let Some(mut unparsed) = connection.unparsed.take() {
            let (used, step) = self.parse(connection, &unparsed.bytes[unparsed.used..]);
            unparsed.used += used;
            if unparsed.used < unparsed.bytes.len() {
                connection.unparsed = Some(unparsed);
            }
            return step;
        }
        if !connection.readable {
            if connection.extra.is_some() {
                connection.flush();
            }
            return Step::Wait;
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let received = connection.recv(&mut buffer);
        if connection.extra.is_some() {
            self.count_tls(connection);
        }
        let step = match received {
            Ok(0) => self.eof(connection),
            Ok(received) => {
                // A read that does not fill the buffer has emptied the socket. epoll reports later bytes, but it reports
                // the end of the stream only once, so reading continues after the peer has closed.
                connection.readable =
                    connection.may_have_more(received, buffer.len()) || connection.peer_closed;
                connection.active_ns = self.now_ns;
                self.report.request_bytes += received as u64;
                let (used, step) = self.parse(connection, &buffer[..received]);
                if used < received && step != Step::Close {
                    connection.unparsed =
                        Some(Box::new(Remainder { bytes: buffer[used..received].to_vec(), used: 0 }));
                }
                step
            }
            Err(Errno::AGAIN) => {
                connection.readable = false;
                Step::Wait
            }
            Err(Errno::INTR) => Step::Continue,
            Err(_) => self.eof(connection),
        };
        self.buffer = buffer;
        step
    }

    /// Handles the end of the stream or a reset by the client.
    fn eof(&mut self, connection: &Connection) -> Step {
        self.report.truncated_requests += u64::from(connection.reader.in_message());
        Step::Close
    }

    /// Parses requests until one must wait or the bytes end. Returns the number of bytes used.
    #[inline]
    fn parse(&mut self, connection: &mut Connection, bytes: &[u8]) -> (usize, Step) {
        let mut used = 0;
        while used < bytes.len() {
            let asked = connection.extra.as_mut().and_then(|extra| extra.asked.as_mut());
            let mut intake = Intake {
                info: &mut connection.request_info,
                asked,
                limit: |asked: &Asked| self.body_limit(asked),
            };
            let fed = connection.reader.feed(&bytes[used..], &mut intake);
            let Ok(fed) = fed else { return (bytes.len(), self.bad_request(connection)) };
            used += fed.used;
            let step = match fed.done {
                _ if connection.request_info.wrong_host => {
                    return (bytes.len(), self.bad_request(connection));
                }
                Some(request) => self.handle_request(connection, request.keep_alive),
                None if connection.request_info.expects_continue && connection.reader.awaiting_body() => {
                    connection.request_info.expects_continue = false;
                    connection.action = Action::Continue;
                    self.start(connection, Kind::Continue)
                }
                None => Step::Continue,
            };
            if step == Step::Close || connection.phase != Phase::Reading {
                return (used, step);
            }
        }
        (used, Step::Continue)
    }

    /// Chooses the reaction to a complete request. Performs it now, or sets a timer if it is due later.
    #[inline]
    fn handle_request(&mut self, connection: &mut Connection, keep_alive: bool) -> Step {
        let config = self.shared.config;
        self.report.requests += 1;
        connection.requests += 1;
        let last = config.keepalive_requests.is_some_and(|most| connection.requests >= most);
        connection.shape = Shape { http10: connection.request_info.http10, close: last || !keep_alive };
        if connection.extra.is_some() {
            self.attend(connection);
        }
        connection.action = self.picker.next(&mut self.rng).map_or(Action::Answer, Action::Misbehave);
        if !self.measured {
            return self.perform_action(connection);
        }
        let now_ns = self.read_clock();
        (connection.read_ns, connection.due_ns) = (now_ns, now_ns);
        if let Some(capacity) = &config.capacity {
            match self.admit(now_ns) {
                Some(done_ns) => connection.due_ns = done_ns,
                None => {
                    self.report.rejected += 1;
                    connection.action = Action::Reject(capacity.when_full);
                    return self.perform_action(connection);
                }
            }
        }
        if !config.delay.is_zero() {
            let delay_ns = config.delay.sample_ns(&mut self.rng);
            self.report.delay_drawn.record_ns(delay_ns);
            connection.due_ns = connection.due_ns.saturating_add(delay_ns);
        }
        if connection.due_ns <= now_ns {
            return self.perform_action(connection);
        }
        connection.phase = Phase::Waiting;
        self.timers.set(connection.due_ns, connection.token, TimerKind::Answer);
        Step::Wait
    }

    /// Adds a request to the queue. Returns when its service ends; `None` if the queue is full.
    fn admit(&mut self, now_ns: u64) -> Option<u64> {
        let service_time = &self.shared.config.capacity.as_ref()?.service_time;
        // A panic cannot leave the queue inconsistent, so poisoning is ignored.
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
        connection.action = Action::BadRequest;
        connection.shape = Shape { http10: false, close: true };
        connection.request_info.is_head = false;
        self.start(connection, Kind::BadRequest)
    }
}
