//! Sends answers.

use jiff::{Timestamp, fmt::rfc2822::DateTimePrinter};
use rustix::io::Errno;
use sockets::NextStep;

use super::{Engine, Step};
use crate::{
    answer::{AnswerContext, Reply},
    connection::{Connection, Phase, Remainder, Wait},
    refusal::Refusal,
};

impl<'a> Engine<'a> {
    /// Encodes an answer, counts it and starts to send it.
    #[inline]
    pub(super) fn answer(
        &mut self,
        connection: &mut Connection<'a>,
        reply: &Reply<'_>,
        context: &AnswerContext,
    ) -> Step {
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        let shared = self.shared;
        let date = shared.config.date.then(|| self.date());
        let sent = shared.answer_writer.write(&mut out, reply, context, date);
        self.counters.count_answer(sent.status);
        if let Reply::Refused(refusal) = reply {
            self.counters.count_refusal(refusal);
        }
        connection.close = sent.close;
        let step = self.send(connection, &out);
        self.out = out;
        step
    }

    /// Sends a refusal to a connection beyond the limit.
    #[cold]
    pub(super) fn refuse_connection(&mut self, connection: &mut Connection<'a>) -> NextStep {
        self.counters.connections_refused.add(1);
        let context = AnswerContext { close: true, ..AnswerContext::default() };
        match self.answer(connection, &Reply::Refused(Refusal::Connections), &context) {
            Step::Close => NextStep::Close,
            Step::Continue | Step::Yield | Step::Wait => NextStep::Continue,
        }
    }

    #[inline]
    fn send(&mut self, connection: &mut Connection<'a>, bytes: &[u8]) -> Step {
        let sent = match connection.stream.send(bytes) {
            _ if bytes.is_empty() => 0,
            Ok(sent) => sent,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(_) => return Step::Close,
        };
        self.counters.sent_bytes.add(sent as u64);
        connection.phase = Phase::Writing;
        if sent < bytes.len() {
            connection.unsent = Some(Remainder::new(&bytes[sent..]));
            return Step::Continue;
        }
        self.sent(connection)
    }

    /// Sends more of an answer that the socket did not accept at once.
    pub(super) fn write(&mut self, connection: &mut Connection<'a>) -> Step {
        let Some(mut out) = connection.unsent.take() else { return self.sent(connection) };
        let sent = connection.stream.send(&out.bytes[out.used..]);
        let step = match sent {
            Ok(sent) => {
                self.counters.sent_bytes.add(sent as u64);
                out.used += sent;
                // The deadline starts again, because the client has accepted bytes.
                connection.since_ns = self.now_ns;
                Step::Continue
            }
            Err(Errno::INTR) => Step::Continue,
            Err(Errno::AGAIN) => Step::Wait,
            Err(_) => return Step::Close,
        };
        if out.used < out.bytes.len() {
            connection.unsent = Some(out);
            return step;
        }
        self.sent(connection)
    }

    /// Ends an answer after all its bytes have entered the stream. TLS may still buffer some of them.
    #[inline]
    fn sent(&mut self, connection: &mut Connection<'a>) -> Step {
        match connection.stream.flush() {
            Ok(true) => {}
            Ok(false) => return Step::Wait,
            Err(_) => return Step::Close,
        }
        // An answer from before the stop lacks `Connection: close`, so the client may have sent another request.
        if connection.close || (self.is_stopping() && !connection.check_for_more()) {
            return self.close(connection);
        }
        connection.phase = Phase::Reading;
        // Differs from the next wait, so that `set_deadline` starts the idle time again.
        connection.wait = Wait::Linger;
        Step::Continue
    }

    /// The value of `Date` for the current second (RFC 9110, 5.6.7).
    fn date(&mut self) -> &str {
        let now = Timestamp::now();
        if self.date.0 != now.as_second() {
            let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&now);
            self.date = (now.as_second(), date.expect("the clock of Linux ends in 2262"));
        }
        &self.date.1
    }
}
