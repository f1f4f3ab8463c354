//! Events to the storage, and what comes of them.

use segments::{Batch, Done, Level, Part};
use sockets::Token;

use super::{Engine, Fate, Step};
use crate::{
    answer::{Manner, Reply, write_receipts},
    connection::{Connection, Phase},
    flight::Flight,
    idempotency::Found,
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
                    Found::Again(receipts) => return Ok(self.replay(connection, flight, &receipts)),
                    Found::InFlight => return Err(Refusal::InFlight),
                    Found::OtherBody => return Err(Refusal::OtherBody),
                }
            }
        };
        let start = self.batch.data.len();
        let count = self.renderer.render(&self.shared.store, flight, &mut self.batch.data)?;
        self.counters.events_skipped.add(count.skipped as u64);
        let bytes = self.batch.data.len() - start;
        if bytes == 0 {
            // Nothing to store, such as an empty array.
            self.receipts.clear();
            write_receipts(&mut self.receipts, flight.level, &[]);
            if let Some(claim) = claim {
                claim.answer(&self.receipts);
            }
            return Ok(self.succeed(connection, flight.level, false, &flight.manner));
        }
        // Lines can be longer than the body that they came from.
        if !flight.share.settle_at(bytes as u64) {
            self.batch.data.truncate(start);
            return Err(Refusal::Budget);
        }
        let level = flight.level;
        let (token, _) = self.pending.insert(|_| Pending {
            connection: connection.token,
            manner: std::mem::take(&mut flight.manner),
            level,
            events: count.records as u64,
            parts_left: self.renderer.runs.len(),
            failure: None,
            receipts: Vec::with_capacity(self.renderer.runs.len()),
            share: std::mem::replace(&mut flight.share, self.shared.budget.share()),
            claim,
            ended_ns: self.now_ns,
        });
        let parts = self.renderer.runs.drain(..);
        self.batch.parts.extend(parts.map(|run| Part {
            token: token.number(),
            key: run.key,
            range: run.range,
            level,
        }));
        if level == Level::Accepted {
            self.accepted.push(token);
        }
        connection.pending = token;
        connection.phase = Phase::Storing;
        Ok(Step::Wait)
    }

    /// Whether lines should be handed over before the round is over.
    #[inline]
    pub fn is_batch_full(&self) -> bool {
        self.batch.data.len() >= BATCH_BYTES
    }

    /// Hands the lines of this round to the storage; takes over the requests that can be answered now.
    #[inline]
    pub fn hand_over(&mut self, accepted: &mut Vec<Token>) {
        if self.batch.parts.is_empty() {
            return;
        }
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
        self.receipts.clear();
        write_receipts(&mut self.receipts, Level::Accepted, &[]);
        if let Some(claim) = claim {
            claim.answer(&self.receipts);
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
    }

    /// Notes what became of a part; the request, if that was its last.
    #[inline]
    pub fn note(&mut self, done: Done) -> Option<(Token, Pending<'a>)> {
        let token = Token::from_number(done.token);
        let last = self.pending.find(token)?.note(done);
        if last { self.pending.remove(token).map(|pending| (token, pending)) } else { None }
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
            return self.fail(&pending, Refusal::of_failure(failure), connection);
        }
        if pending.level == Level::Accepted {
            return None;
        }
        self.receipts.clear();
        write_receipts(&mut self.receipts, pending.level, &pending.receipts);
        if let Some(claim) = pending.claim {
            claim.answer(&self.receipts);
        }
        let connection = connection?;
        let step = self.succeed(connection, pending.level, false, &pending.manner);
        self.counters.acknowledged(pending.level, pending.events);
        self.counters.took(self.now_ns.saturating_sub(pending.ended_ns));
        Some(self.go_on(connection, step))
    }

    #[cold]
    fn fail(
        &mut self,
        pending: &Pending<'a>,
        refusal: Refusal,
        connection: Option<&mut Connection<'a>>,
    ) -> Option<Fate> {
        if pending.level == Level::Accepted {
            self.counters.accepted_events_lost.add(pending.events);
            return None;
        }
        let connection = connection?;
        let step = self.answer(connection, &Reply::Refused(refusal), &pending.manner);
        Some(self.go_on(connection, step))
    }

    fn replay(&mut self, connection: &mut Connection<'a>, flight: &Flight<'a>, receipts: &[u8]) -> Step {
        self.counters.replayed.add(1);
        self.receipts.clear();
        self.receipts.extend_from_slice(receipts);
        self.succeed(connection, flight.level, true, &flight.manner)
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

    /// What becomes of a connection that was answered outside of its own turn.
    #[inline]
    fn go_on(&mut self, connection: &mut Connection<'a>, step: Step) -> Fate {
        match step {
            Step::Gone => Fate::Gone,
            Step::On | Step::Later | Step::Wait => self.proceed(connection),
        }
    }
}
