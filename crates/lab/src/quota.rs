//! Processor quotas by control groups of version 1 or 2.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use kernel::cgroups::{self, Version};
use undo::{Change, Journal};

/// Period of a quota in microseconds: the kernel's default.
const PERIOD_US: u64 = 100_000;

/// The control groups of a lab.
#[derive(Debug)]
pub(crate) struct Quotas {
    folder: PathBuf,
    version: Version,
}

impl Quotas {
    /// Creates the parent of the groups of the lab's hosts.
    pub(crate) fn make(journal: &Journal) -> io::Result<Self> {
        let (parent, version) = cgroups::parent("cpu")?
            .ok_or_else(|| {
                io::Error::other(
                    "no control groups for processor time: mount the cpu controller of version 1, or enable it in the \
                     root group of version 2 (echo +cpu > /sys/fs/cgroup/cgroup.subtree_control) and start proofload in \
                     a group without limits, or leave cpu_quota out",
                )
            })?;
        let folder = parent.join(format!("proofload-{}", journal.run()));
        let quotas = Self { folder, version };
        make_group(&quotas.folder, journal)?;
        if version == Version::Two {
            fs::write(quotas.folder.join("cgroup.subtree_control"), "+cpu")?;
        }
        Ok(quotas)
    }

    /// Creates a host's group with a quota of `processors`. Returns the file that adds processes to the group.
    pub(crate) fn add(&self, host: &str, processors: f64, journal: &Journal) -> io::Result<PathBuf> {
        let folder = self.folder.join(host);
        make_group(&folder, journal)?;
        // The kernel rejects quotas below 1 ms.
        let quota_us = ((processors * PERIOD_US as f64).round() as u64).max(1_000);
        match self.version {
            Version::One => {
                fs::write(folder.join("cpu.cfs_period_us"), PERIOD_US.to_string())?;
                fs::write(folder.join("cpu.cfs_quota_us"), quota_us.to_string())?;
            }
            Version::Two => fs::write(folder.join("cpu.max"), format!("{quota_us} {PERIOD_US}"))?,
        }
        Ok(folder.join("cgroup.procs"))
    }
}

fn make_group(path: &Path, journal: &Journal) -> io::Result<()> {
    journal.record(Change::ControlGroup { path: path.to_owned() }).map_err(io::Error::other)?;
    cgroups::create(path)
}
