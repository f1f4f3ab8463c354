//! A target without a queue that keeps its own log: when the kernel received each request, and when its answer left.
//!
//! It answers every request a known time after the kernel received it, on a separate processor. Its log of a trial is the truth for the
//! trial's times: it includes disturbances of the target, but none of the generator.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    fs::File,
    io::{IoSliceMut, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::{AsFd, AsRawFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use kernel::namespaces::run_in_network;
use nix::sys::{
    socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt::ReceiveTimestampns},
    time::TimeSpec,
};
use rustix::{
    buffer::spare_capacity,
    event::{Timespec, epoll},
    thread::{CpuSet, sched_setaffinity, set_current_timer_slack},
    time::{ClockId, clock_gettime},
};

use crate::random::Random;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nHello, World\n";
/// The value that marks the listener among the events.
const LISTENER: u64 = u64::MAX;
/// Interval between checks for the request to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Time from a request to its answer.
#[derive(Debug, Clone)]
pub enum Delay {
    /// Always the same time.
    Fixed(Duration),
    /// Exponentially distributed, with this mean.
    Exponential(Duration, Random),
    /// No delay, but for this share of the requests (0 to 1) the target first works for this time, which blocks everything else.
    Work(Duration, f64, Random),
}

impl From<Duration> for Delay {
    fn from(delay: Duration) -> Self {
        Self::Fixed(delay)
    }
}

impl Delay {
    /// Does the work, if there is some, and returns the delay.
    fn take_ns(&mut self) -> i64 {
        let ns = match self {
            Self::Fixed(delay) => delay.as_nanos() as f64,
            Self::Exponential(mean, random) => -(1.0 - random.ratio()).ln() * mean.as_nanos() as f64,
            Self::Work(time, share, random) => {
                // Measures processor time of this thread, so the work takes longer if another program uses the processor.
                let until = thread_ns() + if random.ratio() < *share { time.as_nanos() as i64 } else { 0 };
                while thread_ns() < until {
                    std::hint::spin_loop();
                }
                0.0
            }
        };
        ns as i64
    }
}

/// A request as the target saw it, in nanoseconds of CLOCK_REALTIME.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// The address that it came from.
    pub from: IpAddr,
    /// The time at which the kernel received it.
    pub came_ns: i64,
    /// The times just before and just after its answer was written. If the target lost its processor in between, the answer left at an
    /// unknown time between them.
    pub left_ns: [i64; 2],
}

impl Served {
    /// The shortest and the longest time that it may have spent with the target.
    pub fn times_ns(&self) -> [u64; 2] {
        self.left_ns.map(|left_ns| (left_ns - self.came_ns).max(0) as u64)
    }
}

/// A running target.
#[derive(Debug)]
pub struct WitnessedTarget {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Vec<Served>>>>,
}

impl WitnessedTarget {
    /// Answers on a new port, `delay` after a request came, in a thread on this processor.
    ///
    /// # Errors
    /// If it cannot listen.
    pub fn start(delay: impl Into<Delay>, core: u32) -> Result<Self> {
        Self::launch(delay.into(), Some(core), listen((Ipv4Addr::LOCALHOST, 0).into())?)
    }

    /// The same, on any processor that this process may use.
    ///
    /// # Errors
    /// If it cannot listen.
    pub fn start_anywhere(delay: impl Into<Delay>) -> Result<Self> {
        Self::launch(delay.into(), None, listen((Ipv4Addr::LOCALHOST, 0).into())?)
    }

    /// The same, at all addresses and this port of a host, which has this network namespace.
    ///
    /// # Errors
    /// If it cannot listen there.
    pub fn start_in(network: &File, port: u16, delay: impl Into<Delay>) -> Result<Self> {
        let bound = run_in_network(network, || {
            listen((Ipv4Addr::UNSPECIFIED, port).into()).map_err(std::io::Error::other)
        });
        Self::launch(delay.into(), None, bound?)
    }

    fn launch(delay: Delay, core: Option<u32>, listener: TcpListener) -> Result<Self> {
        // The standard library's queue of 128 is too short for pools that are opened at once.
        rustix::net::listen(&listener, 4_096)?;
        listener.set_nonblocking(true)?;
        // Connections inherit this option, so that their first segments have a time stamp, too.
        setsockopt(&listener, ReceiveTimestampns, &true)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = thread::Builder::new().name("target".to_owned()).spawn(move || {
            if let Some(core) = core {
                let mut set = CpuSet::new();
                set.set(core as usize);
                sched_setaffinity(None, &set)?;
            }
            set_current_timer_slack(Some(std::num::NonZeroU64::MIN))?;
            Loop::new(listener, delay)?.run(&seen)
        })?;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// The URL of the target.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Ends the target, and returns its log in the order of the answers.
    ///
    /// # Errors
    /// If its thread failed.
    pub fn stop(mut self) -> Result<Vec<Served>> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("it was stopped already")?;
        thread.join().map_err(|_| anyhow!("the target panicked"))?
    }
}

impl Drop for WitnessedTarget {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn listen(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).context("the target cannot listen")
}

struct Loop {
    listener: TcpListener,
    epoll: rustix::fd::OwnedFd,
    delay: Delay,
    connections: Vec<Option<(TcpStream, IpAddr)>>,
    /// For each answer: when it is due, when its request came (both by CLOCK_REALTIME), and its connection.
    due: BinaryHeap<Reverse<(i64, i64, usize)>>,
    log: Vec<Served>,
    control: Vec<u8>,
}

impl Loop {
    fn new(listener: TcpListener, delay: Delay) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
        Ok(Self {
            listener,
            epoll,
            delay,
            connections: Vec::new(),
            due: BinaryHeap::new(),
            log: Vec::new(),
            control: nix::cmsg_space!(TimeSpec),
        })
    }

    fn run(mut self, stop: &AtomicBool) -> Result<Vec<Served>> {
        let mut events = Vec::with_capacity(256);
        while !stop.load(Ordering::Relaxed) {
            let next_ns = self.due.peek().map_or(i64::MAX, |Reverse((due_ns, ..))| due_ns - real_ns());
            let wait_ns = next_ns.clamp(0, POLL_INTERVAL.as_nanos() as i64);
            let timeout = Timespec { tv_sec: 0, tv_nsec: wait_ns };
            events.clear();
            let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout));
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    index => self.read(index as usize),
                }
            }
            while let Some(&Reverse((due_ns, came_ns, index))) = self.due.peek()
                && due_ns <= real_ns()
            {
                self.due.pop();
                self.answer(came_ns, index);
            }
        }
        Ok(self.log)
    }

    fn accept(&mut self) -> Result<()> {
        while let Ok((connection, from)) = self.listener.accept() {
            connection.set_nonblocking(true)?;
            connection.set_nodelay(true)?;
            setsockopt(&connection, ReceiveTimestampns, &true)?;
            let data = epoll::EventData::new_u64(self.connections.len() as u64);
            epoll::add(&self.epoll, connection.as_fd(), data, epoll::EventFlags::IN)?;
            self.connections.push(Some((connection, from.ip())));
        }
        Ok(())
    }

    fn read(&mut self, index: usize) {
        let Some((connection, _)) = &self.connections[index] else { return };
        let mut bytes = [0; 4_096];
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let fd = connection.as_raw_fd();
        let received = recvmsg::<()>(fd, &mut parts, Some(&mut self.control), MsgFlags::MSG_DONTWAIT);
        let (length, stamp) = match received {
            Ok(message) => {
                let stamps = message.cmsgs().into_iter().flatten();
                let stamp = stamps.into_iter().find_map(|control| match control {
                    ControlMessageOwned::ScmTimestampns(at) => {
                        Some(at.tv_sec() * 1_000_000_000 + at.tv_nsec())
                    }
                    _ => None,
                });
                (message.bytes, stamp)
            }
            Err(nix::errno::Errno::EAGAIN) => return,
            Err(_) => (0, None),
        };
        if length == 0 {
            self.connections[index] = None;
            return;
        }
        // The first segments after the option was set may have no time stamp.
        let came_ns = stamp.unwrap_or_else(real_ns);
        // The generator sends requests without a body, each in one piece, so count the ends of heads.
        let requests = bytes[..length].windows(4).filter(|window| window == b"\r\n\r\n").count();
        for _ in 0..requests {
            self.due.push(Reverse((came_ns + self.delay.take_ns(), came_ns, index)));
        }
    }

    fn answer(&mut self, came_ns: i64, index: usize) {
        let Some((connection, from)) = &mut self.connections[index] else { return };
        let leaves_ns = real_ns();
        if connection.write_all(ANSWER).is_ok() {
            self.log.push(Served { from: *from, came_ns, left_ns: [leaves_ns, real_ns()] });
        }
    }
}

fn real_ns() -> i64 {
    at(ClockId::Realtime)
}

fn thread_ns() -> i64 {
    at(ClockId::ThreadCPUTime)
}

fn at(clock: ClockId) -> i64 {
    let now = clock_gettime(clock);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}
