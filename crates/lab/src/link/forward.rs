//! The thread that moves packets: from each device, through the model, to the other.

mod way;

use std::{
    fs::File,
    num::NonZeroU64,
    os::fd::OwnedFd,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use clock::{SpinTail, monotonic_ns};
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::{read, write},
    thread::set_current_timer_slack,
    time::{ClockId, clock_gettime},
};

use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};

use super::{
    LinkError,
    counters::{Counters, LATE_NS, LinkAway},
    pipe::Pipe,
    spec::Shape,
};
use way::{READS_A_TURN, Way};

/// Longest polling before a departure, in nanoseconds.
const LONGEST_SPIN_NS: u64 = 300_000;
/// A link on which something is often due polls for one part in so many of the time.
const SPIN_ONE_IN: u64 = 20;
/// One that wakes up more often than this, in nanoseconds, does not poll: its processor is awake anyway.
const AWAKE_NS: u64 = 250_000;
/// How long a busy link looks away, in nanoseconds: every wake-up costs as much as moving a packet, so what
/// comes or is due within this time is moved together.
const NAP_NS: u64 = 45_000;
/// The longest sleep, in nanoseconds: it ends at a known time, so that a later end shows that the thread was away. What
/// came in a sleep may have waited so much longer than the absence that is known of.
const LONGEST_SLEEP_NS: u64 = 2_000_000;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Both directions under way.
#[derive(Debug)]
pub(super) struct Forwarder {
    orders: mpsc::Sender<Order>,
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

enum Order {
    Reshape(Box<[Shape; 2]>, u64),
    SetUp(bool),
    Count(mpsc::Sender<[Counters; 2]>),
    Stop,
}

impl Forwarder {
    /// Starts moving packets from each device to the other. What the one way does to them is the pipe of the device that they
    /// come from.
    ///
    /// # Errors
    /// When the kernel has no thread or descriptor left.
    pub(super) fn start(
        name: &str,
        devices: [Arc<File>; 2],
        pipes: [Pipe; 2],
        most_bytes: usize,
    ) -> Result<Self, LinkError> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| LinkError::Start(error.into()))?;
        let bell = Arc::new(bell);
        let (orders, inbox) = mpsc::channel();
        let [a, b] = devices;
        let [there, back] = pipes;
        let mut mover = Mover {
            ways: [
                Way::new(Arc::clone(&a), Arc::clone(&b), there, most_bytes),
                Way::new(b, a, back, most_bytes),
            ],
            bell: Arc::clone(&bell),
            inbox,
            spin: SpinTail::with_budget(LONGEST_SPIN_NS, SPIN_ONE_IN, monotonic_ns()),
            slept_ns: 0,
            has_napped: false,
            away: LinkAway::default(),
            is_back: false,
            next_look_ns: monotonic_ns(),
        };
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || mover.run())
            .map_err(LinkError::Start)?;
        Ok(Self { orders, bell, thread: Some(thread) })
    }

    /// Changes both shapes from now on.
    pub(super) fn reshape(&self, shapes: [Shape; 2], round_trip_ns: u64) {
        self.order(Order::Reshape(Box::new(shapes), round_trip_ns));
    }

    /// Cuts or mends the link.
    pub(super) fn set_up(&self, is_up: bool) {
        self.order(Order::SetUp(is_up));
    }

    /// What was counted so far each way, overruns excepted; none if the thread is gone.
    pub(super) fn counters(&self) -> Option<[Counters; 2]> {
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

/// The thread. One for both ways: what answers a packet that it has just written, such as TCP's acknowledgement, can be
/// read at once, and nobody is woken up for it.
struct Mover {
    ways: [Way; 2],
    bell: Arc<OwnedFd>,
    inbox: mpsc::Receiver<Order>,
    spin: SpinTail,
    /// When the last sleep began.
    slept_ns: u64,
    /// Whether it was without a look at the devices.
    has_napped: bool,
    away: LinkAway,
    /// Since the end of an absence, the devices have not been read until they were empty.
    is_back: bool,
    /// When this thread is to look at the devices next, unless it is away.
    next_look_ns: u64,
}

impl Mover {
    fn run(&mut self) {
        go_first();
        let mut called = false;
        loop {
            if called && !self.obey() {
                return;
            }
            let (mut moved, mut is_more) = self.read_some();
            let written = self.ways.iter_mut().map(Way::write_due).sum::<usize>();
            if written > 0 {
                // The kernel has answered within the write, if it does at all.
                let (reads, is_still_more) = self.read_some();
                moved += reads + written;
                is_more |= is_still_more;
            }
            called = if is_more { called_now(&self.bell) } else { self.wait(moved) };
        }
    }

    /// Reads of both devices; how many packets, and whether there may be more.
    fn read_some(&mut self) -> (usize, bool) {
        self.look();
        let is_late = self.is_back;
        let reads = self.ways.each_mut().map(|way| way.read_some(is_late));
        let is_more = reads.contains(&READS_A_TURN);
        self.is_back &= is_more;
        (reads.iter().sum(), is_more)
    }

    /// Notes an absence if this is much later than it was to be. A thread that was stopped, or had no processor, finds
    /// out at the first look afterwards.
    fn look(&mut self) {
        let now_ns = monotonic_ns();
        let late_ns = now_ns.saturating_sub(self.next_look_ns);
        if late_ns > LATE_NS {
            self.away.add(late_ns);
            self.is_back = true;
        }
        self.next_look_ns = now_ns;
    }

    /// Carries out what was ordered; whether to go on.
    fn obey(&mut self) -> bool {
        let mut rings = [0; 8];
        let _ = read(&*self.bell, &mut rings);
        loop {
            let now_ns = monotonic_ns();
            match self.inbox.try_recv() {
                Ok(Order::Reshape(shapes, round_trip_ns)) => {
                    for (way, shape) in self.ways.iter_mut().zip(*shapes) {
                        way.pipe.reshape(now_ns, shape, round_trip_ns, &mut way.store);
                    }
                }
                Ok(Order::SetUp(is_up)) => {
                    self.ways.iter_mut().for_each(|way| way.pipe.set_up(now_ns, is_up, &mut way.store));
                }
                // Whoever no longer waits for the answer does not need it.
                Ok(Order::Count(answer)) => {
                    let counted = self.count();
                    self.away.longest_ns = 0;
                    drop(answer.send(counted));
                }
                Ok(Order::Stop) | Err(mpsc::TryRecvError::Disconnected) => return false,
                Err(mpsc::TryRecvError::Empty) => return true,
            }
        }
    }

    /// Waits until there is something to read, an order, or something is due; whether there is an order. `moved` packets
    /// were read or written since the wait before.
    fn wait(&mut self, moved: usize) -> bool {
        let now_ns = monotonic_ns();
        let awake_ns = now_ns - self.slept_ns;
        self.slept_ns = now_ns;
        let is_still_busy = self.has_napped && moved > 0;
        self.has_napped = is_still_busy || moved >= 2 || awake_ns < NAP_NS;
        if self.has_napped {
            return self.poll(NAP_NS, false).1;
        }
        loop {
            let began_ns = monotonic_ns();
            let next_ns = self.ways.iter().filter_map(|way| way.pipe.next_ns()).min();
            let left_ns = next_ns.map_or(u64::MAX, |next_ns| next_ns.saturating_sub(began_ns));
            let sleep_ns = match awake_ns < AWAKE_NS || left_ns > 2 * LONGEST_SLEEP_NS {
                true => left_ns.min(LONGEST_SLEEP_NS),
                false => self.spin.sleep_ns(began_ns, left_ns).min(LONGEST_SLEEP_NS),
            };
            let (readable, called) = self.poll(sleep_ns, true);
            if readable || called {
                return called;
            }
            let took_ns = monotonic_ns() - began_ns;
            match sleep_ns {
                0 => self.spin.polled(took_ns),
                // Only what was slept for a departure tells how long to poll before one.
                LONGEST_SLEEP_NS => {}
                sleep_ns => self.spin.woke_late_by(took_ns.saturating_sub(sleep_ns)),
            }
            if took_ns >= left_ns {
                return false;
            }
        }
    }

    /// Whether there is something to read, which is looked for if `watches`, and whether there is an order, within a time.
    fn poll(&mut self, timeout_ns: u64, watches: bool) -> (bool, bool) {
        self.look();
        self.next_look_ns += timeout_ns;
        let timeout = Timespec { tv_sec: 0, tv_nsec: timeout_ns as _ };
        let [a, b] = self.ways.each_ref().map(|way| PollFd::new(&way.from, PollFlags::IN));
        let mut polled = [PollFd::new(&self.bell, PollFlags::IN), a, b];
        // A device that is gone is always ready, whatever is asked of it: it is left out.
        let count = match self.ways.each_ref().map(|way| watches && !way.is_gone) {
            [true, true] => 3,
            [true, false] => 2,
            [false, true] => {
                polled.swap(1, 2);
                2
            }
            [false, false] => 1,
        };
        let polled = &mut polled[..count];
        // An interrupted wait is an early look round.
        let _ = poll(polled, Some(&timeout));
        let is_ready = |polled: &PollFd<'_>| !polled.revents().is_empty();
        let ready = (polled[1..].iter().any(is_ready), is_ready(&polled[0]));
        self.look();
        ready
    }

    fn count(&self) -> [Counters; 2] {
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        let cpu_ns = cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64;
        let calls = |way: &Way| way.pipe.counters().reads + way.counters.writes;
        let all = self.ways.iter().map(calls).sum::<u64>().max(1);
        self.ways.each_ref().map(|way| {
            let share_ns = (u128::from(cpu_ns) * u128::from(calls(way)) / u128::from(all)) as u64;
            Counters { cpu_ns: share_ns, away: self.away, ..way.count() }
        })
    }
}

/// A wire waits for nobody: the calling thread runs before all ordinary ones, as soon as it is woken.
pub(super) fn go_first() {
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

#[cfg(test)]
mod tests;
