//! Journals of large files. A journal lists the chunks that have arrived, so that a later run can resume.
//!
//! A journal is a text file: the identity of the file, then a line for each chunk with its checksum. An incomplete line
//! ends it. The checksum of a listed chunk is computed again before the chunk counts, because either machine may have
//! lost its data since.

use std::{
    cell::Cell,
    collections::BTreeMap,
    fs::{DirBuilder, File},
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::Path,
    rc::Rc,
};

use files::{Folder, Trust};
use rustix::{
    fs::{FlockOperation, Mode, OFlags, fchmod, flock},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use crate::hash;

/// Maximum number of concurrent runs of the same command.
const MAX_RUNS: u32 = 256;
/// Maximum number of killed runs of a command whose partial files are searched for.
const MAX_FORMER: usize = 8;

/// Opens the folder of journals, which only this user may read. Creates it if it is missing.
///
/// # Errors
/// If it cannot be created or does not belong to this user; [`io::ErrorKind::Other`] if it would be created in another
/// user's home.
pub(crate) fn open_state(path: &Path) -> io::Result<Rc<Folder>> {
    // If root created the folder in another user's home (for example with sudo), that user could not use it.
    if let Some((above, about)) = path.ancestors().find_map(|above| Some((above, above.metadata().ok()?)))
        && !files::is_owned(&about)
    {
        return Err(io::Error::other(format!("{} belongs to user {}", above.display(), about.uid())));
    }
    path.parent().map_or(Ok(()), |above| DirBuilder::new().recursive(true).mode(0o700).create(above))?;
    // Other users lose their access to a folder that already existed.
    let folder = Folder::make(path, Trust::OwnersOnly)?;
    let _ = fchmod(&folder, Mode::RWXU);
    Folder::open(path, Trust::Private).map(Rc::new)
}

/// The identity of a file that a journal belongs to. The journal is invalid for another file, and for this file after a
/// change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) source: String,
    pub(crate) target: String,
    pub(crate) size_bytes: u64,
    pub(crate) modified_ns: i128,
    pub(crate) chunk_bytes: u64,
}

/// The first line of a journal.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    identity: Identity,
    part: String,
}

/// The contents of a journal.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The name of an earlier run's partial file.
    pub(crate) part: Option<String>,
    /// Valid chunks of this file with their checksums. Empty if the source has changed since.
    pub(crate) chunks: BTreeMap<u64, String>,
}

/// A lock on the journals and partial files of a command, held until it is dropped. A concurrent run of the same
/// command uses separate journals and partial files.
#[derive(Debug)]
pub(crate) struct RunLock {
    folder: Rc<Folder>,
    /// Name of the lock file. A run removes it at its normal end; that of a killed run stays for the next run of the
    /// command.
    name: String,
    _lock: File,
    /// Whether partial files are left that only the next run can remove.
    pub(crate) leaves_parts: Cell<bool>,
    /// Distinguishes the journals of this run from those of all others, on any machine.
    pub(crate) token: String,
    /// The secret that the names of the run's partial files are derived from.
    pub(crate) secret: String,
    /// The secrets of runs that were killed.
    pub(crate) former_secrets: Vec<String>,
}

impl RunLock {
    /// Takes the first free lock file of a command, so that the next run after a killed one finds that run's state,
    /// even if other runs came in between.
    ///
    /// # Errors
    /// If the folder is not writable, or another user may have written to it.
    pub(crate) fn take(folder: &Rc<Folder>, command: &str) -> io::Result<Self> {
        let id = match read(folder, "id")? {
            Some(id) if !id.is_empty() => id,
            _ => {
                let id = kernel::random_hex()?;
                folder.replace("id", 0o600, id.as_bytes())?;
                id
            }
        };
        let command = &hash::of(command.as_bytes())[..16];
        for number in 0..MAX_RUNS {
            let name = format!("place-{command}-{number}");
            loop {
                let mut lock = match folder.kept(&name, OFlags::RDWR) {
                    Err(error) if error.kind() == ErrorKind::NotFound => match folder.create(&name, 0o600) {
                        // Another run has created the file first.
                        Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                        made => made?,
                    },
                    kept => kept?,
                };
                match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                    Ok(()) => {}
                    Err(Errno::WOULDBLOCK) => break,
                    // Some file systems do not support locks.
                    Err(error) => {
                        let _ = folder.remove(&name);
                        return Err(error.into());
                    }
                }
                // The last owner may have removed the file after this run opened it.
                if lock.metadata()?.nlink() == 0 {
                    continue;
                }
                let (mut text, secret) = (String::new(), kernel::random_hex()?);
                lock.read_to_string(&mut text)?;
                writeln!(lock, "{secret}")?;
                return Ok(Self {
                    folder: Rc::clone(folder),
                    token: format!("{id}-{command}-{number}"),
                    name,
                    _lock: lock,
                    leaves_parts: Cell::new(false),
                    secret,
                    former_secrets: text.lines().rev().take(MAX_FORMER).map(str::to_owned).collect(),
                });
            }
        }
        Err(io::Error::other(format!("{MAX_RUNS} copies with the same command are already running")))
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        if !self.leaves_parts.get() {
            let _ = self.folder.remove(&self.name);
        }
    }
}

/// Reads a text file of the folder; `None` if it is missing.
fn read(folder: &Folder, name: &str) -> io::Result<Option<String>> {
    let mut text = Vec::new();
    match folder.kept(name, OFlags::RDONLY).and_then(|mut file| file.read_to_end(&mut text)) {
        Ok(_) => Ok(Some(String::from_utf8_lossy(&text).into_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The journal of one file.
#[derive(Debug)]
pub(crate) struct Journal {
    folder: Rc<Folder>,
    name: String,
    file: File,
}

impl Journal {
    /// The token in the name separates the journals of concurrent runs.
    fn name(token: &str, identity: &Identity) -> String {
        let name = hash::of(format!("{token}\0{}\0{}", identity.source, identity.target).as_bytes());
        format!("{}.journal", &name[..32])
    }

    /// The contents of a file's journal; empty if there is no journal.
    ///
    /// # Errors
    /// If it cannot be read, or another user may have written it.
    pub(crate) fn known(folder: &Folder, token: &str, identity: &Identity) -> io::Result<Known> {
        let text = read(folder, &Self::name(token, identity))?.unwrap_or_default();
        let mut lines = text.split_inclusive('\n').map_while(|line| line.strip_suffix('\n'));
        let Some(head) = lines.next().and_then(|line| serde_json::from_str::<Head>(line).ok()) else {
            return Ok(Known::default());
        };
        let chunk = |line: &str| {
            let (chunk, hash) = line.split_once(' ')?;
            Some((chunk.parse().ok()?, hash.to_owned()))
        };
        let is_same = head.identity == *identity;
        let chunks = lines.map_while(chunk).filter(|_| is_same).collect();
        Ok(Known { part: Some(head.part), chunks })
    }

    /// Rewrites the journal of a file, so that no line follows an incomplete one.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn begin(
        folder: &Rc<Folder>,
        token: &str,
        identity: &Identity,
        part: &str,
        chunks: &BTreeMap<u64, String>,
    ) -> io::Result<Self> {
        let name = Self::name(token, identity);
        let head = Head { identity: identity.clone(), part: part.to_owned() };
        let mut text = serde_json::to_string(&head).expect("a head is JSON") + "\n";
        for (chunk, hash) in chunks {
            text += &format!("{chunk} {hash}\n");
        }
        folder.replace(&name, 0o600, text.as_bytes())?;
        let file = folder.kept(&name, OFlags::WRONLY | OFlags::APPEND)?;
        Ok(Self { folder: Rc::clone(folder), name, file })
    }

    /// Records that a chunk has arrived.
    pub(crate) fn add_chunk(&mut self, chunk: u64, hash: &str) -> io::Result<()> {
        writeln!(self.file, "{chunk} {hash}")
    }

    /// Removes the journal of a file that is complete or was given up.
    pub(crate) fn remove(self) {
        let _ = self.folder.remove(self.name);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

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

    /// A temporary folder, and a journal folder inside it.
    fn state() -> (tempfile::TempDir, Rc<Folder>) {
        let place = tempfile::tempdir().unwrap();
        let folder = open_state(&place.path().join("deep/state")).unwrap();
        (place, folder)
    }

    fn names(folder: &Folder) -> Vec<String> {
        let entries = fs::read_dir(folder.path()).unwrap().flatten();
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn only_what_is_said_of_the_same_file_counts() {
        let (_place, folder) = state();
        let known = |identity: &Identity| Journal::known(&folder, "a", identity).unwrap();
        let begin = |identity: &Identity, part: &str, chunks: &BTreeMap<u64, String>| {
            Journal::begin(&folder, "a", identity, part, chunks).unwrap()
        };
        let first = known(&identity());
        assert!(first.chunks.is_empty() && first.part.is_none());
        let mut journal = begin(&identity(), "p", &first.chunks);
        journal.add_chunk(3, "cc").unwrap();
        journal.add_chunk(0, "aa").unwrap();
        let Known { part, chunks } = known(&identity());
        assert_eq!(chunks, BTreeMap::from([(0, "aa".to_owned()), (3, "cc".to_owned())]));
        assert_eq!(part.as_deref(), Some("p"));
        // A rewritten journal has the same chunks. An incomplete line does not affect the other lines.
        let journal = begin(&identity(), "p", &chunks);
        write!(&journal.file, "1 b").unwrap();
        assert_eq!(known(&identity()).chunks, chunks);
        // For a file that has changed, only the partial file is known, so that it can be removed.
        let changed = Identity { modified_ns: 2, ..identity() };
        let of_changed = known(&changed);
        assert!(of_changed.chunks.is_empty() && of_changed.part.as_deref() == Some("p"));
        begin(&changed, "q", &BTreeMap::new()).remove();
        assert!(names(&folder).is_empty());
    }

    #[test]
    fn a_killed_run_finds_its_place_and_its_names_whatever_ran_beside_it() {
        let (_place, folder) = state();
        let take = |command| RunLock::take(&folder, command).unwrap();
        let (first, other) = (take("a"), take("b"));
        let second = take("a");
        assert!(first.token != second.token && first.token != other.token && first.secret != second.secret);
        let tokens = [&first, &other].map(|place| place.token.clone());
        drop((first, other, second));
        assert_eq!(names(&folder), ["id"]);
        let other = take("b");
        let first = take("a");
        assert_eq!([&first.token, &other.token].map(String::clone), tokens);
        assert!(first.former_secrets.is_empty());
        // A killed run leaves its lock file, so the next run knows the killed run's secret but has a different one.
        let secret = first.secret.clone();
        first.leaves_parts.set(true);
        drop(first);
        let next = take("a");
        assert_eq!((&next.token, &next.former_secrets), (&tokens[0], &vec![secret.clone()]));
        assert_ne!(next.secret, secret);
        drop(next);
        assert!(take("a").former_secrets.is_empty());
    }

    #[test]
    fn nobody_else_is_believed_and_no_link_is_followed() {
        let (place, folder) = state();
        assert_eq!(fs::metadata(folder.path()).unwrap().permissions().mode() & 0o777, 0o700);
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        drop(open_state(folder.path()).unwrap());
        assert_eq!(fs::metadata(folder.path()).unwrap().permissions().mode() & 0o777, 0o700);
        let elsewhere = place.path().join("elsewhere");
        for name in ["id", &*format!("place-{}-0", &hash::of(b"a")[..16])] {
            symlink(&elsewhere, folder.path().join(name)).unwrap();
            assert!(RunLock::take(&folder, "a").is_err(), "{name}");
            fs::remove_file(folder.path().join(name)).unwrap();
            assert!(!elsewhere.exists(), "{name}");
        }
        symlink(&elsewhere, folder.path().join(Journal::name("a", &identity()))).unwrap();
        assert!(Journal::known(&folder, "a", &identity()).is_err());
        // Rewriting a journal replaces the link instead of following it.
        drop(Journal::begin(&folder, "a", &identity(), "p", &BTreeMap::new()).unwrap());
        assert!(!elsewhere.exists() && Journal::known(&folder, "a", &identity()).is_ok());
        // Any user with write access to the folder could have planted files in it.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o770)).unwrap();
        assert!(open_state(folder.path()).is_err());
    }

    #[test]
    fn as_root_state_of_another_user_is_refused() {
        let (place, folder) = state();
        std::os::unix::fs::chown(folder.path(), Some(61_234), None).unwrap();
        assert!(open_state(folder.path()).is_err());
        // No state folder is created in another user's home, because that user could never use it.
        let home = place.path().join("home");
        fs::create_dir(&home).unwrap();
        std::os::unix::fs::chown(&home, Some(61_234), None).unwrap();
        let refused = open_state(&home.join(".local/state/copy")).unwrap_err().to_string();
        assert!(refused.ends_with("home belongs to user 61234"), "{refused}");
        assert_eq!(fs::read_dir(&home).unwrap().count(), 0);
    }
}
