//! Tests of the writer without the other threads.

use std::{fs, path::Path};

use super::*;
use crate::{
    Batch, Config, Key, Part, Port, StorageState,
    health::PANICKED,
    journal::{Journal, Phase, Unfinished},
    port::{ReplyQueue, Submitted},
    syncer,
};

struct Rig {
    writer: Writer,
    round: Round,
    port: Port,
}

impl Rig {
    fn new(folder: &Path) -> Self {
        Self::with(Config::new(folder.join("${tag}").to_str().unwrap().parse().unwrap()))
    }

    fn with(config: Config) -> Self {
        fs::create_dir_all(&config.state).unwrap();
        let (journal, _) = Journal::open(&config.state).unwrap();
        let replies = Arc::new(ReplyQueue::new().unwrap());
        let shared = Arc::new(Shared::new(config, journal, vec![replies.clone()]));
        let port = Port::new(0, shared.queue.clone(), shared.queued.clone(), replies);
        let (round, table) = (Round::new(shared.clone()), Table::new(shared.clone()));
        Self { writer: Writer::new(shared, table), round, port }
    }

    fn try_put(&mut self, key: &str, line: &str) -> Result<Receipt, Failure> {
        self.port.submit(batch(key, &[line]));
        self.writer.run_once(&mut self.round, Duration::ZERO);
        let mut done = Vec::new();
        self.port.drain(&mut done);
        done.remove(0).result
    }

    /// Writes a line and returns its segment and offset.
    fn put(&mut self) -> (String, u64) {
        let receipt = self.try_put("x", "line\n").unwrap();
        (receipt.segment.to_string(), receipt.offset)
    }

    fn unfinished(&self) -> Vec<Unfinished> {
        self.writer.shared.journal.unfinished().into_iter().map(|(_, unfinished)| unfinished).collect()
    }
}

/// A batch with a part for each line.
fn batch(key: &str, lines: &[&str]) -> Batch {
    let key = Arc::new(Key::from_journal(key, None));
    let mut batch = Batch::default();
    for (token, line) in lines.iter().enumerate() {
        let begin = batch.data.len();
        batch.data.extend_from_slice(line.as_bytes());
        let range = begin..batch.data.len();
        batch.parts.push(Part { token: token as u64, key: key.clone(), range, level: Level::Written });
    }
    batch
}

#[test]
fn after_a_failed_sync_a_new_file_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(folder.path());
    assert_eq!((rig.put(), rig.put()), (("x.log".into(), 0), ("x.log".into(), 5)));
    rig.writer.table.slots.segment(0).unwrap().shared.sync_state.poison();
    assert_eq!((rig.put(), rig.put()), (("x_1.log".into(), 0), ("x_1.log".into(), 5)));
    // The segment stays open in the journal, so that the next start checks which bytes are on the disk.
    assert!(
        rig.unfinished()
            .iter()
            .any(|unfinished| unfinished.segment.path.ends_with("x.log") && unfinished.phase == Phase::Open)
    );
}

#[test]
fn a_sync_that_fails_while_its_file_is_closed_counts_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(folder.path());
    rig.put();
    let file = rig.writer.table.slots.segment(0).unwrap().shared.clone();
    rig.writer.table.park_all();
    file.sync_state.poison();
    assert_eq!(rig.put(), ("x_1.log".into(), 0));
}

#[test]
fn failed_attempts_after_a_failed_sync_create_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(folder.path());
    let state = rig.writer.shared.config.state.clone();
    rig.put();
    let file = rig.writer.table.slots.segment(0).unwrap().shared.clone();
    rig.writer.table.park_all();
    file.sync_state.poison();
    // The journal cannot be written, because it must be rewritten but its folder is missing.
    rig.writer.shared.journal.require_rewrite();
    fs::remove_dir_all(&state).unwrap();
    for _ in 0..3 {
        rig.try_put("x", "line\n").unwrap_err();
    }
    let mut names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["x.log", "x_1.log"]);
    fs::create_dir(&state).unwrap();
    assert_eq!(rig.put(), ("x_1.log".into(), 0));
}

#[test]
fn nul_bytes_are_recorded_when_the_file_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(folder.path());
    rig.try_put("x", "a\0b\n").unwrap();
    rig.writer.table.park_all();
    assert_eq!(rig.put(), ("x.log".into(), 4));
    assert!(rig.unfinished().iter().all(|unfinished| unfinished.segment.binary));
    // Runs the last sync, which was still pending.
    rig.writer.shared.syncs.close();
    syncer::run(&rig.writer.shared);
    rig.writer.table.park_all();
    rig.put();
    assert!(
        rig.unfinished()
            .iter()
            .any(|unfinished| unfinished.segment.binary && unfinished.segment.good_bytes >= 4)
    );
}

#[test]
fn a_truncation_by_others_reduces_the_good_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.log");
    fs::write(&path, "a long line that was there before\n").unwrap();
    let mut rig = Rig::new(folder.path());
    rig.put();
    assert_eq!(rig.unfinished()[0].segment.good_bytes, 34);
    fs::File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    assert_eq!(rig.put(), ("x.log".into(), 0));
    assert_eq!(rig.unfinished()[0].segment.good_bytes, 0);
}

#[test]
fn descriptors_stay_bounded_while_syncs_are_pending() {
    let folder = tempfile::tempdir().unwrap();
    let template = folder.path().join("${tag}").to_str().unwrap().parse().unwrap();
    let mut rig = Rig::with(Config { max_open: 1, ..Config::new(template) });
    rig.writer.table.descriptor_wait = Duration::from_millis(20);
    // One file is open, and one waits to be closed, because no syncer runs.
    rig.try_put("a", "line\n").unwrap();
    rig.try_put("b", "line\n").unwrap();
    let busy = Failure::Io(Errno::BUSY.raw_os_error());
    assert_eq!(rig.try_put("c", "line\n"), Err(busy));
    assert_eq!(rig.writer.shared.health.state(), StorageState::Ok);
    let syncer = std::thread::spawn({
        let shared = rig.writer.shared.clone();
        move || syncer::run(&shared)
    });
    rig.writer.table.descriptor_wait = testing::PATIENCE;
    for key in ["c", "d", "e", "f"] {
        rig.try_put(key, "line\n").unwrap();
    }
    rig.writer.shared.syncs.close();
    syncer.join().unwrap();
}

#[test]
fn a_panic_of_the_writer_fails_its_parts() {
    let folder = tempfile::tempdir().unwrap();
    let Rig { writer, round, mut port } = Rig::new(folder.path());
    drop(round);
    let shared = writer.shared.clone();
    // Port 7 does not exist: the writer panics between two answers.
    for (port, lines) in [(0, &["one\n", "two\n"][..]), (7, &["three\n"]), (0, &["four\n"])] {
        shared.queue.put(Submitted { port, batch: batch("x", lines), bulk: false }).unwrap();
    }
    shared.queue.close();
    std::thread::spawn(move || writer.run()).join().unwrap_err();
    let mut done = Vec::new();
    port.drain(&mut done);
    done.sort_by_key(|done| (done.token, done.result.is_err()));
    let results: Vec<_> = done.into_iter().map(|Done { token, result }| (token, result.err())).collect();
    let died = Failure::Io(PANICKED.raw_os_error());
    assert_eq!(results, [(0, None), (0, Some(died)), (1, None)]);
}

#[test]
fn a_long_part_delays_only_its_own_segment() {
    const LONG_BYTES: usize = 4 << 20;
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(folder.path());
    let mut long = "x".repeat(LONG_BYTES - 1);
    long.push('\n');
    rig.port.submit(batch("x", &[&long]));
    rig.round.take(Duration::ZERO);
    // While the long part is being written, lines arrive for another segment and for the same one.
    for (token, key, line) in [(1, "y", "y\n"), (2, "x", "behind\n")] {
        let mut lines = batch(key, &[line]);
        lines.parts[0].token = token;
        rig.port.submit(lines);
    }
    let round = std::mem::replace(&mut rig.round, Round::new(rig.writer.shared.clone()));
    rig.writer.write_unheld(round);
    rig.writer.run_once(&mut rig.round, Duration::ZERO);
    let mut done = Vec::new();
    rig.port.drain(&mut done);
    let stored = |done: &Done| (done.token, done.result.as_ref().map(|receipt| receipt.offset).unwrap());
    assert_eq!(done.iter().map(stored).collect::<Vec<_>>(), [(1, 0), (0, 0), (2, LONG_BYTES as u64)]);
    assert_eq!(fs::metadata(folder.path().join("x.log")).unwrap().len(), LONG_BYTES as u64 + 7);
}

#[test]
fn later_parts_stay_behind_deferred_ones() {
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(folder.path());
    assert_eq!(rig.put(), ("x.log".into(), 0));
    let files = (0..=MAX_OPENED_AT_ONCE).map(|number| batch(&format!("y{number}"), &["y\n"]));
    files.chain([batch("x", &["second\n"])]).for_each(|batch| rig.port.submit(batch));
    rig.round.take(Duration::ZERO);
    // A part for x is deferred. Another one arrives between two groups of opened files.
    rig.writer.held_slots.insert(rig.writer.table.slots.number(&Arc::new(Key::from_journal("x", None))));
    rig.port.submit(batch("x", &["third\n"]));
    let round = std::mem::replace(&mut rig.round, Round::new(rig.writer.shared.clone()));
    rig.writer.write_unheld(round);
    assert_eq!(rig.writer.deferred.len(), 2);
    rig.writer.run_once(&mut rig.round, Duration::ZERO);
    assert_eq!(fs::read_to_string(folder.path().join("x.log")).unwrap(), "line\nsecond\nthird\n");
}

#[test]
fn bulk_bytes_are_counted_until_they_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(folder.path());
    let mut synced = batch("x", &["line\n"]);
    synced.parts[0].level = Level::Synced;
    rig.port.submit_in_bulk(synced);
    rig.port.submit(batch("x", &["another line\n"]));
    assert_eq!(rig.port.bulk_bytes(), 5);
    rig.port.drain(&mut Vec::new());
    rig.writer.run_once(&mut rig.round, Duration::ZERO);
    let is_readable = || {
        let mut events =
            [rustix::event::PollFd::from_borrowed_fd(rig.port.fd(), rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut events, Some(&rustix::event::Timespec::default())).unwrap() == 1
    };
    // No syncer runs here.
    assert_eq!((rig.port.bulk_bytes(), is_readable()), (0, true));
    rig.writer.shared.queue.close();
    rig.port.submit_in_bulk(batch("x", &["late\n"]));
    assert_eq!(rig.port.bulk_bytes(), 0);
}

#[test]
fn opening_many_files_delays_no_other_segment() {
    const FILES: u64 = 900;
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(folder.path());
    rig.try_put("y", "first\n").unwrap();
    let mut all = Batch::default();
    for number in 0..FILES {
        let range = all.data.len()..all.data.len() + 2;
        all.data.extend_from_slice(b"x\n");
        let key = Arc::new(Key::from_journal(&format!("x{number}"), None));
        all.parts.push(Part { token: number, key, range, level: Level::Written });
    }
    rig.port.submit(all);
    rig.round.take(Duration::ZERO);
    // Meanwhile, one line arrives for an open file, and one for a file that is being opened.
    for (token, key, line) in [(FILES, "y", "y\n"), (FILES + 1, "x0", "behind\n")] {
        let mut lines = batch(key, &[line]);
        lines.parts[0].token = token;
        rig.port.submit(lines);
    }
    let round = std::mem::replace(&mut rig.round, Round::new(rig.writer.shared.clone()));
    rig.writer.write_unheld(round);
    rig.writer.run_once(&mut rig.round, Duration::ZERO);
    rig.writer.run_once(&mut rig.round, Duration::ZERO);
    let mut done = Vec::new();
    rig.port.drain(&mut done);
    let index_of = |token: u64| done.iter().position(|done| done.token == token).unwrap();
    assert_eq!(done.len() as u64, FILES + 2);
    assert!(index_of(FILES) < done.len() - 2, "{} of {}", index_of(FILES), done.len());
    let offset = |token: u64| done[index_of(token)].result.as_ref().unwrap().offset;
    assert_eq!((offset(0), offset(FILES + 1), offset(FILES)), (0, 2, 6));
}
