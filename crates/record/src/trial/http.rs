//! What a trial of HTTP requests measured.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    errors::ErrorCounts,
    histogram::{CensoredTimes, Histogram},
    plan::HttpPlan,
};

/// What a trial of HTTP requests measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HttpTrial {
    /// The plan as run.
    pub plan: HttpPlan,
    /// The time that rates are taken over, in seconds; `docs/throughput.md` says which.
    pub measured_s: f64,
    /// Requests and connections.
    pub counts: Counts,
    /// Completed requests per second of `measured_s`.
    pub throughput_per_s: f64,
    /// What `throughput_per_s` would have been at the most if the generator had never been away. Equal to it in most
    /// trials; 0 in results of before this was known.
    #[serde(default)]
    pub throughput_at_most_per_s: f64,
    /// Failures by class.
    pub errors: ErrorCounts,
    /// Failures of attempts that were made again, by class: not among `errors`.
    #[serde(default, skip_serializing_if = "ErrorCounts::is_empty")]
    pub retried_errors: ErrorCounts,
    /// Failures that belong to a connection and to no request: it could not be opened for want of
    /// something on this machine, or carried bytes nobody had asked for.
    pub connection_errors: ErrorCounts,
    /// Answers by status, the unexpected ones included.
    pub statuses: BTreeMap<u16, u64>,
    /// From intended send to the last byte of the answer.
    pub response_time: CensoredTimes,
    /// From actual send to the last byte of the answer.
    pub service_time: CensoredTimes,
    /// From the first SYN to the connection's establishment.
    pub connect_time: Histogram,
    /// From actual send to the first byte of the answer.
    pub first_byte_time: Histogram,
    /// Actual minus intended send: waiting for a free connection included.
    pub lateness: Histogram,
    /// The part of the lateness that is the instrument's own: the request was due and a connection
    /// was free.
    pub own_lateness: Histogram,
    /// From intended send to the failure, of failed requests that were not censored.
    pub failure_time: Histogram,
    /// The course of it, a second each; of an open load of less than four seconds, a tenth of a second each.
    pub series: Vec<Interval>,
    /// What the instrument itself used.
    pub cpu: CpuUse,
    /// When the generator was away from its work.
    #[serde(default)]
    pub away: Away,
    /// The percentiles of `response_time` and `service_time` that the generator may have made: they say nothing about
    /// the target.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own_percentiles: Vec<OwnPercentile>,
    /// Concurrency against rate × time.
    pub littles_law: LittlesLaw,
}

/// Fewer whole seconds than this show no trend.
const MIN_SECONDS_FOR_TREND: usize = 4;
/// Nor do fewer tenths of a second.
const MIN_TENTHS_FOR_TREND: usize = 8;

impl HttpTrial {
    /// The median response time of each interval in which requests were due and answered: the interval's end and the
    /// median, both in seconds. None if they are too few to show whether answers grow slower.
    pub fn medians_over_time(&self) -> Option<Vec<(f64, f64)>> {
        let sending_s = self.plan.sending_ns()? as f64 / 1e9;
        let interval_ns = self.plan.interval_ns();
        let interval_s = interval_ns as f64 / 1e9;
        // Beyond the last planned send the backlog only drains. By their numbers: the loop that ends an interval may be
        // late by a few milliseconds.
        let due = |index: usize| (index + 1) as f64 * interval_s <= sending_s + 0.01;
        let intervals = self.series.iter().enumerate();
        let medians: Vec<(f64, f64)> = intervals
            .filter(|(index, interval)| due(*index) && interval.completed > 0)
            .filter_map(|(_, interval)| Some((interval.end_s, interval.p50_us? / 1e6)))
            .collect();
        let min_intervals =
            if interval_ns < 1_000_000_000 { MIN_TENTHS_FOR_TREND } else { MIN_SECONDS_FOR_TREND };
        (medians.len() >= min_intervals).then_some(medians)
    }

    /// Adds what another worker counted and timed of the same trial. The plan, and what follows from it and from all
    /// workers together, stays as it is.
    pub fn merge(&mut self, other: &Self) {
        self.counts.merge(&other.counts);
        self.errors.merge(&other.errors);
        self.retried_errors.merge(&other.retried_errors);
        self.connection_errors.merge(&other.connection_errors);
        for (&status, &n) in &other.statuses {
            *self.statuses.entry(status).or_default() += n;
        }
        self.response_time.merge(&other.response_time);
        self.service_time.merge(&other.service_time);
        self.connect_time.merge(&other.connect_time);
        self.first_byte_time.merge(&other.first_byte_time);
        self.lateness.merge(&other.lateness);
        self.own_lateness.merge(&other.own_lateness);
        self.failure_time.merge(&other.failure_time);
        self.cpu.merge(&other.cpu);
        self.away.merge(&other.away);
    }

    /// Gives back the memory of the histograms' empty bins, see [`Histogram::pack`]: for a trial that is kept.
    pub fn pack(&mut self) {
        self.response_time.pack();
        self.service_time.pack();
        self.connect_time.pack();
        self.first_byte_time.pack();
        self.lateness.pack();
        self.own_lateness.pack();
        self.failure_time.pack();
    }
}

/// Requests and connections, counted. `scheduled = completed + failed + in_flight + never_sent`, and
/// `sent = completed + failed - failed_unsent + in_flight + retried - retried_unsent`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Requests that the plan has.
    pub scheduled: u64,
    /// Requests whose first byte was handed to the kernel; those made again count again.
    pub sent: u64,
    /// Planned requests that were not sent.
    pub never_sent: u64,
    /// The part of `never_sent` that still waited for a busy connection at the end: the target was
    /// slow, or the connections too few.
    pub never_sent_busy: u64,
    /// Requests of an open load that were due while every connection was busy, and were sent when one was free.
    #[serde(default)]
    pub waited_busy: u64,
    /// Requests answered whole, with an expected status.
    pub completed: u64,
    /// Requests that failed, with or without an answer.
    pub failed: u64,
    /// The part of `failed` that failed before anything was sent (no connection).
    pub failed_unsent: u64,
    /// The part of `failed`, `never_sent_busy` and (of an open load) `in_flight` that was due while the generator made up
    /// for an absence: what was lost may have been lost in the burst.
    #[serde(default)]
    pub lost_delayed: u64,
    /// Connections begun meanwhile that failed or took 1 ms and more: the burst may have filled the accept queue.
    #[serde(default)]
    pub connects_delayed: u64,
    /// Attempts that failed and were made again. The request itself is counted by how its last attempt ended.
    #[serde(default)]
    pub retried: u64,
    /// The part of `retried` that failed before anything was sent.
    #[serde(default)]
    pub retried_unsent: u64,
    /// Requests sent, not failed, and not yet answered at the end.
    pub in_flight: u64,
    /// Connections established.
    pub connections_opened: u64,
    /// Connections established beyond the first of each user or slot.
    pub reconnects: u64,
    /// Planned connections that this machine could not open.
    pub connections_unopened: u64,
    /// Most connections open at once.
    pub connections_peak: u64,
    /// Bytes handed to the kernel, heads included.
    pub sent_bytes: u64,
    /// Bytes received, heads included.
    pub received_bytes: u64,
    /// Payload bytes received.
    pub received_body_bytes: u64,
}

impl Counts {
    /// Requests that were never sent through no fault of the target: none that waited for a busy connection.
    pub fn never_sent_own(&self) -> u64 {
        self.never_sent - self.never_sent_busy
    }

    /// Adds another worker's counts. Peaks are added: the workers ran at the same time.
    pub fn merge(&mut self, other: &Self) {
        self.scheduled += other.scheduled;
        self.sent += other.sent;
        self.never_sent += other.never_sent;
        self.never_sent_busy += other.never_sent_busy;
        self.waited_busy += other.waited_busy;
        self.completed += other.completed;
        self.failed += other.failed;
        self.failed_unsent += other.failed_unsent;
        self.lost_delayed += other.lost_delayed;
        self.connects_delayed += other.connects_delayed;
        self.retried += other.retried;
        self.retried_unsent += other.retried_unsent;
        self.in_flight += other.in_flight;
        self.connections_opened += other.connections_opened;
        self.reconnects += other.reconnects;
        self.connections_unopened += other.connections_unopened;
        self.connections_peak += other.connections_peak;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.received_body_bytes += other.received_body_bytes;
    }
}

/// One second of a trial, or a tenth of one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// Its end, seconds after the start.
    pub end_s: f64,
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
    /// Median response time of those completed in it, in microseconds; none if none was.
    pub p50_us: Option<f64>,
    /// 99th percentile of their response time, in microseconds.
    pub p99_us: Option<f64>,
    /// Their largest response time, in microseconds.
    pub max_us: Option<f64>,
}

/// What the generator used of this machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuUse {
    /// User time of the whole process (or all of them), in seconds.
    pub user_s: f64,
    /// System time, in seconds.
    pub system_s: f64,
    /// Time that worker threads polled for the next send, in seconds; not counted as busy.
    pub spin_s: f64,
    /// Busiest worker thread: its processor time less polling, over the elapsed time (0 to 1).
    pub busiest_thread_ratio: f64,
    /// Busiest worker thread: the share of the time in which its loop was not waiting for something to do
    /// (0 to 1). More than the processor time if others took the processor from it.
    pub busiest_loop_ratio: f64,
    /// Time that worker threads were ready to run and had no processor, in seconds, when the kernel
    /// tells.
    pub runqueue_wait_s: Option<f64>,
    /// Largest resident memory of the process (or the sum over processes), in bytes.
    pub max_resident_bytes: u64,
    /// Worker threads in all.
    pub threads: u32,
}

impl CpuUse {
    /// Adds another process's use.
    pub fn merge(&mut self, other: &Self) {
        self.user_s += other.user_s;
        self.system_s += other.system_s;
        self.spin_s += other.spin_s;
        self.busiest_thread_ratio = self.busiest_thread_ratio.max(other.busiest_thread_ratio);
        self.busiest_loop_ratio = self.busiest_loop_ratio.max(other.busiest_loop_ratio);
        self.runqueue_wait_s = match (self.runqueue_wait_s, other.runqueue_wait_s) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        self.max_resident_bytes += other.max_resident_bytes;
        self.threads += other.threads;
    }
}

/// Times of at least 250 µs in which a worker thread had something to do and did not do it: it was stopped, had no
/// processor, or was busy with other answers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Away {
    /// How often, all worker threads together.
    pub times: u64,
    /// For how long in all, worker threads added up, in seconds.
    pub total_s: f64,
    /// The longest absence of one thread, in seconds.
    pub longest_s: f64,
}

impl Away {
    /// Adds another worker's absences.
    pub fn merge(&mut self, other: &Self) {
        self.times += other.times;
        self.total_s += other.total_s;
        self.longest_s = self.longest_s.max(other.longest_s);
    }
}

/// A percentile that the generator may have made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OwnPercentile {
    /// Of which times: `response_time` or `service_time`.
    pub times: String,
    /// Which: `p99`, `max`.
    pub percentile: String,
    /// As measured, in microseconds.
    pub measured_us: f64,
    /// Less the most that the generator may have made of it, in microseconds: the target's own lies between the two.
    pub less_own_us: f64,
}

/// Little's law, L = λ · W, with both sides measured apart: L by integrating the number of requests
/// in flight over time, λ · W from the recorded service times.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LittlesLaw {
    /// Mean requests in flight (L).
    pub mean_in_flight: f64,
    /// Requests that ended or were cut off, per second, times their mean time (λ · W).
    pub rate_times_time: f64,
}
