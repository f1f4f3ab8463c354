//! Files of another machine. A process that does a part of another machine's work knows files by the names that they have
//! there: what it reads was sent to it, and what it writes is kept in memory until it is sent back. No such name refers to a
//! file of this machine.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, ErrorKind, Read, Seek, Write},
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock, PoisonError},
};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

/// Maximum size of a file that is written, in bytes: it is kept in memory.
const MAX_WRITTEN_BYTES: u64 = 64 << 20;

static ELSEWHERE: OnceLock<Elsewhere> = OnceLock::new();

struct Elsewhere {
    sent: BTreeMap<PathBuf, Vec<u8>>,
    written: Mutex<BTreeMap<PathBuf, File>>,
}

/// From now on, all names of files that users give are those of another machine, which has sent these files. Only the first
/// call of a process has an effect.
pub fn are_elsewhere(sent: BTreeMap<PathBuf, Vec<u8>>) {
    let _ = ELSEWHERE.set(Elsewhere { sent, written: Mutex::default() });
}

/// Whether names of files are those of another machine.
pub fn is_elsewhere() -> bool {
    ELSEWHERE.get().is_some()
}

/// What was written so far to files of another machine, by name. Nothing may be written meanwhile.
///
/// # Errors
/// If the kernel refuses to read it.
pub fn written_elsewhere() -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let Some(elsewhere) = ELSEWHERE.get() else { return Ok(Vec::new()) };
    let written = elsewhere.written.lock().unwrap_or_else(PoisonError::into_inner);
    let contents = |(name, mut file): (&PathBuf, &File)| -> io::Result<(PathBuf, Vec<u8>)> {
        let length = file.stream_position()?;
        let mut bytes = Vec::with_capacity(length as usize);
        file.rewind()?;
        file.take(length).read_to_end(&mut bytes)?;
        Ok((name.clone(), bytes))
    };
    written.iter().map(contents).collect()
}

/// Creates a file for writing if names of files are those of another machine; otherwise `None`.
///
/// # Errors
/// If the file exists already, or there is no memory.
pub fn create_elsewhere(path: &Path) -> Option<io::Result<File>> {
    let elsewhere = ELSEWHERE.get()?;
    let mut written = elsewhere.written.lock().unwrap_or_else(PoisonError::into_inner);
    if written.contains_key(path) {
        return Some(Err(ErrorKind::AlreadyExists.into()));
    }
    let mut create = || {
        let file = in_memory()?;
        // A file that does not grow refuses what goes beyond.
        file.set_len(MAX_WRITTEN_BYTES)?;
        fcntl_add_seals(&file, SealFlags::GROW)?;
        let kept = file.try_clone()?;
        written.insert(path.to_owned(), kept);
        Ok(file)
    };
    Some(create())
}

/// What a file has that was sent, if names of files are those of another machine; otherwise `None`.
pub(crate) fn sent_elsewhere(path: &Path) -> Option<io::Result<&'static [u8]>> {
    let sent = ELSEWHERE.get()?.sent.get(path);
    Some(sent.map(Vec::as_slice).ok_or_else(|| io::Error::other("it was not sent to this machine")))
}

/// A file for reading, if names of files are those of another machine; otherwise `None`.
pub(crate) fn open_elsewhere(path: &Path) -> Option<io::Result<File>> {
    let open = |bytes| {
        let mut file = in_memory()?;
        file.write_all(bytes)?;
        file.rewind()?;
        Ok(file)
    };
    sent_elsewhere(path).map(|sent| sent.and_then(open))
}

fn in_memory() -> io::Result<File> {
    Ok(memfd_create("elsewhere", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?.into())
}
