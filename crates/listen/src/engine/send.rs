//! Answers out.

use std::time::{Duration, UNIX_EPOCH};

use rustix::io::Errno;
use sockets::NextStep;

use super::{Engine, Step};
use crate::{
    answer::{Manner, Reply},
    connection::{Connection, Held, Phase, Wait},
    refusal::Refusal,
};

impl<'a> Engine<'a> {
    /// Answers a request.
    #[inline]
    pub(super) fn answer(
        &mut self,
        connection: &mut Connection<'a>,
        reply: &Reply<'_>,
        manner: &Manner,
    ) -> Step {
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        let shared = self.shared;
        let date = shared.config.date.then(|| self.date());
        let sent = shared.dress.write(&mut out, reply, manner, date);
        self.counters.answered(sent.status);
        if let Reply::Refused(refusal) = reply {
            self.counters.refused(refusal);
        }
        connection.close = sent.close;
        let step = self.send(connection, &out);
        self.out = out;
        step
    }

    /// Tells a connection that there are too many.
    #[cold]
    pub(super) fn turn_away(&mut self, connection: &mut Connection<'a>) -> NextStep {
        self.counters.connections_refused.add(1);
        let manner = Manner { close: true, ..Manner::default() };
        match self.answer(connection, &Reply::Refused(Refusal::Connections), &manner) {
            Step::Gone => NextStep::Close,
            Step::On | Step::Later | Step::Wait => NextStep::Continue,
        }
    }

    #[inline]
    fn send(&mut self, connection: &mut Connection<'a>, bytes: &[u8]) -> Step {
        let sent = match connection.stream.send(bytes) {
            _ if bytes.is_empty() => 0,
            Ok(sent) => sent,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(_) => return Step::Gone,
        };
        self.counters.sent_bytes.add(sent as u64);
        connection.phase = Phase::Writing;
        if sent < bytes.len() {
            connection.out = Some(Held::new(&bytes[sent..]));
            return Step::On;
        }
        self.sent(connection)
    }

    /// Sends what the client did not take at once.
    pub(super) fn write(&mut self, connection: &mut Connection<'a>) -> Step {
        let Some(mut out) = connection.out.take() else { return self.sent(connection) };
        let sent = connection.stream.send(&out.bytes[out.used..]);
        let step = match sent {
            Ok(sent) => {
                self.counters.sent_bytes.add(sent as u64);
                out.used += sent;
                // Progress moves the deadline.
                connection.since_ns = self.now_ns;
                Step::On
            }
            Err(Errno::INTR) => Step::On,
            Err(Errno::AGAIN) => Step::Wait,
            Err(_) => return Step::Gone,
        };
        if out.used < out.bytes.len() {
            connection.out = Some(out);
            return step;
        }
        self.sent(connection)
    }

    /// The whole answer is on its way, perhaps still within TLS.
    #[inline]
    fn sent(&mut self, connection: &mut Connection<'a>) -> Step {
        match connection.stream.flush() {
            Ok(true) => {}
            Ok(false) => return Step::Wait,
            Err(_) => return Step::Gone,
        }
        // An answer that was begun before the stop has not said that it is the last.
        if connection.close || (self.is_stopping() && !connection.more_has_come()) {
            return self.close(connection);
        }
        connection.phase = Phase::Reading;
        // The time without a request begins anew.
        connection.wait = Wait::End;
        Step::On
    }

    /// The date of this second (RFC 9110, 5.6.7).
    fn date(&mut self) -> &str {
        let since = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if self.date.0 != since.as_secs() {
            let second = UNIX_EPOCH + Duration::from_secs(since.as_secs());
            self.date = (since.as_secs(), httpdate::fmt_http_date(second));
        }
        &self.date.1
    }
}
