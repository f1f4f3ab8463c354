//! The ends of connections: FIN, RST, silence, and the ones that idle too long.

use std::{os::fd::AsFd, time::Duration};

use rustix::{
    io::Errno,
    net::{RecvFlags, Shutdown, recv, shutdown, sockopt},
};

use super::{Engine, Step};
use crate::{
    connection::{Connection, Phase},
    timers::Alarm,
};

/// How long a closed connection is drained at the most.
const LINGER_NS: u64 = 2_000_000_000;

impl Engine<'_> {
    /// Closes with a FIN. Closing while there is something unread would send a reset instead, which can
    /// destroy the answer on its way: then the rest is read first (RFC 9112, 9.6).
    pub(super) fn close(&mut self, connection: &mut Connection, more_may_come: bool) -> Step {
        if !connection.readable && !more_may_come {
            return Step::Gone;
        }
        if shutdown(&connection.socket, Shutdown::Write).is_err() {
            return Step::Gone;
        }
        connection.held = None;
        connection.phase = Phase::Lingering;
        let now_ns = self.look_at_clock();
        self.timers.set(now_ns + LINGER_NS, connection.token, Alarm::Linger);
        Step::On
    }

    pub(super) fn drain(&mut self, connection: &mut Connection) -> Step {
        connection.held = None;
        if !connection.readable {
            return Step::Wait;
        }
        match recv(&connection.socket, &mut self.buffer[..], RecvFlags::empty()) {
            Ok((_, 0)) => Step::Gone,
            Ok((_, received)) => {
                self.report.request_bytes += received as u64;
                Step::On
            }
            Err(Errno::AGAIN) => {
                connection.readable = false;
                Step::Wait
            }
            Err(Errno::INTR) => Step::On,
            Err(_) => Step::Gone,
        }
    }

    /// The time that an idle connection is kept may be over.
    pub(super) fn idle(&mut self, connection: &Connection) -> Step {
        let Some(timeout_ns) = self.shared.config.keepalive_timeout_ns else { return Step::Wait };
        let waits = connection.phase == Phase::Reading && !connection.readable;
        let since_ns = if waits { connection.active_ns } else { self.now_ns };
        let due_ns = since_ns.saturating_add(timeout_ns);
        if due_ns <= self.now_ns {
            self.report.connections_idled_out += 1;
            return Step::Gone;
        }
        self.timers.set(due_ns, connection.token, Alarm::Idle);
        Step::Wait
    }
}

/// Never answers; the connection stays open as long as the client wants it.
pub(super) fn silence(connection: &mut Connection) -> Step {
    connection.phase = Phase::Silent;
    connection.held = None;
    if connection.peer_closed { Step::Gone } else { Step::Wait }
}

/// Closes with a RST instead of a FIN.
pub(super) fn reset(connection: &Connection) -> Step {
    reset_on_close(&connection.socket);
    Step::Gone
}

/// Has the kernel send a RST when the socket is closed. Where that fails, the client is gone already.
pub(crate) fn reset_on_close(socket: impl AsFd) {
    let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}
