//! The timers of a thread.

use std::{cmp::Reverse, collections::BinaryHeap};

use sockets::Token;

/// What a timer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TimerKind {
    /// The answer, or the next piece of its head, is due.
    Answer,
    /// The idle timeout may have passed.
    Idle,
    /// The linger timeout of a closed connection has passed.
    Linger,
}

/// Pending timers. They are never cancelled, so a handler must check whether its timer still applies. The token of a
/// closed connection finds no connection.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(u64, Token, TimerKind)>>,
}

impl Timers {
    /// Sets a timer for connection `token` at `due_ns`.
    #[inline]
    pub(crate) fn set(&mut self, due_ns: u64, token: Token, timer: TimerKind) {
        self.heap.push(Reverse((due_ns, token, timer)));
    }

    #[inline]
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((due_ns, ..))| *due_ns)
    }

    /// Removes the earliest timer that is due at `now_ns`.
    #[inline]
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<(Token, TimerKind)> {
        if self.next_due_ns()? > now_ns {
            return None;
        }
        self.heap.pop().map(|Reverse((_, token, timer))| (token, timer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_come_in_order_and_never_early() {
        let mut timers = Timers::default();
        for (due, index) in [(30, 3), (10, 1), (20, 2)] {
            timers.set(due, Token::from_number(index), TimerKind::Answer);
        }
        assert_eq!(timers.next_due_ns(), Some(10));
        assert_eq!(timers.pop_due(9), None);
        assert_eq!(timers.pop_due(25), Some((Token::from_number(1), TimerKind::Answer)));
        assert_eq!(timers.pop_due(25), Some((Token::from_number(2), TimerKind::Answer)));
        assert_eq!(timers.pop_due(25), None);
    }
}
