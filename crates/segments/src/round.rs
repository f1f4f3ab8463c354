//! The batches that the writer is working on.

use std::{cell::Cell, sync::Arc, time::Duration};

use crate::{
    Done, Failure, Part, Receipt, answers::Answers, health::PANICKED, port::Submitted, segment::Lines,
    shared::Shared,
};

/// Index of a part: index of its batch, and index in the batch.
pub(crate) type Piece = (usize, usize);

/// The batches of one round, and which of their parts have been answered. If the writer panics, dropping the round
/// fails the unanswered parts.
#[derive(Debug)]
pub(crate) struct Round {
    shared: Arc<Shared>,
    batches: Vec<Submitted>,
    /// For each batch, the index of its first part in `answered`.
    first_parts: Vec<usize>,
    answered: Vec<Cell<bool>>,
}

impl Round {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, batches: Vec::new(), first_parts: Vec::new(), answered: Vec::new() }
    }

    /// Waits for batches. Returns whether more may arrive.
    pub(crate) fn take(&mut self, wait: Duration) -> bool {
        let more = self.shared.queue.take(&mut self.batches, wait);
        self.first_parts.clear();
        self.answered.clear();
        for submitted in &self.batches {
            let begin = self.answered.len();
            self.first_parts.push(begin);
            self.answered.resize(begin + submitted.batch.parts.len(), Cell::new(false));
        }
        more
    }

    pub(crate) fn pieces(&self) -> impl Iterator<Item = Piece> {
        let parts = |(number, submitted): (usize, &Submitted)| {
            (0..submitted.batch.parts.len()).map(move |part| (number, part))
        };
        self.batches.iter().enumerate().flat_map(parts)
    }

    /// The port of a part, and the part.
    pub(crate) fn part(&self, (batch, part): Piece) -> (usize, &Part) {
        let Submitted { port, batch, .. } = &self.batches[batch];
        (*port, &batch.parts[part])
    }

    /// Whether a part consists of whole lines of its batch.
    pub(crate) fn is_whole(&self, piece: Piece) -> bool {
        let Lines { data, range } = self.lines(piece);
        data.get(range).is_some_and(|lines| lines.ends_with(b"\n"))
    }

    pub(crate) fn lines(&self, piece: Piece) -> Lines<'_> {
        Lines { data: &self.batches[piece.0].batch.data, range: self.part(piece).1.range.clone() }
    }

    pub(crate) fn answer(&self, piece: Piece, result: Result<Receipt, Failure>, answers: &mut Answers) {
        let (port, part) = self.part(piece);
        answers.push(port, Done { token: part.token, result });
        self.mark_answered(piece);
    }

    /// Marks a part as answered, or as passed to the syncer, which answers it.
    pub(crate) fn mark_answered(&self, (batch, part): Piece) {
        self.answered[self.first_parts[batch] + part].set(true);
    }

    /// Returns the buffers to their ports.
    pub(crate) fn finish(&mut self) {
        for submitted in self.batches.drain(..) {
            self.shared.finish_batch(&submitted);
            self.shared.reply_queues[submitted.port].recycle(submitted.batch.data);
        }
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        let answered = |(batch, part): Piece| {
            let begin = self.first_parts.get(batch);
            begin.and_then(|begin| self.answered.get(begin + part)).is_some_and(Cell::get)
        };
        for (number, submitted) in self.batches.iter().enumerate() {
            let Submitted { port, batch, .. } = submitted;
            let left = (0..batch.parts.len()).filter(|&part| !answered((number, part)));
            let failed = |part: usize| Done {
                token: batch.parts[part].token,
                result: Err(Failure::Io(PANICKED.raw_os_error())),
            };
            let mut done: Vec<_> = left.map(failed).collect();
            self.shared.counters.failed_parts.add(done.len() as u64);
            self.shared.finish_batch(submitted);
            if let Some(replies) = self.shared.reply_queues.get(*port) {
                replies.post(&mut done);
            }
        }
    }
}
