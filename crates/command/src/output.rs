//! The folder that programs write their output to. Proofload later stores the output elsewhere, without secrets.

use std::{io, path::Path};

use files::Trust;
use undo::{Change, Folder, Journal};

/// Kind of the journals of these folders.
const KIND: &str = "command";

/// A folder below that of the journals that other users cannot access. It is removed on drop, or by the next command if this process is
/// killed.
#[derive(Debug)]
pub struct OutputFolder {
    held: files::Folder,
    // Removes the folder when dropped.
    _journal: Journal,
}

impl OutputFolder {
    /// Makes a folder and records it in a journal of `journals`.
    ///
    /// # Errors
    /// If it cannot be recorded or made.
    pub fn create(journals: &Folder) -> io::Result<Self> {
        let journal = Journal::open(journals, KIND, "programs of a trial").map_err(io::Error::other)?;
        let name = format!("{}.output", journal.run());
        let change = Change::Folder { path: journals.path().join(&name) };
        journal.record(change).map_err(io::Error::other)?;
        Ok(Self { held: journals.held().make_below(&name, Trust::Private)?, _journal: journal })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.held.path()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn nobody_else_can_look_into_it_and_it_ends_with_its_owner() {
        let temporary = tempfile::tempdir().unwrap();
        let journals = Folder::at(temporary.path().join("state")).unwrap();
        let output = OutputFolder::create(&journals).unwrap();
        let path = output.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o700);
        fs::write(path.join("a"), "secret").unwrap();
        drop(output);
        assert_eq!(fs::read_dir(journals.path()).unwrap().count(), 0);
    }
}
