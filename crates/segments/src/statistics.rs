//! Statistics of a store.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use hdrhistogram::Histogram;

/// Totals since the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// System calls that wrote parts.
    pub writes: u64,
    /// Successful calls of fdatasync.
    pub syncs: u64,
    /// Failed calls of fdatasync. Lines written to the file since the previous call may be lost.
    pub sync_failures: u64,
    /// Durations of the successful calls of fdatasync.
    pub sync_us: Quantiles,
    /// Currently open segments.
    pub open_segments: u64,
    /// Submitted bytes that are neither written nor failed yet.
    pub queued_bytes: u64,
}

/// Quantiles of durations, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quantiles {
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub failed_parts: Counter,
    pub writes: Counter,
    pub sync_failures: Counter,
    pub open_segments: Counter,
    sync_us: Durations,
}

/// Durations in microseconds.
#[derive(Debug)]
struct Durations(Mutex<Histogram<u64>>);

impl Default for Durations {
    fn default() -> Self {
        let hour_us = 3_600_000_000;
        Self(Mutex::new(
            Histogram::new_with_max(hour_us, 3).expect("3 digits up to an hour are valid bounds"),
        ))
    }
}

impl Counters {
    pub(crate) fn synced(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.sync_us.0.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(us);
    }

    pub(crate) fn read(&self, queued_bytes: usize) -> Statistics {
        let sync_us = self.sync_us.0.lock().unwrap_or_else(PoisonError::into_inner);
        Statistics {
            writes: self.writes.value(),
            syncs: sync_us.len(),
            sync_failures: self.sync_failures.value(),
            sync_us: Quantiles { p50: sync_us.value_at_quantile(0.5), p99: sync_us.value_at_quantile(0.99) },
            open_segments: self.open_segments.value(),
            queued_bytes: queued_bytes as u64,
        }
    }
}
