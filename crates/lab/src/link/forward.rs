//! The thread that moves packets from each device through the model to the other device.

mod one_way;

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
    counters::{AwayCounter, Counters, LATE_NS},
    pipe::Pipe,
    spec::Shape,
};
use one_way::{OneWay, READS_PER_TURN};

/// Maximum duration of busy polling before a packet is due, in nanoseconds.
const MAX_SPIN_NS: u64 = 300_000;
/// Busy polling takes at most `1 / SPIN_SHARE_DIVISOR` of the time.
const SPIN_SHARE_DIVISOR: u64 = 20;
/// A link that wakes up at shorter intervals than this, in nanoseconds, does not poll, because its processor is awake
/// anyway.
const FREQUENT_WAKEUP_NS: u64 = 250_000;
/// Sleep of a busy link, in nanoseconds, without watching the devices. A wake-up costs as much as moving a packet, so
/// packets that arrive or are due during this time are moved together.
const BATCH_SLEEP_NS: u64 = 45_000;
/// Maximum sleep, in nanoseconds. If a sleep ends later than planned, the thread was away. A packet that arrived during
/// the sleep may have waited this much longer than the recorded absence.
const MAX_SLEEP_NS: u64 = 2_000_000;
/// Time that the thread may take to answer a request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Handle of the thread that moves the packets of both directions.
#[derive(Debug)]
pub(super) struct Forwarder {
    requests: mpsc::Sender<Request>,
    wakeup: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

enum Request {
    Reshape(Box<[Shape; 2]>, u64),
    SetUp(bool),
    Count(mpsc::Sender<[Counters; 2]>),
    ForgetLongestAbsence,
    Stop,
}

impl Forwarder {
    /// Starts moving packets from each device to the other. `pipes[i]` shapes the packets read from `devices[i]`.
    ///
    /// # Errors
    /// If the kernel refuses a thread or a descriptor.
    pub(super) fn start(
        name: &str,
        devices: [Arc<File>; 2],
        pipes: [Pipe; 2],
        max_bytes: usize,
    ) -> Result<Self, LinkError> {
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| LinkError::Start(error.into()))?;
        let wakeup = Arc::new(wakeup);
        let (requests, inbox) = mpsc::channel();
        let [a, b] = devices;
        let [a_to_b, b_to_a] = pipes;
        let mut mover = Mover {
            ways: [
                OneWay::new(Arc::clone(&a), Arc::clone(&b), a_to_b, max_bytes),
                OneWay::new(b, a, b_to_a, max_bytes),
            ],
            wakeup: Arc::clone(&wakeup),
            inbox,
            spin: SpinTail::with_budget(MAX_SPIN_NS, SPIN_SHARE_DIVISOR, monotonic_ns()),
            slept_ns: 0,
            is_batching: false,
            absences: AwayCounter::default(),
            has_backlog: false,
            next_check_ns: monotonic_ns(),
        };
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || mover.run())
            .map_err(LinkError::Start)?;
        Ok(Self { requests, wakeup, thread: Some(thread) })
    }

    pub(super) fn reshape(&self, shapes: [Shape; 2], round_trip_ns: u64) {
        self.send(Request::Reshape(Box::new(shapes), round_trip_ns));
    }

    pub(super) fn set_up(&self, is_up: bool) {
        self.send(Request::SetUp(is_up));
    }

    pub(super) fn forget_longest_absence(&self) {
        self.send(Request::ForgetLongestAbsence);
    }

    /// The counters of both directions, without overruns; none if the thread has ended.
    pub(super) fn counters(&self) -> Option<[Counters; 2]> {
        let (sender, answer) = mpsc::channel();
        self.send(Request::Count(sender));
        answer.recv_timeout(ANSWER_TIMEOUT).ok()
    }

    fn send(&self, request: Request) {
        // A failed send means that the thread has ended, and `counters` reports that.
        let _ = self.requests.send(request);
        let _ = write(&*self.wakeup, &1_u64.to_ne_bytes());
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.send(Request::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The state of the thread. One thread serves both directions, so that after writing a packet it can read the answer,
/// such as an acknowledgement, without another wake-up.
struct Mover {
    ways: [OneWay; 2],
    wakeup: Arc<OwnedFd>,
    inbox: mpsc::Receiver<Request>,
    spin: SpinTail,
    /// Start of the last sleep.
    slept_ns: u64,
    /// Whether the last sleep was a batch sleep, which does not watch the devices.
    is_batching: bool,
    absences: AwayCounter,
    /// Whether packets that arrived during an absence may still be unread.
    has_backlog: bool,
    /// Time by which the thread must check the devices again. A later check is an absence.
    next_check_ns: u64,
}

impl Mover {
    fn run(&mut self) {
        set_realtime_priority();
        let mut has_request = false;
        loop {
            if has_request && !self.handle_requests() {
                return;
            }
            let (mut moved, mut is_more) = self.read_some();
            let written = self.ways.iter_mut().map(OneWay::write_due).sum::<usize>();
            if written > 0 {
                // The kernel may already have answered during the write.
                let (reads, is_still_more) = self.read_some();
                moved += reads + written;
                is_more |= is_still_more;
            }
            has_request = if is_more { is_signalled(&self.wakeup) } else { self.wait(moved) };
        }
    }

    /// Reads from both devices. Returns the number of packets, and whether more may be waiting.
    fn read_some(&mut self) -> (usize, bool) {
        self.check_absence();
        let is_late = self.has_backlog;
        let reads = self.ways.each_mut().map(|way| way.read_some(is_late));
        let is_more = reads.contains(&READS_PER_TURN);
        self.has_backlog &= is_more;
        (reads.iter().sum(), is_more)
    }

    /// Records an absence if this check comes more than [`LATE_NS`] after `next_check_ns`. The first check after an
    /// absence records all of it.
    fn check_absence(&mut self) {
        let now_ns = monotonic_ns();
        let late_ns = now_ns.saturating_sub(self.next_check_ns);
        if late_ns > LATE_NS {
            self.absences.add(now_ns, late_ns, MAX_SLEEP_NS);
            self.has_backlog = true;
        }
        self.next_check_ns = now_ns;
    }

    /// Handles all requests. Returns false when the thread must end.
    fn handle_requests(&mut self) -> bool {
        let mut wakeups = [0; 8];
        let _ = read(&*self.wakeup, &mut wakeups);
        loop {
            let now_ns = monotonic_ns();
            match self.inbox.try_recv() {
                Ok(Request::Reshape(shapes, round_trip_ns)) => {
                    for (way, shape) in self.ways.iter_mut().zip(*shapes) {
                        way.pipe.reshape(now_ns, shape, round_trip_ns, &mut way.store);
                    }
                }
                Ok(Request::SetUp(is_up)) => {
                    self.ways.iter_mut().for_each(|way| way.pipe.set_up(now_ns, is_up, &mut way.store));
                }
                // The receiver may no longer wait for the answer.
                Ok(Request::Count(answer)) => drop(answer.send(self.count())),
                Ok(Request::ForgetLongestAbsence) => self.absences.forget_longest(),
                Ok(Request::Stop) | Err(mpsc::TryRecvError::Disconnected) => return false,
                Err(mpsc::TryRecvError::Empty) => return true,
            }
        }
    }

    /// Waits until a device is readable, a request arrives or a packet is due. Returns whether a request arrived.
    /// `moved` is the number of packets read or written since the previous wait.
    fn wait(&mut self, moved: usize) -> bool {
        let now_ns = monotonic_ns();
        let awake_ns = now_ns - self.slept_ns;
        self.slept_ns = now_ns;
        let is_still_busy = self.is_batching && moved > 0;
        self.is_batching = is_still_busy || moved >= 2 || awake_ns < BATCH_SLEEP_NS;
        if self.is_batching {
            return self.poll(BATCH_SLEEP_NS, false).1;
        }
        loop {
            let began_ns = monotonic_ns();
            let next_ns = self.ways.iter().filter_map(|way| way.pipe.next_ns()).min();
            let left_ns = next_ns.map_or(u64::MAX, |next_ns| next_ns.saturating_sub(began_ns));
            let sleep_ns = match awake_ns < FREQUENT_WAKEUP_NS || left_ns > 2 * MAX_SLEEP_NS {
                true => left_ns.min(MAX_SLEEP_NS),
                false => self.spin.sleep_ns(began_ns, left_ns).min(MAX_SLEEP_NS),
            };
            let (readable, has_request) = self.poll(sleep_ns, true);
            if readable || has_request {
                return has_request;
            }
            let took_ns = monotonic_ns() - began_ns;
            match sleep_ns {
                0 => self.spin.polled(took_ns),
                // The lateness of a wake-up decides how early to start polling; only sleeps until a departure count.
                MAX_SLEEP_NS => {}
                sleep_ns => self.spin.woke_late_by(took_ns.saturating_sub(sleep_ns)),
            }
            if took_ns >= left_ns {
                return false;
            }
        }
    }

    /// Waits at most `timeout_ns`. Returns whether a device is readable and whether a request arrived. Watches the
    /// devices only if `watches` is true.
    fn poll(&mut self, timeout_ns: u64, watches: bool) -> (bool, bool) {
        self.check_absence();
        self.next_check_ns += timeout_ns;
        let timeout = Timespec { tv_sec: 0, tv_nsec: timeout_ns as _ };
        let [a, b] = self.ways.each_ref().map(|way| PollFd::new(&way.from, PollFlags::IN));
        let mut polled = [PollFd::new(&self.wakeup, PollFlags::IN), a, b];
        // A device that is gone is always ready and would end every wait, so it is left out.
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
        // An interrupted wait only ends early, so the error is ignored.
        let _ = poll(polled, Some(&timeout));
        let is_ready = |polled: &PollFd<'_>| !polled.revents().is_empty();
        let ready = (polled[1..].iter().any(is_ready), is_ready(&polled[0]));
        self.check_absence();
        ready
    }

    fn count(&self) -> [Counters; 2] {
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        let cpu_ns = cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64;
        let calls = |way: &OneWay| way.pipe.counters().reads + way.counters.writes;
        let all = self.ways.iter().map(calls).sum::<u64>().max(1);
        self.ways.each_ref().map(|way| {
            let share_ns = (u128::from(cpu_ns) * u128::from(calls(way)) / u128::from(all)) as u64;
            Counters { cpu_ns: share_ns, away: self.absences.away, ..way.count() }
        })
    }
}

/// Gives the calling thread real-time priority and exact timers, because a delayed thread would delay packets that a
/// real wire does not delay.
pub(super) fn set_realtime_priority() {
    // With the default slack, the kernel may wake the thread 50 µs late to save power. This needs no privilege.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    // The kernel refuses this without privilege. The link is then exact only on an idle machine; a certificate shows
    // whether it is.
    let fifo = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    let _ = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, fifo);
}

/// Whether there is a request, without waiting.
fn is_signalled(wakeup: &OwnedFd) -> bool {
    undo::readable_within(wakeup, Duration::ZERO).is_ok_and(|is_readable| is_readable)
}

#[cfg(test)]
mod tests;
