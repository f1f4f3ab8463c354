//! Batching: whether answers are read one at a time or several together.

use super::Worker;
use crate::{exchange::Exchange, wire::Wire};

/// Fewest requests in flight for which answers are batched.
const MIN_BATCHING_REQUESTS: u64 = 16;
/// Longest batching delay, in nanoseconds.
const MAX_BATCHING_NS: u64 = 20_000;
/// Shortest batching delay that is worth a system call, in nanoseconds.
const MIN_BATCHING_NS: u64 = 2_000;

impl<W: Wire, X: Exchange> Worker<W, X> {
    /// How long the next wait lets answers accumulate, in nanoseconds; 0 reads each at once.
    ///
    /// A busy server that answers a few of many users at a time would wake this thread for each answer, which costs the
    /// server more processor time than it costs the generator. Batching delays the reading of an answer by at most a 64th of
    /// the mean service time, on average. The answer's recorded time still ends when it arrived.
    pub(super) fn batching_ns(&self) -> u64 {
        let few_of_many = self.assigned >= MIN_BATCHING_REQUESTS
            && (1..=self.assigned / 8).contains(&self.last_event_count);
        // Without the kernel's receive time, an answer's time ends when it is read.
        let can_wait = self.plan.keepalive && self.connecting == 0 && self.has_receive_stamp;
        if !self.source.follows_answers() || !few_of_many || !can_wait {
            return 0;
        }
        let delay_ns = (self.mean_service_ns / 32).min(MAX_BATCHING_NS);
        if delay_ns >= MIN_BATCHING_NS { delay_ns } else { 0 }
    }
}
