//! Requests whose events the storage has.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use segments::{Done, Failure, Level, Receipt};
use sockets::{Places, Token};

use crate::{
    answer::AnswerContext,
    budget::Reservation,
    idempotency::{Claim, PartlyStored, RenderInputs},
};

/// A request whose events the storage has.
#[derive(Debug)]
pub(crate) struct Pending<'a> {
    /// Who asked.
    pub connection: Token,
    pub context: AnswerContext,
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
    pub inputs: Option<Box<RenderInputs>>,
    pub reservation: Reservation<'a>,
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
        context: AnswerContext,
        cancelled: Arc<AtomicBool>,
    },
}

/// Requests whose events the storage has, by the tokens of their parts.
#[derive(Debug, Default)]
pub(crate) struct PendingTable<'a> {
    slots: Places<Waiting<'a>>,
}

impl<'a> Pending<'a> {
    /// Bytes of its lines that are stored, those of an earlier request left out.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.receipts[self.earlier..].iter().map(|receipt| receipt.bytes).sum()
    }

    /// What a repeat need not store again; nothing if it must store all.
    pub(crate) fn partly_stored(&mut self) -> Option<(Claim<'a>, PartlyStored)> {
        let claim = self.claim.take().filter(|_| !self.stored.is_empty())?;
        let stored = self.stored.drain(..).zip(self.receipts.iter().cloned()).collect();
        Some((claim, PartlyStored { level: self.level, inputs: self.inputs.take()?, stored }))
    }

    /// Notes what became of a part; whether that was the last.
    fn record_completion(&mut self, number: Option<usize>, result: Result<Receipt, Failure>) -> bool {
        match result {
            Ok(receipt) => {
                self.receipts.push(receipt);
                self.stored.extend(number);
            }
            Err(failure) => {
                if self.failure.is_none() || matches!(failure, Failure::Left(_)) {
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
        self.slots.insert(|_| Waiting::Request(pending)).0
    }

    /// The token of one part of a request: that of the request itself, unless it matters which part it is.
    pub(crate) fn part(&mut self, request: Token, number: usize, track: bool) -> Token {
        if track { self.slots.insert(|_| Waiting::Part { request, number }).0 } else { request }
    }

    /// The request of that token, unless it is gone.
    #[inline]
    pub(crate) fn find(&mut self, token: Token) -> Option<&mut Pending<'a>> {
        match self.slots.find(token)? {
            Waiting::Request(pending) => Some(pending),
            Waiting::Part { .. } | Waiting::Reading { .. } => None,
        }
    }

    /// Takes in a request whose body is to be read by the helper. With its token comes what is set once nobody waits for it.
    pub(crate) fn insert_reading(&mut self, context: AnswerContext) -> (Token, Arc<AtomicBool>) {
        let cancelled = Arc::new(AtomicBool::new(false));
        let token = self.slots.insert(|_| Waiting::Reading { context, cancelled: Arc::clone(&cancelled) }).0;
        (token, cancelled)
    }

    /// Nothing of that request is to be stored, if its body is still being read. Whether it is.
    pub(crate) fn cancel_reading(&mut self, token: Token) -> bool {
        let Some(Waiting::Reading { cancelled, .. }) = self.slots.find(token) else { return false };
        cancelled.store(true, Ordering::Relaxed);
        true
    }

    /// The body of that request was read. How the request is to be answered, unless it was given up.
    pub(crate) fn finish_reading(&mut self, token: Token) -> Option<AnswerContext> {
        match self.slots.remove(token)? {
            Waiting::Reading { context, cancelled } => {
                (!cancelled.load(Ordering::Relaxed)).then_some(context)
            }
            Waiting::Request(_) | Waiting::Part { .. } => None,
        }
    }

    /// How the request of that token is to be answered, unless it is gone.
    pub(crate) fn context(&mut self, token: Token) -> Option<&mut AnswerContext> {
        match self.slots.find(token)? {
            Waiting::Request(pending) => Some(&mut pending.context),
            Waiting::Reading { context, .. } => Some(context),
            Waiting::Part { .. } => None,
        }
    }

    /// Notes what became of a part; the request, if that was its last.
    #[inline]
    pub(crate) fn record_completion(&mut self, done: Done) -> Option<(Token, Pending<'a>)> {
        let mut token = Token::from_number(done.token);
        let mut part = None;
        if let Waiting::Part { request, number } = *self.slots.find(token)? {
            self.slots.remove(token);
            (token, part) = (request, Some(number));
        }
        if !self.find(token)?.record_completion(part, done.result) {
            return None;
        }
        match self.slots.remove(token)? {
            Waiting::Request(pending) => Some((token, pending)),
            Waiting::Part { .. } | Waiting::Reading { .. } => None,
        }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}
