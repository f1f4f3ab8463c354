//! Which segments a process has open, for the one that comes after it.
//!
//! One line a record: a CRC-32 in hexadecimal, a space, JSON. A record that did not reach the disk whole is
//! recognised by its checksum and skipped.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::{Deserialize, Serialize};

use crate::{Error, folders, locator::absolute};

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub(crate) enum Entry {
    /// A segment is open. Written, and on disk, before its first line.
    Opened { id: u64, segment: Segment },
    /// So many bytes of it have been synced: recovery need not look at them.
    Good { id: u64, good_bytes: u64 },
    /// It holds NUL bytes that are lines', not a power cut's.
    Binary { id: u64 },
    /// It is synced and closed, and may be opened again.
    Closed { id: u64, good_bytes: u64 },
    /// It is synced and closed, and to be packed.
    Ended { id: u64 },
    /// It is being packed into this file, which was not there before.
    Packing { id: u64, packed: String },
    /// Nothing is left to do about it.
    Gone { id: u64 },
}

/// What recovery must know of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Segment {
    /// Relative to the folder in which that of the journal lies, if it lies below it.
    pub path: String,
    pub inode: u64,
    pub good_bytes: u64,
    pub binary: bool,
    /// Path of its key, and index of its name, so that it can be gone on with.
    pub key: String,
    pub index: Option<u32>,
    /// The first second behind its slice of time.
    pub end: Option<i64>,
}

/// How far a segment has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    Closed,
    Ended,
    Packing(String),
}

/// A segment that something is left to do about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unfinished {
    pub segment: Segment,
    pub phase: Phase,
}

/// The journal of the one process that holds the lock.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    /// Names are relative to it.
    root: PathBuf,
    next: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: File,
    tail: u64,
    unfinished: BTreeMap<u64, Unfinished>,
    /// Length after it was last written anew.
    rewritten_bytes: u64,
    /// A record could not be made durable, or not be taken back.
    needs_rewrite: bool,
}

const REWRITE_BYTES: u64 = 1 << 20;

impl Journal {
    /// Reads what the last process has left in `folder`, and goes on in a new file; on a full disk in the old
    /// one, until there is room. Also says how many lines were damaged.
    pub(crate) fn open(folder: &Path) -> Result<(Self, u64), Error> {
        let path = folder.join("journal");
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(cause) => return Err(Error::file("read", path, cause)),
        };
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
        let fails = |cause| Error::file("write", path.clone(), cause);
        let (file, tail, needs_rewrite) = match rewrite(&path, &unfinished) {
            Ok((file, tail)) => (file, tail, false),
            Err(cause) if is_full(&cause) => {
                let mut options = OpenOptions::new();
                options.write(true).create(true).truncate(false).mode(0o600);
                (options.open(&path).map_err(fails)?, text.len() as u64, true)
            }
            Err(cause) => return Err(fails(cause)),
        };
        let root = absolute(folder).parent().unwrap_or(Path::new("/")).to_owned();
        let state = State { file, tail, unfinished, rewritten_bytes: tail, needs_rewrite };
        Ok((Self { path, root, next: AtomicU64::new(next), state: Mutex::new(state) }, damaged))
    }

    /// A number for a segment that is about to be opened.
    pub(crate) fn next_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// What something is left to do about.
    pub(crate) fn unfinished(&self) -> Vec<(u64, Unfinished)> {
        self.lock().unfinished.iter().map(|(&id, unfinished)| (id, unfinished.clone())).collect()
    }

    /// Appends records; `durable`: they are on disk afterwards.
    ///
    /// # Errors
    /// When that cannot be; then none of them counts.
    pub(crate) fn append(&self, entries: &[Entry], durable: bool) -> io::Result<()> {
        let mut state = self.lock();
        self.write(&mut state, entries, durable)?;
        entries.iter().for_each(|entry| apply(&mut state.unfinished, entry.clone()));
        Ok(())
    }

    /// Appends records of what is so whether or not it can be written down. As long as it cannot be, nothing
    /// else is written either.
    ///
    /// # Errors
    /// As [`append`](Self::append), but for a full disk.
    pub(crate) fn append_eventually(&self, entries: &[Entry], durable: bool) -> io::Result<()> {
        let mut state = self.lock();
        let written = self.write(&mut state, entries, durable);
        state.needs_rewrite |= written.is_err();
        entries.iter().for_each(|entry| apply(&mut state.unfinished, entry.clone()));
        written.or_else(|cause| if is_full(&cause) { Ok(()) } else { Err(cause) })
    }

    /// As if it could not have been written to.
    #[cfg(test)]
    pub(crate) fn require_rewrite(&self) {
        self.lock().needs_rewrite = true;
    }

    /// The disk was full when it was to be written anew, or it could not be written to lately.
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
            let (file, tail) = rewrite(&self.path, &state.unfinished)?;
            (state.file, state.tail, state.rewritten_bytes, state.needs_rewrite) = (file, tail, tail, false);
        }
        let appended = state.file.write_all_at(&text, state.tail);
        let appended = appended.and_then(|()| if durable { state.file.sync_data() } else { Ok(()) });
        if let Err(cause) = appended {
            // Whatever of it is in the file must not be read one day: the file is replaced before it is used.
            state.needs_rewrite = true;
            let _ = state.file.set_len(state.tail);
            return Err(cause);
        }
        state.tail += text.len() as u64;
        Ok(())
    }

    /// How the journal calls a file.
    pub(crate) fn relative_name(&self, path: &Path) -> io::Result<String> {
        let relative_name = match path.strip_prefix(&self.root) {
            Ok(below) => below.to_owned(),
            Err(_) => absolute(path),
        };
        let not_text = || io::Error::new(io::ErrorKind::InvalidInput, "the folder's name is not UTF-8");
        relative_name.into_os_string().into_string().map_err(|_| not_text())
    }

    /// The file that the journal calls so.
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
    // A segment whose opening was damaged cannot be helped.
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

/// A journal of nothing but what is left to do, in the place of the one at `path`.
fn rewrite(path: &Path, unfinished: &BTreeMap<u64, Unfinished>) -> io::Result<(File, u64)> {
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
    let fresh = path.with_extension("new");
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh).and_then(
        |file| {
            file.write_all_at(&text, 0)?;
            file.sync_all()?;
            fs::rename(&fresh, path)?;
            folders::sync(path.parent().unwrap_or(Path::new("/")))?;
            Ok(file)
        },
    );
    if file.is_err() {
        // On a full disk every block counts.
        let _ = fs::remove_file(&fresh);
    }
    Ok((file?, text.len() as u64))
}

fn is_full(cause: &io::Error) -> bool {
    matches!(cause.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests;
