//! The thread that writes lines.

use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use memchr::memchr;
use rustix::io::Errno;

use crate::{
    Done, Failure, Level, Receipt,
    answers::{Answers, PendingAnswer},
    journal::Entry,
    requests::Request,
    round::{Piece, Round},
    segment::{Appended, Lines, MAX_WRITE_BYTES, errno},
    shared::Shared,
    slots::State,
    syncer::CHECKPOINT_BYTES,
    table::{CloseReason, Table},
};

/// Maximum number of files opened before other segments are served, because opening a file may wait for the last sync
/// of another file.
const MAX_OPENED_AT_ONCE: usize = 16;
/// Maximum number of parts in one write. The kernel accepts 1,024 buffers, and one of them may be the newline after a
/// torn line.
const MAX_WRITE_PARTS: usize = 1000;

#[derive(Debug)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
    table: Table,
    answers: Answers,
    offsets: Vec<u64>,
    unanswered_bytes: usize,
    /// Slots with slow parts that are not written yet.
    busy_slots: HashSet<usize>,
    /// Parts that arrived during slow work and wait for the next run, with their rounds.
    deferred: Vec<(Round, Vec<Piece>)>,
    held_slots: HashSet<usize>,
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>, table: Table) -> Self {
        let answers = Answers::new(&shared.reply_queues);
        Self {
            shared,
            table,
            answers,
            offsets: Vec::new(),
            unanswered_bytes: 0,
            busy_slots: HashSet::new(),
            deferred: Vec::new(),
            held_slots: HashSet::new(),
        }
    }

    /// Runs until the queue is closed and empty. All parts are then written, and all segments are passed to the syncer.
    pub(crate) fn run(mut self) {
        let config = &self.shared.config;
        let sweep_every =
            (config.idle.min(config.grace) / 4).clamp(Duration::from_millis(5), Duration::from_secs(1));
        let mut sweep = Instant::now() + sweep_every;
        let mut round = Round::new(self.shared.clone());
        while self.run_once(&mut round, sweep_every) {
            if Instant::now() >= sweep {
                self.table.sweep();
                sweep = Instant::now() + sweep_every;
            }
        }
        self.table.finish();
    }

    /// Waits for batches and writes them. Returns whether more may arrive.
    fn run_once(&mut self, round: &mut Round, wait: Duration) -> bool {
        for (mut round, pieces) in std::mem::take(&mut self.deferred) {
            self.write_all(&round, pieces.into_iter());
            round.finish();
        }
        self.held_slots.clear();
        for (round, pieces) in &self.deferred {
            self.held_slots
                .extend(pieces.iter().map(|&piece| self.table.slots.number(&round.part(piece).1.key)));
        }
        let more = round.take(if self.deferred.is_empty() { wait } else { Duration::ZERO });
        if self.shared.reopen.swap(false, Ordering::Relaxed) {
            self.table.park_all();
        }
        if self.held_slots.is_empty() {
            self.write_all(round, round.pieces());
            round.finish();
        } else {
            self.write_unheld(std::mem::replace(round, Round::new(self.shared.clone())));
        }
        more || !self.deferred.is_empty()
    }

    /// Writes the parts of a round that need not wait for deferred ones, and defers the others.
    fn write_unheld(&mut self, round: Round) {
        let (deferred, pieces) = self.split_held(&round);
        let index = self.deferred.len();
        self.write_all(&round, pieces.into_iter());
        // Inserts them before the parts that were deferred meanwhile, because the parts of a segment keep their order.
        self.defer(round, deferred, index);
    }

    /// Writes the quick parts that have arrived for other segments. Called during slow work.
    fn serve_others(&mut self, wait: Duration) {
        let mut round = Round::new(self.shared.clone());
        round.take(wait);
        let (mut deferred, pieces) = self.split_held(&round);
        let (quick, slow) = self.assign_parts(&round, pieces.into_iter());
        self.write_slots(&quick, &round);
        self.post();
        for number in slow {
            deferred.append(&mut self.table.slots.slot(number).pieces);
        }
        self.defer(round, deferred, self.deferred.len());
    }

    /// Splits the parts of a round into those that must wait for earlier parts of their segments, and the rest.
    fn split_held(&mut self, round: &Round) -> (Vec<Piece>, Vec<Piece>) {
        round.pieces().partition(|&piece| {
            let number = self.table.slots.number(&round.part(piece).1.key);
            self.busy_slots.contains(&number) || self.held_slots.contains(&number)
        })
    }

    /// Defers parts to the next run: inserts them into the deferred parts at `index`.
    fn defer(&mut self, mut round: Round, pieces: Vec<Piece>, index: usize) {
        if pieces.is_empty() {
            return round.finish();
        }
        self.held_slots.extend(pieces.iter().map(|&piece| self.table.slots.number(&round.part(piece).1.key)));
        self.deferred.insert(index, (round, pieces));
    }

    /// Writes parts, the slow ones last. Serves other segments between the slow ones.
    fn write_all(&mut self, round: &Round, pieces: impl Iterator<Item = Piece>) {
        let (quick, slow) = self.assign_parts(round, pieces);
        self.write_slots(&quick, round);
        self.post();
        if slow.is_empty() {
            return;
        }
        self.busy_slots.extend(&slow);
        let pieces = slow
            .into_iter()
            .map(|number| (number, std::mem::take(&mut self.table.slots.slot(number).pieces)));
        let mut slow: Vec<_> = pieces.collect();
        while !slow.is_empty() {
            let group = slow.split_off(slow.len().saturating_sub(MAX_OPENED_AT_ONCE));
            let numbers: Vec<_> = group.iter().map(|(number, _)| *number).collect();
            // Serves other segments while files that were closed to make room for this group wait for their last sync.
            let until = Instant::now() + self.table.descriptor_wait;
            while !self.table.try_make_room(&numbers) && Instant::now() < until {
                self.serve_others(Duration::from_millis(1));
            }
            for (number, pieces) in group {
                self.table.slots.slot(number).pieces = pieces;
            }
            self.write_slots(&numbers, round);
            self.post();
            numbers.iter().for_each(|number| {
                self.busy_slots.remove(number);
            });
            if !slow.is_empty() {
                self.serve_others(Duration::ZERO);
            }
        }
    }

    fn write_slots(&mut self, touched: &[usize], round: &Round) {
        for group in touched.chunks(self.shared.config.max_open.max(1)) {
            let refused = self.table.open(group);
            for (number, cause) in refused {
                let pieces = std::mem::take(&mut self.table.slots.slot(number).pieces);
                self.fail(round, &pieces, cause);
            }
            for &number in group {
                self.write(number, round);
            }
        }
    }

    /// Assigns the parts to their slots. Returns the quick slots and the slow ones. A slot is slow if it has a long
    /// part, or if it is one of many that must be opened.
    fn assign_parts(
        &mut self,
        round: &Round,
        pieces: impl Iterator<Item = Piece>,
    ) -> (Vec<usize>, Vec<usize>) {
        let (mut touched, mut long) = (Vec::new(), Vec::new());
        let mut last = None;
        for piece in pieces {
            if !round.is_whole(piece) {
                round.answer(piece, Err(Failure::Io(Errno::INVAL.raw_os_error())), &mut self.answers);
                self.shared.counters.failed_parts.add(1);
                continue;
            }
            let key = &round.part(piece).1.key;
            let number = match last {
                Some((before, number)) if Arc::ptr_eq(before, key) => number,
                _ => self.table.slots.number(key),
            };
            last = Some((key, number));
            let slot = self.table.slots.slot(number);
            if slot.pieces.is_empty() {
                // The equal key of a later event may have a symbolic link or the end of the slice, which the stored key
                // lacks.
                slot.key = key.clone();
                touched.push(number);
            }
            slot.pieces.push(piece);
            if round.part(piece).1.range.len() > MAX_WRITE_BYTES && !long.contains(&number) {
                long.push(number);
            }
        }
        let is_closed = |number: &usize| self.table.slots.segment(*number).is_none();
        let (closed, mut quick): (Vec<_>, Vec<_>) = touched.into_iter().partition(is_closed);
        match closed.len() {
            0..=MAX_OPENED_AT_ONCE => quick.extend(closed),
            _ => long.extend(closed),
        }
        if !long.is_empty() {
            let slow: HashSet<usize> = long.drain(..).collect();
            quick.retain(|number| !slow.contains(number));
            long.extend(slow);
        }
        (quick, long)
    }

    fn write(&mut self, number: usize, round: &Round) {
        let slot = self.table.slots.slot(number);
        let mut pieces = std::mem::take(&mut slot.pieces);
        let mut left = &pieces[..];
        slot.used = Instant::now();
        while !left.is_empty() {
            self.close_if_unusable(number);
            if let [(_, cause), ..] = self.table.open(&[number])[..] {
                self.fail(round, left, cause);
                break;
            }
            let fitting = &left[..self.count_fitting(number, round, left)];
            if fitting.is_empty() {
                self.table.close(number, CloseReason::Full);
                continue;
            }
            let (stored, appended) = self.append(number, round, fitting);
            let failed = fitting.len() - stored;
            left = &left[stored..];
            match appended.failure {
                None => {}
                // The file has reached the maximum size that the filesystem or the process limit allows.
                Some(Errno::FBIG) if self.table.slots.segment(number).is_some_and(|open| open.tail > 0) => {
                    self.table.close(number, CloseReason::Full);
                }
                Some(cause) => {
                    let (tried, rest) = left.split_at(if appended.partial { failed } else { 0 });
                    self.fail_with(round, tried, cause, Failure::Partial(cause.raw_os_error()));
                    self.fail(round, rest, cause);
                    break;
                }
            }
            if self.unanswered_bytes >= MAX_WRITE_BYTES {
                self.post();
            }
        }
        pieces.clear();
        self.table.slots.slot(number).pieces = pieces;
    }

    /// Closes a segment whose file was renamed or removed, or whose last sync failed.
    fn close_if_unusable(&mut self, number: usize) {
        let Some(segment) = self.table.slots.segment(number) else { return };
        if segment.shared.is_poisoned() {
            self.table.close(number, CloseReason::Full);
        } else if segment.detect_removal() {
            self.table.close(number, CloseReason::Parked);
        }
    }

    /// Number of parts that fit into the next write to the open segment; 0 if the segment is full.
    fn count_fitting(&mut self, number: usize, round: &Round, pieces: &[Piece]) -> usize {
        let rotate_bytes = self.shared.config.rotate_bytes.unwrap_or(u64::MAX);
        let tail = self.table.slots.segment(number).map_or(0, |segment| segment.tail);
        let mut bytes = 0;
        for (count, &piece) in pieces.iter().enumerate().take(MAX_WRITE_PARTS) {
            let more = bytes + round.part(piece).1.range.len();
            let full = tail + more as u64 > rotate_bytes && (tail > 0 || count > 0);
            if full || (more > MAX_WRITE_BYTES && count > 0) {
                return count;
            }
            bytes = more;
        }
        pieces.len().min(MAX_WRITE_PARTS)
    }

    /// Writes parts to the open segment and answers the stored ones. Returns their number.
    fn append(&mut self, number: usize, round: &Round, pieces: &[Piece]) -> (usize, Appended) {
        let lines: Vec<_> = pieces.iter().map(|&piece| round.lines(piece)).collect();
        let segment = self.table.slots.segment(number).expect("opened a moment ago");
        if !segment.binary && lines.iter().any(|lines| memchr(0, &lines.data[lines.range.clone()]).is_some())
        {
            // Recovery takes NUL bytes for damage by a power cut unless the journal says otherwise.
            let entry = Entry::Binary { id: segment.shared.id };
            if let Err(cause) = self.shared.journal.append(&[entry], true) {
                return (0, Appended { writes: 0, failure: Some(errno(&cause)), partial: false });
            }
            segment.binary = true;
        }
        self.offsets.clear();
        let appended = match lines[..] {
            [Lines { ref range, .. }] if range.len() > MAX_WRITE_BYTES => self.append_long(number, &lines),
            _ => segment.append(&lines, &mut self.offsets, &mut || {}),
        };
        let segment = self.table.slots.segment(number).expect("opened a moment ago");
        if std::mem::take(&mut segment.shortened) {
            // Without this record, recovery would take a torn line for a synced one.
            let file = &segment.shared;
            let entry = Entry::Good { id: file.id, good_bytes: file.sync_state.good_bytes() };
            // If this fails, the journal writes no other record before this one.
            let _ = self.shared.journal.append_eventually(&[entry], true);
        }
        let counters = &self.shared.counters;
        counters.writes.add(appended.writes);
        if appended.failure.is_none() {
            // Updates the state before the answers are sent, so that a caller with an answer sees the new state.
            self.shared.health.write_succeeded();
        }
        let mut waiting = Vec::new();
        for (&piece, &offset) in pieces.iter().zip(&self.offsets) {
            let (port, part) = round.part(piece);
            let bytes = part.range.len() as u64;
            self.unanswered_bytes += bytes as usize;
            let receipt = Receipt { segment: segment.name.clone(), offset, bytes };
            match part.level {
                Level::Synced => {
                    let done = Done { token: part.token, result: Ok(receipt) };
                    waiting.push(PendingAnswer::new(&self.shared.reply_queues, port, done));
                    round.mark_answered(piece);
                }
                Level::Accepted | Level::Written => round.answer(piece, Ok(receipt), &mut self.answers),
            }
        }
        if !waiting.is_empty() || segment.unsynced_bytes >= CHECKPOINT_BYTES {
            segment.unsynced_bytes = 0;
            let request =
                Request::Sync { file: segment.shared.clone(), progress: segment.progress(), waiting };
            // Fails only if the syncer has panicked. Dropping the request then fails its parts.
            let _ = self.shared.syncs.put(request);
        }
        (self.offsets.len(), appended)
    }

    /// Writes one long part, and serves other segments during the write.
    fn append_long(&mut self, number: usize, lines: &[Lines<'_>]) -> Appended {
        let mut segment = self.table.slots.take_segment(number).expect("opened a moment ago");
        let mut offsets = Vec::new();
        let appended = segment.append(lines, &mut offsets, &mut || self.serve_others(Duration::ZERO));
        self.offsets = offsets;
        self.table.slots.slot(number).state = State::Open(segment);
        appended
    }

    fn fail(&mut self, round: &Round, pieces: &[Piece], cause: Errno) {
        self.fail_with(round, pieces, cause, Failure::of(cause));
    }

    fn fail_with(&mut self, round: &Round, pieces: &[Piece], cause: Errno, failure: Failure) {
        if pieces.is_empty() {
            return;
        }
        self.shared.health.write_failed(cause);
        self.shared.counters.failed_parts.add(pieces.len() as u64);
        for &piece in pieces {
            round.answer(piece, Err(failure), &mut self.answers);
        }
    }

    fn post(&mut self) {
        self.unanswered_bytes = 0;
        self.answers.post();
    }
}

#[cfg(test)]
mod tests;
