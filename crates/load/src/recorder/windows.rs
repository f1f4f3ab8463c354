//! Sound windows: periods of a trial without generator absences, under the planned load, which are evaluated separately.
//!
//! A request belongs to the window in which it was due. A window counts only if no absence occurred from its start until one window
//! length after its end; its last requests are answered in that time. After an absence, the first window starts one window length
//! after the load has recovered. So only absences select windows, never the times of their requests. If an answer takes longer than
//! a window length, the windows are too short and all are dropped. Windows of twice the length, which are recorded in parallel, then
//! replace them.

use std::collections::VecDeque;

use record::{Histogram, HttpPlan, LoadModel, SoundTime};

use super::Recorder;

/// Initial length of a window, in nanoseconds: short, so that enough windows fit between frequent absences.
const FIRST_LENGTH_NS: u64 = 10_000_000;
/// The longest window, in nanoseconds.
const MAX_LENGTH_NS: u64 = 1_000_000_000;
/// The length of windows is limited so that a trial has at least this many.
const MIN_WINDOWS: u64 = 16;

/// The windows of a load's only worker. Until its first absence they cost nothing, because the whole trial is sound.
#[derive(Debug)]
pub(super) struct Windows {
    /// Windows of the shortest length that no answer has exceeded, and windows of twice that length.
    both: [OneLength; 2],
    max_length_ns: u64,
    /// The smaller `first_ns` of both.
    first_ns: u64,
    /// The smaller `due_ns` of both.
    due_ns: u64,
}

/// The windows of one length.
#[derive(Debug)]
struct OneLength {
    length_ns: u64,
    /// Start of the oldest open window, or of the next window if none is open; `u64::MAX` during an absence and its recovery.
    first_ns: u64,
    /// When the oldest open window has ended and the time for its answers is over; `u64::MAX` if no window is open.
    due_ns: u64,
    /// Windows that are not over, in order of time.
    open: VecDeque<Window>,
    spare: Vec<Window>,
    sound: u64,
    times: Histogram,
}

#[derive(Debug, Default)]
struct Window {
    begun: u64,
    ended: u64,
    times_ns: Vec<u64>,
}

impl Window {
    /// An empty window that reuses the memory of this one.
    fn cleared(mut self) -> Self {
        self.times_ns.clear();
        Self { begun: 0, ended: 0, ..self }
    }
}

impl Windows {
    /// The windows of this plan's load. A load that changes with time, or that has several workers, has no windows.
    pub(super) fn of(plan: &HttpPlan) -> Self {
        let is_steady = match &plan.load {
            LoadModel::Closed { ramp_up_ns, .. } => *ramp_up_ns == 0,
            LoadModel::Open { stages, .. } => stages
                .iter()
                .all(|s| s.from_rate_per_s == s.to_rate_per_s && s.to_rate_per_s == stages[0].to_rate_per_s),
        };
        let has_windows = is_steady && plan.threads <= 1 && plan.processes <= 1;
        let max_length_ns =
            plan.duration_ns.map_or(MAX_LENGTH_NS, |ns| (ns / MIN_WINDOWS).min(MAX_LENGTH_NS));
        Self {
            both: [FIRST_LENGTH_NS, 2 * FIRST_LENGTH_NS].map(OneLength::of),
            max_length_ns: if has_windows { max_length_ns } else { 0 },
            first_ns: u64::MAX,
            due_ns: u64::MAX,
        }
    }

    /// Records the start of a request that was due at `intended_ns`.
    #[inline]
    pub(super) fn begun(&mut self, intended_ns: u64) {
        if self.has(intended_ns) {
            self.begin(intended_ns);
        }
    }

    /// Records the end of a request that was due at `intended_ns`, with its response time if it succeeded.
    #[inline]
    pub(super) fn ended(&mut self, intended_ns: u64, response_ns: Option<u64>) {
        if self.has(intended_ns) {
            self.end(intended_ns, response_ns);
        }
    }

    /// Whether a request that was due at `intended_ns` may be in an open window.
    #[inline]
    pub(super) fn has(&self, intended_ns: u64) -> bool {
        intended_ns >= self.first_ns
    }

    /// Counts the windows that are over by `now_ns`. `waiting_since_ns`: due time of the oldest request that has not begun.
    #[inline(never)]
    pub(super) fn settle(&mut self, now_ns: u64, waiting_since_ns: Option<u64>) {
        while let Some(length_ns) =
            self.both.iter_mut().find_map(|windows| windows.settle(now_ns, waiting_since_ns))
        {
            let [short, long] = self.both.each_ref().map(|windows| windows.length_ns);
            if length_ns == short {
                self.both.swap(0, 1);
                self.both[1] = OneLength::of(2 * long);
            } else {
                // An answer that exceeds the longer windows also exceeds the shorter ones.
                self.both = [2 * long, 4 * long].map(OneLength::of);
            }
            self.recovered(now_ns);
        }
        self.look();
    }

    /// Drops the open windows after an absence. The next window starts once the load has recovered.
    #[inline(never)]
    pub(super) fn disturbed(&mut self) {
        self.both.iter_mut().for_each(OneLength::drop_open);
        self.look();
    }

    /// Starts windows again when the load has recovered from absences.
    pub(super) fn recovered(&mut self, now_ns: u64) {
        let may = |windows: &&mut OneLength| windows.length_ns <= self.max_length_ns;
        self.both.iter_mut().filter(may).for_each(|windows| windows.recovered(now_ns));
        self.look();
    }

    /// Total length and response times of the sound windows; `None` if no window counted.
    pub(super) fn total(self) -> Option<SoundTime> {
        let [OneLength { length_ns, sound, times, .. }, _] = self.both;
        let window_s = length_ns as f64 / 1e9;
        (!times.is_empty()).then_some(SoundTime {
            window_s,
            total_s: sound as f64 * window_s,
            response_time: times,
        })
    }

    #[inline(never)]
    fn begin(&mut self, intended_ns: u64) {
        self.both.iter_mut().for_each(|windows| windows.begin(intended_ns));
        self.look();
    }

    #[inline(never)]
    fn end(&mut self, intended_ns: u64, response_ns: Option<u64>) {
        self.both.iter_mut().for_each(|windows| windows.ended(intended_ns, response_ns));
    }

    fn look(&mut self) {
        let [short, long] = &self.both;
        (self.first_ns, self.due_ns) = (short.first_ns.min(long.first_ns), short.due_ns.min(long.due_ns));
    }
}

impl OneLength {
    fn of(length_ns: u64) -> Self {
        Self {
            length_ns,
            first_ns: u64::MAX,
            due_ns: u64::MAX,
            open: VecDeque::new(),
            spare: Vec::new(),
            sound: 0,
            times: Histogram::empty(),
        }
    }

    fn begin(&mut self, intended_ns: u64) {
        if intended_ns < self.first_ns {
            return;
        }
        let mut index = (intended_ns - self.first_ns) / self.length_ns;
        if self.open.is_empty() {
            // No request was due in the skipped windows, so they are sound.
            self.sound += index;
            self.first_ns += index * self.length_ns;
            self.due_ns = self.first_ns + 2 * self.length_ns;
            index = 0;
        }
        while self.open.len() as u64 <= index {
            self.open.push_back(self.spare.pop().unwrap_or_default());
        }
        self.open[index as usize].begun += 1;
    }

    fn ended(&mut self, intended_ns: u64, response_ns: Option<u64>) {
        if intended_ns < self.first_ns {
            return;
        }
        let index = (intended_ns - self.first_ns) / self.length_ns;
        if let Some(window) = self.open.get_mut(index as usize) {
            window.ended += 1;
            window.times_ns.extend(response_ns);
        }
    }

    /// Counts the windows that are over. Returns the window length if it is too short for the answers.
    fn settle(&mut self, now_ns: u64, waiting_since_ns: Option<u64>) -> Option<u64> {
        while self.due_ns <= now_ns {
            let end_ns = self.first_ns + self.length_ns;
            let is_over = self.open.front().is_some_and(|window| window.ended == window.begun);
            if !is_over || waiting_since_ns.is_some_and(|since_ns| since_ns < end_ns) {
                return Some(self.length_ns);
            }
            let window = self.open.pop_front().unwrap_or_default();
            window.times_ns.iter().for_each(|ns| self.times.record_ns(*ns));
            self.spare.push(window.cleared());
            self.sound += 1;
            self.first_ns = end_ns;
            self.set_due();
        }
        None
    }

    fn drop_open(&mut self) {
        self.spare.extend(self.open.drain(..).map(Window::cleared));
        self.first_ns = u64::MAX;
        self.set_due();
    }

    fn recovered(&mut self, now_ns: u64) {
        if self.first_ns == u64::MAX {
            self.first_ns = now_ns + self.length_ns;
        }
    }

    fn set_due(&mut self) {
        self.due_ns = if self.open.is_empty() { u64::MAX } else { self.first_ns + 2 * self.length_ns };
    }
}

impl Recorder {
    /// Records the start of a request that was due at `intended_ns`, for the sound windows.
    #[inline]
    pub(crate) fn begun(&mut self, intended_ns: u64) {
        self.windows.begun(intended_ns);
    }

    /// The next time at which to call [`Self::settle_windows`].
    #[inline]
    pub(crate) fn windows_due_ns(&self) -> u64 {
        self.windows.due_ns
    }

    /// Counts the sound windows that are over. `waiting_since_ns`: due time of the oldest request that has not begun.
    pub(crate) fn settle_windows(&mut self, now_ns: u64, waiting_since_ns: Option<u64>) {
        self.windows.settle(now_ns, waiting_since_ns);
    }

    /// Ends the sound windows because of an absence. `is_over`: requests sent now are not delayed.
    pub(crate) fn was_away(&mut self, now_ns: u64, is_over: bool) {
        self.is_watched = true;
        self.windows.disturbed();
        if is_over {
            self.windows.recovered(now_ns);
        }
    }

    /// Starts sound windows again after an absence.
    pub(crate) fn recovered(&mut self, now_ns: u64) {
        self.windows.recovered(now_ns);
    }
}
