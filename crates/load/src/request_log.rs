//! The log of requests: lines of JSON, written by a separate thread.

use std::{
    io::{self, Write},
    net::SocketAddr,
    path::Path,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
};

use record::{ErrorClass, LogPlan};
use serde::Serialize;

/// Maximum number of entries that wait for the disk. Further ones are dropped and counted, so that logging never delays the
/// measurement.
const MAX_WAITING: usize = 65_536;

/// The log entry of a request. Times are in nanoseconds since 1970.
#[derive(Debug)]
pub(crate) struct LogEntry {
    pub(crate) step: usize,
    pub(crate) user: u64,
    pub(crate) iteration: u64,
    /// The target with its secrets masked.
    pub(crate) target: Box<[u8]>,
    pub(crate) trace: Box<[u8]>,
    /// The local address of the connection, if the request was sent on a connection with addresses.
    pub(crate) connection: Option<SocketAddr>,
    pub(crate) due_ns: i128,
    /// `None` if no byte was sent.
    pub(crate) sent_ns: Option<i128>,
    /// `None` if the trial ended before the request.
    pub(crate) ended_ns: Option<i128>,
    pub(crate) status: Option<u16>,
    pub(crate) error: Option<ErrorClass>,
}

/// A line of the log.
#[derive(Debug, Serialize)]
struct Line<'a> {
    due_unix_s: f64,
    sent_unix_s: Option<f64>,
    ended_unix_s: Option<f64>,
    step: &'a str,
    user: u64,
    iteration: u64,
    target: &'a str,
    status: Option<u16>,
    error: Option<ErrorClass>,
    connection: Option<SocketAddr>,
    traceparent: &'a str,
}

/// Sends entries to the thread that writes the log.
#[derive(Debug, Clone)]
pub(crate) struct LogSender {
    sender: SyncSender<LogEntry>,
    /// The share of completed requests that is logged, from 0 to 1.
    pub(crate) sample_ratio: f64,
}

impl LogSender {
    /// Sends an entry. Returns false if the entry was dropped because too many wait for the disk.
    pub(crate) fn send(&self, entry: LogEntry) -> bool {
        self.sender.try_send(entry).is_ok()
    }
}

/// The thread that writes the log.
#[derive(Debug)]
pub(crate) struct LogWriter {
    thread: thread::JoinHandle<io::Result<()>>,
}

/// Opens the log for appending. `steps`: the names of the steps.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn open(plan: &LogPlan, steps: Vec<String>) -> io::Result<(LogSender, LogWriter)> {
    let fails = |error: io::Error| {
        io::Error::new(error.kind(), format!("cannot write the log {}: {error}", plan.file))
    };
    // Only its owner may read the file, because request targets may contain personal data.
    let file = files::written("--log", Path::new(&plan.file), true, 0o600).map_err(fails)?;
    let (sender, entries) = sync_channel(MAX_WAITING);
    let name = plan.file.clone();
    let thread =
        thread::Builder::new().name("log".to_owned()).spawn(move || write(file, &name, &steps, &entries))?;
    Ok((LogSender { sender, sample_ratio: plan.sample_ratio }, LogWriter { thread }))
}

impl LogWriter {
    /// Waits until every line is in the file. All senders must have been dropped.
    ///
    /// # Errors
    /// When the file could not be written.
    pub(crate) fn finish(self) -> io::Result<()> {
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread of the log panicked")))
    }
}

/// Writes all entries. Entries that cannot be written are lost and counted.
fn write(mut file: impl Write, name: &str, steps: &[String], entries: &Receiver<LogEntry>) -> io::Result<()> {
    let (mut lines, mut lost, mut why) = (Vec::new(), 0_u64, None);
    while let Ok(first) = entries.recv() {
        lines.clear();
        let mut number = 0;
        for entry in std::iter::once(first).chain(entries.try_iter().take(1_000)) {
            push_line(&entry, steps, &mut lines)?;
            number += 1;
        }
        // Each call writes whole lines, because other processes append to the same file and must not split a line.
        if let Err(error) = file.write_all(&lines) {
            lost += number;
            why.get_or_insert(error);
        }
    }
    let Some(error) = why else { return Ok(()) };
    let help = match files::is_elsewhere() {
        true => "a machine keeps at most 64 MiB of it until the end: log a smaller --log-sample",
        false => "free space, or choose another file",
    };
    let message = format!("cannot write the log {name}: {error}; up to {lost} lines; {help}");
    Err(io::Error::new(error.kind(), message))
}

fn push_line(entry: &LogEntry, steps: &[String], lines: &mut Vec<u8>) -> io::Result<()> {
    let seconds = |ns: i128| ns as f64 / 1e9;
    let target = String::from_utf8_lossy(&entry.target);
    let line = Line {
        due_unix_s: seconds(entry.due_ns),
        sent_unix_s: entry.sent_ns.map(seconds),
        ended_unix_s: entry.ended_ns.map(seconds),
        step: steps.get(entry.step).map_or("", |step| step),
        user: entry.user,
        iteration: entry.iteration,
        target: &secrets::mask(&target),
        status: entry.status,
        error: entry.error,
        connection: entry.connection,
        traceparent: &String::from_utf8_lossy(&entry.trace),
    };
    serde_json::to_writer(&mut *lines, &line)?;
    lines.push(b'\n');
    Ok(())
}
