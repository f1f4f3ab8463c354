//! Answers out, right and wrong, and the account of them.

use std::io::IoSlice;

use rustix::{
    io::Errno,
    net::{SendAncillaryBuffer, SendFlags, send, sendmsg, sockopt},
};

use super::{
    Engine, Step,
    close::{reset, silence},
};
use crate::{
    WhenFull,
    answer::Kind,
    connection::{Connection, Deed, Phase},
    misbehave::Misbehaviour,
    timers::Alarm,
};

/// Shortest time between two bits of a slow head.
const DRIBBLE_NS: u64 = 100_000;

impl Engine<'_> {
    /// The answer is due.
    #[inline]
    pub(super) fn perform(&mut self, connection: &mut Connection) -> Step {
        match connection.deed {
            Deed::Answer => self.start(connection, Kind::Plain),
            Deed::Misbehave(kind) => self.misbehave(connection, kind),
            Deed::Reject(WhenFull::Reject) => self.start(connection, Kind::Reject),
            Deed::Reject(when_full) => {
                self.report.rejected_unanswered += 1;
                match when_full {
                    WhenFull::Reset => reset(connection),
                    WhenFull::Ignore => silence(connection),
                    WhenFull::Close | WhenFull::Reject => self.close(connection, false),
                }
            }
            // Sent where they arise.
            Deed::BadRequest | Deed::Continue => Step::On,
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
                self.report.misbehaved(kind);
                silence(connection)
            }
            Misbehaviour::Reset | Misbehaviour::Close => {
                if self.measured {
                    self.look_at_clock();
                    self.measure(connection);
                }
                self.report.misbehaved(kind);
                if kind == Misbehaviour::Reset { reset(connection) } else { self.close(connection, false) }
            }
        }
    }

    /// Begins to send.
    #[inline]
    pub(super) fn start(&mut self, connection: &mut Connection, kind: Kind) -> Step {
        let wire = self.shared.answers.wire(kind, connection.shape);
        connection.kind = kind;
        connection.sent = 0;
        connection.end = match kind {
            Kind::Malformed | Kind::BadFraming | Kind::Continue => wire.total_bytes(),
            _ if connection.seen.to_head => wire.head_bytes(),
            _ => wire.total_bytes(),
        };
        if let Deed::Misbehave(Misbehaviour::Truncate) = connection.deed {
            let body_bytes = connection.end - wire.head_bytes();
            connection.end =
                if body_bytes > 0 { wire.head_bytes() + body_bytes / 2 } else { wire.head_bytes() / 2 };
        }
        if self.dribbles(kind) {
            connection.phase = Phase::Dribbling;
            return self.dribble(connection);
        }
        connection.phase = Phase::Writing;
        self.write(connection)
    }

    /// Whether an answer of this kind has its head dribbled out.
    fn dribbles(&self, kind: Kind) -> bool {
        self.shared.config.slow_head_ns > 0
            && matches!(kind, Kind::Plain | Kind::Error | Kind::Unsolicited | Kind::BadFraming)
    }

    /// Sends as much of the head as its time has come: the first byte at once, the last, with all that
    /// follows, at the end of the time.
    pub(super) fn dribble(&mut self, connection: &mut Connection) -> Step {
        let slow_ns = self.shared.config.slow_head_ns;
        let wire = self.shared.answers.wire(connection.kind, connection.shape);
        let head = wire.head_bytes().min(connection.end);
        let since_ns = self.look_at_clock().saturating_sub(connection.due_ns);
        if since_ns >= slow_ns {
            connection.phase = Phase::Writing;
            return self.write(connection);
        }
        let share = |ns: u64| (u128::from(head) * u128::from(ns) / u128::from(slow_ns)) as u64;
        let until = share(since_ns).clamp(1, head.saturating_sub(1).max(1)).min(connection.end);
        if until > connection.sent {
            let (pieces, count) = wire.pieces(connection.sent, until);
            match send_pieces(connection, &pieces[..count]) {
                Ok(sent) => {
                    connection.sent += sent as u64;
                    self.report.response_bytes += sent as u64;
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => return self.lost(connection),
            }
        }
        let next_ns =
            (u128::from(connection.sent + 1) * u128::from(slow_ns)).div_ceil(u128::from(head.max(1)));
        let next_ns = (next_ns as u64).max(since_ns + DRIBBLE_NS).min(slow_ns);
        self.timers.set(connection.due_ns.saturating_add(next_ns), connection.token, Alarm::Answer);
        Step::Wait
    }

    #[inline]
    pub(super) fn write(&mut self, connection: &mut Connection) -> Step {
        if self.measured {
            self.look_at_clock();
        }
        let wire = self.shared.answers.wire(connection.kind, connection.shape);
        let sent = match wire.piece(connection.sent, connection.end) {
            Some(bytes) => send(&connection.socket, bytes, SendFlags::NOSIGNAL),
            None => {
                let (pieces, count) = wire.pieces(connection.sent, connection.end);
                send_pieces(connection, &pieces[..count])
            }
        };
        match sent {
            Ok(sent) => {
                self.report.response_bytes += sent as u64;
                connection.sent += sent as u64;
                if connection.sent == connection.end { self.sent_whole(connection) } else { Step::On }
            }
            Err(Errno::AGAIN) => Step::Wait,
            Err(Errno::INTR) => Step::On,
            Err(_) => self.lost(connection),
        }
    }

    /// The kernel has the whole answer.
    #[inline]
    fn sent_whole(&mut self, connection: &mut Connection) -> Step {
        // A client that closed its side may still read. If it does not, the kernel has been told so by now
        // (at once on the loopback, after a round trip elsewhere).
        if connection.peer_closed && !matches!(sockopt::socket_error(&connection.socket), Ok(Ok(()))) {
            return self.lost(connection);
        }
        let config = self.shared.config;
        let mut close = connection.shape.close;
        match connection.deed {
            Deed::Continue => {
                connection.phase = Phase::Reading;
                return Step::On;
            }
            Deed::Answer => self.report.answered(config.status),
            Deed::Reject(_) => self.report.answered(503),
            Deed::BadRequest => {
                self.report.answered(400);
                return self.close(connection, true);
            }
            Deed::Misbehave(kind) => {
                self.report.misbehaved(kind);
                match kind {
                    Misbehaviour::Error => self.report.answered(config.error_status),
                    Misbehaviour::Unsolicited => self.report.answered(config.status),
                    Misbehaviour::HugeHead => {}
                    _ => close = true,
                }
            }
        }
        if self.measured && !matches!(connection.deed, Deed::Reject(_)) {
            self.measure(connection);
        }
        if close {
            return self.close(connection, false);
        }
        connection.active_ns = self.now_ns;
        connection.phase = Phase::Reading;
        Step::On
    }

    /// Records when the answer went out, at the time last looked at.
    fn measure(&mut self, connection: &Connection) {
        let slow_ns = if connection.phase == Phase::Writing && self.dribbles(connection.kind) {
            self.shared.config.slow_head_ns
        } else {
            0
        };
        let due_ns = connection.due_ns.saturating_add(slow_ns);
        self.report.delay_applied.record_ns(self.now_ns.saturating_sub(connection.read_ns));
        self.report.late_by.record_ns(self.now_ns.saturating_sub(due_ns));
    }

    /// The client is gone before it had its answer.
    pub(super) fn lost(&mut self, connection: &Connection) -> Step {
        match connection.deed {
            Deed::Continue => self.report.truncated_requests += 1,
            _ => self.report.clients_gone += 1,
        }
        Step::Gone
    }
}

fn send_pieces(connection: &Connection, pieces: &[IoSlice<'_>]) -> rustix::io::Result<usize> {
    sendmsg(&connection.socket, pieces, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)
}
