//! The counters of a thread. Only that thread writes them; others may read them at any time.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use record::Histogram;
use segments::Level;

use crate::refusal::{NAMES, Refusal};

/// Number of status counters: statuses are below 600.
const STATUSES: usize = 600;

/// A counter that one thread increments and other threads read.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Adds to the counter. Only one thread may call it, because concurrent additions could be lost.
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A thread's counters, on separate cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    statuses: Statuses,
    refused: [Count; NAMES.len()],
    events: [Count; 3],
    pub accepted_events_lost: Count,
    /// Number of events acknowledged as `accepted` that the storage has since stored or refused.
    pub accepted_events_settled: Count,
    pub replayed: Count,
    pub received_bytes: Count,
    pub sent_bytes: Count,
    pub stored_bytes: Count,
    pub connections_accepted: Count,
    pub connections_refused: Count,
    pub connections_timed_out: Count,
    pub accept_errors: Count,
    pub unanswered: Count,
    answer_time: Mutex<Histogram>,
}

/// A counter for each status below [`STATUSES`].
#[derive(Debug)]
struct Statuses([Count; STATUSES]);

impl Default for Statuses {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Count::default()))
    }
}

impl Counters {
    #[inline]
    pub(crate) fn count_answer(&self, status: u16) {
        if let Some(count) = self.statuses.0.get(usize::from(status)) {
            count.add(1);
        }
    }

    pub(crate) fn count_refusal(&self, refusal: &Refusal) {
        self.refused[refusal.number()].add(1);
    }

    #[inline]
    pub(crate) fn count_acknowledged(&self, level: Level, events: u64) {
        self.events[level_index(level)].add(events);
    }

    /// Records the time in nanoseconds from a request's last byte to its successful answer.
    #[inline]
    pub(crate) fn record_answer_time(&self, ns: u64) {
        // Rarely contended, because only readers of the statistics take this lock too.
        self.answer_time.lock().unwrap_or_else(PoisonError::into_inner).record_ns(ns);
    }

    /// Numbers of answers by status, without zeros.
    pub(crate) fn statuses(&self) -> impl Iterator<Item = (u16, u64)> {
        let counted =
            self.statuses.0.iter().enumerate().map(|(status, count)| (status as u16, count.value()));
        counted.filter(|&(_, count)| count > 0)
    }

    /// Numbers of refusals by name, without zeros.
    pub(crate) fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.iter().zip(&self.refused).map(|(&name, count)| (name, count.value())).filter(|&(_, n)| n > 0)
    }

    /// Number of events acknowledged at a level.
    pub(crate) fn events(&self, level: Level) -> u64 {
        self.events[level_index(level)].value()
    }

    /// Merges this thread's answer times into `histogram`.
    pub(crate) fn add_times_to(&self, histogram: &mut Histogram) {
        histogram.merge(&self.answer_time.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

fn level_index(level: Level) -> usize {
    match level {
        Level::Accepted => 0,
        Level::Written => 1,
        Level::Synced => 2,
    }
}
