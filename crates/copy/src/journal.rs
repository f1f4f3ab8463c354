//! What of a large file has arrived, for those who go on later.
//!
//! A file of lines: who the file is, then a line for each chunk with its hash. A torn line ends it. What it lists is hashed again
//! before it counts: the machines may have lost it since.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::hash::{self, hex};

/// Copies of one user at the same time.
const MAX_PLACES: u32 = 256;

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

/// A place among the runs of a user that nobody else has, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _lock: File,
    /// Tells it from those of others, on whatever machine.
    pub(crate) token: String,
}

impl Place {
    /// Takes the first place that is free. After a run that was killed this is its own again.
    ///
    /// # Errors
    /// When the folder cannot be written to.
    pub(crate) fn take(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let path = folder.join("id");
        let id = match fs::read_to_string(&path) {
            Ok(id) if !id.is_empty() => id,
            _ => {
                let id = random_token()?;
                fs::write(&path, &id)?;
                id
            }
        };
        for number in 0..MAX_PLACES {
            let lock = File::create(folder.join(format!("place-{number}")))?;
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
                return Ok(Self { _lock: lock, token: format!("{id}-{number}") });
            }
        }
        Err(io::Error::other(format!("{MAX_PLACES} copies of this user are under way")))
    }
}

/// Letters that nobody else has.
///
/// # Errors
/// When the kernel has no random numbers.
pub(crate) fn random_token() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(hex(&bytes))
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
        fs::write(&fresh, text)?;
        fs::rename(&fresh, &path)?;
        let file = OpenOptions::new().append(true).open(&path)?;
        Ok((Self { path, file }, known))
    }

    /// A chunk has arrived.
    pub(crate) fn has(&mut self, chunk: u64, hash: &str) -> io::Result<()> {
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
        journal.has(3, "cc").unwrap();
        journal.has(0, "aa").unwrap();
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
    fn runs_at_the_same_time_have_places_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let first = Place::take(folder.path()).unwrap();
        let second = Place::take(folder.path()).unwrap();
        assert_ne!(first.token, second.token);
        let token = first.token.clone();
        drop(first);
        assert_eq!(Place::take(folder.path()).unwrap().token, token);
    }
}
