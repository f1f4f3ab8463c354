//! Group commit: one sync for all that was written by then.

use std::{
    collections::HashMap,
    fs::File,
    io::ErrorKind,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use rustix::{
    fs::{fdatasync, syncfs},
    io::Errno,
};

use crate::{
    Compression, Done, Failure,
    compressor::Pack,
    file::{Reach, SegmentFile},
    health::DIED,
    journal::Entry,
    port::Back,
    probe::Probe,
    segment::errno,
    shared::{Answers, Shared},
};

/// What the writer asks for.
#[derive(Debug)]
pub(crate) enum Request {
    /// A sync, and then answers. Without any it bounds what recovery will have to read.
    Sync { file: Arc<SegmentFile>, reach: Reach, waiting: Vec<Waiting> },
    /// A sync of a segment that is closed. `ended`: for ever.
    Close { file: Arc<SegmentFile>, reach: Reach, ended: bool },
    /// A segment closed before has ended.
    End(Pack),
}

/// A part that is answered once it is on disk; or fails, should nobody be there any more to answer it.
#[derive(Debug)]
pub(crate) struct Waiting {
    port: usize,
    done: Option<Done>,
    back: Arc<Back>,
}

impl Waiting {
    pub(crate) fn new(shared: &Shared, port: usize, done: Done) -> Self {
        Self { port, done: Some(done), back: shared.backs[port].clone() }
    }

    fn answer(mut self, synced: Result<(), Failure>, answers: &mut Answers) {
        if let Some(Done { token, result }) = self.done.take() {
            answers.push(self.port, Done { token, result: synced.and(result) });
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(Done { token, .. }) = self.done.take() {
            self.back.post(&mut vec![Done { token, result: Err(Failure::Io(DIED.raw_os_error())) }]);
        }
    }
}

/// After so many bytes a segment is synced whether or not somebody waits, and the journal is told.
pub(crate) const CHECKPOINT_BYTES: u64 = 64 << 20;

/// All requests of one round for one segment.
#[derive(Debug)]
struct Group {
    file: Arc<SegmentFile>,
    reach: Reach,
    waiting: Vec<Waiting>,
    close: Option<bool>,
}

/// Runs until the mailbox is closed and empty.
pub(crate) fn run(shared: &Shared) {
    let mut answers = Answers::new(shared);
    let mut checkpoints = HashMap::new();
    let mut requests = Vec::new();
    let mut probe = Probe::new();
    loop {
        let more = shared.syncs.take(&mut requests, Duration::from_secs(1));
        let delay = shared.config.sync_delay;
        let waits =
            |request: &Request| matches!(request, Request::Sync { waiting, .. } if !waiting.is_empty());
        if more && !delay.is_zero() && requests.iter().any(waits) {
            shared.syncs.pause(delay);
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
        probe.run(shared);
    }
}

fn grouped(requests: &mut Vec<Request>) -> (Vec<Group>, Vec<Pack>) {
    let mut groups: Vec<Group> = Vec::new();
    let mut numbers = HashMap::new();
    let mut ended = Vec::new();
    let mut group = |groups: &mut Vec<Group>, file: Arc<SegmentFile>, reach: Reach| -> usize {
        let number = *numbers.entry(file.id).or_insert_with(|| {
            groups.push(Group { file, reach, waiting: Vec::new(), close: None });
            groups.len() - 1
        });
        // They come in the order in which it was written.
        groups[number].reach = reach;
        number
    };
    for request in requests.drain(..) {
        match request {
            Request::Sync { file, reach, mut waiting } => {
                let number = group(&mut groups, file, reach);
                groups[number].waiting.append(&mut waiting);
            }
            Request::Close { file, reach, ended } => {
                let number = group(&mut groups, file, reach);
                groups[number].close = Some(ended);
            }
            Request::End(pack) => ended.push(pack),
        }
    }
    (groups, ended)
}

fn commit(shared: &Shared, group: Group, checkpoints: &mut HashMap<u64, u64>, answers: &mut Answers) {
    let Group { file, reach, waiting, close } = group;
    let result = sync(shared, &file, &reach);
    let answer = match result {
        // The disk has the lines, but nobody will ever find them.
        Ok(()) if !waiting.is_empty() && file.is_removed() => Err(Failure::Io(Errno::NOENT.raw_os_error())),
        other => other,
    };
    for waiting in waiting {
        shared.counters.failed_parts.add(u64::from(answer.is_err()));
        waiting.answer(answer, answers);
    }
    let id = file.id;
    if result.is_err() {
        // It stays open in the journal, so that the next start looks at what the disk really has.
        checkpoints.remove(&id);
        shared.not_synced(&file.path);
        return;
    }
    let checkpoint = checkpoints.entry(id).or_insert(0);
    file.condition.synced(&reach, |good_bytes| {
        if reach.changed_bytes >= *checkpoint + CHECKPOINT_BYTES
            && shared.journal.append(&[Entry::Good { id, good_bytes }], false).is_ok()
        {
            *checkpoint = reach.changed_bytes;
        }
    });
    let Some(ended) = close else { return };
    checkpoints.remove(&id);
    if ended {
        end(shared, Pack { id, path: file.path.clone(), inode: file.inode, renamed: false });
    } else {
        let entry = match shared.config.compress {
            Compression::None => Entry::Gone { id },
            _ => Entry::Closed { id, good_bytes: file.condition.good_bytes() },
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

fn sync(shared: &Shared, file: &SegmentFile, reach: &Reach) -> Result<(), Failure> {
    if file.is_poisoned() {
        return Err(Failure::Io(Errno::IO.raw_os_error()));
    }
    let folders = file.take_folders();
    if folders.is_empty() && file.synced_bytes.load(Ordering::Relaxed) >= reach.changed_bytes {
        return Ok(());
    }
    let begin = Instant::now();
    let synced = fdatasync(&file.file);
    let took = begin.elapsed();
    match synced.and_then(|()| sync_folders(file, folders)) {
        Ok(()) => {
            shared.counters.synced(took);
            shared.health.sync_works();
            file.synced_bytes.fetch_max(reach.changed_bytes, Ordering::Relaxed);
            Ok(())
        }
        Err(cause) => {
            // The kernel may have dropped the pages: a second attempt would succeed without them.
            file.condition.poison();
            shared.counters.sync_failures.add(1);
            shared.health.sync_fails(cause);
            Err(Failure::of(cause))
        }
    }
}

fn sync_folders(file: &SegmentFile, folders: Vec<PathBuf>) -> Result<(), Errno> {
    folders.iter().try_for_each(|folder| match File::open(folder) {
        Ok(folder) => folder.sync_all().map_err(|cause| errno(&cause)),
        // Somebody has moved the folder, or removed it with all that was in it. Wherever the file is now, its
        // name is on the same filesystem.
        Err(cause) if cause.kind() == ErrorKind::NotFound => syncfs(&file.file),
        Err(cause) => Err(errno(&cause)),
    })
}

#[cfg(test)]
mod tests;
