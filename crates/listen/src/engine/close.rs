//! Closes connections and enforces their deadlines.

use rustix::io::Errno;
use sockets::NextStep;

use super::{Engine, Step};
use crate::{
    answer::{AnswerContext, Reply},
    connection::{Connection, Phase, Wait},
    refusal::Refusal,
};

/// Minimum number of bytes to discard before a client that keeps sending gets a reset, which could destroy the answer.
const LINGER_BYTES: u64 = 1 << 20;

impl<'a> Engine<'a> {
    /// Sends a FIN and reads the rest of the input. Closing a socket with unread bytes would send a reset, which can
    /// destroy the answer in transit (RFC 9112, 9.6).
    pub(super) fn close(&mut self, connection: &mut Connection<'a>) -> Step {
        let more_may_come = connection.readable
            || connection.unparsed.is_some()
            || connection.reader.in_message()
            || connection.permit.is_none();
        if !more_may_come && connection.stream.is_plain() {
            return Step::Close;
        }
        if connection.stream.shutdown_write().is_err() || !more_may_come {
            return Step::Close;
        }
        connection.unparsed = None;
        connection.incoming = None;
        connection.phase = Phase::Lingering;
        // The linger timeout starts now, not when the previous wait began.
        (connection.wait, connection.since_ns) = (Wait::Linger, self.now_ns);
        self.set_deadline(connection);
        self.timers.at(connection.deadline_ns, connection.token);
        Step::Continue
    }

    /// Reads and discards input; closes after too many bytes.
    pub(super) fn discard_input(&mut self, connection: &mut Connection<'a>) -> Step {
        if !connection.readable {
            return Step::Wait;
        }
        match connection.stream.recv(&mut self.buffer) {
            Ok(0) => Step::Close,
            Ok(received) => {
                self.counters.received_bytes.add(received as u64);
                connection.drained_bytes += received as u64;
                if connection.drained_bytes > self.shared.config.limits.body_bytes.max(LINGER_BYTES) {
                    Step::Close
                } else {
                    Step::Continue
                }
            }
            Err(Errno::AGAIN) => {
                connection.readable = false;
                Step::Wait
            }
            Err(Errno::INTR) => Step::Continue,
            Err(_) => Step::Close,
        }
    }

    /// Sets the deadline for what the connection waits for. Starts the time only if the kind of wait has changed.
    #[inline]
    pub(super) fn set_deadline(&mut self, connection: &mut Connection<'a>) {
        let wait = connection.waits_for();
        if wait != connection.wait {
            connection.wait = wait;
            connection.since_ns = self.now_ns;
        }
        let timeouts = &self.shared.config.timeouts;
        let time = match wait {
            Wait::Request | Wait::Client => timeouts.idle,
            Wait::Head => timeouts.head,
            Wait::Body => timeouts.body,
            Wait::Storage => timeouts.store,
            Wait::Linger => timeouts.linger,
        };
        let mut time_ns = time.as_nanos() as u64;
        if let (Wait::Body, Some(incoming)) = (wait, &connection.incoming) {
            let rate = u128::from(timeouts.body_bytes_per_s.max(1));
            let earned_ns = u128::from(incoming.received_bytes) * 1_000_000_000 / rate;
            time_ns = time_ns.saturating_add(u64::try_from(earned_ns).unwrap_or(u64::MAX));
        }
        connection.deadline_ns = connection.since_ns.saturating_add(time_ns);
    }

    /// If the deadline has passed, refuses the request or closes the connection.
    pub(crate) fn check_deadline(&mut self, connection: &mut Connection<'a>) -> NextStep {
        if self.now_ns < connection.deadline_ns {
            self.timers.watch(self.now_ns, connection.deadline_ns, connection.token);
            return NextStep::Wait;
        }
        self.counters.connections_timed_out.add(u64::from(connection.wait != Wait::Linger));
        let refusal = match connection.wait {
            Wait::Request | Wait::Client | Wait::Linger => return NextStep::Close,
            Wait::Head => Refusal::SlowHead,
            Wait::Body => Refusal::SlowBody,
            // The body reader caused the delay, so the storage does not count as stalled.
            Wait::Storage if self.pending.cancel_reading(connection.pending) => Refusal::NotReadInTime,
            Wait::Storage => {
                if self.pending.find(connection.pending).is_some() {
                    self.shared.stall_detector.record_timeout(self.now_ns);
                }
                Refusal::StoreTimeout
            }
        };
        let mut incoming = connection.incoming.take();
        let context = match connection.wait {
            Wait::Storage => self.pending.context(connection.pending),
            _ => incoming.as_mut().map(|incoming| &mut incoming.context),
        };
        let context = AnswerContext { close: true, ..context.map(std::mem::take).unwrap_or_default() };
        let step = self.answer(connection, &Reply::Refused(refusal), &context);
        incoming.into_iter().for_each(|incoming| self.recycle(incoming));
        if step == Step::Close {
            return NextStep::Close;
        }
        let next_step = self.proceed(connection);
        self.timers.watch(self.now_ns, connection.deadline_ns, connection.token);
        next_step
    }

    /// Closes a connection because the listener is stopping, unless part of a request has arrived.
    pub(crate) fn drain_connection(&mut self, connection: &mut Connection<'a>) -> NextStep {
        if connection.phase == Phase::Reading {
            // Reads again, because the kernel may hold bytes of a request in flight that it has not reported.
            connection.readable = true;
        }
        self.proceed(connection)
    }
}
