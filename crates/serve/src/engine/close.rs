//! Closes connections with a FIN or an RST, leaves requests unanswered, and checks idle timeouts.

use std::{os::fd::AsFd, time::Duration};

use rustix::{
    io::Errno,
    net::{RecvFlags, Shutdown, recv, shutdown, sockopt},
};
use sockets::Stream;

use super::{Engine, Step};
use crate::{
    connection::{Connection, Phase},
    timers::TimerKind,
};

/// Maximum time in nanoseconds for which a closed connection's input is discarded.
const LINGER_NS: u64 = 2_000_000_000;

impl Engine<'_> {
    /// Sends a FIN and reads the rest of the input. Closing a socket with unread bytes would send a reset, which can
    /// destroy the answer in transit (RFC 9112, 9.6).
    pub(super) fn close(&mut self, connection: &mut Connection, more_may_come: bool) -> Step {
        if let Some(extra) = &mut connection.extra
            && let Some(session) = &mut extra.session
        {
            // Ignores errors, because a client that has disconnected needs no close_notify.
            let _ = session.send_close_notify(&mut Stream(&connection.socket));
        }
        if !connection.readable && !more_may_come {
            return Step::Close;
        }
        if shutdown(&connection.socket, Shutdown::Write).is_err() {
            return Step::Close;
        }
        connection.unparsed = None;
        connection.phase = Phase::Lingering;
        let now_ns = self.read_clock();
        self.timers.set(now_ns + LINGER_NS, connection.token, TimerKind::Linger);
        Step::Continue
    }

    pub(super) fn discard_input(&mut self, connection: &mut Connection) -> Step {
        connection.unparsed = None;
        if !connection.readable {
            return Step::Wait;
        }
        match recv(&connection.socket, &mut self.buffer[..], RecvFlags::empty()) {
            Ok((_, 0)) => Step::Close,
            Ok((_, received)) => {
                self.report.request_bytes += received as u64;
                Step::Continue
            }
            Err(Errno::AGAIN) => {
                connection.readable = false;
                Step::Wait
            }
            Err(Errno::INTR) => Step::Continue,
            Err(_) => Step::Close,
        }
    }

    /// Closes the connection if it has been idle too long; otherwise sets the next timer.
    pub(super) fn check_idle(&mut self, connection: &Connection) -> Step {
        let Some(timeout_ns) = self.shared.config.keepalive_timeout_ns else { return Step::Wait };
        let waits = connection.phase == Phase::Reading && !connection.readable;
        let since_ns = if waits { connection.active_ns } else { self.now_ns };
        let due_ns = since_ns.saturating_add(timeout_ns);
        if due_ns <= self.now_ns {
            self.report.connections_idled_out += 1;
            return Step::Close;
        }
        self.timers.set(due_ns, connection.token, TimerKind::Idle);
        Step::Wait
    }
}

/// Leaves the request unanswered. The connection stays open until the client closes it.
pub(super) fn leave_unanswered(connection: &mut Connection) -> Step {
    connection.phase = Phase::Silent;
    connection.unparsed = None;
    if connection.peer_closed { Step::Close } else { Step::Wait }
}

/// Closes with an RST instead of a FIN.
pub(super) fn reset(connection: &Connection) -> Step {
    reset_on_close(&connection.socket);
    Step::Close
}

/// Makes the kernel send an RST when the socket is closed. Fails only if the client has already disconnected.
pub(crate) fn reset_on_close(socket: impl AsFd) {
    let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}
