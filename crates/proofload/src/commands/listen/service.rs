//! What systemd is told, and what it hands in: readiness, reloads, the watchdog, sockets.
//!
//! Protocols: sd_notify(3), sd_listen_fds(3). Without systemd nothing of this happens.

use std::{
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use listenfd::ListenFd;
use sd_notify::NotifyState;
use tracing::warn;

use crate::exit::Refusal;

/// Sockets that were handed in (LISTEN_FDS), in their order. Takes the variables out of the environment, so call it
/// before there is a second thread.
///
/// # Errors
/// When one is no TCP socket.
pub(super) fn handed() -> Result<Vec<OwnedFd>, Refusal> {
    let mut list = ListenFd::from_env();
    let sockets = (0..list.len()).map(|place| match list.take_tcp_listener(place) {
        Ok(Some(listener)) => Ok(OwnedFd::from(listener)),
        Ok(None) => Err(Refusal::one(format_args!("socket {place} handed in is gone"))),
        Err(error) => Err(Refusal::one(format_args!(
            "socket {place} handed in cannot be used: {error}; hand in TCP sockets (ListenStream=) only"
        ))),
    });
    sockets.collect()
}

/// The service that systemd knows.
#[derive(Debug)]
pub(super) struct Service {
    status: String,
    /// How often it wants to hear that we live.
    watchdog: Option<Duration>,
    told: Instant,
    could_tell: bool,
}

impl Service {
    /// `status` is what `systemctl status` shows while it listens.
    pub(super) fn new(status: &str) -> Self {
        // Twice as often as asked, as sd_watchdog_enabled(3) recommends.
        let watchdog = sd_notify::watchdog_enabled().map(|timeout| timeout / 2);
        Self { status: status.to_owned(), watchdog, told: Instant::now(), could_tell: true }
    }

    /// It listens.
    pub(super) fn ready(&mut self) {
        let status = self.status.clone();
        self.tell(&[NotifyState::Ready, NotifyState::Status(&status)]);
    }

    /// It reads files anew; [`Service::ready`] comes behind.
    pub(super) fn reloading(&mut self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.tell(&[NotifyState::Reloading, now]),
            Err(_) => self.tell(&[NotifyState::Reloading]),
        }
    }

    /// It ends.
    pub(super) fn stopping(&mut self) {
        self.tell(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
    }

    /// It lives; to be said at least as often as the watchdog wants to hear it.
    pub(super) fn alive(&mut self) {
        if self.watchdog.is_some_and(|interval| self.told.elapsed() >= interval.saturating_sub(super::GLANCE))
        {
            self.told = Instant::now();
            self.tell(&[NotifyState::Watchdog]);
        }
    }

    fn tell(&mut self, state: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(state)
            && self.could_tell
        {
            self.could_tell = false;
            warn!("systemd cannot be told of this service: {error}");
        }
    }
}
