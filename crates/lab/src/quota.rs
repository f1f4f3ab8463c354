//! Processor quotas by control groups, of whichever version the machine has mounted.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use kernel::cgroups::{self, Version};
use undo::{Change, Journal};

/// How often a quota is renewed, in microseconds: the kernel's own default.
const PERIOD_US: u64 = 100_000;

/// The control groups of a lab.
#[derive(Debug)]
pub(crate) struct Quotas {
    folder: PathBuf,
    version: Version,
}

impl Quotas {
    /// Makes the group that all others of this lab lie in.
    pub(crate) fn make(journal: &Journal) -> io::Result<Self> {
        let (root, version) = cgroups::root("cpu")?
            .ok_or_else(|| {
                io::Error::other(
                    "no control groups for processor time: mount the cpu controller of version 1, or let the root \
                     group of version 2 hand it on (echo +cpu > /sys/fs/cgroup/cgroup.subtree_control), or leave \
                     cpu_quota out",
                )
            })?;
        let folder = root.join(format!("proofload-{}", journal.run()));
        let quotas = Self { folder, version };
        make_group(&quotas.folder, journal)?;
        if version == Version::Two {
            fs::write(quotas.folder.join("cgroup.subtree_control"), "+cpu")?;
        }
        Ok(quotas)
    }

    /// Makes a host's group and gives it so many processors. Returns the file that processes join by.
    pub(crate) fn add(&self, host: &str, processors: f64, journal: &Journal) -> io::Result<PathBuf> {
        let folder = self.folder.join(host);
        make_group(&folder, journal)?;
        // The kernel takes no less than 1 ms.
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
    let explain = |error: io::Error| {
        io::Error::new(error.kind(), format!("cannot make the control group {}: {error}", path.display()))
    };
    fs::create_dir(path).map_err(explain)
}
