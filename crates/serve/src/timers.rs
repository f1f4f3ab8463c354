//! What is to happen later on one thread: a heap of times.

use std::{cmp::Reverse, collections::BinaryHeap};

use sockets::Token;

/// What a timer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Alarm {
    /// The answer, or more of its head, is due.
    Answer,
    /// The connection may have been idle for too long.
    Idle,
    /// A closed connection need not be drained any longer.
    Linger,
}

/// Pending timers. None is ever taken back: whoever is woken looks whether it still matters, and timers of
/// connections that are gone find nobody.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(u64, Token, Alarm)>>,
}

impl Timers {
    /// Wakes `token` at `due_ns`.
    #[inline]
    pub(crate) fn set(&mut self, due_ns: u64, token: Token, alarm: Alarm) {
        self.heap.push(Reverse((due_ns, token, alarm)));
    }

    /// When the next one is due.
    #[inline]
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((due_ns, ..))| *due_ns)
    }

    /// Takes one that is due at `now_ns`, earliest first.
    #[inline]
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<(Token, Alarm)> {
        if self.next_due_ns()? > now_ns {
            return None;
        }
        self.heap.pop().map(|Reverse((_, token, alarm))| (token, alarm))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_come_in_order_and_never_early() {
        let mut timers = Timers::default();
        for (due, index) in [(30, 3), (10, 1), (20, 2)] {
            timers.set(due, Token::from_number(index), Alarm::Answer);
        }
        assert_eq!(timers.next_due_ns(), Some(10));
        assert_eq!(timers.pop_due(9), None);
        assert_eq!(timers.pop_due(25), Some((Token::from_number(1), Alarm::Answer)));
        assert_eq!(timers.pop_due(25), Some((Token::from_number(2), Alarm::Answer)));
        assert_eq!(timers.pop_due(25), None);
    }
}
