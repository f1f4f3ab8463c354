//! Whether answers are read one by one, or a few at a time.

use super::Worker;
use crate::{source::Source, wire::Wire};

/// Answers gather only where so many requests are under way.
const GATHERING_USERS: u64 = 16;
/// For how long answers gather at the most, in nanoseconds.
const GATHERING_NS: u64 = 20_000;
/// Less than this is not worth a system call, in nanoseconds.
const LEAST_GATHERING_NS: u64 = 2_000;

impl<W: Wire> Worker<W> {
    /// For how long answers may gather before they are read; 0 if each is read at once.
    ///
    /// A busy server that answers a few of many users at a time would wake this thread for each of them, which costs the
    /// server more than the answer costs us. An answer that gathers lies unread for a 64th of the time that answers take
    /// at the most, on average; its own time ends when it arrived.
    pub(super) fn gathering_ns(&self) -> u64 {
        let goes_on_at_once = matches!(&self.source, Source::Closed(users) if !users.thinks);
        let few_of_many = self.assigned >= GATHERING_USERS && (1..=self.assigned / 8).contains(&self.batch);
        // Without a stamp, the time of an answer ends when it is read.
        let waits_for_nothing = self.plan.keepalive && self.connecting == 0 && self.is_stamped;
        if !goes_on_at_once || !few_of_many || !waits_for_nothing {
            return 0;
        }
        Some((self.usual_ns / 32).min(GATHERING_NS)).filter(|&ns| ns >= LEAST_GATHERING_NS).unwrap_or(0)
    }
}
