//! Group commit: one sync for all that was written by then.

use std::{
    collections::HashMap,
    fs::File,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use rustix::{fs::fdatasync, io::Errno};

use crate::{
    Compression, Done, Failure,
    compressor::Pack,
    journal::Entry,
    segment::{SegmentFile, errno},
    shared::{Answers, Shared},
};

/// What the writer asks for.
#[derive(Debug)]
pub(crate) enum Request {
    /// A sync, and then answers. Without any it bounds what recovery will have to read.
    Sync { file: Arc<SegmentFile>, bytes: u64, waiting: Vec<Waiting> },
    /// A sync of a segment that is closed. `ended`: for ever.
    Close { file: Arc<SegmentFile>, bytes: u64, ended: bool },
    /// A segment closed before has ended.
    End(Pack),
}

/// A part that is answered once it is on disk.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub port: usize,
    pub done: Done,
}

/// After so many bytes a segment is synced whether or not somebody waits, and the journal is told.
pub(crate) const CHECKPOINT_BYTES: u64 = 64 << 20;

/// All requests of one round for one segment.
#[derive(Debug)]
struct Group {
    file: Arc<SegmentFile>,
    bytes: u64,
    waiting: Vec<Waiting>,
    close: Option<bool>,
}

/// Runs until the mailbox is closed and empty.
pub(crate) fn run(shared: &Shared) {
    let mut answers = Answers::new(shared);
    let mut checkpoints = HashMap::new();
    let mut requests = Vec::new();
    loop {
        let more = shared.syncs.take(&mut requests, Duration::from_secs(1));
        let delay = shared.config.sync_delay;
        let waits =
            |request: &Request| matches!(request, Request::Sync { waiting, .. } if !waiting.is_empty());
        if more && !delay.is_zero() && requests.iter().any(waits) {
            std::thread::sleep(delay);
            shared.syncs.take(&mut requests, Duration::ZERO);
        }
        let done = requests.is_empty() && !more;
        let (groups, ended) = grouped(&mut requests);
        for group in groups {
            commit(shared, group, &mut checkpoints, &mut answers);
            // Not at the end of the round: each sync may take its time.
            answers.post();
        }
        for pack in ended {
            end(shared, pack);
        }
        if done {
            return;
        }
    }
}

fn grouped(requests: &mut Vec<Request>) -> (Vec<Group>, Vec<Pack>) {
    let mut groups: Vec<Group> = Vec::new();
    let mut numbers = HashMap::new();
    let mut ended = Vec::new();
    let mut group = |groups: &mut Vec<Group>, file: Arc<SegmentFile>, to: u64| -> usize {
        let number = *numbers.entry(file.id).or_insert_with(|| {
            groups.push(Group { file, bytes: 0, waiting: Vec::new(), close: None });
            groups.len() - 1
        });
        groups[number].bytes = groups[number].bytes.max(to);
        number
    };
    for request in requests.drain(..) {
        match request {
            Request::Sync { file, bytes, mut waiting } => {
                let number = group(&mut groups, file, bytes);
                groups[number].waiting.append(&mut waiting);
            }
            Request::Close { file, bytes, ended } => {
                let number = group(&mut groups, file, bytes);
                groups[number].close = Some(ended);
            }
            Request::End(pack) => ended.push(pack),
        }
    }
    (groups, ended)
}

fn commit(shared: &Shared, group: Group, checkpoints: &mut HashMap<u64, u64>, answers: &mut Answers) {
    let Group { file, bytes, waiting, close } = group;
    let result = sync(shared, &file, bytes);
    for Waiting { port, mut done } in waiting {
        if let Err(failure) = result {
            shared.counters.failed_parts.add(1);
            done.result = Err(failure);
        }
        answers.push(port, done);
    }
    if result.is_err() {
        // It stays open in the journal, so that the next start looks at what the disk really has.
        checkpoints.remove(&file.id);
        return;
    }
    let id = file.id;
    let Some(ended) = close else {
        let checkpoint = checkpoints.entry(id).or_insert(0);
        if bytes >= *checkpoint + CHECKPOINT_BYTES
            && shared.journal.append(&[Entry::Good { id, good_bytes: bytes }], false).is_ok()
        {
            *checkpoint = bytes;
        }
        return;
    };
    checkpoints.remove(&id);
    if ended {
        end(shared, Pack { id, path: file.path.clone(), inode: file.inode, renamed: false });
    } else {
        let entry = match shared.config.compress {
            Compression::None => Entry::Gone { id },
            _ => Entry::Closed { id, good_bytes: bytes },
        };
        // Should it fail, recovery reads the segment once more than it needs to.
        let _ = shared.journal.append(&[entry], false);
    }
}

fn end(shared: &Shared, pack: Pack) {
    let _ = shared.journal.append(&[Entry::Ended { id: pack.id }], false);
    // A closed mailbox: the next start packs it.
    let _ = shared.packs.put(pack);
}

fn sync(shared: &Shared, file: &SegmentFile, bytes: u64) -> Result<(), Failure> {
    if file.is_poisoned() {
        return Err(Failure::Io(Errno::IO.raw_os_error()));
    }
    let folders = file.take_folders();
    // What was cut may be on disk: as long as that is not synced, a power cut can bring it back.
    let cut = file.cut.swap(false, Ordering::AcqRel);
    if folders.is_empty() && !cut && file.synced_bytes.load(Ordering::Relaxed) >= bytes {
        return Ok(());
    }
    let begin = Instant::now();
    let synced = fdatasync(&file.file);
    let took = begin.elapsed();
    let synced = synced.and_then(|()| sync_folders(folders).map_err(|cause| errno(&cause)));
    match synced {
        Ok(()) => {
            shared.counters.synced(took);
            shared.health.works();
            file.synced_bytes.fetch_max(bytes, Ordering::Relaxed);
            Ok(())
        }
        Err(cause) => {
            // The kernel may have dropped the pages: a second attempt would succeed without them.
            file.poisoned.store(true, Ordering::Release);
            shared.counters.sync_failures.add(1);
            shared.health.fails(cause);
            Err(Failure::of(cause))
        }
    }
}

fn sync_folders(folders: Vec<PathBuf>) -> std::io::Result<()> {
    folders.iter().try_for_each(|folder| File::open(folder)?.sync_all())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::{Config, Port, Receipt, StorageState, journal::Journal, port::Back};

    fn part(port: usize) -> Waiting {
        let receipt = Receipt { segment: "x.log".into(), offset: 0, bytes: 4 };
        Waiting { port, done: Done { token: 5, result: Ok(receipt) } }
    }

    #[test]
    fn a_failed_sync_fails_its_parts_and_all_later_ones_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(folder.path()).unwrap();
        let config = Config::new(folder.path().join("x").to_str().unwrap().parse().unwrap());
        let back = Arc::new(Back::new().unwrap());
        let shared = Shared::new(config, journal, vec![back.clone()]);
        let mut port = Port::new(0, shared.queue.clone(), shared.queued.clone(), back);
        // Of a pipe there is nothing to sync: EINVAL, as real as any other error of fdatasync.
        let (_reader, pipe) = rustix::pipe::pipe().unwrap();
        let file = Arc::new(SegmentFile {
            file: pipe.into(),
            id: 0,
            path: "x.log".into(),
            inode: 0,
            poisoned: Arc::default(),
            synced_bytes: 0.into(),
            cut: false.into(),
            folders: Mutex::default(),
        });
        for _ in 0..2 {
            let request = Request::Sync { file: file.clone(), bytes: 4, waiting: vec![part(0)] };
            shared.syncs.put(request).unwrap();
        }
        shared.syncs.close();
        run(&shared);
        let mut done = Vec::new();
        port.drain(&mut done);
        assert_eq!(done.len(), 2);
        assert!(done.iter().all(|done| done.result == Err(Failure::Io(Errno::INVAL.raw_os_error()))));
        assert!(file.is_poisoned());
        assert_eq!(shared.health.state(), StorageState::Failing(Errno::INVAL.raw_os_error()));
        let statistics = shared.counters.read(0);
        assert_eq!((statistics.syncs, statistics.sync_failures, statistics.failed_parts), (0, 1, 2));
        // The kernel tells of an error once: asked again it would say that all is well.
        assert_eq!(sync(&shared, &file, 4), Err(Failure::Io(Errno::IO.raw_os_error())));
    }
}
