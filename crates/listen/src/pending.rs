//! Requests that wait for the storage or the body reader.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use segments::{Done, Failure, Level, Receipt};
use sockets::{Slab, Token};

use crate::{
    answer::AnswerContext,
    budget::Reservation,
    idempotency::{Claim, PartlyStored, RenderInputs},
};

/// A request whose events have been submitted to the storage.
#[derive(Debug)]
pub(crate) struct Pending<'a> {
    pub connection: Token,
    pub context: AnswerContext,
    pub level: Level,
    pub events: u64,
    /// Number of parts that are not complete.
    pub parts_left: usize,
    /// The first failure, or a later failure that left lines in a file.
    pub failure: Option<Failure>,
    /// Receipts of stored parts: those of an earlier request first, then the others in the order of completion.
    pub receipts: Vec<Receipt>,
    /// Number of receipts that come from an earlier request.
    pub earlier: usize,
    /// Numbers of the stored parts, if parts are tracked. If other parts fail, a repeat with the same idempotency key
    /// stores only the failed ones.
    pub stored: Vec<usize>,
    /// Inputs that a repeat needs to render the same lines.
    pub inputs: Option<Box<RenderInputs>>,
    pub reservation: Reservation<'a>,
    pub claim: Option<Claim<'a>>,
    /// When the last byte of the request arrived.
    pub ended_ns: u64,
    /// Whether the client has been told that its events are accepted.
    pub is_acknowledged: bool,
}

/// What a token refers to.
#[derive(Debug)]
enum Waiting<'a> {
    Request(Pending<'a>),
    /// A tracked part of a request.
    Part {
        request: Token,
        number: usize,
    },
    /// A request whose body the body reader is reading.
    Reading {
        context: AnswerContext,
        cancelled: Arc<AtomicBool>,
    },
}

/// Waiting requests and their tracked parts, by token.
#[derive(Debug, Default)]
pub(crate) struct PendingTable<'a> {
    slots: Slab<Waiting<'a>>,
}

impl<'a> Pending<'a> {
    /// Bytes of lines that this request has stored, excluding those of an earlier request.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.receipts[self.earlier..].iter().map(|receipt| receipt.bytes).sum()
    }

    /// Takes the stored parts, which a repeat need not store again. `None` if a repeat must store everything.
    pub(crate) fn partly_stored(&mut self) -> Option<(Claim<'a>, PartlyStored)> {
        let claim = self.claim.take().filter(|_| !self.stored.is_empty())?;
        let stored = self.stored.drain(..).zip(self.receipts.iter().cloned()).collect();
        Some((claim, PartlyStored { level: self.level, inputs: self.inputs.take()?, stored }))
    }

    /// Records the result of a part. Returns whether it was the last one.
    fn record_completion(&mut self, number: Option<usize>, result: Result<Receipt, Failure>) -> bool {
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
    pub(crate) fn insert(&mut self, pending: Pending<'a>) -> Token {
        self.slots.insert(|_| Waiting::Request(pending)).0
    }

    /// The token of a part: a new one if parts are tracked, otherwise the request's token.
    pub(crate) fn part(&mut self, request: Token, number: usize, track: bool) -> Token {
        if track { self.slots.insert(|_| Waiting::Part { request, number }).0 } else { request }
    }

    /// The submitted request with this token, if it still exists.
    #[inline]
    pub(crate) fn find(&mut self, token: Token) -> Option<&mut Pending<'a>> {
        match self.slots.find(token)? {
            Waiting::Request(pending) => Some(pending),
            Waiting::Part { .. } | Waiting::Reading { .. } => None,
        }
    }

    /// Adds a request whose body the body reader must read. Returns its token and the flag that cancels it.
    pub(crate) fn insert_reading(&mut self, context: AnswerContext) -> (Token, Arc<AtomicBool>) {
        let cancelled = Arc::new(AtomicBool::new(false));
        let token = self.slots.insert(|_| Waiting::Reading { context, cancelled: Arc::clone(&cancelled) }).0;
        (token, cancelled)
    }

    /// Cancels a request if its body is still being read. Returns whether it was.
    pub(crate) fn cancel_reading(&mut self, token: Token) -> bool {
        let Some(Waiting::Reading { cancelled, .. }) = self.slots.find(token) else { return false };
        cancelled.store(true, Ordering::Relaxed);
        true
    }

    /// Removes a request after its body was read. Returns the context of its answer, unless it was cancelled.
    pub(crate) fn finish_reading(&mut self, token: Token) -> Option<AnswerContext> {
        match self.slots.remove(token)? {
            Waiting::Reading { context, cancelled } => {
                (!cancelled.load(Ordering::Relaxed)).then_some(context)
            }
            Waiting::Request(_) | Waiting::Part { .. } => None,
        }
    }

    /// The answer context of the request with this token, if it still exists.
    pub(crate) fn context(&mut self, token: Token) -> Option<&mut AnswerContext> {
        match self.slots.find(token)? {
            Waiting::Request(pending) => Some(&mut pending.context),
            Waiting::Reading { context, .. } => Some(context),
            Waiting::Part { .. } => None,
        }
    }

    /// Records the result of a part. Returns the request if all its parts are now complete.
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

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}
