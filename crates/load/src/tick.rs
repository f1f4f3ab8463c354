//! The course of a trial, interval by interval (a second each, of a short one a tenth), put together from its workers'.

use std::collections::BTreeMap;

use record::{Histogram, Interval};
use serde::{Deserialize, Serialize};

/// One interval of one worker, or of several merged.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Tick {
    /// Whose.
    pub worker: u32,
    /// Which interval, from 0.
    pub index: u64,
    /// Its end, nanoseconds after the start.
    pub end_ns: u64,
    /// Requests sent in it.
    pub sent: u64,
    /// Requests completed in it.
    pub completed: u64,
    /// Requests failed in it.
    pub failed: u64,
    /// Connections open at its end.
    pub open_connections: u64,
    /// Requests in flight at its end.
    pub in_flight: u64,
    /// Response times of those completed in it.
    pub response_time: Box<Histogram>,
}

impl Tick {
    /// Adds the same interval of another worker.
    pub fn merge(&mut self, other: &Self) {
        self.end_ns = self.end_ns.max(other.end_ns);
        self.sent += other.sent;
        self.completed += other.completed;
        self.failed += other.failed;
        self.open_connections += other.open_connections;
        self.in_flight += other.in_flight;
        self.response_time.merge(&other.response_time);
    }

    /// The form in which results keep it.
    pub fn interval(&self) -> Interval {
        let times = &self.response_time;
        // No time is not the shortest time.
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

/// Waits for the same interval from every worker still running, then gives it whole, in order.
#[derive(Debug)]
pub struct Gather {
    running: usize,
    waiting: BTreeMap<u64, (usize, Tick)>,
}

impl Gather {
    /// For so many workers.
    pub fn new(workers: usize) -> Self {
        Self { running: workers, waiting: BTreeMap::new() }
    }

    /// Takes one worker's second; gives the seconds that are whole now.
    pub fn push(&mut self, tick: &Tick) -> Vec<Tick> {
        let (workers, merged) = self
            .waiting
            .entry(tick.index)
            .or_insert_with(|| (0, Tick { index: tick.index, ..Tick::default() }));
        *workers += 1;
        merged.merge(tick);
        self.whole()
    }

    /// A worker has handed in its last second; gives the seconds that are whole now.
    pub fn end_one(&mut self) -> Vec<Tick> {
        self.running = self.running.saturating_sub(1);
        self.whole()
    }

    fn whole(&mut self) -> Vec<Tick> {
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
    fn a_second_without_an_answer_has_no_times() {
        let mut tick = tick(0, 0, 0);
        assert_eq!((tick.interval().p50_us, tick.interval().max_us), (None, None));
        tick.response_time.record_ns(2_000);
        assert!(tick.interval().p50_us.is_some_and(|us| (1.9..2.1).contains(&us)));
    }

    #[test]
    fn a_second_is_given_once_everybody_has_told_it() {
        let mut gather = Gather::new(2);
        assert!(gather.push(&tick(0, 0, 5)).is_empty());
        assert!(gather.push(&tick(0, 1, 6)).is_empty());
        let whole = gather.push(&tick(1, 0, 7));
        assert_eq!(whole.iter().map(|t| (t.index, t.completed)).collect::<Vec<_>>(), [(0, 12)]);
        // Worker 1 ends: what worker 0 told is whole without it.
        let whole = gather.end_one();
        assert_eq!(whole.iter().map(|t| (t.index, t.completed)).collect::<Vec<_>>(), [(1, 6)]);
        assert_eq!(gather.push(&tick(0, 2, 8)).len(), 1);
    }
}
