//! The connections of an event loop, with a queue of those that continue without a new event.

use std::collections::VecDeque;

use crate::{Slab, Token};

/// The event loop's next action for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// Wait for the next event.
    Wait,
    /// Continue after the other connections have had their turn.
    Continue,
    /// Close the connection.
    Close,
}

/// The connections, with a queue of those that continue without an event.
#[derive(Debug)]
pub struct Connections<C> {
    entries: Slab<Entry<C>>,
    queue: VecDeque<Token>,
}

#[derive(Debug)]
struct Entry<C> {
    connection: C,
    queued: bool,
}

impl<C> Default for Connections<C> {
    fn default() -> Self {
        Self { entries: Slab::default(), queue: VecDeque::new() }
    }
}

impl<C> Connections<C> {
    /// Adds the connection that `make` returns for its token.
    pub fn insert(&mut self, make: impl FnOnce(Token) -> C) -> (Token, &mut C) {
        let make = |token| Entry { connection: make(token), queued: false };
        let (token, entry) = self.entries.insert(make);
        (token, &mut entry.connection)
    }

    /// The connection of a token; none if it was removed.
    #[inline]
    pub fn find(&mut self, token: Token) -> Option<&mut C> {
        self.entries.find(token).map(|entry| &mut entry.connection)
    }

    /// Applies the next step of a connection. Returns the connection if it was removed to be closed.
    #[inline]
    pub fn apply(&mut self, token: Token, step: NextStep) -> Option<C> {
        match step {
            NextStep::Wait => None,
            NextStep::Continue => {
                // An event may arrive for a connection that is already queued; it must not be queued twice.
                if let Some(entry) = self.entries.find(token)
                    && !std::mem::replace(&mut entry.queued, true)
                {
                    self.queue.push_back(token);
                }
                None
            }
            NextStep::Close => self.entries.remove(token).map(|entry| entry.connection),
        }
    }

    /// Length of the queue. Some of its connections may have been removed.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Takes the first token from the queue. Its connection may have been removed.
    pub fn take_next(&mut self) -> Option<Token> {
        let token = self.queue.pop_front()?;
        if let Some(entry) = self.entries.find(token) {
            entry.queued = false;
        }
        Some(token)
    }

    /// All connections.
    pub fn iter(&self) -> impl Iterator<Item = &C> {
        self.entries.iter().map(|entry| &entry.connection)
    }

    /// The tokens of all connections.
    pub fn tokens(&self) -> Vec<Token> {
        self.entries.tokens()
    }

    /// Whether there are no connections.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queued_connections_continue_in_turn_and_once() {
        let mut connections = Connections::default();
        let (first, _) = connections.insert(|_| 1);
        let (second, _) = connections.insert(|_| 2);
        for token in [second, first, second] {
            assert_eq!(connections.apply(token, NextStep::Continue), None);
        }
        assert_eq!(connections.waiting(), 2);
        assert_eq!(
            (connections.take_next(), connections.take_next(), connections.take_next()),
            (Some(second), Some(first), None)
        );
        connections.apply(second, NextStep::Continue);
        assert_eq!(connections.take_next(), Some(second));
    }

    #[test]
    fn a_closed_connection_is_returned_once_and_loses_its_turn() {
        let mut connections = Connections::default();
        let (first, _) = connections.insert(|_| 1);
        connections.apply(first, NextStep::Continue);
        assert_eq!(connections.apply(first, NextStep::Close), Some(1));
        assert_eq!(connections.apply(first, NextStep::Close), None);
        let (second, _) = connections.insert(|_| 2);
        connections.apply(first, NextStep::Continue);
        assert_eq!(connections.waiting(), 1);
        assert_eq!(connections.take_next().and_then(|token| connections.find(token).copied()), None);
        assert_eq!(connections.iter().collect::<Vec<_>>(), [&2]);
        assert_eq!(connections.tokens(), [second]);
    }
}
