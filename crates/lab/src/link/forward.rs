//! The thread that moves one direction's packets: from a device, through the model, to the other.

use std::{
    fs::File,
    num::NonZeroU64,
    os::fd::OwnedFd,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use clock::{SpinTail, monotonic_ns};
use hdrhistogram::Histogram;
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::{Errno, IoSlice, read, write, writev},
    thread::set_current_timer_slack,
    time::{ClockId, clock_gettime},
};

use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};

use super::{
    LinkError,
    counters::{Counters, LATE_NS, Lateness},
    packet::{HEADER_ROOM, Layout},
    pipe::{Flight, Pipe},
    spec::Shape,
    store::Store,
};

/// Packets read before what is due is written.
const READS_A_TURN: usize = 32;
/// Longest polling before a departure, in nanoseconds.
const LONGEST_SPIN_NS: u64 = 300_000;
/// A link on which something is often due polls for one part in so many of the time.
const SPIN_ONE_IN: u64 = 20;
/// One that wakes up more often than this, in nanoseconds, does not poll: its processor is awake anyway.
const AWAKE_NS: u64 = 250_000;
/// How long a busy direction looks away, in nanoseconds: every wake-up costs as much as moving a packet, so what
/// comes or is due within this time is moved together.
const NAP_NS: u64 = 40_000;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// One direction under way.
#[derive(Debug)]
pub struct Forwarder {
    orders: mpsc::Sender<Order>,
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

enum Order {
    Reshape(Box<Shape>, u64),
    SetUp(bool),
    Count(mpsc::Sender<Counters>),
    Stop,
}

impl Forwarder {
    /// Starts moving packets from `from` to `to`.
    ///
    /// # Errors
    /// When the kernel has no thread or descriptor left.
    pub fn start(
        name: &str,
        from: Arc<File>,
        to: Arc<File>,
        pipe: Pipe,
        most_bytes: usize,
    ) -> Result<Self, LinkError> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| LinkError::Start(error.into()))?;
        let bell = Arc::new(bell);
        let (orders, inbox) = mpsc::channel();
        let mut mover = Mover {
            from,
            to,
            pipe,
            store: Store::new(most_bytes),
            bell: Arc::clone(&bell),
            inbox,
            counters: Counters::default(),
            spin: SpinTail::with_share(LONGEST_SPIN_NS, SPIN_ONE_IN, monotonic_ns()),
            // Up to a minute, three digits.
            lateness: Histogram::new_with_max(60_000_000_000, 3).expect("bounds are sound"),
            is_gone: false,
            turn_reads: 0,
            slept_ns: 0,
        };
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || mover.run())
            .map_err(LinkError::Start)?;
        Ok(Self { orders, bell, thread: Some(thread) })
    }

    /// Changes the shape from now on.
    pub fn reshape(&self, shape: Shape, round_trip_ns: u64) {
        self.order(Order::Reshape(Box::new(shape), round_trip_ns));
    }

    /// Cuts or mends the link.
    pub fn set_up(&self, is_up: bool) {
        self.order(Order::SetUp(is_up));
    }

    /// What was counted so far, overruns excepted; none if the thread is gone.
    pub fn counters(&self) -> Option<Counters> {
        let (sender, answer) = mpsc::channel();
        self.order(Order::Count(sender));
        answer.recv_timeout(PATIENCE).ok()
    }

    fn order(&self, order: Order) {
        // A thread that has ended is found out by the counters it does not give.
        let _ = self.orders.send(order);
        let _ = write(&*self.bell, &1_u64.to_ne_bytes());
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.order(Order::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Mover {
    from: Arc<File>,
    to: Arc<File>,
    pipe: Pipe,
    store: Store,
    bell: Arc<OwnedFd>,
    inbox: mpsc::Receiver<Order>,
    counters: Counters,
    spin: SpinTail,
    lateness: Histogram<u64>,
    /// Nothing will ever be read again.
    is_gone: bool,
    /// Packets read since the last sleep.
    turn_reads: usize,
    /// When the last sleep began.
    slept_ns: u64,
}

impl Mover {
    fn run(&mut self) {
        go_first();
        let (mut readable, mut called) = (true, false);
        loop {
            if called && !self.obey() {
                return;
            }
            let more = readable && self.read_some();
            self.write_due();
            (readable, called) = if more { (true, called_now(&self.bell)) } else { self.wait() };
        }
    }

    /// Carries out what was ordered; whether to go on.
    fn obey(&mut self) -> bool {
        let mut rings = [0; 8];
        let _ = read(&*self.bell, &mut rings);
        loop {
            match self.inbox.try_recv() {
                Ok(Order::Reshape(shape, round_trip_ns)) => {
                    self.pipe.reshape(monotonic_ns(), *shape, round_trip_ns, &mut self.store);
                }
                Ok(Order::SetUp(is_up)) => self.pipe.set_up(monotonic_ns(), is_up, &mut self.store),
                // Whoever no longer waits for the answer does not need it.
                Ok(Order::Count(answer)) => drop(answer.send(self.count())),
                Ok(Order::Stop) | Err(mpsc::TryRecvError::Disconnected) => return false,
                Err(mpsc::TryRecvError::Empty) => return true,
            }
        }
    }

    /// Reads until there is nothing or it is others' turn; whether there may be more.
    fn read_some(&mut self) -> bool {
        for _ in 0..READS_A_TURN {
            let mut scrap = [0; 64];
            let (room, is_kept) = match self.store.room() {
                Some(room) => (room, true),
                // Out of memory: what comes is taken and dropped, or the kernel would drop it unseen.
                None => (&mut scrap[..], false),
            };
            match read(&*self.from, &mut *room) {
                Ok(bytes) if is_kept => match Layout::of(&room[..bytes]) {
                    Some(layout) => {
                        self.turn_reads += 1;
                        let packet = self.store.keep(bytes, layout);
                        self.pipe.offer(monotonic_ns(), packet, &mut self.store);
                    }
                    None => self.counters.refused_writes += 1,
                },
                Ok(_) => self.counters.dropped_memory_packets += 1,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return false,
                // The host is gone, and its interface with it.
                Err(_) => {
                    self.is_gone = true;
                    return false;
                }
            }
        }
        true
    }

    fn write_due(&mut self) {
        let mut now = monotonic_ns();
        while let Some(flight) = self.pipe.pop(now, &mut self.store) {
            self.write(&flight);
            self.store.release(flight.packet);
            let late_ns = now.saturating_sub(flight.due_ns);
            self.lateness.saturating_record(late_ns);
            self.counters.late_packets += if late_ns > LATE_NS { u64::from(flight.count) } else { 0 };
            now = monotonic_ns();
        }
    }

    fn write(&mut self, flight: &Flight) {
        let packet = self.store.bytes(flight.packet);
        let mut room = [0; HEADER_ROOM];
        let (head, payload) =
            self.store.layout(flight.packet).cut(packet, flight.first, flight.count, &mut room);
        let written = if head == 0 {
            write(&*self.to, packet)
        } else {
            writev(&*self.to, &[IoSlice::new(&room[..head]), IoSlice::new(&packet[payload])])
        };
        self.counters.writes += 1;
        if let Err(error) = written {
            self.counters.refused_writes += 1;
            self.counters.refused_because = Some(error.to_string());
        }
    }

    /// Waits until there is something to read, an order, or something is due.
    fn wait(&mut self) -> (bool, bool) {
        let now_ns = monotonic_ns();
        let awake_ns = now_ns - self.slept_ns;
        let is_busy = self.turn_reads >= 2 || awake_ns < NAP_NS;
        self.slept_ns = now_ns;
        self.turn_reads = 0;
        if is_busy {
            let timeout = Timespec { tv_sec: 0, tv_nsec: NAP_NS as _ };
            let called = poll(&mut [PollFd::new(&self.bell, PollFlags::IN)], Some(&timeout));
            return (!self.is_gone, called.is_ok_and(|ready| ready > 0));
        }
        loop {
            let began_ns = monotonic_ns();
            let left_ns = self.pipe.next_ns().map(|next_ns| next_ns.saturating_sub(began_ns));
            let sleep_ns = left_ns.map(|left_ns| match awake_ns < AWAKE_NS {
                true => left_ns,
                false => self.spin.sleep_ns(began_ns, left_ns),
            });
            let ready = self.poll(sleep_ns);
            if ready != (false, false) {
                return ready;
            }
            let took_ns = monotonic_ns() - began_ns;
            match sleep_ns {
                Some(0) => self.spin.polled(took_ns),
                Some(sleep_ns) => self.spin.woke_late_by(took_ns.saturating_sub(sleep_ns)),
                None => {}
            }
            if left_ns.is_none_or(|left_ns| took_ns >= left_ns) {
                return ready;
            }
        }
    }

    /// Whether there is something to read, and whether there is an order, within a time.
    fn poll(&self, timeout_ns: Option<u64>) -> (bool, bool) {
        let timeout = timeout_ns
            .map(|ns| Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ });
        let mut files = [PollFd::new(&self.bell, PollFlags::IN), PollFd::new(&self.from, PollFlags::IN)];
        // A device that is gone would always be ready.
        let watched = if self.is_gone { 1 } else { 2 };
        // An interrupted wait is an early look round.
        let _ = poll(&mut files[..watched], timeout.as_ref());
        (!files[1].revents().is_empty(), !files[0].revents().is_empty())
    }

    fn count(&self) -> Counters {
        let some = |ns| (!self.lateness.is_empty()).then_some(ns);
        let at = |quantile| some(self.lateness.value_at_quantile(quantile));
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        Counters {
            pipe: self.pipe.counters(),
            lateness: Lateness {
                p50_ns: at(0.5),
                p99_ns: at(0.99),
                p999_ns: at(0.999),
                max_ns: some(self.lateness.max()),
            },
            cpu_ns: cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64,
            ..self.counters.clone()
        }
    }
}

/// A wire waits for nobody: the calling thread runs before all ordinary ones, as soon as it is woken.
pub fn go_first() {
    // The kernel may otherwise wake 50 µs late, to save power. Not refused to anybody.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    // Refused to those who may not. The link is then as good as the machine is idle, which the
    // certificate finds out.
    let fifo = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    let _ = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, fifo);
}

/// Whether the bell rang, without waiting.
fn called_now(bell: &OwnedFd) -> bool {
    let mut files = [PollFd::new(bell, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut files, Some(&now)).is_ok_and(|ready| ready > 0)
}
