//! A target on a host of the lab: it writes down who sent what, and answers only as many requests as it is told to.
//!
//! A load of users waits for answers, so the target decides how far a trial gets, however fast or slow this machine is.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
    io::{ErrorKind, Read, Write},
    net::{IpAddr, Ipv4Addr, TcpListener, TcpStream},
    os::fd::AsFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use anyhow::{Result, anyhow};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};

/// The port of the target.
pub const PORT: u16 = 8081;
/// Answers every request.
pub const ALL: u64 = u64::MAX;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n";
/// The same, before the connection is closed.
const LAST_ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n";
const HEAD_END: &[u8] = b"\r\n\r\n";
/// How often it looks whether it may answer more, or is to end.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// A request as it was received.
#[derive(Debug, Clone)]
pub struct Received {
    /// Who sent it.
    pub from: IpAddr,
    /// When it was read.
    pub at: Instant,
    /// Its request line and header fields.
    head: String,
}

impl Received {
    /// What stands between method and version.
    pub fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    /// The value of a header field.
    pub fn field(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        let mut own = fields.filter(|(known, _)| known.eq_ignore_ascii_case(name));
        own.next().map(|(_, value)| value.trim())
    }

    /// Whether the connection is to be closed after the answer.
    fn is_last(&self) -> bool {
        let is_old = self.head.lines().next().is_some_and(|line| line.ends_with("HTTP/1.0"));
        let wish = self.field("connection").unwrap_or(if is_old { "close" } else { "keep-alive" });
        wish.eq_ignore_ascii_case("close")
    }
}

#[derive(Debug, Default)]
struct Log {
    received: Vec<Received>,
    /// Of each address: the number of its requests in `received`, of its connections since then, and of those that are open.
    requests: BTreeMap<IpAddr, u64>,
    accepted: BTreeMap<IpAddr, u64>,
    open: BTreeMap<IpAddr, u64>,
}

#[derive(Debug)]
struct Shared {
    log: Mutex<Log>,
    /// Of the requests of each address, the first so many are answered.
    answered_each: AtomicU64,
    is_over: AtomicBool,
}

impl Shared {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running target. Dropping it ends it.
#[derive(Debug)]
pub struct Target {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Target {
    /// Listens at all addresses of a host, which has this network namespace.
    pub fn start(network: File) -> Result<Self> {
        // A thread cannot leave the namespace again.
        let bound = thread::spawn(move || -> Result<TcpListener> {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))?)
        });
        let listener = bound.join().map_err(|_| anyhow!("the thread in the host panicked"))??;
        listener.set_nonblocking(true)?;
        let shared = Shared {
            log: Mutex::default(),
            answered_each: AtomicU64::new(ALL),
            is_over: AtomicBool::new(false),
        };
        let shared = Arc::new(shared);
        let own = Arc::clone(&shared);
        let thread = Some(thread::spawn(move || serve(&listener, &own)));
        Ok(Self { shared, thread })
    }

    /// Forgets what it received, and answers the first so many requests of each address from now on.
    pub fn begin(&self, answered_each: u64) {
        let mut log = self.shared.log();
        self.shared.answered_each.store(answered_each, Ordering::Relaxed);
        *log = Log { open: std::mem::take(&mut log.open), ..Log::default() };
    }

    /// Answers every request, also those that wait.
    pub fn answer_all(&self) {
        self.shared.answered_each.store(ALL, Ordering::Relaxed);
    }

    /// What it received since it was told to begin, in order.
    pub fn received(&self) -> Vec<Received> {
        self.shared.log().received.clone()
    }

    /// Number of requests from an address since then.
    pub fn count(&self, from: IpAddr) -> u64 {
        self.shared.log().requests.get(&from).copied().unwrap_or(0)
    }

    /// Number of connections from an address since then.
    pub fn accepted(&self, from: IpAddr) -> u64 {
        self.shared.log().accepted.get(&from).copied().unwrap_or(0)
    }

    /// Number of connections from an address that have not ended, or that may have sent something that was not read yet.
    pub fn open(&self, from: IpAddr) -> u64 {
        self.shared.log().open.get(&from).copied().unwrap_or(0)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Connection {
    stream: TcpStream,
    from: IpAddr,
    /// The beginning of a head.
    bytes: Vec<u8>,
    /// The requests that wait for their answers: the number of each, counted for the address, and whether it is the last one.
    waiting: VecDeque<(u64, bool)>,
}

fn serve(listener: &TcpListener, shared: &Shared) {
    let mut connections: Vec<Connection> = Vec::new();
    while !shared.is_over.load(Ordering::Relaxed) {
        wait(listener, &connections);
        while let Ok((stream, from)) = listener.accept() {
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            let from = from.ip();
            let mut log = shared.log();
            *log.accepted.entry(from).or_default() += 1;
            *log.open.entry(from).or_default() += 1;
            connections.push(Connection { stream, from, bytes: Vec::new(), waiting: VecDeque::new() });
        }
        let answered_each = shared.answered_each.load(Ordering::Relaxed);
        connections.retain_mut(|connection| {
            let goes_on = connection.read(shared) && connection.answer(answered_each);
            if !goes_on {
                *shared.log().open.entry(connection.from).or_default() -= 1;
            }
            goes_on
        });
    }
}

/// Waits until there is something to read or accept, or for a moment.
fn wait(listener: &TcpListener, connections: &[Connection]) {
    let mut watched = vec![PollFd::new(listener, PollFlags::IN)];
    watched.extend(connections.iter().map(|connection| PollFd::new(&connection.stream, PollFlags::IN)));
    // A signal may end the wait early.
    let _ = poll(&mut watched, Some(&PAUSE));
}

impl Connection {
    /// Reads what is there. Returns whether more may come.
    fn read(&mut self, shared: &Shared) -> bool {
        let mut piece = [0; 16 << 10];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return false,
                Ok(length) => {
                    self.bytes.extend_from_slice(&piece[..length]);
                    self.take_heads(shared);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }

    /// Writes down all requests that are complete. None has a body.
    fn take_heads(&mut self, shared: &Shared) {
        while let Some(end) = self.bytes.windows(HEAD_END.len()).position(|window| window == HEAD_END) {
            let head: Vec<u8> = self.bytes.drain(..end + HEAD_END.len()).collect();
            let head = String::from_utf8_lossy(&head).into_owned();
            let received = Received { from: self.from, at: Instant::now(), head };
            let mut log = shared.log();
            let number = log.requests.entry(self.from).or_default();
            *number += 1;
            self.waiting.push_back((*number, received.is_last()));
            log.received.push(received);
        }
    }

    /// Answers what may be answered. Returns whether more may come.
    fn answer(&mut self, answered_each: u64) -> bool {
        while let Some(&(number, is_last)) = self.waiting.front()
            && number <= answered_each
        {
            self.waiting.pop_front();
            // Whether the other side has closed the connection, the next read tells.
            let _ = self.stream.write_all(if is_last { LAST_ANSWER } else { ANSWER });
            if is_last {
                return false;
            }
        }
        true
    }
}
