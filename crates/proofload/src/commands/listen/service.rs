//! Integration with systemd: readiness, reloads, the watchdog and socket activation; see sd_notify(3) and
//! sd_listen_fds(3). Without systemd, the functions do nothing.

use std::{
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use listenfd::ListenFd;
use sd_notify::NotifyState;
use tracing::warn;

use crate::exit::{Refusal, Result};

/// The sockets that systemd passed (LISTEN_FDS), in order. Removes the variables from the environment, which is safe
/// only before a second thread starts.
///
/// # Errors
/// If a socket is not a TCP socket.
pub(super) fn inherited_sockets() -> Result<Vec<OwnedFd>> {
    let mut list = ListenFd::from_env();
    let sockets = (0..list.len()).map(|index| match list.take_tcp_listener(index) {
        Ok(Some(listener)) => Ok(OwnedFd::from(listener)),
        Ok(None) => Err(Refusal::one(format_args!("socket {index} from systemd is missing"))),
        Err(error) => Err(Refusal::one(format_args!(
            "socket {index} from systemd cannot be used: {error}; pass only TCP sockets (ListenStream=)"
        ))),
    });
    sockets.collect()
}

/// Reports the state of this service to systemd.
#[derive(Debug)]
pub(super) struct Service {
    status: String,
    /// Interval between watchdog notifications; `None` if systemd expects none.
    watchdog: Option<Duration>,
    /// When the last watchdog notification was sent.
    last_alive: Instant,
    has_warned: bool,
}

impl Service {
    /// Creates the notifier; `systemctl status` shows `status` while the listener runs.
    pub(super) fn new(status: &str) -> Self {
        // Half the interval, as sd_watchdog_enabled(3) recommends.
        let watchdog = sd_notify::watchdog_enabled().map(|timeout| timeout / 2);
        Self { status: status.to_owned(), watchdog, last_alive: Instant::now(), has_warned: false }
    }

    /// Notifies systemd that the listener is ready.
    pub(super) fn ready(&mut self) {
        let status = self.status.clone();
        self.notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
    }

    /// Notifies systemd that the listener is reloading its files. Call [`Service::ready`] afterwards.
    pub(super) fn reloading(&mut self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.notify(&[NotifyState::Reloading, now]),
            Err(_) => self.notify(&[NotifyState::Reloading]),
        }
    }

    /// Notifies systemd that the listener is stopping.
    pub(super) fn stopping(&mut self) {
        self.notify(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
    }

    /// Sends a watchdog notification if one is due. Call it at least every [`super::POLL_INTERVAL`].
    pub(super) fn alive(&mut self) {
        if self.watchdog.is_some_and(|interval| {
            self.last_alive.elapsed() >= interval.saturating_sub(super::POLL_INTERVAL)
        }) {
            self.last_alive = Instant::now();
            self.notify(&[NotifyState::Watchdog]);
        }
    }

    fn notify(&mut self, state: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(state)
            && !self.has_warned
        {
            self.has_warned = true;
            warn!("cannot notify systemd of the state of this service: {error}");
        }
    }
}
