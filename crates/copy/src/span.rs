//! A part of a file that one channel carries. Another channel may take over the rest of it.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use tokio::sync::OwnedSemaphorePermit;

/// A range of bytes. Those before `next` have been requested or sent.
#[derive(Debug)]
pub(crate) struct Span {
    next: Cell<u64>,
    end: Cell<u64>,
    /// The number of spans of this chunk that have not arrived yet. The chunk's spans share it.
    open: Rc<Cell<u32>>,
    /// One of the channel's turns, held until the whole span is in flight.
    turn: RefCell<Option<OwnedSemaphorePermit>>,
}

impl Span {
    pub(crate) fn new(begin: u64, end: u64) -> Rc<Self> {
        Rc::new(Self {
            next: Cell::new(begin),
            end: Cell::new(end),
            open: Rc::new(Cell::new(1)),
            turn: RefCell::default(),
        })
    }

    /// Takes the next bytes to request or to send, at most `most`. Returns their offset and their number.
    pub(crate) fn take(&self, most: usize) -> Option<(u64, usize)> {
        let offset = self.next.get();
        let bytes = most.min(self.left() as usize);
        self.next.set(offset + bytes as u64);
        (bytes > 0).then_some((offset, bytes))
    }

    /// Keeps one of a channel's turns to send.
    pub(crate) fn keep(&self, turn: OwnedSemaphorePermit) {
        *self.turn.borrow_mut() = Some(turn);
    }

    /// Releases the turn when the whole span is in flight, so that the channel may send other data.
    pub(crate) fn sent(&self) {
        self.turn.take();
    }

    /// Number of bytes that have not been taken yet.
    pub(crate) fn left(&self) -> u64 {
        if self.open.get() == 0 { 0 } else { self.end.get() - self.next.get() }
    }

    /// Gives up the chunk, which will be carried again. Its other spans stop at once, so that they do not write into a
    /// complete file. Returns false if it was given up before.
    pub(crate) fn give_up(&self) -> bool {
        self.open.replace(0) > 0
    }

    /// Splits off the second half of the bytes that have not been taken yet, for another channel.
    pub(crate) fn split(&self) -> Rc<Self> {
        let middle = self.end.get() - self.left() / 2;
        let rest = Self {
            next: Cell::new(middle),
            end: self.end.clone(),
            open: Rc::clone(&self.open),
            turn: RefCell::default(),
        };
        self.end.set(middle);
        self.open.set(self.open.get() + 1);
        Rc::new(rest)
    }

    /// Records that the span has arrived. Returns whether the whole chunk has arrived.
    pub(crate) fn finish_part(&self) -> bool {
        let open = self.open.get();
        self.open.set(open.saturating_sub(1));
        open == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_split_span_are_the_whole() {
        let span = Span::new(100, 200);
        assert_eq!(span.take(30), Some((100, 30)));
        let rest = span.split();
        assert_eq!((span.left(), rest.left()), (35, 35));
        assert_eq!((span.take(30), span.take(30), span.take(30)), (Some((130, 30)), Some((160, 5)), None));
        assert_eq!((rest.take(99), rest.take(1)), (Some((165, 35)), None));
        assert!(!rest.finish_part() && span.finish_part());
        let span = Span::new(0, 100);
        let rest = span.split();
        assert!(rest.give_up() && !span.give_up() && span.take(1).is_none() && !span.finish_part());
    }
}
