//! Sends answers, correct or wrong, and counts them.

use rustix::{
    io::Errno,
    net::{SendAncillaryBuffer, SendFlags, send, sendmsg, sockopt},
};
use sockets::Stream;
use tls::Failure;

use super::{
    Engine, Step,
    close::{leave_unanswered, reset},
};
use crate::{
    WhenFull,
    answer::{Answers, Kind},
    connection::{Action, Connection, Phase},
    misbehave::Misbehaviour,
    timers::TimerKind,
};

/// Minimum nanoseconds between two pieces of a slow head.
const MIN_DRIBBLE_INTERVAL_NS: u64 = 100_000;

impl Engine<'_> {
    /// Performs the action chosen for the current request.
    #[inline]
    pub(super) fn perform_action(&mut self, connection: &mut Connection) -> Step {
        match connection.action {
            Action::Answer => self.start(connection, Kind::Plain),
            Action::Misbehave(kind) => self.misbehave(connection, kind),
            Action::Reject(WhenFull::Reject) => self.start(connection, Kind::Reject),
            Action::Reject(when_full) => {
                self.report.rejected_unanswered += 1;
                match when_full {
                    WhenFull::Reset => reset(connection),
                    WhenFull::Ignore => leave_unanswered(connection),
                    WhenFull::Close | WhenFull::Reject => self.close(connection, false),
                }
            }
            // `receive.rs` starts these answers.
            Action::BadRequest | Action::Continue => Step::Continue,
        }
    }

    fn misbehave(&mut self, connection: &mut Connection, kind: Misbehaviour) -> Step {
        match kind {
            Misbehaviour::Error => self.start(connection, Kind::Error),
            Misbehaviour::Unsolicited => self.start(connection, Kind::Unsolicited),
            Misbehaviour::HugeHead => self.start(connection, Kind::HugeHead),
            Misbehaviour::Malformed => self.start(connection, Kind::Malformed),
            Misbehaviour::BadFraming => self.start(connection, Kind::BadFraming),
            Misbehaviour::Truncate => self.start(connection, Kind::Plain),
            Misbehaviour::Silent => {
                self.report.count_misbehaviour(kind);
                leave_unanswered(connection)
            }
            Misbehaviour::Reset | Misbehaviour::Close => {
                if self.measured {
                    self.read_clock();
                    self.record_times(connection);
                }
                self.report.count_misbehaviour(kind);
                if kind == Misbehaviour::Reset { reset(connection) } else { self.close(connection, false) }
            }
        }
    }

    /// Starts to send an answer.
    #[inline]
    pub(super) fn start(&mut self, connection: &mut Connection, kind: Kind) -> Step {
        connection.kind = kind;
        connection.sent = 0;
        let wire = connection.wire(self.shared.answers);
        let (head_bytes, total_bytes) = (wire.head_bytes(), wire.total_bytes());
        connection.end = match kind {
            Kind::Malformed | Kind::BadFraming | Kind::Continue => total_bytes,
            _ if connection.request_info.is_head => head_bytes,
            _ => total_bytes,
        };
        if let Action::Misbehave(Misbehaviour::Truncate) = connection.action {
            let body_bytes = connection.end - head_bytes;
            connection.end = if body_bytes > 0 { head_bytes + body_bytes / 2 } else { head_bytes / 2 };
        }
        if self.is_dribbled(kind) {
            connection.phase = Phase::Dribbling;
            return self.dribble(connection);
        }
        connection.phase = Phase::Writing;
        self.write(connection)
    }

    /// Whether the head of this kind of answer is sent in small pieces.
    fn is_dribbled(&self, kind: Kind) -> bool {
        self.shared.config.slow_head_ns > 0
            && matches!(kind, Kind::Plain | Kind::Error | Kind::Unsolicited | Kind::BadFraming)
    }

    /// Sends as much of the head as is due. The first byte is due at once; the last byte, and all that follows, at the
    /// end of `slow_head_ns`.
    pub(super) fn dribble(&mut self, connection: &mut Connection) -> Step {
        let slow_ns = self.shared.config.slow_head_ns;
        let head = connection.wire(self.shared.answers).head_bytes().min(connection.end);
        let since_ns = self.read_clock().saturating_sub(connection.due_ns);
        if since_ns >= slow_ns {
            connection.phase = Phase::Writing;
            return self.write(connection);
        }
        let share = |ns: u64| (u128::from(head) * u128::from(ns) / u128::from(slow_ns)) as u64;
        let until = share(since_ns).clamp(1, head.saturating_sub(1).max(1)).min(connection.end);
        if until > connection.sent {
            match send_until(self.shared.answers, connection, until) {
                Ok(sent) => {
                    connection.sent += sent as u64;
                    self.report.response_bytes += sent as u64;
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => return self.client_gone(connection),
            }
        }
        let next_ns =
            (u128::from(connection.sent + 1) * u128::from(slow_ns)).div_ceil(u128::from(head.max(1)));
        let next_ns = (next_ns as u64).max(since_ns + MIN_DRIBBLE_INTERVAL_NS).min(slow_ns);
        self.timers.set(connection.due_ns.saturating_add(next_ns), connection.token, TimerKind::Answer);
        Step::Wait
    }

    #[inline]
    pub(super) fn write(&mut self, connection: &mut Connection) -> Step {
        if self.measured {
            self.read_clock();
        }
        let end = connection.end;
        match send_until(self.shared.answers, connection, end) {
            Ok(sent) => {
                self.report.response_bytes += sent as u64;
                connection.sent += sent as u64;
                if connection.sent < connection.end {
                    Step::Continue
                } else if connection.session().is_some_and(|session| session.has_unsent()) {
                    Step::Wait
                } else {
                    self.sent_whole(connection)
                }
            }
            Err(Errno::AGAIN) => Step::Wait,
            Err(Errno::INTR) => Step::Continue,
            Err(_) => self.client_gone(connection),
        }
    }

    /// Ends an answer after the kernel has accepted all its bytes.
    #[inline]
    pub(super) fn sent_whole(&mut self, connection: &mut Connection) -> Step {
        // A client that has closed its sending side may still read. If it does not, its reset has arrived by now (at
        // once on the loopback, after a round trip elsewhere).
        if connection.peer_closed && !matches!(sockopt::socket_error(&connection.socket), Ok(Ok(()))) {
            return self.client_gone(connection);
        }
        let config = self.shared.config;
        let mut close = connection.shape.close;
        match connection.action {
            Action::Continue => {
                connection.phase = Phase::Reading;
                return Step::Continue;
            }
            Action::Answer => {
                self.report.count_answer(connection.page().map_or(config.status, |page| page.status));
            }
            Action::Reject(_) => self.report.count_answer(503),
            Action::BadRequest => {
                self.report.count_answer(400);
                return self.close(connection, true);
            }
            Action::Misbehave(kind) => {
                self.report.count_misbehaviour(kind);
                match kind {
                    Misbehaviour::Error => self.report.count_answer(config.error_status),
                    Misbehaviour::Unsolicited => self.report.count_answer(config.status),
                    Misbehaviour::HugeHead => {}
                    _ => close = true,
                }
            }
        }
        if self.measured && !matches!(connection.action, Action::Reject(_)) {
            self.record_times(connection);
        }
        if close {
            return self.close(connection, false);
        }
        connection.active_ns = self.now_ns;
        connection.phase = Phase::Reading;
        Step::Continue
    }

    /// Records the times of an answer that ended at `now_ns`.
    fn record_times(&mut self, connection: &Connection) {
        let slow_ns = if connection.phase == Phase::Writing && self.is_dribbled(connection.kind) {
            self.shared.config.slow_head_ns
        } else {
            0
        };
        let due_ns = connection.due_ns.saturating_add(slow_ns);
        self.report.delay_applied.record_ns(self.now_ns.saturating_sub(connection.read_ns));
        self.report.late_by.record_ns(self.now_ns.saturating_sub(due_ns));
    }

    /// Counts a client that disconnected before its answer was sent.
    pub(super) fn client_gone(&mut self, connection: &Connection) -> Step {
        match connection.action {
            Action::Continue => self.report.truncated_requests += 1,
            _ => self.report.clients_gone += 1,
        }
        Step::Close
    }
}

/// Sends bytes of the answer up to offset `until`. Returns how many were accepted. A TLS session may have accepted bytes
/// that it has not sent yet.
#[inline]
fn send_until(answers: &Answers, connection: &mut Connection, until: u64) -> Result<usize, Errno> {
    if connection.session().is_some() {
        return send_encrypted(answers, connection, until);
    }
    let wire = connection.wire(answers);
    match wire.piece(connection.sent, until) {
        Some(bytes) => send(&connection.socket, bytes, SendFlags::NOSIGNAL),
        None => {
            let (pieces, count) = wire.pieces(connection.sent, until);
            let (pieces, flags) = (&pieces[..count], SendFlags::NOSIGNAL);
            sendmsg(&connection.socket, pieces, &mut SendAncillaryBuffer::default(), flags)
        }
    }
}

fn send_encrypted(answers: &Answers, connection: &mut Connection, until: u64) -> Result<usize, Errno> {
    let Some(mut extra) = connection.extra.take() else { return Ok(0) };
    let sent = match (&mut extra.session, &extra.page) {
        (Some(session), page) => {
            let wire = match page {
                Some(page) if connection.kind == Kind::Plain => &page.wire,
                _ => answers.wire(connection.kind, connection.shape),
            };
            let (pieces, count) = wire.pieces(connection.sent, until);
            let mut socket = Stream(&connection.socket);
            match count {
                0 => session.flush(&mut socket).map(|_| 0),
                _ => session.send(&mut socket, &pieces[0]),
            }
        }
        (None, _) => Ok(0),
    };
    connection.extra = Some(extra);
    sent.map_err(|failure| match failure {
        Failure::WouldBlock => Errno::AGAIN,
        Failure::Io(errno) => errno,
        _ => Errno::PROTO,
    })
}
