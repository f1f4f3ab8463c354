//! Processor quotas by control groups, of whichever version the machine has mounted.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use undo::{Change, Journal};

/// How often a quota is renewed, in microseconds: the kernel's own default.
const PERIOD_US: u64 = 100_000;

/// The control groups of a lab.
#[derive(Debug)]
pub(crate) struct Quotas {
    folder: PathBuf,
    version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Quotas {
    /// Makes the group that all others of this lab lie in.
    pub(crate) fn make(journal: &Journal) -> io::Result<Self> {
        let mounts = kernel::read("/proc/self/mountinfo")?;
        let (root, version) = find(&mounts, |root| fs::read_to_string(root.join("cgroup.subtree_control")))
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

/// The root of the control groups for processor time. `handed_on` reads which controllers a group of
/// version 2 hands on to its children.
fn find(mounts: &str, handed_on: impl Fn(&Path) -> io::Result<String>) -> Option<(PathBuf, Version)> {
    // proc_pid_mountinfo(5): … root mount-point options … - type source super-options
    let mounts = mounts.lines().filter_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        Some((PathBuf::from(mount.split(' ').nth(4)?), kind.next()?, kind.nth(1)?))
    });
    for (path, kind, options) in mounts {
        match kind {
            "cgroup" if options.split(',').any(|option| option == "cpu") => {
                return Some((path, Version::One));
            }
            "cgroup2" => {
                let controllers = handed_on(&path).unwrap_or_default();
                if controllers.split_whitespace().any(|controller| controller == "cpu") {
                    return Some((path, Version::Two));
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whichever_version_has_the_controller_is_found() {
        let one = "30 23 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n";
        let two = "31 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let with = |list: &'static str| move |_: &Path| Ok(list.to_owned());
        assert_eq!(find(&(two.to_owned() + one), with("")).unwrap().1, Version::One);
        assert_eq!(find(two, with("memory cpu")).unwrap(), ("/sys/fs/cgroup".into(), Version::Two));
        assert!(find(two, with("cpuset memory")).is_none());
    }
}
