//! Tests of the syncer without a writer.

use std::{
    fs::{self, File},
    os::fd::OwnedFd,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64},
    },
    thread,
};

use super::*;
use crate::{
    Config, Done, Port, Receipt, StorageState,
    file::{Descriptors, SyncState},
    health::PANICKED,
    inode::Inode,
    journal::Journal,
    mailbox::Mailbox,
    port::ReplyQueue,
};

struct Rig {
    shared: Shared,
    port: Port,
}

impl Rig {
    fn new(folder: &Path) -> Self {
        let (journal, _) = Journal::open(folder).unwrap();
        let config = Config::new(folder.join("x").to_str().unwrap().parse().unwrap());
        let replies = Arc::new(ReplyQueue::new().unwrap());
        let shared = Shared::new(config, journal, vec![replies.clone()]);
        let port = Port::new(0, shared.queue.clone(), shared.queued.clone(), replies);
        Self { shared, port }
    }

    fn waiting(&self) -> Vec<PendingAnswer> {
        let receipt = Receipt { segment: "x.log".into(), offset: 0, bytes: 4 };
        vec![PendingAnswer::new(&self.shared.reply_queues, 0, Done { token: 5, result: Ok(receipt) })]
    }

    fn ask(&self, file: &Arc<SegmentFile>, changed_bytes: u64, tail: u64) {
        let progress = Progress { changed_bytes, tail, truncations: file.sync_state.truncations() };
        self.shared
            .syncs
            .put(Request::Sync { file: file.clone(), progress, waiting: self.waiting() })
            .unwrap();
    }

    fn done(&mut self) -> Vec<Done> {
        let mut done = Vec::new();
        self.port.drain(&mut done);
        done
    }
}

fn segment_file(file: impl Into<OwnedFd>, folders: Vec<PathBuf>) -> Arc<SegmentFile> {
    Arc::new(SegmentFile {
        file: File::from(file.into()),
        id: 0,
        path: "x.log".into(),
        inode: Inode { number: 0, born_ns: None },
        sync_state: Arc::new(SyncState::new(0)),
        synced_bytes: AtomicU64::new(0),
        folders: Mutex::new(folders),
        linked: true,
        removed: AtomicBool::new(false),
        _descriptor: Arc::new(Descriptors::default()).count(),
    })
}

/// A pipe, whose fdatasync fails with EINVAL.
fn pipe() -> Arc<SegmentFile> {
    segment_file(rustix::pipe::pipe().unwrap().1, Vec::new())
}

#[test]
fn a_failed_sync_fails_its_parts_and_all_later_ones_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(folder.path());
    let file = pipe();
    rig.ask(&file, 4, 4);
    rig.ask(&file, 8, 8);
    rig.shared.syncs.close();
    run(&rig.shared);
    let done = rig.done();
    assert_eq!(done.len(), 2);
    assert!(done.iter().all(|done| done.result == Err(Failure::Io(Errno::INVAL.raw_os_error()))));
    assert!(file.is_poisoned());
    let shared = &rig.shared;
    assert_eq!(shared.health.state(), StorageState::Failing(Errno::INVAL.raw_os_error()));
    let statistics = shared.counters.read(0);
    let failed_parts = shared.counters.failed_parts.value();
    assert_eq!((statistics.syncs, statistics.sync_failures, failed_parts), (0, 1, 2));
    // The kernel reports an error only once: a second fdatasync would succeed.
    let progress = Progress { changed_bytes: 8, ..Progress::default() };
    assert_eq!(sync(shared, &file, &progress), Err(Failure::Io(Errno::IO.raw_os_error())));
    assert!(shared.unsynced().is_empty(), "only closing must report it");
}

#[test]
fn a_file_truncated_by_others_is_synced() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::new(folder.path());
    let file = segment_file(File::create(folder.path().join("x.log")).unwrap(), Vec::new());
    for (changed_bytes, tail, syncs) in [(1000, 1000, 1), (1004, 4, 2), (1004, 4, 2), (1008, 8, 3)] {
        let progress = Progress { changed_bytes, tail, truncations: 0 };
        sync(&rig.shared, &file, &progress).unwrap();
        assert_eq!(rig.shared.counters.read(0).syncs, syncs);
    }
}

#[test]
fn parts_in_a_removed_file_fail() {
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(folder.path());
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let file = segment_file(File::create(inner.join("x.log")).unwrap(), vec![inner.clone()]);
    fs::remove_dir_all(&inner).unwrap();
    rig.ask(&file, 4, 4);
    rig.shared.syncs.close();
    run(&rig.shared);
    assert_eq!(rig.done()[0].result, Err(Failure::Io(Errno::NOENT.raw_os_error())));
    assert!(!file.is_poisoned() && file.removed.load(Ordering::Relaxed));
    assert_eq!(rig.shared.health.state(), StorageState::Ok);
}

#[test]
fn a_recovered_disk_is_noticed_without_lines() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::new(folder.path());
    let shared = &rig.shared;
    shared.health.write_failed(Errno::NOSPC);
    shared.health.sync_failed(Errno::IO);
    thread::scope(|scope| {
        scope.spawn(|| run(shared));
        let is_ok = || (shared.health.state() == StorageState::Ok).then_some(());
        let recovered = testing::find(testing::PATIENCE, is_ok);
        shared.syncs.close();
        recovered.expect("it is noticed");
    });
}

#[test]
fn ending_pauses_and_closing_end_the_sync_delay() {
    for end in [Mailbox::end_pauses, Mailbox::close] {
        let folder = tempfile::tempdir().unwrap();
        let mut rig = Rig::new(folder.path());
        rig.shared.config.sync_delay = Duration::from_secs(3_600);
        let file = segment_file(File::create(folder.path().join("x.log")).unwrap(), Vec::new());
        rig.ask(&file, 4, 4);
        thread::scope(|scope| {
            scope.spawn(|| run(&rig.shared));
            // New requests do not end the delay, so nothing happens in this time.
            thread::sleep(Duration::from_millis(50));
            rig.ask(&file, 8, 8);
            thread::sleep(Duration::from_millis(50));
            assert_eq!(rig.shared.counters.read(0).syncs, 0);
            end(&rig.shared.syncs);
            let synced =
                testing::find(testing::PATIENCE, || (rig.shared.counters.read(0).syncs > 0).then_some(()));
            rig.shared.syncs.close();
            synced.expect("the delay has ended");
        });
        let done = rig.done();
        assert_eq!((done.len(), rig.shared.counters.read(0).syncs), (2, 1));
    }
}

#[test]
fn a_dropped_pending_answer_fails() {
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(folder.path());
    drop(rig.waiting());
    let done = rig.done();
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].result, Err(Failure::Io(PANICKED.raw_os_error())));
}
