//! What a worker leaves: counts, histograms, and the identities that prove nothing was lost.

use std::collections::BTreeMap;

use record::{Away, Censored, Counts, CpuUse, ErrorCounts, Histogram};
use serde::{Deserialize, Serialize};

/// What one worker, or several merged, found out. Times are nanoseconds since the start.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Part {
    /// Requests and connections.
    pub counts: Counts,
    /// Failed requests by class.
    pub errors: ErrorCounts,
    /// Attempts that failed and were made again, by class.
    #[serde(default)]
    pub retried_errors: ErrorCounts,
    /// Failures of connections.
    pub connection_errors: ErrorCounts,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Response times; `observed` stays empty in a worker's part, its ticks carry them.
    pub response_time: Censored,
    /// Service times.
    pub service_time: Censored,
    /// Connection set-up.
    pub connect_time: Histogram,
    /// Send to first byte.
    pub first_byte_time: Histogram,
    /// Actual minus intended send.
    pub lateness: Histogram,
    /// The instrument's own part of that.
    pub own_lateness: Histogram,
    /// Intended send to failure.
    pub failure_time: Histogram,
    /// Requests completed before sending ended.
    pub completed_in_time: u64,
    /// Sum over users of the time from their start to their last answer or, of those that think, to when the request
    /// after that was due.
    pub users_span_ns: f64,
    /// Users of a closed load that had an answer.
    pub users: u64,
    /// When sending ended.
    pub sending_ns: u64,
    /// When the last answer came.
    pub last_answer_ns: u64,
    /// When the worker stopped.
    pub elapsed_ns: u64,
    /// Integral over time of the requests in flight, in request-nanoseconds.
    pub in_flight_integral_ns: f64,
    /// Time in flight of requests that failed after they were sent.
    pub failed_in_flight_ns: f64,
    /// Arrivals that the plan has by closed form, where it is known and the trial ran to its end.
    pub planned: Option<u64>,
    /// Stopped early by a wish of the user.
    pub interrupted: bool,
    /// Worker processes lost.
    pub lost_workers: u64,
    /// Processor use.
    pub cpu: CpuUse,
    /// When the loop was away.
    #[serde(default)]
    pub away: Away,
    /// Sum over answered requests of how long the answer lay unread, in nanoseconds.
    #[serde(default)]
    pub unread_ns: f64,
    /// Sum over the requests of a closed load of how much later than their users they began, where that was long.
    #[serde(default)]
    pub users_delayed_ns: f64,
    /// By how much requests may have been delayed when sending ended.
    #[serde(default)]
    pub delay_at_end_ns: u64,
    /// Why receipts of events could not be written, of each worker that could not.
    #[serde(default)]
    pub lost_receipts: Vec<String>,
}

impl Part {
    /// Adds another worker's part of the same trial.
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
        self.completed_in_time += other.completed_in_time;
        self.users_span_ns += other.users_span_ns;
        self.users += other.users;
        self.sending_ns = self.sending_ns.max(other.sending_ns);
        self.last_answer_ns = self.last_answer_ns.max(other.last_answer_ns);
        self.elapsed_ns = self.elapsed_ns.max(other.elapsed_ns);
        self.in_flight_integral_ns += other.in_flight_integral_ns;
        self.failed_in_flight_ns += other.failed_in_flight_ns;
        self.planned = match (self.planned, other.planned) {
            (Some(a), Some(b)) => Some(a + b),
            _ => None,
        };
        self.interrupted |= other.interrupted;
        self.lost_workers += other.lost_workers;
        self.cpu.merge(&other.cpu);
        self.away.merge(&other.away);
        self.unread_ns += other.unread_ns;
        self.users_delayed_ns += other.users_delayed_ns;
        self.delay_at_end_ns = self.delay_at_end_ns.max(other.delay_at_end_ns);
        self.lost_receipts.extend_from_slice(&other.lost_receipts);
    }
}
