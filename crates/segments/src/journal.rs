//! The journal records the open segments of a process for the next start.
//!
//! Each line is a record: a hexadecimal CRC-32, a space, JSON. The checksum identifies incomplete records, which the
//! reader skips.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use files::Folder;
use rustix::fs::{OFlags, fsync};
use serde::{Deserialize, Serialize};

use crate::{Error, folders, inode::Inode};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub(crate) enum Entry {
    /// A segment is open. The record is on the disk before the segment's first line is written.
    Opened { id: u64, segment: Segment },
    /// The first `good_bytes` are synced, so recovery need not check them.
    Good { id: u64, good_bytes: u64 },
    /// The segment's lines contain NUL bytes, so recovery must not take them for damage by a power cut.
    Binary { id: u64 },
    /// The segment is synced and closed, and may be opened again.
    Closed { id: u64, good_bytes: u64 },
    /// The segment is synced and closed, and must be packed.
    Ended { id: u64 },
    /// The segment is being packed into this file, which did not exist before.
    Packing { id: u64, packed: String },
    /// The segment needs no further work.
    Gone { id: u64 },
}

/// The facts about a segment that recovery needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Segment {
    /// Path, relative to the parent of the journal's folder if it is below that.
    pub path: String,
    #[serde(flatten)]
    pub inode: Inode,
    pub good_bytes: u64,
    pub binary: bool,
    /// The path of the segment's key. With `index`, it allows the next start to continue the segment.
    pub key: String,
    pub index: Option<u32>,
    /// The first second after its time slice.
    pub end: Option<i64>,
}

/// The phase of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    Closed,
    Ended,
    Packing(String),
}

/// A segment that needs further work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unfinished {
    pub segment: Segment,
    pub phase: Phase,
}

/// The journal of the process that holds the lock.
#[derive(Debug)]
pub(crate) struct Journal {
    /// The journal's folder. Its permissions are checked each time it is opened.
    folder: PathBuf,
    /// Recorded paths are relative to this folder.
    root: PathBuf,
    next: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: File,
    tail: u64,
    unfinished: BTreeMap<u64, Unfinished>,
    /// Length of the file after it was last rewritten.
    rewritten_bytes: u64,
    /// Whether the file must be rewritten, because it may lack a record or contain a failed one.
    needs_rewrite: bool,
}

const NAME: &str = "journal";
/// Name of the new journal until it replaces the old one.
const FRESH: &str = "journal.new";
/// Minimum length at which the file is rewritten, in bytes.
const REWRITE_BYTES: u64 = 1 << 20;

impl Journal {
    /// Reads the journal in `folder` and rewrites it. If the disk is full, rewrites it later. Also returns the number
    /// of damaged lines.
    pub(crate) fn open(folder: &Path) -> Result<(Self, u64), Error> {
        let path = folder.join(NAME);
        let held = folders::open_state(folder).map_err(|cause| Error::state("open", folder, cause))?;
        let mut text = Vec::new();
        match held.kept(NAME, OFlags::RDONLY).and_then(|mut file| file.read_to_end(&mut text)) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                return Err(Error::state("read", path, cause));
            }
            _ => {}
        }
        let mut unfinished = BTreeMap::new();
        let mut damaged = 0;
        let mut next = 0;
        for line in text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            match parse_line(line) {
                Some(entry) => {
                    next = next.max(entry.id() + 1);
                    apply(&mut unfinished, entry);
                }
                None => damaged += 1,
            }
        }
        let fails = |cause| Error::state("write", path.clone(), cause);
        let (file, tail, needs_rewrite) = match rewrite(&held, &unfinished) {
            Ok((file, tail)) => (file, tail, false),
            Err(cause) if is_full(&cause) => {
                let is_missing = |cause: &io::Error| cause.kind() == io::ErrorKind::NotFound;
                let file = match held.kept(NAME, OFlags::WRONLY) {
                    Err(cause) if is_missing(&cause) => held.create(NAME, 0o600),
                    opened => opened,
                };
                (file.map_err(fails)?, text.len() as u64, true)
            }
            Err(cause) => return Err(fails(cause)),
        };
        let root = folders::absolute(folder).parent().unwrap_or(Path::new("/")).to_owned();
        let state = State { file, tail, unfinished, rewritten_bytes: tail, needs_rewrite };
        let (next, state) = (AtomicU64::new(next), Mutex::new(state));
        Ok((Self { folder: folder.to_owned(), root, next, state }, damaged))
    }

    /// An identifier for a segment that is about to be opened.
    pub(crate) fn next_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn unfinished(&self) -> Vec<(u64, Unfinished)> {
        self.lock().unfinished.iter().map(|(&id, unfinished)| (id, unfinished.clone())).collect()
    }

    /// Appends records. With `durable`, waits until they are on the disk.
    ///
    /// # Errors
    /// When the records cannot be written. None of them is valid then.
    pub(crate) fn append(&self, entries: &[Entry], durable: bool) -> io::Result<()> {
        let mut state = self.lock();
        self.write(&mut state, entries, durable)?;
        entries.iter().for_each(|entry| apply(&mut state.unfinished, entry.clone()));
        Ok(())
    }

    /// Appends records of facts, which remain true even if writing them fails. After such a failure, the journal is
    /// rewritten with them before it accepts further records.
    ///
    /// # Errors
    /// Those of [`append`](Self::append), except for a full disk.
    pub(crate) fn append_eventually(&self, entries: &[Entry], durable: bool) -> io::Result<()> {
        let mut state = self.lock();
        let written = self.write(&mut state, entries, durable);
        state.needs_rewrite |= written.is_err();
        entries.iter().for_each(|entry| apply(&mut state.unfinished, entry.clone()));
        written.or_else(|cause| if is_full(&cause) { Ok(()) } else { Err(cause) })
    }

    /// Simulates a failed write.
    #[cfg(test)]
    pub(crate) fn require_rewrite(&self) {
        self.lock().needs_rewrite = true;
    }

    /// Whether the journal must be rewritten, because a write failed or the disk was full.
    pub(crate) fn needs_rewrite(&self) -> bool {
        self.lock().needs_rewrite
    }

    fn write(&self, state: &mut State, entries: &[Entry], durable: bool) -> io::Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        let mut text = Vec::new();
        entries.iter().for_each(|entry| push_line(&mut text, entry));
        if state.needs_rewrite || state.tail > REWRITE_BYTES.max(4 * state.rewritten_bytes) {
            let (file, tail) = rewrite(&folders::open_state(&self.folder)?, &state.unfinished)?;
            (state.file, state.tail, state.rewritten_bytes, state.needs_rewrite) = (file, tail, tail, false);
        }
        let appended = state.file.write_all_at(&text, state.tail);
        let appended = appended.and_then(|()| if durable { state.file.sync_data() } else { Ok(()) });
        if let Err(cause) = appended {
            // The file may contain parts of the records, which must never be read. The journal is therefore rewritten
            // before the next record.
            state.needs_rewrite = true;
            let _ = state.file.set_len(state.tail);
            return Err(cause);
        }
        state.tail += text.len() as u64;
        Ok(())
    }

    /// The recorded path of a file.
    pub(crate) fn relative_name(&self, path: &Path) -> io::Result<String> {
        let relative_name = match path.strip_prefix(&self.root) {
            Ok(below) => below.to_owned(),
            Err(_) => folders::absolute(path),
        };
        let not_text = || io::Error::new(io::ErrorKind::InvalidInput, "the folder's name is not UTF-8");
        relative_name.into_os_string().into_string().map_err(|_| not_text())
    }

    /// The path of a file from its recorded path.
    pub(crate) fn path(&self, relative_name: &str) -> PathBuf {
        self.root.join(relative_name)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn id(&self) -> u64 {
        match *self {
            Self::Opened { id, .. }
            | Self::Good { id, .. }
            | Self::Binary { id }
            | Self::Closed { id, .. }
            | Self::Ended { id }
            | Self::Packing { id, .. }
            | Self::Gone { id } => id,
        }
    }
}

fn apply(unfinished: &mut BTreeMap<u64, Unfinished>, entry: Entry) {
    let id = entry.id();
    match entry {
        Entry::Opened { segment, .. } => {
            unfinished.insert(id, Unfinished { segment, phase: Phase::Open });
            return;
        }
        Entry::Gone { .. } => {
            unfinished.remove(&id);
            return;
        }
        _ => {}
    }
    // Ignores records of a segment without a record of its opening.
    let Some(found) = unfinished.get_mut(&id) else { return };
    match entry {
        Entry::Good { good_bytes, .. } => found.segment.good_bytes = good_bytes,
        Entry::Binary { .. } => found.segment.binary = true,
        Entry::Closed { good_bytes, .. } => {
            found.segment.good_bytes = good_bytes;
            found.phase = Phase::Closed;
        }
        Entry::Ended { .. } => found.phase = Phase::Ended,
        Entry::Packing { packed, .. } => found.phase = Phase::Packing(packed),
        Entry::Opened { .. } | Entry::Gone { .. } => {}
    }
}

fn push_line(text: &mut Vec<u8>, entry: &Entry) {
    let json = serde_json::to_string(entry).expect("records are plain strings and numbers");
    text.extend_from_slice(format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes())).as_bytes());
}

fn parse_line(line: &[u8]) -> Option<Entry> {
    let (checksum, json) = line.split_at_checked(9)?;
    let checksum = u32::from_str_radix(std::str::from_utf8(checksum).ok()?.strip_suffix(' ')?, 16).ok()?;
    (crc32fast::hash(json) == checksum).then(|| serde_json::from_slice(json).ok())?
}

/// Replaces the journal in `folder` with one that has only the unfinished segments.
fn rewrite(folder: &Folder, unfinished: &BTreeMap<u64, Unfinished>) -> io::Result<(File, u64)> {
    let mut text = Vec::new();
    for (&id, Unfinished { segment, phase }) in unfinished {
        push_line(&mut text, &Entry::Opened { id, segment: segment.clone() });
        match phase {
            Phase::Open => {}
            Phase::Closed => push_line(&mut text, &Entry::Closed { id, good_bytes: segment.good_bytes }),
            Phase::Ended => push_line(&mut text, &Entry::Ended { id }),
            Phase::Packing(packed) => push_line(&mut text, &Entry::Packing { id, packed: packed.clone() }),
        }
    }
    // Removes the file of a killed process, or a file that another user created.
    let _ = folder.remove(FRESH);
    let file = folder.create(FRESH, 0o600).and_then(|file| {
        file.write_all_at(&text, 0)?;
        file.sync_all()?;
        folder.rename(FRESH, NAME)?;
        fsync(folder)?;
        Ok(file)
    });
    if file.is_err() {
        // Frees the disk space.
        let _ = folder.remove(FRESH);
    }
    Ok((file?, text.len() as u64))
}

fn is_full(cause: &io::Error) -> bool {
    matches!(cause.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests;
