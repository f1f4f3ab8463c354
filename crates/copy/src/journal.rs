//! What of a large file has arrived, for those who go on later.
//!
//! A file of lines: who the file is, then a line for each chunk with its hash. A torn line ends it. What it lists is hashed again
//! before it counts: the machines may have lost it since.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use crate::hash;

/// Copies by the same command at the same time.
const MAX_RUNS: u32 = 256;

/// What a journal is bound to: it says nothing of another file, or of the same after a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) source: String,
    pub(crate) target: String,
    pub(crate) size_bytes: u64,
    pub(crate) modified_ns: i128,
    pub(crate) chunk_bytes: u64,
}

/// What a journal tells.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Chunks that are there, with their hashes.
    pub(crate) chunks: BTreeMap<u64, String>,
    /// What the file was, if it has changed since: what is there of it is worth nothing.
    pub(crate) former: Option<Identity>,
}

/// The right to the journals and parts of a command, until it is dropped. A second run of the same command at the same time
/// gets journals and parts of its own.
#[derive(Debug)]
pub(crate) struct RunLock {
    /// Removed when the run ends by itself. That of a killed run stays for the next run of the command.
    path: PathBuf,
    _lock: File,
    /// Tells the run's journals and parts from those of others, on whatever machine.
    pub(crate) token: String,
}

impl RunLock {
    /// Takes the first free place of a command, so that a killed run finds its own again whatever else ran meanwhile.
    ///
    /// # Errors
    /// When the folder cannot be written to.
    pub(crate) fn take(folder: &Path, command: &str) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let path = folder.join("id");
        let id = match fs::read_to_string(&path) {
            Ok(id) if !id.is_empty() => id,
            _ => {
                let id = kernel::random_hex()?;
                fs::write(&path, &id)?;
                id
            }
        };
        let command = &hash::of(command.as_bytes())[..16];
        for number in 0..MAX_RUNS {
            let path = folder.join(format!("place-{command}-{number}"));
            loop {
                let lock = File::create(&path)?;
                match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                    Ok(()) => {}
                    Err(Errno::WOULDBLOCK) => break,
                    // Some file systems have no locks.
                    Err(error) => {
                        let _ = fs::remove_file(&path);
                        return Err(error.into());
                    }
                }
                // Its last owner may have removed it since it was opened.
                if lock.metadata()?.nlink() > 0 {
                    return Ok(Self { path, _lock: lock, token: format!("{id}-{command}-{number}") });
                }
            }
        }
        Err(io::Error::other(format!("{MAX_RUNS} copies by the same command are under way")))
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The journal of one file.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Opens the journal of a file in a folder that is there, and tells what is there. Runs at the same time have journals of their own, by their
    /// tokens.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn open(folder: &Path, token: &str, identity: &Identity) -> io::Result<(Self, Known)> {
        let name = hash::of(format!("{token}\0{}\0{}", identity.source, identity.target).as_bytes());
        let path = folder.join(format!("{}.journal", &name[..32]));
        let known =
            fs::read(&path).map(|text| read(&String::from_utf8_lossy(&text), identity)).unwrap_or_default();
        // Written anew, so that nothing stands behind a torn line.
        let mut text = serde_json::to_string(identity).expect("an identity is JSON") + "\n";
        for (chunk, hash) in &known.chunks {
            text += &format!("{chunk} {hash}\n");
        }
        let fresh = path.with_extension("new");
        if let Err(error) = fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, &path)) {
            let _ = fs::remove_file(&fresh);
            return Err(error);
        }
        let file = OpenOptions::new().append(true).open(&path)?;
        Ok((Self { path, file }, known))
    }

    /// A chunk has arrived.
    pub(crate) fn add_chunk(&mut self, chunk: u64, hash: &str) -> io::Result<()> {
        writeln!(self.file, "{chunk} {hash}")
    }

    /// The file is whole.
    pub(crate) fn remove(self) {
        let _ = fs::remove_file(self.path);
    }
}

fn read(text: &str, identity: &Identity) -> Known {
    let mut lines = text.split_inclusive('\n').map_while(|line| line.strip_suffix('\n'));
    let of_file = lines.next().and_then(|line| serde_json::from_str::<Identity>(line).ok());
    if of_file.as_ref() != Some(identity) {
        return Known { former: of_file, ..Known::default() };
    }
    let chunk = |line: &str| {
        let (chunk, hash) = line.split_once(' ')?;
        Some((chunk.parse().ok()?, hash.to_owned()))
    };
    Known { chunks: lines.map_while(chunk).collect(), former: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            source: "/a\nb".to_owned(),
            target: "web:/c".to_owned(),
            size_bytes: 10,
            modified_ns: 1,
            chunk_bytes: 4,
        }
    }

    #[test]
    fn only_what_is_said_of_the_same_file_counts() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, known) = Journal::open(folder.path(), "a", &identity()).unwrap();
        assert!(known.chunks.is_empty() && known.former.is_none());
        journal.add_chunk(3, "cc").unwrap();
        journal.add_chunk(0, "aa").unwrap();
        let open = |identity: &Identity| Journal::open(folder.path(), "a", identity).unwrap();
        let known = open(&identity()).1.chunks;
        assert_eq!(known, BTreeMap::from([(0, "aa".to_owned()), (3, "cc".to_owned())]));
        // It is as good as before after it was opened, and a torn line takes nothing along.
        let (journal, _) = open(&identity());
        write!(&journal.file, "1 b").unwrap();
        assert_eq!(open(&identity()).1.chunks, known);
        let changed = Identity { modified_ns: 2, ..identity() };
        let of_changed = open(&changed).1;
        assert!(of_changed.chunks.is_empty() && of_changed.former == Some(identity()));
        open(&changed).0.remove();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_killed_run_finds_its_place_whatever_ran_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let take = |command| RunLock::take(folder.path(), command).unwrap();
        let (first, other) = (take("a"), take("b"));
        let second = take("a");
        assert!(first.token != second.token && first.token != other.token);
        let tokens = [&first, &other].map(|place| place.token.clone());
        drop((first, other, second));
        let places = fs::read_dir(&folder).unwrap().filter_map(Result::ok);
        assert_eq!(places.filter(|entry| entry.file_name() != "id").count(), 0);
        let other = take("b");
        assert_eq!([take("a").token.clone(), other.token.clone()], tokens);
    }
}
