//! Events to the storage, and what comes of them.

use std::collections::VecDeque;

use segments::{Batch, Done, Level, Part};
use sockets::{NextStep, Token};

use super::{
    Engine, Step,
    helper::{Job, Piece, Read, is_large},
    prepare::{Prepared, prepare},
    render::Run,
};
use crate::{
    answer::{Manner, Reply, write_receipts},
    connection::{Connection, Phase},
    flight::Flight,
    idempotency::Answered,
    pending::{Pending, PendingTable},
    refusal::Refusal,
};

/// Lines are handed over within a round once there are so many bytes.
const BATCH_BYTES: usize = 1 << 20;
/// Pieces of large requests that wait to be written, at the most, unless one alone is longer: lines of others are written
/// behind them. Those that wait for a sync hold up nobody.
const PIECES_BYTES: usize = 2 << 20;
/// A piece of more files goes behind no other: each file is a write of its own.
const FILES_MOST: usize = 8;

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
        let (renderer, data) = (&mut self.renderer, &mut self.batch.data);
        let prepared = prepare(self.shared, renderer, flight, connection.token, self.now_ns, data)?;
        let mut pending = match prepared {
            Prepared::Again(answered) => return Ok(self.replay(connection, &answered, &flight.manner)),
            Prepared::Lines(pending) => pending,
        };
        if self.renderer.runs.is_empty() {
            return Ok(self.nothing_to_store(connection, pending));
        }
        self.events_read += pending.events as usize;
        pending.parts_left = self.renderer.runs.len();
        let level = pending.level;
        let which_matters = pending.claim.is_some() && pending.parts_left > 1;
        let request = self.pending.insert(pending);
        let (runs, table) = (self.renderer.runs.drain(..), &mut self.pending);
        self.batch.parts.extend(runs.map(|run| part(table, request, level, which_matters, run)));
        if level == Level::Accepted {
            self.accepted.push(request);
        }
        connection.pending = request;
        connection.phase = Phase::Storing;
        Ok(Step::Wait)
    }

    #[cold]
    fn nothing_to_store(&mut self, connection: &mut Connection<'a>, pending: Pending<'a>) -> Step {
        self.receipts.clear();
        write_receipts(&mut self.receipts, pending.level, &pending.receipts);
        if let Some(claim) = pending.claim {
            claim.answer(pending.level, &self.receipts, self.now_ns);
        }
        self.succeed(connection, pending.level, false, &pending.manner)
    }

    /// Leaves a request with a large body to the helper.
    #[cold]
    pub(super) fn leave_to_helper(
        &mut self,
        connection: &mut Connection<'a>,
        mut flight: Box<Flight<'a>>,
    ) -> Step {
        let (request, given_up) = self.pending.reading(std::mem::take(&mut flight.manner));
        (connection.pending, connection.phase) = (request, Phase::Storing);
        let (now, now_ns) = (self.renderer.now(), self.now_ns);
        let job = Job { request, connection: connection.token, flight, now, now_ns, given_up };
        let Some(job) = self.desk.put(job) else { return Step::Wait };
        let manner = self.pending.was_read(request).unwrap_or_default();
        self.recycle(job.flight);
        self.answer(connection, &Reply::Refused(Refusal::Fault), &manner)
    }

    /// Whether the helper is to read a body.
    #[inline]
    pub(super) fn is_for_helper(&self, connection: &Connection<'a>, flight: &Flight<'a>) -> bool {
        // What was accepted on its connection may not be handed over yet, and is to be stored before it.
        let mut before = self.pieces.iter();
        is_large(flight, self.events_read) || before.any(|(request, ..)| *request == connection.pending)
    }

    /// What the helper has read.
    pub(crate) fn take_read(&mut self, read: &mut Vec<Read<'a>>) {
        self.desk.take(read);
    }

    /// The helper has read a body. `connection` is that of the request, if it still waits.
    pub(crate) fn was_read(
        &mut self,
        read: Read<'a>,
        connection: Option<&mut Connection<'a>>,
    ) -> Option<NextStep> {
        let manner = self.pending.was_read(read.request)?;
        let (connection, step) = match (read.result, connection) {
            (Ok(Prepared::Lines(pending)), connection) if !read.pieces.is_empty() => {
                let request = self.enter(Pending { manner, ..pending }, read.pieces);
                if let Some(connection) = connection {
                    connection.pending = request;
                    // The storage has its own time.
                    connection.since_ns = self.now_ns;
                    self.arm(connection);
                }
                return None;
            }
            (Ok(Prepared::Lines(pending)), Some(connection)) => {
                let manner = self.last_manner(manner, connection);
                let step = self.nothing_to_store(connection, Pending { manner, ..pending });
                (connection, step)
            }
            (Ok(Prepared::Again(answered)), Some(connection)) => {
                let manner = self.last_manner(manner, connection);
                let step = self.replay(connection, &answered, &manner);
                (connection, step)
            }
            (Err(refusal), Some(connection)) => {
                let manner = self.last_manner(manner, connection);
                let step = self.answer(connection, &Reply::Refused(refusal), &manner);
                (connection, step)
            }
            (_, None) => return None,
        };
        Some(self.go_on(connection, step))
    }

    /// Takes in a request whose lines go to the storage in pieces.
    fn enter(&mut self, mut pending: Pending<'a>, pieces: VecDeque<Piece>) -> Token {
        pending.parts_left = pieces.iter().map(|piece| piece.runs.len()).sum();
        let level = pending.level;
        let request = self.pending.insert(pending);
        self.pieces.extend(pieces.into_iter().map(|piece| (request, level, piece)));
        // It need not wait for the disk.
        if level == Level::Accepted {
            self.accepted.push(request);
        }
        request
    }

    /// Hands over as many pieces of large requests as may wait to be written.
    #[inline]
    fn hand_over_pieces(&mut self) {
        while let Some((.., piece)) = self.pieces.front() {
            let waiting_bytes = self.port.bulk_bytes();
            let is_much = piece.runs.len() > FILES_MOST || waiting_bytes + piece.data.len() > PIECES_BYTES;
            if waiting_bytes > 0 && is_much {
                return;
            }
            self.hand_over_piece();
        }
    }

    fn hand_over_piece(&mut self) {
        let Some((request, level, piece)) = self.pieces.pop_front() else { return };
        self.shared.debt.grows(self.now_ns, piece.runs.len());
        let which_matters = self.pending.find(request).is_some_and(|pending| pending.claim.is_some());
        let (runs, table) = (piece.runs.into_iter(), &mut self.pending);
        let parts = runs.map(|run| part(table, request, level, which_matters, run)).collect();
        self.port.submit_in_bulk(Batch { data: piece.data, parts });
    }

    /// Hands over all pieces that are left: nothing more will be heard of them.
    pub(crate) fn hand_over_rest(&mut self) {
        while !self.pieces.is_empty() {
            self.hand_over_piece();
        }
    }

    /// Whether lines should be handed over before the round is over.
    #[inline]
    pub(crate) fn is_batch_full(&self) -> bool {
        self.batch.data.len() >= BATCH_BYTES
    }

    /// Whether there are lines that were not handed over yet.
    #[inline]
    pub(crate) fn has_lines(&self) -> bool {
        !self.batch.parts.is_empty()
    }

    /// Hands the lines of this round to the storage; takes over the requests that can be answered now.
    #[inline]
    pub(crate) fn hand_over(&mut self, accepted: &mut Vec<Token>) {
        if !self.batch.parts.is_empty() {
            self.shared.debt.grows(self.now_ns, self.batch.parts.len());
            let data = self.port.spare_buffer();
            let parts = Vec::with_capacity(self.batch.parts.len());
            self.port.submit(std::mem::replace(&mut self.batch, Batch { data, parts }));
        }
        self.hand_over_pieces();
        accepted.append(&mut self.accepted);
    }

    /// Who sent a request that was handed over.
    #[inline]
    pub(crate) fn sender(&mut self, token: Token) -> Option<Token> {
        self.pending.find(token).map(|pending| pending.connection)
    }

    /// Answers a request of level `accepted` that was handed over.
    #[inline]
    pub(crate) fn accept(&mut self, connection: &mut Connection<'a>, token: Token) -> NextStep {
        let Some(pending) = self.pending.find(token) else { return NextStep::Wait };
        if let Some(failure) = pending.failure {
            // Of a piece that was handed over before the last. Nothing is promised, so that nothing is broken.
            pending.level = Level::Written;
            let refusal = Refusal::of_request(failure, Level::Written, !pending.receipts.is_empty());
            let manner = std::mem::take(&mut pending.manner);
            let manner = self.last_manner(manner, connection);
            let step = self.answer(connection, &Reply::Refused(refusal), &manner);
            return self.go_on(connection, step);
        }
        let (manner, claim) = (std::mem::take(&mut pending.manner), pending.claim.take());
        let (events, ended_ns) = (pending.events, pending.ended_ns);
        pending.is_acknowledged = true;
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
    pub(crate) fn hear(&mut self, done: &mut Vec<Done>) {
        self.port.drain(done);
        if !done.is_empty() {
            self.shared.debt.shrinks(self.now_ns, done.len());
        }
    }

    /// Notes what became of a part; the request, if that was its last.
    #[inline]
    pub(crate) fn note(&mut self, done: Done) -> Option<(Token, Pending<'a>)> {
        self.pending.note(done)
    }

    /// A request has come to its end in the storage: answers it, if its client still waits.
    #[inline]
    pub(crate) fn conclude(
        &mut self,
        mut pending: Pending<'a>,
        connection: Option<&mut Connection<'a>>,
    ) -> Option<NextStep> {
        // The lines are nowhere in memory any more.
        pending.share.settle_at(0);
        if pending.is_acknowledged {
            self.counters.accepted_events_settled.add(pending.events);
        }
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
    ) -> Option<NextStep> {
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
    fn replay(&mut self, connection: &mut Connection<'a>, first: &Answered, manner: &Manner) -> Step {
        self.counters.replayed.add(1);
        self.receipts.clear();
        if first.receipts.is_empty() {
            write_receipts(&mut self.receipts, first.level, &[]);
        }
        self.receipts.extend_from_slice(&first.receipts);
        self.succeed(connection, first.level, true, manner)
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
    fn go_on(&mut self, connection: &mut Connection<'a>, step: Step) -> NextStep {
        match step {
            Step::Gone => NextStep::Close,
            Step::On | Step::Later | Step::Wait => self.proceed(connection),
        }
    }
}

/// These lines as a part of a request.
#[inline]
fn part(
    table: &mut PendingTable<'_>,
    request: Token,
    level: Level,
    which_matters: bool,
    Run { key, range, number }: Run,
) -> Part {
    let token = table.part(request, number, which_matters).number();
    Part { token, key, range, level }
}
