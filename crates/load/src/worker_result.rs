//! The measurements of workers, before they become the record of a trial.

use record::HttpTrial;
use serde::{Deserialize, Serialize};

/// The measurements of one worker, or of several merged. Points in time are nanoseconds since the start.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct WorkerResult {
    /// The part that the trial's record keeps. `response_time.observed` of one worker stays empty: its ticks carry those times.
    /// `conclude` fills in the plan and the figures that need all workers.
    pub http: HttpTrial,
    /// Requests completed before sending ended.
    pub completed_in_time: u64,
    /// Sum over users of the time from their start to their last answer; with think time, to the time at which the next request
    /// was due.
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
    /// Number of planned requests, computed in advance, if it is known and the trial ran to its end.
    pub planned: Option<u64>,
    /// The user stopped the trial early.
    pub interrupted: bool,
    /// Number of lost worker processes.
    pub lost_workers: u64,
    /// The worker stopped because its lease had ended.
    #[serde(default)]
    pub lost_lease: bool,
    /// Sum over answered requests of the time between an answer's arrival and its reading, in nanoseconds.
    pub unread_ns: f64,
    /// Sum over the requests of a closed load of the time by which the generator began them late, in nanoseconds. Delays below
    /// `MIN_ABSENCE_NS` are left out.
    pub users_delayed_ns: f64,
    /// Largest possible delay of requests when sending ended, in nanoseconds.
    pub delay_at_end_ns: u64,
    /// Every goal was missed before the end: no further connections were opened.
    #[serde(default)]
    pub opened_no_more: bool,
    /// The error of each worker that could not write its receipts of events.
    pub lost_receipts: Vec<String>,
    /// Why the log of requests could not be written.
    #[serde(default)]
    pub lost_log: Option<String>,
}

/// Requests of a source: scheduled, required (if known) and left out.
pub(crate) struct SourceTotals {
    pub scheduled: u64,
    pub planned: Option<u64>,
    pub left_out: u64,
}

impl WorkerResult {
    /// Adds another worker's result of the same trial.
    pub fn merge(&mut self, other: &Self) {
        self.http.merge(&other.http);
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
        self.lost_lease |= other.lost_lease;
        self.unread_ns += other.unread_ns;
        self.users_delayed_ns += other.users_delayed_ns;
        self.delay_at_end_ns = self.delay_at_end_ns.max(other.delay_at_end_ns);
        self.opened_no_more |= other.opened_no_more;
        self.lost_receipts.extend_from_slice(&other.lost_receipts);
        self.lost_log = self.lost_log.take().or_else(|| other.lost_log.clone());
    }
}
