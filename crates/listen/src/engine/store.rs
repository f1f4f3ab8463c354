//! Events to the storage, and what comes of them.

use std::sync::Arc;

use segments::{Batch, Done, Level, Part};
use sockets::{Fate, Token};

use super::{Engine, Step};
use crate::{
    answer::{Manner, Reply, write_receipts},
    connection::{Connection, Phase},
    flight::Flight,
    idempotency::{Answered, Claim, Found},
    pending::Pending,
    refusal::Refusal,
};

/// Lines are handed over within a round once there are so many bytes.
const BATCH_BYTES: usize = 1 << 20;

impl<'a> Engine<'a> {
    /// Makes lines of a request that was read whole.
    #[inline]
    pub(super) fn store(&mut self, connection: &mut Connection<'a>, flight: &mut Flight<'a>) -> Step {
        match self.take(connection, flight) {
            Ok(step) => step,
            Err(refusal) => self.answer(connection, &Reply::Refused(refusal), &flight.manner),
        }
    }

    fn take(&mut self, connection: &mut Connection<'a>, flight: &mut Flight<'a>) -> Result<Step, Refusal> {
        flight.finish()?;
        let claim = match &flight.idempotency_key {
            None => None,
            Some(key) => {
                let found = self.shared.idempotency.look_up(&flight.tag, key, &flight.body, self.now_ns);
                match found {
                    Found::New(claim) => Some(claim),
                    Found::Again(answered) => return Ok(self.replay(connection, flight, &answered)),
                    Found::InFlight => return Err(Refusal::InFlight),
                    Found::OtherBody => return Err(Refusal::OtherBody),
                }
            }
        };
        let start = self.batch.data.len();
        // What the body had is the lines' now.
        let mut share = std::mem::replace(&mut flight.share, self.shared.budget.share());
        let earlier = claim.as_ref().and_then(Claim::earlier);
        let (store, data) = (&self.shared.store, &mut self.batch.data);
        let count = self.renderer.render(store, flight, earlier.map(|part| part.time), &mut share, data)?;
        self.counters.events_skipped.add(count.skipped as u64);
        // What is stored already is not stored again, and all is no safer than that.
        let level = earlier.map_or(flight.level, |part| part.level.min(flight.level));
        let stored: Vec<_> = earlier.map_or_else(Vec::new, |part| part.stored.clone());
        self.renderer.runs.retain(|run| stored.iter().all(|(key, _)| *key != run.key));
        let (stored, receipts): (Vec<_>, Vec<_>) = stored.into_iter().unzip();
        if self.renderer.runs.is_empty() {
            // Nothing to store, such as an empty array.
            self.batch.data.truncate(start);
            self.receipts.clear();
            write_receipts(&mut self.receipts, level, &receipts);
            if let Some(claim) = claim {
                claim.answer(level, &self.receipts, self.now_ns);
            }
            return Ok(self.succeed(connection, level, false, &flight.manner));
        }
        let bytes = (self.batch.data.len() - start) as u64;
        let held_bytes = claim.as_ref().map_or(0, Claim::held_bytes);
        let needed_bytes = bytes + self.renderer.overhead_bytes() + held_bytes;
        if !share.settle_at(needed_bytes) {
            self.batch.data.truncate(start);
            return Err(Refusal::for_want_of(needed_bytes, share.limit()));
        }
        let token = self.enter(Pending {
            connection: connection.token,
            manner: std::mem::take(&mut flight.manner),
            level,
            events: count.records as u64,
            parts_left: self.renderer.runs.len(),
            failure: None,
            earlier: receipts.len(),
            receipts,
            segments: Vec::new(),
            stored,
            time: self.renderer.time,
            share,
            claim,
            ended_ns: self.now_ns,
        });
        connection.pending = token;
        connection.phase = Phase::Storing;
        Ok(Step::Wait)
    }

    /// Puts a request whose lines were rendered last among those of this round.
    fn enter(&mut self, mut pending: Pending<'a>) -> Token {
        let (level, runs) = (pending.level, &mut self.renderer.runs);
        if pending.claim.is_some() {
            pending.segments = runs.iter().map(|run| Arc::clone(&run.key)).collect();
        }
        let which_matters = pending.segments.len() > 1;
        let request = self.pending.insert(pending);
        for (number, run) in runs.drain(..).enumerate() {
            let token = self.pending.part(request, number, which_matters).number();
            self.batch.parts.push(Part { token, key: run.key, range: run.range, level });
        }
        if level == Level::Accepted {
            self.accepted.push(request);
        }
        request
    }

    /// Whether lines should be handed over before the round is over.
    #[inline]
    pub fn is_batch_full(&self) -> bool {
        self.batch.data.len() >= BATCH_BYTES
    }

    /// Whether there are lines that were not handed over yet.
    #[inline]
    pub fn has_lines(&self) -> bool {
        !self.batch.parts.is_empty()
    }

    /// Hands the lines of this round to the storage; takes over the requests that can be answered now.
    #[inline]
    pub fn hand_over(&mut self, accepted: &mut Vec<Token>) {
        if self.batch.parts.is_empty() {
            return;
        }
        self.shared.debt.grows(self.now_ns);
        let data = self.port.spare();
        let parts = Vec::with_capacity(self.batch.parts.len());
        self.port.submit(std::mem::replace(&mut self.batch, Batch { data, parts }));
        accepted.append(&mut self.accepted);
    }

    /// Who sent a request that was handed over.
    #[inline]
    pub fn sender(&mut self, token: Token) -> Option<Token> {
        self.pending.find(token).map(|pending| pending.connection)
    }

    /// Answers a request of level `accepted` that was handed over.
    #[inline]
    pub fn accept(&mut self, connection: &mut Connection<'a>, token: Token) -> Fate {
        let Some(pending) = self.pending.find(token) else { return Fate::Keep };
        let (manner, claim) = (std::mem::take(&mut pending.manner), pending.claim.take());
        let (events, ended_ns) = (pending.events, pending.ended_ns);
        let manner = self.last_manner(manner, connection);
        self.receipts.clear();
        write_receipts(&mut self.receipts, Level::Accepted, &[]);
        if let Some(claim) = claim {
            claim.answer(Level::Accepted, &self.receipts, self.now_ns);
        }
        let step = self.succeed(connection, Level::Accepted, false, &manner);
        self.counters.acknowledged(Level::Accepted, events);
        self.counters.took(self.now_ns.saturating_sub(ended_ns));
        self.go_on(connection, step)
    }

    /// What the storage says about parts.
    #[inline]
    pub fn hear(&mut self, done: &mut Vec<Done>) {
        self.port.drain(done);
        if !done.is_empty() {
            self.shared.debt.shrinks(self.now_ns, self.shared.store.queued_bytes() == 0);
        }
    }

    /// Notes what became of a part; the request, if that was its last.
    #[inline]
    pub fn note(&mut self, done: Done) -> Option<(Token, Pending<'a>)> {
        self.pending.note(done)
    }

    /// A request has come to its end in the storage: answers it, if its client still waits.
    #[inline]
    pub fn conclude(
        &mut self,
        mut pending: Pending<'a>,
        connection: Option<&mut Connection<'a>>,
    ) -> Option<Fate> {
        // The lines are nowhere in memory any more.
        pending.share.settle_at(0);
        self.counters.stored_bytes.add(pending.stored_bytes());
        if let Some(failure) = pending.failure {
            let refusal = Refusal::of_request(failure, pending.level, !pending.receipts.is_empty());
            if let Some((claim, in_part)) = pending.in_part() {
                claim.leave(in_part, self.now_ns);
            }
            return self.fail(pending, refusal, connection);
        }
        if pending.level == Level::Accepted && pending.claim.is_none() {
            return None;
        }
        self.receipts.clear();
        write_receipts(&mut self.receipts, pending.level, &pending.receipts);
        // Also of a client that went away before it was told: it comes again, and is told then.
        if let Some(claim) = pending.claim {
            claim.answer(pending.level, &self.receipts, self.now_ns);
        }
        if pending.level == Level::Accepted {
            return None;
        }
        let connection = connection?;
        let manner = self.last_manner(pending.manner, connection);
        let step = self.succeed(connection, pending.level, false, &manner);
        self.counters.acknowledged(pending.level, pending.events);
        self.counters.took(self.now_ns.saturating_sub(pending.ended_ns));
        Some(self.go_on(connection, step))
    }

    #[cold]
    fn fail(
        &mut self,
        pending: Pending<'a>,
        refusal: Refusal,
        connection: Option<&mut Connection<'a>>,
    ) -> Option<Fate> {
        if pending.level == Level::Accepted {
            self.counters.accepted_events_lost.add(pending.events);
            return None;
        }
        let connection = connection?;
        let manner = self.last_manner(pending.manner, connection);
        let step = self.answer(connection, &Reply::Refused(refusal), &manner);
        Some(self.go_on(connection, step))
    }

    /// Answers as the first request under the same key was answered, whatever level is asked for now.
    fn replay(&mut self, connection: &mut Connection<'a>, flight: &Flight<'a>, first: &Answered) -> Step {
        self.counters.replayed.add(1);
        self.receipts.clear();
        self.receipts.extend_from_slice(&first.receipts);
        self.succeed(connection, first.level, true, &flight.manner)
    }

    /// Answers with the receipts just written.
    #[inline]
    fn succeed(
        &mut self,
        connection: &mut Connection<'a>,
        level: Level,
        replayed: bool,
        manner: &Manner,
    ) -> Step {
        let receipts = std::mem::take(&mut self.receipts);
        let step = self.answer(connection, &Reply::Stored { level, receipts: &receipts, replayed }, manner);
        self.receipts = receipts;
        step
    }

    /// The manner of an answer that comes later than its request ended: meanwhile it may have become the last one of
    /// its connection, unless a next request has come.
    #[inline]
    fn last_manner(&self, mut manner: Manner, connection: &mut Connection<'a>) -> Manner {
        manner.close |= self.is_stopping() && !connection.more_has_come();
        manner
    }

    /// What becomes of a connection that was answered outside of its own turn.
    #[inline]
    fn go_on(&mut self, connection: &mut Connection<'a>, step: Step) -> Fate {
        match step {
            Step::Gone => Fate::Gone,
            Step::On | Step::Later | Step::Wait => self.proceed(connection),
        }
    }
}
