//! Tests of a store with threads that hang, fail or panic.

use super::*;
use crate::{Batch, Level, Part, inode::Inode, locator::OpenedFile, requests::Request, segment::Segment};

/// Settings with a long wait for the disk, because the test machine may be slow.
fn patient(template: crate::Template) -> Config {
    Config { close_wait: testing::PATIENCE, ..Config::new(template) }
}

#[test]
fn a_hanging_disk_blocks_no_caller() {
    let folder = tempfile::tempdir().unwrap();
    let close_wait = Duration::from_millis(20);
    let template = folder.path().join("x").to_str().unwrap().parse().unwrap();
    let config = Config { close_wait, ..Config::new(template) };
    let (journal, _) = Journal::open(folder.path()).unwrap();
    let replies = Arc::new(ReplyQueue::new().unwrap());
    let keys = Keys::new(&config);
    let shared = Arc::new(Shared::new(config, journal, vec![replies.clone()]));
    // A writer in a system call that never returns takes no batches and keeps its end of the channel.
    let (_writer, ended) = channel();
    let ended = Mutex::new(ended);
    let store = Store { keys, shared: shared.clone(), ended, failed_before: OnceLock::new() };
    let mut port = Port::new(0, shared.queue.clone(), shared.queued.clone(), replies);
    let key = store.key("", 0, &|_| None).unwrap();
    let mut done = Vec::new();
    for token in 0..1000 {
        let part = Part { token, key: key.clone(), range: 0..5, level: Level::Synced };
        port.submit(Batch { data: b"line\n".to_vec(), parts: vec![part] });
        port.drain(&mut done);
    }
    assert_eq!((done.len(), store.queued_bytes()), (0, 5000));
    assert!(matches!(store.close(), Err(Error::Hung(_))));
}

#[test]
fn closing_reports_what_could_not_be_synced() {
    let folder = tempfile::tempdir().unwrap();
    let template = folder.path().join("x").to_str().unwrap().parse().unwrap();
    let (store, _, _) = Store::open(patient(template), 0).unwrap();
    // A pipe cannot be synced.
    let found = OpenedFile {
        file: std::fs::File::from(rustix::pipe::pipe().unwrap().1),
        path: "/pipe".into(),
        name: "pipe".into(),
        index: None,
        inode: Inode { number: 0, born_ns: None },
        length: 0,
        torn: false,
        folders: vec![folder.path().to_owned()],
        linked: true,
    };
    let segment = Segment::new(found, 7, Arc::default(), false, store.shared.descriptors.count());
    store.shared.stopping.store(true, Ordering::Relaxed);
    let request = Request::Close { file: segment.shared.clone(), progress: segment.progress(), ended: false };
    store.shared.syncs.put(request).unwrap();
    for _ in 0..2 {
        let error = store.close().unwrap_err();
        assert!(error.to_string().contains("/pipe could not be synced"), "{error}");
    }
}

#[test]
fn closing_reports_failed_parts() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    let template = folder.path().join("${tag}/x").to_str().unwrap().parse().unwrap();
    let (store, mut ports, _) = Store::open(patient(template), 1).unwrap();
    // Simulates that closing has begun; otherwise the part might fail earlier.
    store.failed_before.set(0).unwrap();
    let key = store.key("file", 0, &|_| None).unwrap();
    let part = Part { token: 0, key, range: 0..5, level: Level::Accepted };
    ports[0].submit(Batch { data: b"line\n".to_vec(), parts: vec![part] });
    let error = store.close().unwrap_err();
    assert!(matches!(error, Error::Incomplete { failed_parts: 1, panicked: false, .. }), "{error}");
}

#[test]
fn parts_are_answered_when_the_writer_panics() {
    let folder = tempfile::tempdir().unwrap();
    let template = folder.path().join("x").to_str().unwrap().parse().unwrap();
    let (store, mut ports, _) = Store::open(patient(template), 1).unwrap();
    let key = store.key("", 0, &|_| None).unwrap();
    let batch = |level| {
        let part = Part { token: 3, key: key.clone(), range: 0..5, level };
        Batch { data: b"line\n".to_vec(), parts: vec![part] }
    };
    // Port 7 does not exist, so the writer panics.
    store.shared.queued.add(5);
    store.shared.queue.put(Submitted { port: 7, batch: batch(Level::Written), bulk: false }).unwrap();
    ports[0].submit(batch(Level::Synced));
    let mut done = Vec::new();
    testing::until("the part is answered", || {
        ports[0].drain(&mut done);
        !done.is_empty()
    });
    assert_eq!((done.len(), done[0].token), (1, 3));
    assert!(matches!(store.close(), Err(Error::Incomplete { panicked: true, .. })));
    let panicked = StorageState::Failing(crate::health::PANICKED.raw_os_error());
    assert_eq!((store.state(), store.queued_bytes()), (panicked, 0));
    ports[0].submit(batch(Level::Written));
    ports[0].drain(&mut done);
    assert_eq!(done[1].result, Err(Failure::Closed));
}
