//! The connections of a loop, and which of them go on next.

use std::collections::VecDeque;

use crate::{Places, Token};

/// Whether a loop keeps a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Until something happens on it.
    Keep,
    /// There is more to do at once, but others come first.
    Again,
    /// It is over; to be closed.
    Gone,
}

/// The connections, with a queue of those that have more to do at once.
#[derive(Debug)]
pub struct Connections<C> {
    places: Places<Member<C>>,
    queue: VecDeque<Token>,
}

#[derive(Debug)]
struct Member<C> {
    connection: C,
    queued: bool,
}

impl<C> Default for Connections<C> {
    fn default() -> Self {
        Self { places: Places::default(), queue: VecDeque::new() }
    }
}

impl<C> Connections<C> {
    /// Takes in what `make` makes of its token.
    pub fn insert(&mut self, make: impl FnOnce(Token) -> C) -> (Token, &mut C) {
        let make = |token| Member { connection: make(token), queued: false };
        let (token, member) = self.places.insert(make);
        (token, &mut member.connection)
    }

    /// The connection of that token, unless it is gone.
    #[inline]
    pub fn find(&mut self, token: Token) -> Option<&mut C> {
        self.places.find(token).map(|member| &mut member.connection)
    }

    /// Does what was decided of a connection. One that is gone is given back, to be closed.
    #[inline]
    pub fn settle(&mut self, token: Token, fate: Fate) -> Option<C> {
        match fate {
            Fate::Keep => None,
            Fate::Again => {
                // Events may come to a connection that is in the queue: once is enough.
                if let Some(member) = self.places.find(token)
                    && !std::mem::replace(&mut member.queued, true)
                {
                    self.queue.push_back(token);
                }
                None
            }
            Fate::Gone => self.places.remove(token).map(|member| member.connection),
        }
    }

    /// How many wait to go on. Some may be gone meanwhile.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Takes the one that has waited longest from the queue. It may be gone meanwhile.
    pub fn take_next(&mut self) -> Option<Token> {
        let token = self.queue.pop_front()?;
        if let Some(member) = self.places.find(token) {
            member.queued = false;
        }
        Some(token)
    }

    /// All connections.
    pub fn iter(&self) -> impl Iterator<Item = &C> {
        self.places.iter().map(|member| &member.connection)
    }

    /// All tokens in use.
    pub fn tokens(&self) -> Vec<Token> {
        self.places.tokens()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_with_more_to_do_go_on_in_turn_and_once() {
        let mut connections = Connections::default();
        let (first, _) = connections.insert(|_| 1);
        let (second, _) = connections.insert(|_| 2);
        for token in [second, first, second] {
            assert_eq!(connections.settle(token, Fate::Again), None);
        }
        assert_eq!(connections.waiting(), 2);
        assert_eq!(
            (connections.take_next(), connections.take_next(), connections.take_next()),
            (Some(second), Some(first), None)
        );
        connections.settle(second, Fate::Again);
        assert_eq!(connections.take_next(), Some(second));
    }

    #[test]
    fn one_that_is_gone_is_given_back_once_and_its_turn_is_nobody_s() {
        let mut connections = Connections::default();
        let (first, _) = connections.insert(|_| 1);
        connections.settle(first, Fate::Again);
        assert_eq!(connections.settle(first, Fate::Gone), Some(1));
        assert_eq!(connections.settle(first, Fate::Gone), None);
        let (second, _) = connections.insert(|_| 2);
        connections.settle(first, Fate::Again);
        assert_eq!(connections.waiting(), 1);
        assert_eq!(connections.take_next().and_then(|token| connections.find(token).copied()), None);
        assert_eq!(connections.iter().collect::<Vec<_>>(), [&2]);
        assert_eq!(connections.tokens(), [second]);
    }
}
