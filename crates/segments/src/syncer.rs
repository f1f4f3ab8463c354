//! Group commit: one sync for all parts that were written before it.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use rustix::{
    fs::{fdatasync, syncfs},
    io::Errno,
};

use crate::{
    Compression, Failure,
    answers::{Answers, PendingAnswer},
    file::{Progress, SegmentFile},
    folders::is_gone,
    journal::Entry,
    probe::Probe,
    requests::{PackJob, Request},
    segment::errno,
    shared::Shared,
};

/// Number of unsynced bytes after which a segment is synced even if no part waits, and the journal records the synced
/// bytes.
pub(crate) const CHECKPOINT_BYTES: u64 = 64 << 20;

/// The requests of one round for one segment.
#[derive(Debug)]
struct Group {
    file: Arc<SegmentFile>,
    progress: Progress,
    waiting: Vec<PendingAnswer>,
    close: Option<bool>,
}

/// Runs until the mailbox is closed and empty.
pub(crate) fn run(shared: &Shared) {
    let mut answers = Answers::new(&shared.reply_queues);
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
        let (groups, ended) = group_requests(&mut requests);
        for group in groups {
            commit(shared, group, &mut checkpoints, &mut answers);
            // Answers are sent after each sync, because further syncs may take long.
            answers.post();
        }
        for pack in ended {
            end_segment(shared, pack);
        }
        if done {
            return;
        }
        probe.run(shared);
    }
}

fn group_requests(requests: &mut Vec<Request>) -> (Vec<Group>, Vec<PackJob>) {
    let mut groups: Vec<Group> = Vec::new();
    let mut numbers = HashMap::new();
    let mut ended = Vec::new();
    let mut group = |groups: &mut Vec<Group>, file: Arc<SegmentFile>, progress: Progress| -> usize {
        let number = *numbers.entry(file.id).or_insert_with(|| {
            groups.push(Group { file, progress, waiting: Vec::new(), close: None });
            groups.len() - 1
        });
        // Requests are in the order of writing, so the last progress is the greatest.
        groups[number].progress = progress;
        number
    };
    for request in requests.drain(..) {
        match request {
            Request::Sync { file, progress, mut waiting } => {
                let number = group(&mut groups, file, progress);
                groups[number].waiting.append(&mut waiting);
            }
            Request::Close { file, progress, ended } => {
                let number = group(&mut groups, file, progress);
                groups[number].close = Some(ended);
            }
            Request::End(pack) => ended.push(pack),
        }
    }
    (groups, ended)
}

fn commit(shared: &Shared, group: Group, checkpoints: &mut HashMap<u64, u64>, answers: &mut Answers) {
    let Group { file, progress, waiting, close } = group;
    let result = sync(shared, &file, &progress);
    let answer = match result {
        // The lines are on the disk, but the file has no name left, so closing it deletes them.
        Ok(()) if !waiting.is_empty() && file.detect_removal() => {
            Err(Failure::Io(Errno::NOENT.raw_os_error()))
        }
        other => other,
    };
    for waiting in waiting {
        shared.counters.failed_parts.add(u64::from(answer.is_err()));
        waiting.answer(answer, answers);
    }
    let id = file.id;
    if result.is_err() {
        // The segment stays open in the journal, so that the next start checks which bytes are on the disk.
        checkpoints.remove(&id);
        shared.record_unsynced(&file.path);
        return;
    }
    let checkpoint = checkpoints.entry(id).or_insert(0);
    file.sync_state.record_sync(&progress, |good_bytes| {
        if progress.changed_bytes >= *checkpoint + CHECKPOINT_BYTES
            && shared.journal.append(&[Entry::Good { id, good_bytes }], false).is_ok()
        {
            *checkpoint = progress.changed_bytes;
        }
    });
    let Some(ended) = close else { return };
    checkpoints.remove(&id);
    if ended {
        end_segment(shared, PackJob { id, path: file.path.clone(), inode: file.inode, renamed: false });
    } else {
        let entry = match shared.config.compress {
            Compression::None => Entry::Gone { id },
            _ => Entry::Closed { id, good_bytes: file.sync_state.good_bytes() },
        };
        // If this fails, recovery only reads the segment once more than necessary.
        let _ = shared.journal.append(&[entry], false);
    }
}

fn end_segment(shared: &Shared, pack: PackJob) {
    let _ = shared.journal.append(&[Entry::Ended { id: pack.id }], false);
    // If the mailbox is closed, the segment is packed after the next start.
    let _ = shared.packs.put(pack);
}

fn sync(shared: &Shared, file: &SegmentFile, progress: &Progress) -> Result<(), Failure> {
    if file.is_poisoned() {
        return Err(Failure::Io(Errno::IO.raw_os_error()));
    }
    let folders = file.take_folders();
    if folders.is_empty() && file.synced_bytes.load(Ordering::Relaxed) >= progress.changed_bytes {
        return Ok(());
    }
    let begin = Instant::now();
    let synced = fdatasync(&file.file);
    let took = begin.elapsed();
    match synced.and_then(|()| sync_folders(shared, file, folders)) {
        Ok(()) => {
            shared.counters.synced(took);
            shared.health.sync_succeeded();
            file.synced_bytes.fetch_max(progress.changed_bytes, Ordering::Relaxed);
            Ok(())
        }
        Err(cause) => {
            // After a failed sync, the kernel may have dropped the pages, and a second sync would succeed without them.
            file.sync_state.poison();
            shared.counters.sync_failures.add(1);
            shared.health.sync_failed(cause);
            Err(Failure::of(cause))
        }
    }
}

fn sync_folders(shared: &Shared, file: &SegmentFile, folders: Vec<PathBuf>) -> Result<(), Errno> {
    folders.iter().try_for_each(|folder| match shared.base.sync(folder) {
        // Another process moved or removed the folder. The name is on the same filesystem as the file, so syncing the
        // filesystem covers it.
        Err(cause) if is_gone(&cause) => syncfs(&file.file),
        synced => synced.map_err(|cause| errno(&cause)),
    })
}

#[cfg(test)]
mod tests;
