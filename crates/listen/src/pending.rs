//! Requests whose events the storage has.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use segments::{Done, Failure, Level, Receipt};
use sockets::{Slab, Token};

use crate::{
    answer::Manner,
    budget::Share,
    idempotency::{Claim, Given, InPart},
};

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
    /// The first failure, if any, or one that has left lines in a file.
    pub failure: Option<Failure>,
    /// Where its parts lie: first those that an earlier request has stored, then in the order in which word came.
    pub receipts: Vec<Receipt>,
    /// How many of the receipts are an earlier request's.
    pub earlier: usize,
    /// The parts that are stored, by number, if it matters which: a repeat under the same idempotency key must know them if
    /// others fail.
    pub stored: Vec<usize>,
    /// What its lines are made of besides its body, where a repeat must make the same.
    pub given: Option<Box<Given>>,
    pub share: Share<'a>,
    pub claim: Option<Claim<'a>>,
    /// When its last byte came.
    pub ended_ns: u64,
    /// Its client was told that it is accepted.
    pub is_acknowledged: bool,
}

/// What the storage's word of a part is for.
#[derive(Debug)]
enum Waiting<'a> {
    Request(Pending<'a>),
    /// One part of a request, where it matters which.
    Part {
        request: Token,
        number: usize,
    },
    /// A request whose body is being read by the helper.
    Reading {
        manner: Manner,
        given_up: Arc<AtomicBool>,
    },
}

/// Requests whose events the storage has, by the tokens of their parts.
#[derive(Debug, Default)]
pub(crate) struct PendingTable<'a> {
    places: Slab<Waiting<'a>>,
}

impl<'a> Pending<'a> {
    /// Bytes of its lines that are stored, those of an earlier request left out.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.receipts[self.earlier..].iter().map(|receipt| receipt.bytes).sum()
    }

    /// What a repeat need not store again; nothing if it must store all.
    pub(crate) fn in_part(&mut self) -> Option<(Claim<'a>, InPart)> {
        let claim = self.claim.take().filter(|_| !self.stored.is_empty())?;
        let stored = self.stored.drain(..).zip(self.receipts.iter().cloned()).collect();
        Some((claim, InPart { level: self.level, given: self.given.take()?, stored }))
    }

    /// Notes what became of a part; whether that was the last.
    fn note(&mut self, number: Option<usize>, result: Result<Receipt, Failure>) -> bool {
        match result {
            Ok(receipt) => {
                self.receipts.push(receipt);
                self.stored.extend(number);
            }
            Err(failure) => {
                if self.failure.is_none() || matches!(failure, Failure::Partial(_)) {
                    self.failure = Some(failure);
                }
            }
        }
        self.parts_left -= 1;
        self.parts_left == 0
    }
}

impl<'a> PendingTable<'a> {
    /// Takes in a request.
    pub(crate) fn insert(&mut self, pending: Pending<'a>) -> Token {
        self.places.insert(|_| Waiting::Request(pending)).0
    }

    /// The token of one part of a request: that of the request itself, unless it matters which part it is.
    pub(crate) fn part(&mut self, request: Token, number: usize, matters: bool) -> Token {
        if matters { self.places.insert(|_| Waiting::Part { request, number }).0 } else { request }
    }

    /// The request of that token, unless it is gone.
    #[inline]
    pub(crate) fn find(&mut self, token: Token) -> Option<&mut Pending<'a>> {
        match self.places.find(token)? {
            Waiting::Request(pending) => Some(pending),
            Waiting::Part { .. } | Waiting::Reading { .. } => None,
        }
    }

    /// Takes in a request whose body is to be read by the helper. With its token comes what is set once nobody waits for it.
    pub(crate) fn reading(&mut self, manner: Manner) -> (Token, Arc<AtomicBool>) {
        let given_up = Arc::new(AtomicBool::new(false));
        let token = self.places.insert(|_| Waiting::Reading { manner, given_up: Arc::clone(&given_up) }).0;
        (token, given_up)
    }

    /// Nothing of that request is to be stored, if its body is still being read. Whether it is.
    pub(crate) fn give_up(&mut self, token: Token) -> bool {
        let Some(Waiting::Reading { given_up, .. }) = self.places.find(token) else { return false };
        given_up.store(true, Ordering::Relaxed);
        true
    }

    /// The body of that request was read. How the request is to be answered, unless it was given up.
    pub(crate) fn was_read(&mut self, token: Token) -> Option<Manner> {
        match self.places.remove(token)? {
            Waiting::Reading { manner, given_up } => (!given_up.load(Ordering::Relaxed)).then_some(manner),
            Waiting::Request(_) | Waiting::Part { .. } => None,
        }
    }

    /// How the request of that token is to be answered, unless it is gone.
    pub(crate) fn manner(&mut self, token: Token) -> Option<&mut Manner> {
        match self.places.find(token)? {
            Waiting::Request(pending) => Some(&mut pending.manner),
            Waiting::Reading { manner, .. } => Some(manner),
            Waiting::Part { .. } => None,
        }
    }

    /// Notes what became of a part; the request, if that was its last.
    #[inline]
    pub(crate) fn note(&mut self, done: Done) -> Option<(Token, Pending<'a>)> {
        let mut token = Token::from_number(done.token);
        let mut part = None;
        if let Waiting::Part { request, number } = *self.places.find(token)? {
            self.places.remove(token);
            (token, part) = (request, Some(number));
        }
        if !self.find(token)?.note(part, done.result) {
            return None;
        }
        match self.places.remove(token)? {
            Waiting::Request(pending) => Some((token, pending)),
            Waiting::Part { .. } | Waiting::Reading { .. } => None,
        }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}
