//! A listener under test with a folder of its own.

use std::{net::SocketAddr, path::Path, thread::JoinHandle, time::Duration};

use listen::{Config, Handle, Report, Server, Timeouts};
use tempfile::TempDir;
use testing::{http::Client, unread_bytes, until};

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3_600);

/// Stores by tag below that folder, times in UTC, however slow the disk is.
pub(crate) fn store(folder: &Path) -> segments::Config {
    let template = format!("{}/${{tag}}", folder.display()).parse().unwrap();
    segments::Config { utc: true, descriptor_wait: LONG, close_wait: LONG, ..segments::Config::new(template) }
}

/// A listener that runs.
pub(crate) struct Testbed {
    pub address: SocketAddr,
    pub admin: Option<SocketAddr>,
    pub handle: Handle,
    thread: Option<JoinHandle<Report>>,
    folder: Option<TempDir>,
}

impl Testbed {
    /// By default: JSON lines, no compat, one thread, no time limit that a slow machine could reach.
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

    /// Waits until it has read all that was sent.
    pub(crate) fn has_read(&self) {
        until("all is read", || unread_bytes(self.address).iter().all(|&bytes| bytes == 0));
    }

    /// Waits until nothing of the budget is used: an answer may come just before what its request had is given back.
    pub(crate) fn has_free_budget(&self) {
        until("the budget is free", || self.handle.statistics().budget_used_bytes == 0);
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.as_ref().expect("only taken when it stops").path()
    }

    /// What is stored of a tag.
    pub(crate) fn stored(&self, tag: &str) -> String {
        std::fs::read_to_string(self.folder().join(format!("{tag}.log"))).unwrap_or_default()
    }

    /// Stops it; the report, and the folder for what is left there.
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
