//! Decides how long the loop waits, and whether it reads answers one at a time or in batches.

use super::Worker;
use crate::{
    exchange::Exchange,
    wire::{Wake, Wire},
};

/// Minimum number of requests in flight at which answers are batched.
const MIN_BATCHING_REQUESTS: u64 = 16;
/// Maximum batching delay, in nanoseconds.
const MAX_BATCHING_NS: u64 = 20_000;
/// Minimum batching delay that is worth a system call, in nanoseconds.
const MIN_BATCHING_NS: u64 = 2_000;

impl<W: Wire, X: Exchange> Worker<W, X> {
    /// When the next wait must end, and how precisely.
    pub(super) fn next_wake(&self, end_ns: Option<u64>) -> (u64, Wake) {
        let mut until_ns = self.recorder.tick_due_ns();
        if !self.deferred.is_empty() {
            return (0, Wake::Loosely);
        }
        if let Some(end_ns) = end_ns {
            until_ns = until_ns.min(if self.sending { end_ns } else { self.drain_deadline_ns(end_ns) });
        }
        if let Some(at_ns) = self.next_timer_ns() {
            until_ns = until_ns.min(at_ns);
        }
        if let Some(end_ns) = self.schedule_end_ns().filter(|_| self.sending) {
            until_ns = until_ns.min(end_ns);
        }
        if let Some(due_ns) = self.next_arrival_ns()
            && due_ns < until_ns
        {
            if self.source.can_assign(self.slots.len()) {
                return (due_ns, Wake::Exactly);
            }
            if self.source.holds() {
                until_ns = until_ns.min(due_ns + self.absences.longest_hold_ns() + 1);
            }
        }
        // A pause need not end to the microsecond, and polling for its end would take processor time from others.
        let batching_ns = self.batching_ns();
        (until_ns, if batching_ns > 0 { Wake::Batched(batching_ns) } else { Wake::Loosely })
    }

    /// How long the next wait lets answers accumulate, in nanoseconds; 0 reads each at once.
    ///
    /// A busy server that answers a few of many users at a time would wake this thread for each answer, which costs the server
    /// more processor time than the generator. Batching delays the reading of an answer by at most a 64th of the mean service
    /// time, on average. The recorded time of an answer still ends at its arrival.
    fn batching_ns(&self) -> u64 {
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
