//! Measures the memory of a group of processes by a control group.

use std::{fs, io, path::PathBuf};

use kernel::cgroups::{self, Version};
use undo::{Change, Folder, Journal};

/// Kind of the journals of these groups.
const KIND: &str = "command";

/// A control group that counts the memory of its processes. It is removed on drop, or by the next command if this
/// process is killed.
#[derive(Debug)]
pub struct MemoryGroup {
    folder: PathBuf,
    version: Version,
    journal: Option<Journal>,
}

impl MemoryGroup {
    /// Creates a control group and records it in a journal of `journals`.
    ///
    /// # Errors
    /// If this machine counts no memory by control groups, or this user may not create one.
    pub fn create(journals: &Folder) -> io::Result<Self> {
        let (parent, version) = cgroups::parent("memory")?
            .ok_or_else(|| {
            io::Error::other(
                "this machine has none for memory, or proofload would have to leave one with limits (docs/command.md)",
            )
        })?;
        let journal = Journal::open(journals, KIND, "programs of a trial").map_err(io::Error::other)?;
        let folder = parent.join(format!("proofload-{}", journal.run()));
        journal.record(Change::ControlGroup { path: folder.clone() }).map_err(io::Error::other)?;
        fs::create_dir(&folder)?;
        Ok(Self { folder, version, journal: Some(journal) })
    }

    /// Whether a process that joins such a group leaves its group for processor time: in version 2 there is one hierarchy.
    pub fn takes_quota() -> bool {
        !matches!(cgroups::parent("memory"), Ok(Some((_, Version::One))))
    }

    /// The file to which a process writes `0` to join.
    pub fn join_file(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    /// Memory of all processes in bytes: their own and mapped files, without the kernel's cache of other files.
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
        // What cannot be undone stays in the journal for the next command.
        let _ = self.journal.take().map(Journal::finish);
    }
}
