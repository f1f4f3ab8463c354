//! Reads all established flows from time to time, counts them by server, and removes flows that are idle or closed.
//!
//! The program marks each flow that sends a packet with the number of the next sweep, so a flow has sent nothing since
//! the sweep whose number is its mark. A sweep reads one flow at a time, with two system calls each, because the
//! library has no call for many at once. This takes about 1.5 µs per flow, or half a second for the 262,144 flows of
//! the default table. The daemon therefore sweeps seldom while no request needs the counts.

use std::{
    collections::{BTreeMap, VecDeque},
    path::{Path, PathBuf},
    sync::mpsc::{self, Sender},
    thread,
    time::{Duration, Instant},
};

use crate::{Error, Flow, FlowKey, table::FlowTable};

/// Maximum number of tries of a sweep, if changes of the table make the kernel start again with the first flow.
const TRIES: usize = 3;
/// Maximum number of remembered ends of marks. Ten sweeps per second and a timeout of one day would give 864,000.
const MOST_ENDS: usize = 4_096;
/// One end is kept of all ends in a span of time. A span is at most its age divided by this number.
const SPANS_PER_AGE: u64 = 128;

/// The times of past sweeps, from which the time of a flow's last packet follows.
#[derive(Debug, Clone)]
pub(crate) struct Sweeps {
    /// The current mark.
    mark: u32,
    /// Earlier marks, each with the time at which the program stopped using it, on the monotonic clock. A missing mark
    /// in between counts as the next one. A flow may therefore be kept longer by up to a 128th of its timeout, but is
    /// never removed early.
    ended: VecDeque<(u32, u64)>,
    /// Latest time at which flows with marks older than those in `ended` were seen.
    floor_ns: u64,
    idle_ns: u64,
    closing_ns: u64,
}

/// The result of a sweep.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Swept {
    /// Start of the sweep, on the monotonic clock.
    pub begun_ns: u64,
    pub took: Duration,
    /// Whether each flow was seen exactly once. If not, the counts are invalid.
    pub is_whole: bool,
    /// Numbers of active and of closing flows, by number and generation of the server.
    pub counted: BTreeMap<(u16, u32), (u64, u64)>,
    pub flows: u64,
    pub forgotten: u64,
}

/// The purpose of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SweepFor {
    /// Removes old flows. No caller waits for the counts.
    OldFlows,
    /// Counts the flows for a request for the counts, or for the removal of a server.
    Reader,
    /// Counts the flows of a server that may have reached its threshold.
    Threshold,
}

/// The thread that makes the sweeps.
#[derive(Debug)]
pub(crate) struct Sweeper {
    orders: Sender<(Sweeps, u64)>,
    is_sweeping: bool,
    ended: Instant,
    took: Duration,
}

impl Sweeps {
    /// The sweeps of tables whose flows may have marks up to `last`.
    pub(crate) fn new(last: u32, now_ns: u64) -> Self {
        let ended = VecDeque::new();
        Self { mark: last.wrapping_add(1), ended, floor_ns: now_ns, idle_ns: u64::MAX, closing_ns: u64::MAX }
    }

    pub(crate) fn set_timeouts(&mut self, idle_ns: u64, closing_ns: u64) {
        (self.idle_ns, self.closing_ns) = (idle_ns, closing_ns);
    }

    /// The mark that the program must write into flows.
    pub(crate) fn mark(&self) -> u32 {
        self.mark
    }

    /// Begins a sweep: from now on, flows get a new mark.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        self.ended.push_back((self.mark, now_ns));
        self.mark = self.mark.wrapping_add(1);
        // Marks older than any timeout share one time, `floor_ns`.
        let longest = self.idle_ns.max(self.closing_ns);
        while let Some(&(_, ended_ns)) = self.ended.get(1)
            && now_ns.saturating_sub(ended_ns) > longest
        {
            self.ended.pop_front();
            self.floor_ns = ended_ns;
        }
        if self.ended.len() > MOST_ENDS {
            self.thin_out(now_ns);
        }
    }

    /// Keeps only the last end in each span of time. Older spans are longer, so that about 1,900 ends are left of a
    /// day. The oldest end is kept: without it, marks between it and the next one would count as seen at `floor_ns`,
    /// which is too early.
    fn thin_out(&mut self, now_ns: u64) {
        let mut kept: VecDeque<(u32, u64)> = VecDeque::new();
        while let Some((mark, ended_ns)) = self.ended.pop_back() {
            // A span is a power of two, so that a long span consists of whole short ones and the end of a mark moves by
            // at most one span.
            let span = (now_ns.saturating_sub(ended_ns) / SPANS_PER_AGE).checked_ilog2().unwrap_or_default();
            let is_last = kept.front().is_none_or(|(_, next_ns)| next_ns >> span != ended_ns >> span);
            if is_last || self.ended.is_empty() {
                kept.push_front((mark, ended_ns));
            }
        }
        self.ended = kept;
    }

    /// Whether a flow has been idle or closing for longer than its timeout.
    pub(crate) fn is_over(&self, flow: &Flow, now_ns: u64) -> bool {
        let longest = if flow.is_closing { self.closing_ns.min(self.idle_ns) } else { self.idle_ns };
        now_ns.saturating_sub(self.last_seen_ns(flow.sweep, now_ns)) > longest
    }

    fn last_seen_ns(&self, mark: u32, now_ns: u64) -> u64 {
        if mark == self.mark {
            return now_ns;
        }
        match self.ended.binary_search_by_key(&mark, |(ended, _)| *ended) {
            Err(0) => self.floor_ns,
            // No time is known for a mark newer than all of these, so the flow counts as seen now.
            Ok(at) | Err(at) => self.ended.get(at).map_or(now_ns, |(_, ended)| *ended),
        }
    }
}

impl Sweeper {
    /// Starts the thread on the pinned tables. It calls `swept` with the result of each sweep.
    ///
    /// # Errors
    /// When the table cannot be opened.
    pub(crate) fn start(
        pins: &Path,
        swept: impl Fn(Result<Swept, Error>) -> bool + Send + 'static,
    ) -> Result<Self, Error> {
        let (orders, ordered) = mpsc::channel::<(Sweeps, u64)>();
        let mut flows = FlowTable::open(pins)?;
        let pins: PathBuf = pins.to_owned();
        let run = move || {
            for (sweeps, now_ns) in ordered {
                if !swept(sweep(&mut flows, &sweeps, now_ns)) {
                    return;
                }
            }
        };
        let started = thread::Builder::new().name("sweeper".to_owned()).spawn(run);
        started.map_err(|error| Error::new(format!("sweep the flows of {}", pins.display()), &error))?;
        Ok(Self { orders, is_sweeping: false, ended: Instant::now(), took: Duration::ZERO })
    }

    /// Time at which the next sweep is due; none while a sweep is in progress.
    pub(crate) fn due(&self, sweep_for: SweepFor) -> Option<Instant> {
        // The minimum pause since the last sweep: in milliseconds, and as a multiple of the last sweep's duration.
        let (least_ms, times) = match sweep_for {
            SweepFor::Threshold => (100, 4),
            SweepFor::Reader => (2_000, 10),
            SweepFor::OldFlows => (20_000, 100),
        };
        (!self.is_sweeping).then(|| self.ended + Duration::from_millis(least_ms).max(self.took * times))
    }

    /// Starts a sweep in the thread. The program must already write the new mark.
    pub(crate) fn begin(&mut self, sweeps: &Sweeps, now_ns: u64) {
        // The thread ends only with the daemon, so sending normally succeeds.
        self.is_sweeping = self.orders.send((sweeps.clone(), now_ns)).is_ok();
    }

    /// Records the end of a sweep.
    pub(crate) fn ended(&mut self, took: Duration) {
        (self.is_sweeping, self.ended, self.took) = (false, Instant::now(), took);
    }
}

/// The newest mark of all flows.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn newest_mark(pins: &Path) -> Result<u32, Error> {
    let flows = FlowTable::open(pins)?;
    Ok(flows.all().map(|(_, flow)| flow.sweep).max().unwrap_or_default())
}

fn sweep(flows: &mut FlowTable, sweeps: &Sweeps, now_ns: u64) -> Result<Swept, Error> {
    let begun = Instant::now();
    let mut swept = Swept::default();
    let mut over = Vec::new();
    for _ in 0..TRIES {
        (swept, over) = count(flows.all(), flows.capacity(), sweeps, now_ns);
        if swept.is_whole {
            break;
        }
    }
    for key in over {
        // The flow may have sent a packet meanwhile, so it is read again.
        if flows.get(&key)?.is_some_and(|flow| sweeps.is_over(&flow, now_ns)) {
            flows.forget(&key)?;
            swept.forgotten += 1;
        }
    }
    swept.took = begun.elapsed();
    Ok(swept)
}

/// Counts all flows and lists those past their timeouts. If the flow that the kernel read last is removed, the kernel
/// starts again with the first flow. Some flows are then counted twice, and the sweep is not whole.
fn count(
    flows: impl Iterator<Item = (FlowKey, Flow)>,
    capacity: u32,
    sweeps: &Sweeps,
    now_ns: u64,
) -> (Swept, Vec<FlowKey>) {
    let (mut swept, mut over, mut first) = (Swept { begun_ns: now_ns, ..Swept::default() }, Vec::new(), None);
    for (key, flow) in flows {
        let is_again = *first.get_or_insert(key) == key && swept.flows > 0;
        if is_again || swept.flows > u64::from(capacity) {
            return (swept, over);
        }
        swept.flows += 1;
        if sweeps.is_over(&flow, now_ns) {
            over.push(key);
            continue;
        }
        let (active, closing) = swept.counted.entry((flow.server, flow.generation)).or_default();
        if flow.is_closing { *closing += 1 } else { *active += 1 }
    }
    swept.is_whole = true;
    (swept, over)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn flow(sweep: u32, is_closing: bool) -> Flow {
        Flow { server: 1, generation: 1, is_closing, sweep }
    }

    proptest! {
        /// A flow is not removed before its timeout after its last packet, and at most one sweep and a small delay
        /// later.
        #[test]
        fn flows_are_forgotten_after_their_timeouts(
            pauses in prop::collection::vec(1_u64..50, 1..200),
            seen in 0_usize..200,
            (idle, closing) in (1_u64..500, 1_u64..500),
            is_closing in any::<bool>(),
        ) {
            let mut sweeps = Sweeps::new(7, 0);
            sweeps.set_timeouts(idle, closing);
            let timeout = if is_closing { closing.min(idle) } else { idle };
            let (mut now, mut marked) = (0, None);
            for (at, pause) in pauses.iter().enumerate() {
                if at == seen {
                    marked = Some((now, flow(sweeps.mark(), is_closing)));
                }
                now += pause;
                sweeps.begin(now);
                let Some((seen_ns, flow)) = &marked else { continue };
                let longest_pause = pauses.iter().max().copied().unwrap_or_default();
                let idle_for = now - seen_ns;
                if sweeps.is_over(flow, now) {
                    prop_assert!(idle_for > timeout);
                } else {
                    prop_assert!(idle_for <= timeout + longest_pause);
                }
            }
        }
    }

    #[test]
    fn a_day_of_sweeps_is_remembered_in_little_memory() {
        let (sweep_ns, day_ns, closing_ns) = (100_000_000, 86_400_000_000_000, 60_000_000_000);
        let mut sweeps = Sweeps::new(0, 0);
        sweeps.set_timeouts(day_ns, closing_ns);
        let mut seen: VecDeque<(u64, u32)> = VecDeque::new();
        for number in 1..2_000_000 {
            let now_ns = number * sweep_ns;
            sweeps.begin(now_ns);
            assert!(sweeps.ended.len() <= MOST_ENDS, "{} ends", sweeps.ended.len());
            if number % 5_000 != 0 {
                continue;
            }
            seen.push_back((now_ns, sweeps.mark()));
            for &(seen_ns, mark) in &seen {
                for (is_closing, timeout_ns) in [(true, closing_ns), (false, day_ns)] {
                    let is_over = sweeps.is_over(&flow(mark, is_closing), now_ns);
                    let idle_ns = now_ns - seen_ns;
                    assert!(!is_over || idle_ns > timeout_ns, "forgotten after {idle_ns} ns");
                    let latest_ns = timeout_ns + 2 * sweep_ns + timeout_ns / 127;
                    assert!(is_over || idle_ns <= latest_ns, "there after {idle_ns} ns of {timeout_ns}");
                }
            }
            seen.retain(|(seen_ns, _)| now_ns - seen_ns < 2 * day_ns);
        }
        let now_ns = 2_000_000 * sweep_ns;
        sweeps.set_timeouts(10 * day_ns, closing_ns);
        assert!(
            seen.iter().all(|(_, mark)| !sweeps.is_over(&flow(*mark, false), now_ns)),
            "the timeout is longer now"
        );
    }

    #[test]
    fn a_sweep_that_began_anew_is_not_whole() {
        let key = |port| FlowKey { client: ([10, 0, 1, 9].into(), port), vip: ([10, 0, 0, 100].into(), 80) };
        let sweeps = Sweeps::new(0, 0);
        for (ports, capacity, is_whole) in [
            (vec![1, 2, 3], 3, true),
            (vec![], 3, true),
            (vec![1, 2, 1, 2, 3], 9, false),
            (vec![1, 2, 3, 2, 3], 3, false),
        ] {
            let flows = ports.iter().map(|port| (key(*port), flow(0, false)));
            let (swept, over) = count(flows, capacity, &sweeps, 5);
            assert_eq!((swept.is_whole, swept.begun_ns, over.len()), (is_whole, 5, 0), "{ports:?}");
        }
    }

    #[test]
    fn flows_of_an_earlier_daemon_were_seen_at_the_start() {
        let mut sweeps = Sweeps::new(41, 1_000);
        sweeps.set_timeouts(100, 10);
        assert_eq!(sweeps.mark(), 42);
        sweeps.begin(1_050);
        for (mark, now_ns, is_over) in
            [(41, 1_100, false), (3, 1_101, true), (42, 1_101, false), (43, 9_999, false)]
        {
            assert_eq!(sweeps.is_over(&flow(mark, false), now_ns), is_over, "{mark} {now_ns}");
        }
        assert!(sweeps.is_over(&flow(41, true), 1_011));
    }
}
