//! The time series of a trial, merged from its workers. An interval lasts one second, or a tenth of a second in a short trial.

use std::collections::BTreeMap;

use record::{Histogram, Interval};
use serde::{Deserialize, Serialize};

/// One interval of one worker, or of several merged.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Tick {
    /// Index of the worker.
    pub worker: u32,
    /// Index of the interval, from 0.
    pub index: u64,
    /// End of the interval, nanoseconds after the start.
    pub end_ns: u64,
    /// Requests sent in the interval.
    pub sent: u64,
    /// Requests completed in the interval.
    pub completed: u64,
    /// Requests failed in the interval.
    pub failed: u64,
    /// Connections open at the end.
    pub open_connections: u64,
    /// Requests in flight at the end.
    pub in_flight: u64,
    /// Response times of the completed requests.
    pub response_time: Box<Histogram>,
}

impl Tick {
    /// Adds the same interval of another worker.
    fn merge(&mut self, other: &Self) {
        self.end_ns = self.end_ns.max(other.end_ns);
        self.sent += other.sent;
        self.completed += other.completed;
        self.failed += other.failed;
        self.open_connections += other.open_connections;
        self.in_flight += other.in_flight;
        self.response_time.merge(&other.response_time);
    }

    /// Converts the tick to the interval that the result folder stores.
    pub fn interval(&self) -> Interval {
        let times = &self.response_time;
        // An empty histogram reports 0, which would look like a time.
        let us = |ns: u64| (!times.is_empty()).then_some(ns as f64 / 1e3);
        Interval {
            end_s: self.end_ns as f64 / 1e9,
            sent: self.sent,
            completed: self.completed,
            failed: self.failed,
            open_connections: self.open_connections,
            in_flight: self.in_flight,
            p50_us: us(times.quantile_ns(0.5)),
            p99_us: us(times.quantile_ns(0.99)),
            max_us: us(times.max_ns()),
        }
    }
}

/// Merges the ticks of all workers, and returns an interval once every running worker has sent its tick.
#[derive(Debug)]
pub struct TickMerger {
    running: usize,
    waiting: BTreeMap<u64, (usize, Tick)>,
}

impl TickMerger {
    /// A merger for this number of workers.
    pub fn new(workers: usize) -> Self {
        Self { running: workers, waiting: BTreeMap::new() }
    }

    /// Adds a worker's tick; returns the intervals that are complete now, in order.
    pub fn push(&mut self, tick: &Tick) -> Vec<Tick> {
        let (workers, merged) = self
            .waiting
            .entry(tick.index)
            .or_insert_with(|| (0, Tick { index: tick.index, ..Tick::default() }));
        *workers += 1;
        merged.merge(tick);
        self.take_complete()
    }

    /// Notes that a worker has sent its last tick; returns the intervals that are complete now, in order.
    pub fn worker_ended(&mut self) -> Vec<Tick> {
        self.running = self.running.saturating_sub(1);
        self.take_complete()
    }

    fn take_complete(&mut self) -> Vec<Tick> {
        let mut ready = Vec::new();
        while let Some(entry) = self.waiting.first_entry()
            && entry.get().0 >= self.running
        {
            ready.push(entry.remove().1);
        }
        ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(worker: u32, index: u64, completed: u64) -> Tick {
        Tick { worker, index, completed, ..Tick::default() }
    }

    #[test]
    fn an_interval_without_an_answer_has_no_times() {
        let mut tick = tick(0, 0, 0);
        assert_eq!((tick.interval().p50_us, tick.interval().max_us), (None, None));
        tick.response_time.record_ns(2_000);
        assert!(tick.interval().p50_us.is_some_and(|us| (1.9..2.1).contains(&us)));
    }

    #[test]
    fn an_interval_is_complete_once_every_worker_has_sent_it() {
        let mut merger = TickMerger::new(2);
        assert!(merger.push(&tick(0, 0, 5)).is_empty());
        assert!(merger.push(&tick(0, 1, 6)).is_empty());
        let whole = merger.push(&tick(1, 0, 7));
        assert_eq!(whole.iter().map(|t| (t.index, t.completed)).collect::<Vec<_>>(), [(0, 12)]);
        // Worker 1 ends: the tick of worker 0 is complete without it.
        let whole = merger.worker_ended();
        assert_eq!(whole.iter().map(|t| (t.index, t.completed)).collect::<Vec<_>>(), [(1, 6)]);
        assert_eq!(merger.push(&tick(0, 2, 8)).len(), 1);
    }
}
