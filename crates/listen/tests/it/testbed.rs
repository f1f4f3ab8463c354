//! A listener under test, with its folder.

use std::{net::SocketAddr, path::Path, thread::JoinHandle, time::Duration};

use listen::{Config, Handle, Report, Server, Timeouts};
use tempfile::TempDir;
use testing::{http::Client, unread_bytes, until};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(3_600);

/// A storage below `folder`, with one file per tag, times in UTC and timeouts for slow disks.
pub(crate) fn store(folder: &Path) -> segments::Config {
    let template = format!("{}/${{tag}}", folder.display()).parse().unwrap();
    segments::Config { utc: true, descriptor_wait: LONG, close_wait: LONG, ..segments::Config::new(template) }
}

/// A running listener.
pub(crate) struct Testbed {
    pub address: SocketAddr,
    pub admin: Option<SocketAddr>,
    pub handle: Handle,
    thread: Option<JoinHandle<Report>>,
    folder: Option<TempDir>,
}

impl Testbed {
    /// Starts a listener with JSON lines, no compat, one thread, and timeouts that even slow machines do not reach.
    pub(crate) fn start() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Self {
        Self::at(TempDir::new().unwrap(), change)
    }

    pub(crate) fn at(folder: TempDir, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new(store(folder.path()));
        config.format = events::LineFormat::Json;
        config.timeouts = Timeouts {
            head: LONG,
            body: LONG,
            idle: LONG,
            store: LONG,
            drain: LONG,
            linger: LONG,
            ..Timeouts::default()
        };
        change(&mut config);
        let server = Server::bind(config, Vec::new()).unwrap();
        Self::run(server, folder)
    }

    pub(crate) fn run(server: Server, folder: TempDir) -> Self {
        let (address, admin, handle) = (server.local_addrs()[0], server.admin_addr(), server.handle());
        let thread = Some(std::thread::spawn(move || server.run()));
        Self { address, admin, handle, thread, folder: Some(folder) }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address).unwrap()
    }

    /// Waits until the listener has read all bytes that were sent.
    pub(crate) fn has_read(&self) {
        until("all is read", || unread_bytes(self.address).iter().all(|&bytes| bytes == 0));
    }

    /// Waits until the budget is unused, because an answer can arrive before its request's reservation is released.
    pub(crate) fn has_free_budget(&self) {
        until("the budget is free", || self.handle.statistics().budget_used_bytes == 0);
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.as_ref().expect("only taken when it stops").path()
    }

    /// The stored lines of a tag.
    pub(crate) fn stored(&self, tag: &str) -> String {
        std::fs::read_to_string(self.folder().join(format!("{tag}.log"))).unwrap_or_default()
    }

    /// Stops the listener. Returns the report, and the folder with the stored files.
    pub(crate) fn stop(mut self) -> (Report, TempDir) {
        let report = self.join().expect("it ran");
        (report, self.folder.take().expect("only taken here"))
    }

    fn join(&mut self) -> Option<Report> {
        self.handle.stop();
        let thread = self.thread.take()?;
        Some(thread.join().expect("the listener does not panic"))
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.join();
        }
    }
}
