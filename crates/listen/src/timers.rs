//! Timers for connection deadlines: a heap with one entry per connection, which is not updated when the deadline moves.

use std::{cmp::Reverse, collections::BinaryHeap};

use sockets::Token;

use crate::Timeouts;

/// Schedules the next check of each connection.
///
/// A connection is checked at least once per shortest timeout. A moved deadline is at least that far ahead, so the next
/// check comes before it, and the heap need not change.
#[derive(Debug)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(u64, Token)>>,
    shortest_ns: u64,
}

impl Timers {
    /// Creates an empty heap.
    pub(crate) fn new(timeouts: &Timeouts) -> Self {
        let Timeouts { head, body, idle, store, .. } = timeouts;
        let shortest = head.min(body).min(idle).min(store);
        Self { heap: BinaryHeap::new(), shortest_ns: shortest.as_nanos() as u64 }
    }

    /// Schedules the next check of a connection with this deadline.
    pub(crate) fn watch(&mut self, now_ns: u64, deadline_ns: u64, token: Token) {
        self.at(deadline_ns.min(now_ns.saturating_add(self.shortest_ns)), token);
    }

    /// Schedules an additional check, for a deadline that is nearer than the shortest timeout.
    pub(crate) fn at(&mut self, due_ns: u64, token: Token) {
        self.heap.push(Reverse((due_ns, token)));
    }

    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((due_ns, _))| *due_ns)
    }

    /// Removes the earliest check that is due at `now_ns`.
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<Token> {
        if self.next_due_ns()? > now_ns {
            return None;
        }
        self.heap.pop().map(|Reverse((_, token))| token)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_far_deadline_is_looked_at_before_a_nearer_one_could_be_missed() {
        let timeouts = Timeouts { head: Duration::from_nanos(10), ..Timeouts::default() };
        let mut timers = Timers::new(&timeouts);
        let (far, near) = (Token::from_number(1), Token::from_number(2));
        timers.watch(100, 1_000, far);
        timers.watch(100, 105, near);
        assert_eq!(timers.pop_due(104), None);
        assert_eq!(timers.pop_due(110), Some(near));
        assert_eq!(timers.pop_due(110), Some(far));
        assert_eq!(timers.next_due_ns(), None);
    }
}
