//! Submits events to the storage and handles the results.

use std::collections::VecDeque;

use segments::{Batch, Done, Level, Part};
use sockets::{NextStep, Token};

use super::{
    Engine, Step,
    body_reader::{Job, Piece, ReadBody, is_large},
    prepare::{Prepared, prepare},
    render::Run,
};
use crate::{
    answer::{AnswerContext, Reply, write_receipts},
    connection::{Connection, Phase},
    idempotency::EarlierAnswer,
    incoming::IncomingRequest,
    pending::{Pending, PendingTable},
    refusal::Refusal,
};

/// Lines of this total size in bytes are submitted before the round ends.
const BATCH_BYTES: usize = 1 << 20;
/// Maximum bytes of pieces that are submitted but not written; a single piece may be larger. Limited, because lines of
/// other requests queue behind them. Pieces that are written but not synced do not count, because they delay no other
/// answer.
const MAX_QUEUED_PIECE_BYTES: usize = 2 << 20;
/// A piece with more files than this is submitted only after all earlier pieces are written, because each file needs a
/// separate write.
const MAX_PIECE_FILES: usize = 8;

impl<'a> Engine<'a> {
    /// Renders a complete request and adds its lines to the batch.
    #[inline]
    pub(super) fn store(
        &mut self,
        connection: &mut Connection<'a>,
        incoming: &mut IncomingRequest<'a>,
    ) -> Step {
        match self.store_lines(connection, incoming) {
            Ok(step) => step,
            Err(refusal) => self.answer(connection, &Reply::Refused(refusal), &incoming.context),
        }
    }

    fn store_lines(
        &mut self,
        connection: &mut Connection<'a>,
        incoming: &mut IncomingRequest<'a>,
    ) -> Result<Step, Refusal> {
        let (renderer, data) = (&mut self.renderer, &mut self.batch.data);
        let prepared = prepare(self.shared, renderer, incoming, connection.token, self.now_ns, data)?;
        let mut pending = match prepared {
            Prepared::Replay(answered) => return Ok(self.replay(connection, &answered, &incoming.context)),
            Prepared::Lines(pending) => pending,
        };
        if self.renderer.runs.is_empty() {
            return Ok(self.answer_without_lines(connection, pending));
        }
        self.events_read += pending.events as usize;
        pending.parts_left = self.renderer.runs.len();
        let level = pending.level;
        let track_parts = pending.claim.is_some() && pending.parts_left > 1;
        let request = self.pending.insert(pending);
        let (runs, table) = (self.renderer.runs.drain(..), &mut self.pending);
        self.batch.parts.extend(runs.map(|run| part(table, request, level, track_parts, run)));
        if level == Level::Accepted {
            self.accepted.push(request);
        }
        connection.pending = request;
        connection.phase = Phase::Storing;
        Ok(Step::Wait)
    }

    #[cold]
    fn answer_without_lines(&mut self, connection: &mut Connection<'a>, pending: Pending<'a>) -> Step {
        self.receipts.clear();
        write_receipts(&mut self.receipts, pending.level, &pending.receipts);
        if let Some(claim) = pending.claim {
            claim.finish_answered(pending.level, &self.receipts, self.now_ns);
        }
        self.succeed(connection, pending.level, false, &pending.context)
    }

    /// Passes a request with a large body to the body reader. If the body reader has ended, answers with an error.
    #[cold]
    pub(super) fn submit_to_body_reader(
        &mut self,
        connection: &mut Connection<'a>,
        mut incoming: Box<IncomingRequest<'a>>,
    ) -> Step {
        let (request, cancelled) = self.pending.insert_reading(std::mem::take(&mut incoming.context));
        (connection.pending, connection.phase) = (request, Phase::Storing);
        let (now, now_ns) = (self.renderer.now(), self.now_ns);
        let job = Job { request, connection: connection.token, incoming, now, now_ns, cancelled };
        let Some(job) = self.body_reader_queue.submit(job) else { return Step::Wait };
        let context = self.pending.finish_reading(request).unwrap_or_default();
        self.recycle(job.incoming);
        self.answer(connection, &Reply::Refused(Refusal::InternalError), &context)
    }

    /// Whether the body must go to the body reader.
    #[inline]
    pub(super) fn needs_body_reader(
        &self,
        connection: &Connection<'a>,
        incoming: &IncomingRequest<'a>,
    ) -> bool {
        // Pieces of the connection's previous request may still be queued, even if it has been answered. The body reader
        // keeps the order: the new request is stored after them.
        let mut before = self.pieces.iter();
        is_large(incoming, self.events_read) || before.any(|(request, ..)| *request == connection.pending)
    }

    /// Appends the bodies that the body reader has finished to `read`.
    pub(crate) fn take_read_bodies(&mut self, read: &mut Vec<ReadBody<'a>>) {
        self.body_reader_queue.drain(read);
    }

    /// Continues a request after its body was read. `connection` is `None` if the connection no longer waits.
    pub(crate) fn finish_read_body(
        &mut self,
        read: ReadBody<'a>,
        connection: Option<&mut Connection<'a>>,
    ) -> Option<NextStep> {
        let context = self.pending.finish_reading(read.request)?;
        let (connection, step) = match (read.result, connection) {
            (Ok(Prepared::Lines(pending)), connection) if !read.pieces.is_empty() => {
                let request = self.insert_with_pieces(Pending { context, ..pending }, read.pieces);
                if let Some(connection) = connection {
                    connection.pending = request;
                    // The storage timeout starts now, without the time of the body reader.
                    connection.since_ns = self.now_ns;
                    self.set_deadline(connection);
                }
                return None;
            }
            (Ok(Prepared::Lines(pending)), Some(connection)) => {
                let context = self.context_now(context, connection);
                let step = self.answer_without_lines(connection, Pending { context, ..pending });
                (connection, step)
            }
            (Ok(Prepared::Replay(answered)), Some(connection)) => {
                let context = self.context_now(context, connection);
                let step = self.replay(connection, &answered, &context);
                (connection, step)
            }
            (Err(refusal), Some(connection)) => {
                let context = self.context_now(context, connection);
                let step = self.answer(connection, &Reply::Refused(refusal), &context);
                (connection, step)
            }
            (_, None) => return None,
        };
        Some(self.continue_after(connection, step))
    }

    /// Adds a request to the table and its pieces to the queue.
    fn insert_with_pieces(&mut self, mut pending: Pending<'a>, pieces: VecDeque<Piece>) -> Token {
        pending.parts_left = pieces.iter().map(|piece| piece.runs.len()).sum();
        let level = pending.level;
        let request = self.pending.insert(pending);
        self.pieces.extend(pieces.into_iter().map(|piece| (request, level, piece)));
        // A request of level `accepted` is answered without waiting for the disk.
        if level == Level::Accepted {
            self.accepted.push(request);
        }
        request
    }

    /// Submits queued pieces while few enough bytes are waiting to be written.
    #[inline]
    fn hand_over_pieces(&mut self) {
        while let Some((.., piece)) = self.pieces.front() {
            let waiting_bytes = self.port.bulk_bytes();
            let is_much = piece.runs.len() > MAX_PIECE_FILES
                || waiting_bytes + piece.data.len() > MAX_QUEUED_PIECE_BYTES;
            if waiting_bytes > 0 && is_much {
                return;
            }
            self.hand_over_piece();
        }
    }

    fn hand_over_piece(&mut self) {
        let Some((request, level, piece)) = self.pieces.pop_front() else { return };
        self.shared.stall_detector.submitted(self.now_ns, piece.runs.len());
        let track_parts = self.pending.find(request).is_some_and(|pending| pending.claim.is_some());
        let (runs, table) = (piece.runs.into_iter(), &mut self.pending);
        let parts = runs.map(|run| part(table, request, level, track_parts, run)).collect();
        self.port.submit_in_bulk(Batch { data: piece.data, parts });
    }

    /// Submits all queued pieces before the thread ends. Their results are not read.
    pub(crate) fn hand_over_all_pieces(&mut self) {
        while !self.pieces.is_empty() {
            self.hand_over_piece();
        }
    }

    /// Whether the batch is so large that it should be submitted before the round ends.
    #[inline]
    pub(crate) fn is_batch_full(&self) -> bool {
        self.batch.data.len() >= BATCH_BYTES
    }

    /// Whether lines are waiting to be submitted.
    #[inline]
    pub(crate) fn has_lines(&self) -> bool {
        !self.batch.parts.is_empty()
    }

    /// Submits the lines of this round. Appends the requests that can now be answered to `accepted`.
    #[inline]
    pub(crate) fn hand_over(&mut self, accepted: &mut Vec<Token>) {
        if !self.batch.parts.is_empty() {
            self.shared.stall_detector.submitted(self.now_ns, self.batch.parts.len());
            let data = self.port.spare_buffer();
            let parts = Vec::with_capacity(self.batch.parts.len());
            self.port.submit(std::mem::replace(&mut self.batch, Batch { data, parts }));
        }
        self.hand_over_pieces();
        accepted.append(&mut self.accepted);
    }

    /// The connection that a submitted request came from.
    #[inline]
    pub(crate) fn connection_of(&mut self, token: Token) -> Option<Token> {
        self.pending.find(token).map(|pending| pending.connection)
    }

    /// Answers a submitted request of level `accepted`.
    #[inline]
    pub(crate) fn answer_accepted(&mut self, connection: &mut Connection<'a>, token: Token) -> NextStep {
        let Some(pending) = self.pending.find(token) else { return NextStep::Wait };
        if let Some(failure) = pending.failure {
            // An earlier piece failed. The request can still be refused, because it has not been acknowledged.
            pending.level = Level::Written;
            let refusal = Refusal::of_request(failure, Level::Written, !pending.receipts.is_empty());
            let context = std::mem::take(&mut pending.context);
            let context = self.context_now(context, connection);
            let step = self.answer(connection, &Reply::Refused(refusal), &context);
            return self.continue_after(connection, step);
        }
        let (context, claim) = (std::mem::take(&mut pending.context), pending.claim.take());
        let (events, ended_ns) = (pending.events, pending.ended_ns);
        pending.is_acknowledged = true;
        let context = self.context_now(context, connection);
        self.receipts.clear();
        write_receipts(&mut self.receipts, Level::Accepted, &[]);
        if let Some(claim) = claim {
            claim.finish_answered(Level::Accepted, &self.receipts, self.now_ns);
        }
        let step = self.succeed(connection, Level::Accepted, false, &context);
        self.counters.count_acknowledged(Level::Accepted, events);
        self.counters.record_answer_time(self.now_ns.saturating_sub(ended_ns));
        self.continue_after(connection, step)
    }

    /// Appends the parts that the storage has completed to `done`.
    #[inline]
    pub(crate) fn take_completed(&mut self, done: &mut Vec<Done>) {
        self.port.drain(done);
        if !done.is_empty() {
            self.shared.stall_detector.completed(self.now_ns, done.len());
        }
    }

    /// Records the result of a part. Returns the request if all its parts are now complete.
    #[inline]
    pub(crate) fn record_completion(&mut self, done: Done) -> Option<(Token, Pending<'a>)> {
        self.pending.record_completion(done)
    }

    /// Finishes a request after its last part. Answers it if the client is still waiting.
    #[inline]
    pub(crate) fn finish_request(
        &mut self,
        mut pending: Pending<'a>,
        connection: Option<&mut Connection<'a>>,
    ) -> Option<NextStep> {
        // The lines have left memory, so their budget is released.
        pending.reservation.resize(0);
        if pending.is_acknowledged {
            self.counters.accepted_events_settled.add(pending.events);
        }
        self.counters.stored_bytes.add(pending.stored_bytes());
        if let Some(failure) = pending.failure {
            let refusal = Refusal::of_request(failure, pending.level, !pending.receipts.is_empty());
            if let Some((claim, partly_stored)) = pending.partly_stored() {
                claim.finish_partly_stored(partly_stored, self.now_ns);
            }
            return self.fail(pending, refusal, connection);
        }
        if pending.level == Level::Accepted && pending.claim.is_none() {
            return None;
        }
        self.receipts.clear();
        write_receipts(&mut self.receipts, pending.level, &pending.receipts);
        // Recorded even if the client has disconnected, because a repeat of the request must get this answer.
        if let Some(claim) = pending.claim {
            claim.finish_answered(pending.level, &self.receipts, self.now_ns);
        }
        if pending.level == Level::Accepted {
            return None;
        }
        let connection = connection?;
        let context = self.context_now(pending.context, connection);
        let step = self.succeed(connection, pending.level, false, &context);
        self.counters.count_acknowledged(pending.level, pending.events);
        self.counters.record_answer_time(self.now_ns.saturating_sub(pending.ended_ns));
        Some(self.continue_after(connection, step))
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
        let context = self.context_now(pending.context, connection);
        let step = self.answer(connection, &Reply::Refused(refusal), &context);
        Some(self.continue_after(connection, step))
    }

    /// Repeats the answer to the first request with the same key, even if this request asks for another level.
    fn replay(
        &mut self,
        connection: &mut Connection<'a>,
        first: &EarlierAnswer,
        context: &AnswerContext,
    ) -> Step {
        self.counters.replayed.add(1);
        self.receipts.clear();
        if first.receipts.is_empty() {
            write_receipts(&mut self.receipts, first.level, &[]);
        }
        self.receipts.extend_from_slice(&first.receipts);
        self.succeed(connection, first.level, true, context)
    }

    /// Reports success with the receipts in `self.receipts`.
    #[inline]
    fn succeed(
        &mut self,
        connection: &mut Connection<'a>,
        level: Level,
        replayed: bool,
        context: &AnswerContext,
    ) -> Step {
        let receipts = std::mem::take(&mut self.receipts);
        let step = self.answer(connection, &Reply::Stored { level, receipts: &receipts, replayed }, context);
        self.receipts = receipts;
        step
    }

    /// The context of a delayed answer. If the listener is stopping by now, the answer closes the connection, unless
    /// another request has arrived.
    #[inline]
    fn context_now(&self, mut context: AnswerContext, connection: &mut Connection<'a>) -> AnswerContext {
        context.close |= self.is_stopping() && !connection.check_for_more();
        context
    }

    /// Continues a connection after an answer that was triggered by the storage or a timer.
    #[inline]
    fn continue_after(&mut self, connection: &mut Connection<'a>, step: Step) -> NextStep {
        match step {
            Step::Close => NextStep::Close,
            Step::Continue | Step::Yield | Step::Wait => self.proceed(connection),
        }
    }
}

/// Creates a part of a request from a run of lines.
#[inline]
fn part(
    table: &mut PendingTable<'_>,
    request: Token,
    level: Level,
    track_parts: bool,
    Run { key, range, number }: Run,
) -> Part {
    let token = table.part(request, number, track_parts).number();
    Part { token, key, range, level }
}
