//! Control groups, of both versions.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// A version of control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Version 1: one hierarchy for each controller.
    One,
    /// Version 2: one hierarchy for all controllers.
    Two,
}

/// The root of the hierarchy for a controller such as `cpu` or `memory`, and its version. `None` if no hierarchy is mounted,
/// or if the root group of version 2 does not enable the controller for its children.
///
/// # Errors
/// When the mounts cannot be read.
pub fn root(controller: &str) -> io::Result<Option<(PathBuf, Version)>> {
    let mounts = crate::read("/proc/self/mountinfo")?;
    Ok(find(&mounts, controller, |root| fs::read_to_string(root.join("cgroup.subtree_control"))))
}

/// Finds the root in the text of `mountinfo`. `subtree_control` reads the controllers that a group of version 2 enables for
/// its children.
fn find(
    mounts: &str,
    controller: &str,
    subtree_control: impl Fn(&Path) -> io::Result<String>,
) -> Option<(PathBuf, Version)> {
    // proc_pid_mountinfo(5): … root mount-point options … - type source super-options
    let mounts = mounts.lines().filter_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        Some((PathBuf::from(mount.split(' ').nth(4)?), kind.next()?, kind.nth(1)?))
    });
    for (path, kind, options) in mounts {
        match kind {
            "cgroup" if options.split(',').any(|option| option == controller) => {
                return Some((path, Version::One));
            }
            "cgroup2" => {
                let controllers = subtree_control(&path).unwrap_or_default();
                if controllers.split_whitespace().any(|known| known == controller) {
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
    fn the_version_that_has_the_controller_is_found() {
        let one = "30 23 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n";
        let two = "31 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let with = |list: &'static str| move |_: &Path| Ok(list.to_owned());
        assert_eq!(find(&(two.to_owned() + one), "cpu", with("")).unwrap().1, Version::One);
        assert_eq!(find(two, "cpu", with("memory cpu")).unwrap(), ("/sys/fs/cgroup".into(), Version::Two));
        assert!(find(two, "cpu", with("cpuset memory")).is_none());
    }
}
