//! Measures the memory of a group of processes with a control group.

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
    /// Creates a control group for programs and records it in a journal of `journals`. `has_quota` says whether their host has a quota of
    /// processor time. Version 2 has a single hierarchy, so programs that join this group would leave the group with the quota.
    ///
    /// # Errors
    /// If this machine counts no memory by control groups, if this user may not create one, or for a quota in version 2.
    pub fn create(journals: &Folder, has_quota: bool) -> io::Result<Self> {
        let (parent, version) = cgroups::parent("memory")?
            .ok_or_else(|| {
            io::Error::other(
                "this machine has no memory controller for control groups, or proofload itself runs in a group with limits; start \
                 proofload in a group without limits (docs/command.md)",
            )
        })?;
        if has_quota && version == Version::Two {
            return Err(io::Error::other(
                "cpu_quota puts the programs into their host's control group, so their memory cannot be measured; leave cpu_quota out",
            ));
        }
        let journal = Journal::open(journals, KIND, "programs of a trial").map_err(io::Error::other)?;
        let folder = parent.join(format!("proofload-{}", journal.run()));
        journal.record(Change::ControlGroup { path: folder.clone() }).map_err(io::Error::other)?;
        cgroups::create(&folder)?;
        Ok(Self { folder, version, journal: Some(journal) })
    }

    /// The file to which a process writes `0` to join.
    pub fn join_file(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    /// Memory of all processes in bytes: their own and mapped files, without the kernel's cache of other files.
    pub fn used_bytes(&self) -> Option<u64> {
        let text = fs::read_to_string(self.folder.join("memory.stat")).ok()?;
        let [anonymous, mapped] = match self.version {
            Version::One => ["total_rss ", "total_mapped_file "],
            Version::Two => ["anon ", "file_mapped "],
        };
        Some(kernel::number(&text, anonymous)? + kernel::number(&text, mapped)?)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // A group that cannot be removed stays in the journal for the next command.
        let _ = self.journal.take().map(Journal::finish);
    }
}
