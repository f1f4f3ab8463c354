//! A target under test.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use serve::{Config, Report, Server};
use testing::{http::Client, unread_bytes, until};

pub(crate) const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: target\r\n\r\n";
pub(crate) const GET_CLOSE: &[u8] = b"GET / HTTP/1.1\r\nHost: target\r\nConnection: close\r\n\r\n";

/// A running target.
pub(crate) struct Target {
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Report>,
}

impl Target {
    pub(crate) fn start(config: Config) -> Self {
        let server = Server::bind(config).unwrap();
        let address = server.local_addrs()[0];
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let stop = stop.clone();
            move || server.run(stop)
        });
        Self { address, stop, thread }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address).unwrap()
    }

    /// Waits until the target has read all bytes that were sent.
    pub(crate) fn has_read(&self) {
        until("all is read", || unread_bytes(self.address).iter().all(|&bytes| bytes == 0));
    }

    /// Waits until the target has closed all its connections.
    pub(crate) fn has_closed(&self) {
        until("all is closed", || unread_bytes(self.address).is_empty());
    }

    /// Stops the target and returns its report, which must count every request in exactly one class.
    pub(crate) fn stop(self) -> Report {
        self.stop.store(true, Ordering::Relaxed);
        until("the target ends", || self.thread.is_finished());
        let report = self.thread.join().unwrap();
        assert_eq!(report.unaccounted(), 0, "{report}");
        assert_eq!(report.answers, report.answers_by_status.values().sum::<u64>());
        report
    }
}
