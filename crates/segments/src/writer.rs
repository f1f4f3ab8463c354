//! The one thread that writes lines.

use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use memchr::memchr;
use rustix::io::Errno;

use crate::{
    Done, Failure, Level, Receipt,
    journal::Entry,
    port::Submitted,
    segment::{Lines, errno},
    shared::{Answers, Shared},
    syncer::{CHECKPOINT_BYTES, Request, Waiting},
    table::{Table, Why},
};

/// A write takes no more than this, so that answers do not wait for everything that has come.
const WRITE_MOST_BYTES: usize = 1 << 20;
/// The kernel takes 1,024 buffers at once; one is for the newline behind a stranger's torn line.
const WRITE_MOST_PARTS: usize = 1000;
/// A segment's name is looked at so often, while lines come for it.
const CHECK_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
    table: Table,
    answers: Answers,
    offsets: Vec<u64>,
    unanswered_bytes: usize,
}

impl Writer {
    pub fn new(shared: Arc<Shared>, table: Table) -> Self {
        let answers = Answers::new(&shared);
        Self { shared, table, answers, offsets: Vec::new(), unanswered_bytes: 0 }
    }

    /// Runs until the queue is closed and empty; then everything is written, and closed as far as this thread
    /// is concerned.
    pub fn run(mut self) {
        let config = &self.shared.config;
        let sweep_every =
            (config.idle.min(config.grace) / 4).clamp(Duration::from_millis(5), Duration::from_secs(1));
        let mut sweep = Instant::now() + sweep_every;
        let mut batches = Vec::new();
        loop {
            let more = self.shared.queue.take(&mut batches, sweep_every);
            if self.shared.reopen.swap(false, Ordering::Relaxed) {
                self.table.park_all();
            }
            self.round(&batches);
            for Submitted { port, batch } in batches.drain(..) {
                self.shared.queued.remove(batch.data.len());
                self.shared.backs[port].give_back(batch.data);
            }
            if !more {
                break;
            }
            if Instant::now() >= sweep {
                self.table.sweep();
                sweep = Instant::now() + sweep_every;
            }
        }
        self.table.park_all();
    }

    fn round(&mut self, batches: &[Submitted]) {
        let touched = self.sort(batches);
        for group in touched.chunks(self.shared.config.open_most.max(1)) {
            let refused = self.table.open(group);
            for (number, cause) in refused {
                let pieces = std::mem::take(&mut self.table.slots.slot(number).pieces);
                self.fail(batches, &pieces, cause);
            }
            for &number in group {
                self.write(number, batches);
            }
        }
        self.post();
    }

    /// Gives every slot its parts, and says which have any.
    fn sort(&mut self, batches: &[Submitted]) -> Vec<usize> {
        let mut touched = Vec::new();
        let mut last = None;
        for (batch_number, Submitted { port, batch }) in batches.iter().enumerate() {
            for (part_number, part) in batch.parts.iter().enumerate() {
                let lines = batch.data.get(part.range.clone());
                if !lines.is_some_and(|lines| lines.ends_with(b"\n")) {
                    let result = Err(Failure::Io(Errno::INVAL.raw_os_error()));
                    self.answers.push(*port, Done { token: part.token, result });
                    self.shared.counters.failed_parts.add(1);
                    continue;
                }
                let number = match last {
                    Some((key, number)) if Arc::ptr_eq(key, &part.key) => number,
                    _ => self.table.slots.number(&part.key),
                };
                last = Some((&part.key, number));
                let slot = self.table.slots.slot(number);
                if slot.pieces.is_empty() {
                    // A key made later may know of a symbolic link, or of a slice's end.
                    slot.key = part.key.clone();
                    touched.push(number);
                }
                slot.pieces.push((batch_number, part_number));
            }
        }
        touched
    }

    fn write(&mut self, number: usize, batches: &[Submitted]) {
        let slot = self.table.slots.slot(number);
        let mut pieces = std::mem::take(&mut slot.pieces);
        let mut left = &pieces[..];
        slot.used = Instant::now();
        while !left.is_empty() {
            self.check(number);
            if let [(_, cause), ..] = self.table.open(&[number])[..] {
                self.fail(batches, left, cause);
                break;
            }
            let some = &left[..self.room(number, batches, left)];
            if some.is_empty() {
                self.shared.counters.rotations.add(1);
                self.table.close(number, Why::Full);
                continue;
            }
            let (stored, failure) = self.append(number, batches, some);
            left = &left[stored..];
            match failure {
                None => self.shared.health.works(),
                // The file has reached what the filesystem or the process may have.
                Some(Errno::FBIG) if self.table.slots.segment(number).is_some_and(|open| open.tail > 0) => {
                    self.shared.counters.rotations.add(1);
                    self.table.close(number, Why::Full);
                }
                Some(cause) => {
                    self.fail(batches, left, cause);
                    break;
                }
            }
            if self.unanswered_bytes >= WRITE_MOST_BYTES {
                self.post();
            }
        }
        pieces.clear();
        self.table.slots.slot(number).pieces = pieces;
    }

    /// Closes a segment that is no longer what its name leads to, or that cannot be trusted.
    fn check(&mut self, number: usize) {
        let Some(segment) = self.table.slots.segment(number) else { return };
        if segment.shared.is_poisoned() {
            self.table.close(number, Why::Full);
        } else if segment.checked.elapsed() >= CHECK_EVERY {
            segment.checked = Instant::now();
            if !segment.is_in_place() {
                self.shared.counters.foreign_changes.add(1);
                self.table.close(number, Why::Parked);
            }
        }
    }

    /// How many of the parts go into one write to the open segment; none, if it is to end first.
    fn room(&mut self, number: usize, batches: &[Submitted], pieces: &[(usize, usize)]) -> usize {
        let most = self.shared.config.rotate_bytes.unwrap_or(u64::MAX);
        let tail = self.table.slots.segment(number).map_or(0, |segment| segment.tail);
        let mut bytes = 0;
        for (count, &piece) in pieces.iter().enumerate().take(WRITE_MOST_PARTS) {
            let more = bytes + range(batches, piece).len();
            let full = tail + more as u64 > most && (tail > 0 || count > 0);
            if full || (more > WRITE_MOST_BYTES && count > 0) {
                return count;
            }
            bytes = more;
        }
        pieces.len().min(WRITE_MOST_PARTS)
    }

    /// Writes parts to the open segment, answers those that are stored, and says how many that are.
    fn append(
        &mut self,
        number: usize,
        batches: &[Submitted],
        pieces: &[(usize, usize)],
    ) -> (usize, Option<Errno>) {
        let lines: Vec<_> = pieces
            .iter()
            .map(|&piece| Lines { data: &batches[piece.0].batch.data, range: range(batches, piece) })
            .collect();
        let segment = self.table.slots.segment(number).expect("opened a moment ago");
        if !segment.binary && lines.iter().any(|lines| memchr(0, &lines.data[lines.range.clone()]).is_some())
        {
            // Recovery takes NUL bytes for the work of a power cut, unless it is told in time.
            let entry = Entry::Binary { id: segment.shared.id };
            if let Err(cause) = self.shared.journal.append(&[entry], true) {
                return (0, Some(errno(&cause)));
            }
            segment.binary = true;
        }
        self.offsets.clear();
        let foreign = segment.foreign_changes;
        let appended = segment.append(&lines, &mut self.offsets);
        let counters = &self.shared.counters;
        counters.writes.add(appended.writes);
        counters.foreign_changes.add(segment.foreign_changes - foreign);
        counters.written_parts.add(self.offsets.len() as u64);
        let mut waiting = Vec::new();
        let mut stored_bytes = 0;
        for (&(batch, part), &offset) in pieces.iter().zip(&self.offsets) {
            let Submitted { port, batch } = &batches[batch];
            let part = &batch.parts[part];
            let bytes = part.range.len() as u64;
            stored_bytes += bytes;
            let receipt = Receipt { segment: segment.name.clone(), offset, bytes };
            let done = Done { token: part.token, result: Ok(receipt) };
            match part.level {
                Level::Synced => waiting.push(Waiting { port: *port, done }),
                Level::Accepted | Level::Written => self.answers.push(*port, done),
            }
        }
        counters.written_bytes.add(stored_bytes);
        self.unanswered_bytes += stored_bytes as usize;
        if !waiting.is_empty() || segment.unsynced_bytes >= CHECKPOINT_BYTES {
            segment.unsynced_bytes = 0;
            let request = Request::Sync { file: segment.shared.clone(), bytes: segment.tail, waiting };
            // The syncer outlives the writer.
            let _ = self.shared.syncs.put(request);
        }
        (self.offsets.len(), appended.failure)
    }

    fn fail(&mut self, batches: &[Submitted], pieces: &[(usize, usize)], cause: Errno) {
        if pieces.is_empty() {
            return;
        }
        self.shared.health.fails(cause);
        self.shared.counters.failed_parts.add(pieces.len() as u64);
        for &(batch, part) in pieces {
            let Submitted { port, batch } = &batches[batch];
            let result = Err(Failure::of(cause));
            self.answers.push(*port, Done { token: batch.parts[part].token, result });
        }
    }

    fn post(&mut self) {
        self.unanswered_bytes = 0;
        self.answers.post();
    }
}

fn range(batches: &[Submitted], (batch, part): (usize, usize)) -> Range<usize> {
    batches[batch].batch.parts[part].range.clone()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{
        Batch, Config, Key, Part, Port,
        journal::{Journal, Phase},
        port::Back,
    };

    struct Bench {
        writer: Writer,
        port: Port,
        key: Arc<Key>,
    }

    impl Bench {
        fn new(folder: &Path) -> Self {
            let config = Config::new(folder.join("x").to_str().unwrap().parse().unwrap());
            let (journal, _) = Journal::open(folder).unwrap();
            let back = Arc::new(Back::new().unwrap());
            let shared = Arc::new(Shared::new(config, journal, vec![back.clone()]));
            let port = Port::new(0, shared.queue.clone(), shared.queued.clone(), back);
            let writer = Writer::new(shared.clone(), Table::new(shared));
            Self { writer, port, key: Arc::new(Key::of_the_past("x", None)) }
        }

        /// Where a line goes.
        fn put(&mut self) -> (String, u64) {
            let part = Part { token: 0, key: self.key.clone(), range: 0..5, level: Level::Written };
            let batch = Batch { data: b"line\n".to_vec(), parts: vec![part] };
            self.writer.round(&[Submitted { port: 0, batch }]);
            let mut done = Vec::new();
            self.port.drain(&mut done);
            let receipt = done.remove(0).result.unwrap();
            (receipt.segment.to_string(), receipt.offset)
        }

        fn poison(&mut self) {
            let segment = self.writer.table.slots.segment(0).unwrap();
            segment.shared.poisoned.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn behind_a_failed_sync_another_file_is_begun() {
        let folder = tempfile::tempdir().unwrap();
        let mut bench = Bench::new(folder.path());
        assert_eq!((bench.put(), bench.put()), (("x.log".into(), 0), ("x.log".into(), 5)));
        bench.poison();
        assert_eq!((bench.put(), bench.put()), (("x_1.log".into(), 0), ("x_1.log".into(), 5)));
        // The next start looks at what the disk has of it.
        let live = bench.writer.shared.journal.live();
        assert!(
            live.iter().any(|(_, live)| live.segment.path.ends_with("/x.log") && live.phase == Phase::Open)
        );
    }

    #[test]
    fn a_sync_that_fails_while_its_file_is_closed_counts_too() {
        let folder = tempfile::tempdir().unwrap();
        let mut bench = Bench::new(folder.path());
        bench.put();
        let file = bench.writer.table.slots.segment(0).unwrap().shared.clone();
        bench.writer.table.park_all();
        file.poisoned.store(true, Ordering::Relaxed);
        assert_eq!(bench.put(), ("x_1.log".into(), 0));
    }
}
