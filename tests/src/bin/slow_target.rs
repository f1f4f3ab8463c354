//! A small HTTP service whose bottleneck is known, because it is made of it: a lock, a pool, a loop, a pause of everything.
//!
//! Once a second it prints what it counted, as a witness that the bottleneck was there: connections accepted, requests answered and
//! refused, and the seconds for which requests were with it. It ends by itself after two minutes.
//!
//! With `--log-s`, it also keeps a log of what its requests did, which is the truth for a report of where users' time went. A request is
//! inside from when the kernel received it to when its answer is written. Whatever it does not sleep there, it computes, or would like to.

use std::{
    hint::black_box,
    io::{IoSliceMut, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::{AsRawFd, OwnedFd},
    process,
    sync::{
        Condvar, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use nix::sys::{
    socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt::ReceiveTimestampns},
    time::TimeSpec,
};
use proofload_tests::random::Random;
use rustix::{
    net::{self, AddressFamily, SocketType, sockopt},
    time::{ClockId, clock_gettime},
};

/// It ends after so long, whoever forgot it.
const LONGEST: Duration = Duration::from_secs(120);
/// The windows in which the limiter counts.
const WINDOW: Duration = Duration::from_millis(100);

/// Serves HTTP with one known bottleneck.
#[derive(Debug, Parser)]
struct Arguments {
    address: SocketAddr,
    #[command(subcommand)]
    work: Work,
    /// Only so many threads, each of which keeps its connection to its end. Without it, each connection has a thread.
    #[arg(long, global = true)]
    workers: Option<usize>,
    /// Closes each connection after its first answer.
    #[arg(long, global = true)]
    close: bool,
    /// Length of the accept queue.
    #[arg(long, global = true, default_value_t = 1_024)]
    backlog: i32,
    /// Sleeps so long before each accept.
    #[arg(long, global = true, default_value_t = 0.0)]
    accept_ms: f64,
    /// Writes head and body separately, and leaves Nagle's algorithm on.
    #[arg(long, global = true)]
    two_writes: bool,
    /// Writes head and body separately, without Nagle's algorithm.
    #[arg(long, global = true)]
    two_quick_writes: bool,
    /// Answers 429 to what exceeds this rate per second.
    #[arg(long, global = true)]
    limiter: Option<u64>,
    /// Bytes of an answer's body.
    #[arg(long, global = true, default_value_t = 3)]
    big: usize,
    /// Bytes of the receive buffer, which bounds the window for uploads.
    #[arg(long, global = true)]
    rcvbuf: Option<usize>,
    /// A background thread that always computes.
    #[arg(long, global = true)]
    bgspin: bool,
    /// A background thread that pauses and computes in turn, for so many milliseconds each.
    #[arg(long, global = true, num_args = 2)]
    bgburn_ms: Option<Vec<f64>>,
    /// Keeps a log of what its requests do for so long, from the first connection.
    #[arg(long, global = true)]
    log_s: Option<f64>,
}

/// What an answer costs.
#[derive(Debug, Clone, Subcommand)]
enum Work {
    /// Nothing.
    Fast,
    /// A sleep with the only lock.
    Lock { ms: f64 },
    /// A sleep.
    Sleep { ms: f64 },
    /// A sleep in one of these slots.
    Pool { slots: usize, ms: f64 },
    /// For this part of the requests, a sleep in one of these slots; nothing for the others.
    Bimodal { percent: u64, slots: usize, ms: f64 },
    /// Nothing, but all stands still in turn with working.
    Stop { on_ms: f64, off_ms: f64 },
    /// Processor time.
    Burn { us: u64 },
    /// Processor time with the only lock.
    BurnLock { us: u64 },
    /// A wait in an event loop that polls without sleeping.
    Spin { ms: f64 },
    /// The answer of another service.
    Proxy { to: SocketAddr },
    /// A sleep, then a sleep with the only lock, then processor time. Sections of zero are left out.
    Mix { sleep_ms: f64, lock_ms: f64, burn_us: u64 },
}

static ACCEPTED: AtomicU64 = AtomicU64::new(0);
static ANSWERED: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);
static HELD_US: AtomicU64 = AtomicU64::new(0);
/// Requests for which it was drawn whether they are slow.
static DRAWN: AtomicU64 = AtomicU64::new(0);
static LOG: LazyLock<Log> = LazyLock::new(Log::default);

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let listener = listener(&arguments).with_context(|| format!("cannot listen on {}", arguments.address))?;
    println!("listening");
    let service = &*Box::leak(Box::new(Service::new(arguments)));
    thread::spawn(report);
    if service.arguments.bgspin {
        thread::spawn(|| {
            loop {
                compute()
            }
        });
    }
    if let Some(&[pause_ms, burn_ms]) = service.arguments.bgburn_ms.as_deref() {
        thread::spawn(move || {
            loop {
                thread::sleep(ms(pause_ms));
                burn(ms(burn_ms));
            }
        });
    }
    if let Work::Spin { ms: delay_ms } = service.arguments.work {
        return service.spin(&listener, ms(delay_ms));
    }
    match service.arguments.workers {
        Some(workers) => thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    loop {
                        if let Some(stream) = service.accept(&listener) {
                            service.serve(stream);
                        }
                    }
                });
            }
        }),
        None => loop {
            if let Some(stream) = service.accept(&listener) {
                thread::spawn(move || service.serve(stream));
            }
        },
    }
    Ok(())
}

fn listener(arguments: &Arguments) -> Result<TcpListener> {
    let socket: OwnedFd = net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if arguments.log_s.is_some() {
        // Connections inherit this option, so that their first segments have a time stamp, too.
        setsockopt(&socket, ReceiveTimestampns, &true)?;
    }
    if let Some(bytes) = arguments.rcvbuf {
        sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
    }
    net::bind(&socket, &arguments.address)?;
    net::listen(&socket, arguments.backlog)?;
    Ok(socket.into())
}

/// Prints the counters each second, and ends the program in the end.
fn report() {
    for _ in 0..LONGEST.as_secs() {
        let [accepted, answered, refused, held_us] =
            [&ACCEPTED, &ANSWERED, &REFUSED, &HELD_US].map(|counter| counter.load(Relaxed));
        println!(
            "accepted {accepted} answered {answered} refused {refused} held_s {:.2}{}",
            held_us as f64 / 1e6,
            LOG.shown()
        );
        thread::sleep(Duration::from_secs(1));
    }
    process::exit(0);
}

struct Service {
    arguments: Arguments,
    answer: Vec<u8>,
    refusal: Vec<u8>,
    began: Instant,
    /// The only lock, and when it was released last.
    lock: Mutex<Instant>,
    /// Slots that are taken.
    taken: Mutex<usize>,
    given_back: Condvar,
    /// The limiter's window, and what it let through there.
    window: Mutex<(u128, u64)>,
}

impl Service {
    fn new(arguments: Arguments) -> Self {
        let connection = if arguments.close { "Connection: close\r\n" } else { "" };
        let with = |status: &str, length: usize| {
            let mut bytes =
                format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{connection}\r\n").into_bytes();
            bytes.resize(bytes.len() + length, b'x');
            bytes
        };
        Self {
            answer: with("200 OK", arguments.big),
            refusal: with("429 Too Many Requests", 0),
            arguments,
            began: Instant::now(),
            lock: Mutex::new(Instant::now()),
            taken: Mutex::default(),
            given_back: Condvar::new(),
            window: Mutex::default(),
        }
    }

    /// The next connection; none if there are no descriptors left.
    fn accept(&self, listener: &TcpListener) -> Option<TcpStream> {
        if self.arguments.accept_ms > 0.0 {
            thread::sleep(ms(self.arguments.accept_ms));
        }
        self.stand_still();
        let Ok((stream, _)) = listener.accept() else {
            thread::sleep(ms(10.0));
            return None;
        };
        ACCEPTED.fetch_add(1, Relaxed);
        if let Some(log_s) = self.arguments.log_s {
            LOG.until.get_or_init(|| Instant::now() + Duration::from_secs_f64(log_s));
        }
        // With one write for each answer, the algorithm would only hold back the end of large ones.
        let _ = stream.set_nodelay(!self.arguments.two_writes);
        Some(stream)
    }

    /// Answers requests until the connection ends.
    fn serve(&self, mut stream: TcpStream) {
        let (mut bytes, mut behind, accepted) = (Vec::new(), None, Instant::now());
        while let Some(arrived) = take_request(&mut stream, &mut bytes) {
            let received = Instant::now();
            let is_refused = self.is_too_much();
            let sent = match is_refused {
                true => stream.write_all(&self.refusal),
                false => {
                    self.work(&mut behind);
                    LOG.answer(arrived.max(accepted));
                    self.write_answer(&mut stream)
                }
            };
            count(received, is_refused);
            if sent.is_err() || self.arguments.close {
                return;
            }
        }
    }

    fn write_answer(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        if self.arguments.two_writes || self.arguments.two_quick_writes {
            let (head, body) = self.answer.split_at(self.answer.len() - self.arguments.big);
            stream.write_all(head)?;
            return stream.write_all(body);
        }
        stream.write_all(&self.answer)
    }

    fn work(&self, behind: &mut Option<TcpStream>) {
        match self.arguments.work {
            Work::Fast | Work::Spin { .. } => {}
            Work::Lock { ms: time } => {
                let _lock = held(&self.lock);
                thread::sleep(ms(time));
            }
            Work::Sleep { ms: time } => thread::sleep(ms(time)),
            Work::Pool { slots, ms: time } => self.in_slot(slots, time),
            Work::Bimodal { percent, slots, ms: time } => {
                if Random::new(DRAWN.fetch_add(1, Relaxed)).below(100) < percent {
                    self.in_slot(slots, time);
                }
            }
            Work::Stop { .. } => self.stand_still(),
            Work::Burn { us } => burn(Duration::from_micros(us)),
            Work::BurnLock { us } => {
                let _lock = held(&self.lock);
                burn(Duration::from_micros(us));
            }
            Work::Proxy { to } => {
                // If the other service has gone, the answer is its own.
                if ask(behind, to).is_none() {
                    *behind = None;
                }
            }
            Work::Mix { sleep_ms, lock_ms, burn_us } => self.mix(ms(sleep_ms), ms(lock_ms), burn_us),
        }
    }

    fn mix(&self, sleep: Duration, lock: Duration, burn_us: u64) {
        let began = Instant::now();
        if !sleep.is_zero() {
            LOG.sleep(sleep);
            LOG.sleep_ns.add(began, Instant::now());
        }
        let began = Instant::now();
        if !lock.is_zero() {
            let mut released = held(&self.lock);
            // From then on, nothing but a lack of a processor kept this thread from taking it.
            LOG.asleep_ns.add(began, *released);
            LOG.sleep(lock);
            *released = Instant::now();
            drop(released);
            LOG.lock_ns.add(began, Instant::now());
        }
        if burn_us > 0 {
            let (began, used) = (Instant::now(), thread_time());
            burn(Duration::from_micros(burn_us));
            LOG.compute_ns.add(began, Instant::now());
            LOG.processor_ns.add(began, began + (thread_time() - used));
        }
    }

    fn in_slot(&self, slots: usize, time_ms: f64) {
        let mut taken = held(&self.taken);
        while *taken >= slots {
            taken = self.given_back.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
        *taken += 1;
        drop(taken);
        thread::sleep(ms(time_ms));
        *held(&self.taken) -= 1;
        self.given_back.notify_one();
    }

    /// Sleeps to the end of a pause, if there is one now.
    fn stand_still(&self) {
        let Work::Stop { on_ms, off_ms } = self.arguments.work else { return };
        let at_ms = self.began.elapsed().as_secs_f64() * 1e3 % (on_ms + off_ms);
        if at_ms > on_ms {
            thread::sleep(ms(on_ms + off_ms - at_ms));
        }
    }

    fn is_too_much(&self) -> bool {
        let Some(rate) = self.arguments.limiter else { return false };
        let now = self.began.elapsed().as_millis() / WINDOW.as_millis();
        let mut window = held(&self.window);
        if window.0 != now {
            *window = (now, 0);
        }
        window.1 += 1;
        window.1 > rate * WINDOW.as_millis() as u64 / 1_000
    }

    /// An event loop that asks every connection in turn, forever. Each request arrives in one piece.
    fn spin(&self, listener: &TcpListener, delay: Duration) -> Result<()> {
        listener.set_nonblocking(true)?;
        let (mut open, mut piece) = (Vec::<(TcpStream, Option<Instant>)>::new(), [0; 4_096]);
        loop {
            while let Ok((stream, _)) = listener.accept() {
                ACCEPTED.fetch_add(1, Relaxed);
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                open.push((stream, None));
            }
            open.retain_mut(|(stream, received)| match *received {
                Some(at) if at.elapsed() < delay => true,
                Some(at) => {
                    *received = None;
                    count(at, false);
                    stream.write_all(&self.answer).is_ok()
                }
                None => match stream.read(&mut piece) {
                    Ok(0) => false,
                    Ok(_) => {
                        *received = Some(Instant::now());
                        true
                    }
                    Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
                },
            });
        }
    }
}

/// What requests did until a certain time.
#[derive(Default)]
struct Log {
    until: OnceLock<Instant>,
    /// Answers that were written.
    answered: AtomicU64,
    /// All time inside.
    inside_ns: Sum,
    /// The part of it that a request would have slept on any machine: sleeps as long as planned, and waits for the lock.
    asleep_ns: Sum,
    /// The part of it in which another service was asked.
    asked_ns: Sum,
    /// The sections of a mix as the wall clock shows them, and the processor time of the last of them.
    sleep_ns: Sum,
    lock_ns: Sum,
    compute_ns: Sum,
    processor_ns: Sum,
}

impl Log {
    /// Sleeps. What it oversleeps is no sleep, but a wait for the processor.
    fn sleep(&self, time: Duration) {
        let began = Instant::now();
        thread::sleep(time);
        self.asleep_ns.add(began, began + time);
    }

    /// A request that was inside since then is about to be answered.
    fn answer(&self, since: Instant) {
        let now = Instant::now();
        self.inside_ns.add(since, now);
        if self.until.get().is_some_and(|&until| now < until) {
            self.answered.fetch_add(1, Relaxed);
        }
    }

    /// Names and values, if there is a log.
    fn shown(&self) -> String {
        if self.until.get().is_none() {
            return String::new();
        }
        let sums = [
            ("inside_s", &self.inside_ns),
            ("asleep_s", &self.asleep_ns),
            ("asked_s", &self.asked_ns),
            ("sleep_s", &self.sleep_ns),
            ("lock_s", &self.lock_ns),
            ("compute_s", &self.compute_ns),
            ("processor_s", &self.processor_ns),
        ];
        let shown = sums.map(|(name, sum)| format!(" {name} {:.3}", sum.0.load(Relaxed) as f64 / 1e9));
        format!(" in_time {}{}", self.answered.load(Relaxed), shown.concat())
    }
}

/// A sum of times, each as far as there is a log.
#[derive(Default)]
struct Sum(AtomicU64);

impl Sum {
    fn add(&self, from: Instant, to: Instant) {
        if let Some(&until) = LOG.until.get() {
            self.0.fetch_add(to.min(until).saturating_duration_since(from).as_nanos() as u64, Relaxed);
        }
    }
}

/// Reads to the end of a request with its body, and returns when its last bytes arrived; none if the connection ends.
fn take_request(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<Instant> {
    let (mut piece, mut arrived) = ([0; 64 << 10], Instant::now());
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let all = end + 4 + body_length(&bytes[..end]);
            while bytes.len() < all {
                bytes.extend_from_slice(read_piece(stream, &mut piece, &mut arrived)?);
            }
            bytes.drain(..all);
            return Some(arrived);
        }
        bytes.extend_from_slice(read_piece(stream, &mut piece, &mut arrived)?);
    }
}

/// Reads some bytes, and tells when the kernel received them, or when they were read if it does not say. None if the connection ends.
fn read_piece<'a>(stream: &TcpStream, piece: &'a mut [u8], arrived: &mut Instant) -> Option<&'a [u8]> {
    let mut control = nix::cmsg_space!(TimeSpec);
    let mut parts = [IoSliceMut::new(piece)];
    let message =
        recvmsg::<()>(stream.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::empty()).ok()?;
    let stamp = message.cmsgs().into_iter().flatten().find_map(|control| match control {
        ControlMessageOwned::ScmTimestampns(at) => Some(Duration::from(at)),
        _ => None,
    });
    *arrived = Instant::now() - stamp.map_or(Duration::ZERO, |at| of(ClockId::Realtime).saturating_sub(at));
    let read = message.bytes;
    (read > 0).then_some(&piece[..read])
}

fn body_length(head: &[u8]) -> usize {
    let head = String::from_utf8_lossy(head);
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    let mut lengths = fields.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    lengths.next().and_then(|(_, value)| value.trim().parse().ok()).unwrap_or(0)
}

/// Asks the service behind this one, over a connection of the caller's own.
fn ask(behind: &mut Option<TcpStream>, to: SocketAddr) -> Option<()> {
    if behind.is_none() {
        let stream = TcpStream::connect(to).ok()?;
        stream.set_nodelay(true).ok()?;
        setsockopt(&stream, ReceiveTimestampns, &LOG.until.get().is_some()).ok()?;
        *behind = Some(stream);
    }
    let (stream, sent) = (behind.as_mut()?, Instant::now());
    stream.write_all(b"GET / HTTP/1.1\r\nHost: behind\r\n\r\n").ok()?;
    LOG.asked_ns.add(sent, take_request(stream, &mut Vec::new())?);
    Some(())
}

fn count(received: Instant, is_refused: bool) {
    let counter = if is_refused { &REFUSED } else { &ANSWERED };
    counter.fetch_add(1, Relaxed);
    HELD_US.fetch_add(received.elapsed().as_micros() as u64, Relaxed);
}

/// Uses so much processor time of this thread, however long that takes.
fn burn(time: Duration) {
    let until = thread_time() + time;
    while thread_time() < until {
        compute();
    }
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    of(ClockId::ThreadCPUTime)
}

fn of(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// A few microseconds of work.
fn compute() {
    let mut value = black_box(1_u64);
    for _ in 0..2_000 {
        value = black_box(value.wrapping_mul(3));
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ms(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1e3)
}
