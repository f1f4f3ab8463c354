//! The memory of a group of processes, counted by a control group of their own.

use std::{fs, io, path::PathBuf};

use kernel::cgroups::{self, Version};
use undo::{Change, Folder, Journal};

/// What the journals of such groups are called.
const KIND: &str = "command";

/// A control group that counts the memory of its processes. It goes when this is dropped, or with the next command if this
/// process is killed.
#[derive(Debug)]
pub struct MemoryGroup {
    folder: PathBuf,
    version: Version,
    journal: Option<Journal>,
}

impl MemoryGroup {
    /// Makes one, and writes that down in a journal of `journals`.
    ///
    /// # Errors
    /// When this machine counts no memory by control groups, or this user may make none.
    pub fn make(journals: &Folder) -> io::Result<Self> {
        let (root, version) = cgroups::root("memory")?
            .ok_or_else(|| io::Error::other("there are no control groups for memory"))?;
        let journal = Journal::open(journals, KIND, "programs of a trial").map_err(io::Error::other)?;
        let folder = root.join(format!("proofload-{}", journal.run()));
        journal.record(Change::ControlGroup { path: folder.clone() }).map_err(io::Error::other)?;
        fs::create_dir(&folder)?;
        Ok(Self { folder, version, journal: Some(journal) })
    }

    /// The file that a process joins by, writing `0`.
    pub fn joined_by(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    /// What its processes hold now, in bytes: their own memory and what of files they have mapped, not what the kernel keeps
    /// of files that they read or wrote.
    pub fn used_bytes(&self) -> Option<u64> {
        let text = fs::read_to_string(self.folder.join("memory.stat")).ok()?;
        let [own, mapped] = match self.version {
            Version::One => ["total_rss ", "total_mapped_file "],
            Version::Two => ["anon ", "file_mapped "],
        };
        Some(kernel::number(&text, own)? + kernel::number(&text, mapped)?)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // What cannot be undone stays in the journal, for the next command.
        let _ = self.journal.take().map(Journal::finish);
    }
}
