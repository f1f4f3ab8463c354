//! What a worker leaves: counts, histograms, and the identities that prove nothing was lost.

use record::HttpTrial;
use serde::{Deserialize, Serialize};

/// What one worker, or several merged, found out. Times are nanoseconds since the start.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Part {
    /// What the trial keeps of it. Of a worker's part, `response_time.observed` stays empty: its ticks carry those times.
    /// The plan, and what follows from all parts together, are put there at the end.
    pub http: HttpTrial,
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
    /// Sum over answered requests of how long the answer lay unread, in nanoseconds.
    pub unread_ns: f64,
    /// Sum over the requests of a closed load of how much later than their users they began, where that was long.
    pub users_delayed_ns: f64,
    /// By how much requests may have been delayed when sending ended.
    pub delay_at_end_ns: u64,
    /// Why receipts of events could not be written, of each worker that could not.
    pub lost_receipts: Vec<String>,
}

impl Part {
    /// Adds another worker's part of the same trial.
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
        self.unread_ns += other.unread_ns;
        self.users_delayed_ns += other.users_delayed_ns;
        self.delay_at_end_ns = self.delay_at_end_ns.max(other.delay_at_end_ns);
        self.lost_receipts.extend_from_slice(&other.lost_receipts);
    }
}
