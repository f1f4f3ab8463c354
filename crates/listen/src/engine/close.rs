//! The ends of connections, and how long anything may take.

use rustix::io::Errno;
use sockets::NextStep;

use super::{Engine, Step};
use crate::{
    answer::{Manner, Reply},
    connection::{Connection, Phase, Wait},
    refusal::Refusal,
};

/// How long a closed connection is drained at the most.
const LINGER_NS: u64 = 2_000_000_000;
/// So many bytes are thrown away at least, however small a body must be, before a client that goes on sending is
/// reset, which can cost it the answer.
const LINGER_BYTES: u64 = 1 << 20;

impl<'a> Engine<'a> {
    /// Closes with a FIN. Closing while there is something unread would send a reset instead, which can
    /// destroy the answer on its way: then the rest is read first (RFC 9112, 9.6).
    pub(super) fn close(&mut self, connection: &mut Connection<'a>) -> Step {
        let more_may_come = connection.readable
            || connection.held.is_some()
            || connection.reader.in_message()
            || connection.seat.is_none();
        if !more_may_come && connection.stream.tells_the_end() {
            return Step::Gone;
        }
        if connection.stream.end().is_err() || !more_may_come {
            return Step::Gone;
        }
        connection.held = None;
        connection.flight = None;
        connection.phase = Phase::Lingering;
        // Its time begins here, whatever was waited for before.
        (connection.wait, connection.since_ns) = (Wait::End, self.now_ns);
        self.timers.at(self.now_ns + LINGER_NS, connection.token);
        Step::On
    }

    /// Throws away what comes.
    pub(super) fn drain(&mut self, connection: &mut Connection<'a>) -> Step {
        if !connection.readable {
            return Step::Wait;
        }
        match connection.stream.recv(&mut self.buffer) {
            Ok(0) => Step::Gone,
            Ok(received) => {
                self.counters.received_bytes.add(received as u64);
                connection.drained_bytes += received as u64;
                if connection.drained_bytes > self.shared.config.limits.body_bytes.max(LINGER_BYTES) {
                    Step::Gone
                } else {
                    Step::On
                }
            }
            Err(Errno::AGAIN) => {
                connection.readable = false;
                Step::Wait
            }
            Err(Errno::INTR) => Step::On,
            Err(_) => Step::Gone,
        }
    }

    /// Sets the deadline of what the connection waits for now.
    #[inline]
    pub(super) fn arm(&mut self, connection: &mut Connection<'a>) {
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
            Wait::End => return connection.deadline_ns = connection.since_ns.saturating_add(LINGER_NS),
        };
        let mut time_ns = time.as_nanos() as u64;
        if let (Wait::Body, Some(flight)) = (wait, &connection.flight) {
            let rate = u128::from(timeouts.body_bytes_per_s.max(1));
            let earned_ns = u128::from(flight.received_bytes) * 1_000_000_000 / rate;
            time_ns = time_ns.saturating_add(u64::try_from(earned_ns).unwrap_or(u64::MAX));
        }
        connection.deadline_ns = connection.since_ns.saturating_add(time_ns);
    }

    /// The deadline of a connection may be over.
    pub(crate) fn alarm(&mut self, connection: &mut Connection<'a>) -> NextStep {
        if self.now_ns < connection.deadline_ns {
            self.timers.watch(self.now_ns, connection.deadline_ns, connection.token);
            return NextStep::Wait;
        }
        self.counters.connections_timed_out.add(u64::from(connection.wait != Wait::End));
        let refusal = match connection.wait {
            Wait::Request | Wait::Client | Wait::End => return NextStep::Close,
            Wait::Head => Refusal::SlowHead,
            Wait::Body => Refusal::SlowBody,
            // That says nothing of the disk.
            Wait::Storage if self.pending.give_up(connection.pending) => Refusal::NotRead,
            Wait::Storage => {
                if self.pending.find(connection.pending).is_some() {
                    self.shared.debt.is_late(self.now_ns);
                }
                Refusal::StoreTimeout
            }
        };
        let mut flight = connection.flight.take();
        let asked = match connection.wait {
            Wait::Storage => self.pending.manner(connection.pending),
            _ => flight.as_mut().map(|flight| &mut flight.manner),
        };
        let manner = Manner { close: true, ..asked.map(std::mem::take).unwrap_or_default() };
        let step = self.answer(connection, &Reply::Refused(refusal), &manner);
        flight.into_iter().for_each(|flight| self.recycle(flight));
        if step == Step::Gone {
            return NextStep::Close;
        }
        let fate = self.proceed(connection);
        self.timers.watch(self.now_ns, connection.deadline_ns, connection.token);
        fate
    }

    /// The listener stops: a connection goes unless something of a request has come.
    pub(crate) fn may_go(&mut self, connection: &mut Connection<'a>) -> NextStep {
        if connection.phase == Phase::Reading {
            // What the kernel has, but has not told yet, is a request in flight.
            connection.readable = true;
        }
        self.proceed(connection)
    }
}
