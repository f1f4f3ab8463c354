//! What of a large file has arrived, for those who go on later.
//!
//! A file of lines: who the file is, then a line for each chunk with its hash. A torn line ends it. What it lists is hashed again
//! before it counts: the machines may have lost it since.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// What a journal is bound to: it says nothing of another file, or of the same after a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) source: String,
    pub(crate) target: String,
    pub(crate) size_bytes: u64,
    pub(crate) modified_ns: i128,
    pub(crate) chunk_bytes: u64,
}

/// The journal of one file.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Opens the journal of a file in a folder, and tells which chunks are there, with their hashes.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn open(folder: &Path, identity: &Identity) -> io::Result<(Self, BTreeMap<u64, String>)> {
        fs::create_dir_all(folder)?;
        let name = crate::hash::of(format!("{}\0{}", identity.source, identity.target).as_bytes());
        let path = folder.join(format!("{}.journal", &name[..32]));
        let known =
            fs::read(&path).map(|text| read(&String::from_utf8_lossy(&text), identity)).unwrap_or_default();
        // Written anew, so that nothing stands behind a torn line.
        let mut text = serde_json::to_string(identity).expect("an identity is JSON") + "\n";
        for (chunk, hash) in &known {
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

fn read(text: &str, identity: &Identity) -> BTreeMap<u64, String> {
    let mut lines = text.split_inclusive('\n').map_while(|line| line.strip_suffix('\n'));
    let of_file = lines.next().and_then(|line| serde_json::from_str::<Identity>(line).ok());
    if of_file.as_ref() != Some(identity) {
        return BTreeMap::new();
    }
    let chunk = |line: &str| {
        let (chunk, hash) = line.split_once(' ')?;
        Some((chunk.parse().ok()?, hash.to_owned()))
    };
    lines.map_while(chunk).collect()
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
        let (mut journal, known) = Journal::open(folder.path(), &identity()).unwrap();
        assert!(known.is_empty());
        journal.has(3, "cc").unwrap();
        journal.has(0, "aa").unwrap();
        let open = |identity: &Identity| Journal::open(folder.path(), identity).unwrap();
        let known = open(&identity()).1;
        assert_eq!(known, BTreeMap::from([(0, "aa".to_owned()), (3, "cc".to_owned())]));
        // It is as good as before after it was opened, and a torn line takes nothing along.
        let (journal, _) = open(&identity());
        write!(&journal.file, "1 b").unwrap();
        assert_eq!(open(&identity()).1, known);
        let changed = Identity { modified_ns: 2, ..identity() };
        assert!(open(&changed).1.is_empty());
        open(&changed).0.remove();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
