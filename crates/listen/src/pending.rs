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

/// A request whose events were submitted to the storage.
#[derive(Debug)]
pub(crate) struct Pending<'a> {
    /// The connection of the request.
    pub connection: Token,
    pub context: AnswerContext,
    pub level: Level,
    pub events: u64,
    /// Parts not completed yet.
    pub parts_left: usize,
    /// The first failure, or a later one that has left lines in a file.
    pub failure: Option<Failure>,
    /// The receipts of its parts: first those of an earlier request, then the others in the order of completion.
    pub receipts: Vec<Receipt>,
    /// Number of receipts that belong to an earlier request.
    pub earlier: usize,
    /// Numbers of the stored parts, if parts are tracked: if other parts fail, a repeat with the same idempotency key
    /// stores only those.
    pub stored: Vec<usize>,
    /// The inputs that a repeat needs to render the same lines.
    pub inputs: Option<Box<RenderInputs>>,
    pub reservation: Reservation<'a>,
    pub claim: Option<Claim<'a>>,
    /// When the last byte of the request arrived.
    pub ended_ns: u64,
    /// The client was answered that the events are accepted.
    pub is_acknowledged: bool,
}

/// The entry that a token stands for.
#[derive(Debug)]
enum Waiting<'a> {
    Request(Pending<'a>),
    /// One part of a request whose parts are tracked.
    Part {
        request: Token,
        number: usize,
    },
    /// A request whose body is being read by the body reader.
    Reading {
        context: AnswerContext,
        cancelled: Arc<AtomicBool>,
    },
}

/// Requests that wait, and their tracked parts, by token.
#[derive(Debug, Default)]
pub(crate) struct PendingTable<'a> {
    slots: Slab<Waiting<'a>>,
}

impl<'a> Pending<'a> {
    /// Bytes of lines that this request has stored, without those of an earlier request.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.receipts[self.earlier..].iter().map(|receipt| receipt.bytes).sum()
    }

    /// Takes the parts that a repeat need not store again; None if a repeat must store everything.
    pub(crate) fn partly_stored(&mut self) -> Option<(Claim<'a>, PartlyStored)> {
        let claim = self.claim.take().filter(|_| !self.stored.is_empty())?;
        let stored = self.stored.drain(..).zip(self.receipts.iter().cloned()).collect();
        Some((claim, PartlyStored { level: self.level, inputs: self.inputs.take()?, stored }))
    }

    /// Records the result of a part; returns whether it was the last one.
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
    /// Inserts a request.
    pub(crate) fn insert(&mut self, pending: Pending<'a>) -> Token {
        self.slots.insert(|_| Waiting::Request(pending)).0
    }

    /// The token of one part of a request: its own if parts are tracked, otherwise the request's.
    pub(crate) fn part(&mut self, request: Token, number: usize, track: bool) -> Token {
        if track { self.slots.insert(|_| Waiting::Part { request, number }).0 } else { request }
    }

    /// The submitted request with this token, unless it is gone.
    #[inline]
    pub(crate) fn find(&mut self, token: Token) -> Option<&mut Pending<'a>> {
        match self.slots.find(token)? {
            Waiting::Request(pending) => Some(pending),
            Waiting::Part { .. } | Waiting::Reading { .. } => None,
        }
    }

    /// Inserts a request whose body is to be read by the body reader. Returns its token and the flag that cancels it.
    pub(crate) fn insert_reading(&mut self, context: AnswerContext) -> (Token, Arc<AtomicBool>) {
        let cancelled = Arc::new(AtomicBool::new(false));
        let token = self.slots.insert(|_| Waiting::Reading { context, cancelled: Arc::clone(&cancelled) }).0;
        (token, cancelled)
    }

    /// Cancels a request if its body is still being read; returns whether it was.
    pub(crate) fn cancel_reading(&mut self, token: Token) -> bool {
        let Some(Waiting::Reading { cancelled, .. }) = self.slots.find(token) else { return false };
        cancelled.store(true, Ordering::Relaxed);
        true
    }

    /// Removes a request whose body was read; returns the context of its answer, unless it was cancelled.
    pub(crate) fn finish_reading(&mut self, token: Token) -> Option<AnswerContext> {
        match self.slots.remove(token)? {
            Waiting::Reading { context, cancelled } => {
                (!cancelled.load(Ordering::Relaxed)).then_some(context)
            }
            Waiting::Request(_) | Waiting::Part { .. } => None,
        }
    }

    /// The answer context of the request with this token, unless it is gone.
    pub(crate) fn context(&mut self, token: Token) -> Option<&mut AnswerContext> {
        match self.slots.find(token)? {
            Waiting::Request(pending) => Some(&mut pending.context),
            Waiting::Reading { context, .. } => Some(context),
            Waiting::Part { .. } => None,
        }
    }

    /// Records the result of a part; returns the request if this was its last part.
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

    /// Whether no request waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}
