//! Requests whose events the storage has.

use segments::{Done, Failure, Level, Receipt};
use sockets::Token;

use crate::{answer::Manner, budget::Share, idempotency::Claim};

/// A request whose events the storage has.
#[derive(Debug)]
pub(crate) struct Pending<'a> {
    /// Who asked.
    pub connection: Token,
    pub manner: Manner,
    pub level: Level,
    pub events: u64,
    /// Parts of which nothing has been heard yet.
    pub parts_left: usize,
    /// The first failure, if any.
    pub failure: Option<Failure>,
    /// Where its parts lie, in the order in which word came.
    pub receipts: Vec<Receipt>,
    pub share: Share<'a>,
    pub claim: Option<Claim<'a>>,
    /// When its last byte came.
    pub ended_ns: u64,
}

impl Pending<'_> {
    /// Notes what became of a part; whether that was the last.
    pub fn note(&mut self, done: Done) -> bool {
        match done.result {
            Ok(receipt) => self.receipts.push(receipt),
            Err(failure) => {
                self.failure.get_or_insert(failure);
            }
        }
        self.parts_left -= 1;
        self.parts_left == 0
    }

    /// Bytes of its lines that are stored.
    pub fn stored_bytes(&self) -> u64 {
        self.receipts.iter().map(|receipt| receipt.bytes).sum()
    }
}
