//! Control groups of versions 1 and 2.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Component, Path, PathBuf},
};

/// A version of control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Version 1: one hierarchy for each controller.
    One,
    /// Version 2: one hierarchy for all controllers.
    Two,
}

/// The group in which this process can create groups for a controller such as `cpu` or `memory`, and its version.
/// Processes in such a group stay within the limits of this process. `None` if no hierarchy is mounted. Also `None` if
/// this process would have to leave a version 2 group with limits, because that group does not enable the controller
/// for its children.
///
/// # Errors
/// If the mounts or this process's groups cannot be read.
pub fn parent(controller: &str) -> io::Result<Option<(PathBuf, Version)>> {
    let (mounts, groups) = (crate::read("/proc/self/mountinfo")?, crate::read("/proc/self/cgroup")?);
    Ok(find(&mounts, &groups, controller, |file| fs::read_to_string(file).unwrap_or_default()))
}

/// Creates a control group.
///
/// # Errors
/// If this user lacks the permission, or the kernel refuses.
pub fn create(path: &Path) -> io::Result<()> {
    fs::create_dir(path).map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => "; run proofload as root",
            _ => "",
        };
        io::Error::new(
            error.kind(),
            format!("cannot create the control group {}: {error}{advice}", path.display()),
        )
    })
}

/// Adds the quota counters from a group's file `cpu.stat` under names that begin with `prefix`: its periods, its throttled periods and its
/// throttled time.
/// Throttled time is summed over processors: four processors throttled for one second count four seconds.
pub(crate) fn add_throttling(stat: &str, prefix: &str, values: &mut BTreeMap<String, u64>) {
    let of = |name: &str| crate::number(stat, name);
    // Version 2 reports microseconds, version 1 nanoseconds.
    let us = of("throttled_usec ").or_else(|| Some(of("throttled_time ")? / 1_000));
    let counts =
        [("periods", of("nr_periods ")), ("throttled_periods", of("nr_throttled ")), ("throttled_us", us)];
    let known = counts.into_iter().filter_map(|(name, value)| Some((format!("{prefix}.{name}"), value?)));
    values.extend(known);
}

/// The quota counters of all groups that limit a process's processor time; empty if no group does. The names of the nearest begin with
/// `cgroup`, those of the groups above it with `cgroup_above1`, `cgroup_above2` and so on.
pub(crate) fn quota_of(pid: u32) -> BTreeMap<String, u64> {
    let texts = || {
        Some((crate::read("/proc/self/mountinfo").ok()?, crate::read(format!("/proc/{pid}/cgroup")).ok()?))
    };
    let group = texts().and_then(|(mounts, groups)| group_of(&mounts, &groups, "cpu"));
    group.map_or_else(BTreeMap::new, |group| quota_above(&group))
}

fn quota_above(group: &Path) -> BTreeMap<String, u64> {
    // Without a limit, the file contains `max` in version 2 and -1 in version 1.
    let limit = |group: &Path| {
        let text =
            ["cpu.max", "cpu.cfs_quota_us"].into_iter().find_map(|file| crate::read(group.join(file)).ok());
        text?.split_whitespace().next()?.parse::<u64>().ok()
    };
    let mut values = BTreeMap::new();
    for (level, limited) in group.ancestors().filter(|group| limit(group).is_some()).enumerate() {
        let prefix = if level == 0 { "cgroup".to_owned() } else { format!("cgroup_above{level}") };
        add_throttling(&crate::read(limited.join("cpu.stat")).unwrap_or_default(), &prefix, &mut values);
    }
    values
}

/// The folder of a process's group for a controller, according to the texts of `mountinfo` and of the process's
/// `cgroup`. A group of version 1 is preferred.
pub(crate) fn group_of(mounts: &str, groups: &str, controller: &str) -> Option<PathBuf> {
    let of = |wanted: Version| {
        mounted(mounts, controller).find_map(|(version, root, point)| {
            let hierarchy = if version == Version::One { controller } else { "" };
            (version == wanted).then(|| own_group(groups, hierarchy, root, point)).flatten()
        })
    };
    of(Version::One).or_else(|| of(Version::Two))
}

/// Finds the group according to the texts of `mountinfo` and `cgroup`. `read` reads a file of a group.
fn find(
    mounts: &str,
    groups: &str,
    controller: &str,
    read: impl Fn(&Path) -> String,
) -> Option<(PathBuf, Version)> {
    mounted(mounts, controller).find_map(|(version, root, point)| match version {
        Version::One => own_group(groups, controller, root, point).map(|group| (group, version)),
        Version::Two => own_group(groups, "", root, point)
            .and_then(|group| enabled_ancestor(&group, point, controller, &read))
            .map(|group| (group, version)),
    })
}

/// The mounted hierarchies that may have a controller. For each: version, group at the root of the mount, mount point.
fn mounted<'a>(mounts: &'a str, controller: &'a str) -> impl Iterator<Item = (Version, &'a str, &'a Path)> {
    // Fields, proc_pid_mountinfo(5): … root mount-point options … - type source super-options
    mounts.lines().filter_map(move |line| {
        let (mount, kind) = line.split_once(" - ")?;
        let (mut mount, mut kind) = (mount.split(' ').skip(3), kind.split(' '));
        let (root, point) = (mount.next()?, Path::new(mount.next()?));
        match (kind.next()?, kind.nth(1)?) {
            ("cgroup", options) if has_word(options, ',', controller) => Some((Version::One, root, point)),
            ("cgroup2", _) => Some((Version::Two, root, point)),
            _ => None,
        }
    })
}

fn has_word(list: &str, separator: char, word: &str) -> bool {
    list.split(separator).any(|known| known.trim() == word)
}

/// A process's group in the hierarchy of a controller (version 2 if the name is empty). The group `root` is mounted at
/// `point`. None if the mount does not show the process's group.
fn own_group(groups: &str, controller: &str, root: &str, point: &Path) -> Option<PathBuf> {
    // Fields, cgroups(7): number:controllers:path
    let mut groups = groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let (_, path) = groups.find(|(controllers, _)| has_word(controllers, ',', controller))?;
    let below_root = Path::new(path).strip_prefix(root).ok()?;
    // The path of a group outside this process's cgroup namespace begins with `..`.
    let is_below = below_root.components().all(|part| matches!(part, Component::Normal(_)));
    is_below.then(|| point.join(below_root))
}

/// The nearest group, from `lowest` up to `point`, that enables the controller for its children. None if a group below
/// it has limits.
fn enabled_ancestor(
    lowest: &Path,
    point: &Path,
    controller: &str,
    read: &impl Fn(&Path) -> String,
) -> Option<PathBuf> {
    for group in lowest.ancestors().take_while(|group| group.starts_with(point)) {
        if has_word(&read(&group.join("cgroup.subtree_control")), ' ', controller) {
            return Some(group.to_owned());
        }
        let limits = ["cpu.max", "cpuset.cpus", "io.max", "memory.high", "memory.max"];
        let has_limit = |file| {
            let limit = read(&group.join(file));
            !limit.trim().is_empty() && !limit.starts_with("max")
        };
        if limits.into_iter().any(has_limit) {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "30 23 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n";
    const TWO: &str = "31 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn groups_are_made_within_the_own_one() {
        let groups = "4:cpuacct,cpu:/a/b\n0::/\n";
        let nothing = |_: &Path| String::new();
        let group = |mounts: &str| find(mounts, groups, "cpu", nothing);
        let below = Some(("/sys/fs/cgroup/cpu,cpuacct/a/b".into(), Version::One));
        assert_eq!(group(ONE), below);
        assert_eq!(group(&(TWO.to_owned() + ONE)), below, "version 2 does not enable it");
        let of_container = ONE.replace(" / ", " /a ");
        assert_eq!(group(&of_container), Some(("/sys/fs/cgroup/cpu,cpuacct/b".into(), Version::One)));
        assert_eq!(group(TWO), None);
        let elsewhere = ONE.replace(" / ", " /b ");
        assert_eq!(group(&elsewhere), None, "another part of the hierarchy is mounted");
        assert_eq!(group(&(elsewhere + ONE)), below);
        assert_eq!(find(ONE, "4:cpu:/../b\n", "cpu", nothing), None, "outside of the namespace");
        assert_eq!(group_of(&(TWO.to_owned() + ONE), groups, "cpu"), below.map(|(group, _)| group));
        assert_eq!(group_of(TWO, "0::/b\n", "cpu"), Some("/sys/fs/cgroup/b".into()));
    }

    #[test]
    fn both_versions_tell_how_long_a_quota_stopped_a_group() {
        let expected = [("periods", 9), ("throttled_periods", 7), ("throttled_us", 1_500)];
        let expected = expected.map(|(name, value)| (format!("cgroup.{name}"), value));
        for stat in [
            "nr_periods 9\nnr_throttled 7\nthrottled_time 1500000\n",
            "usage_usec 3\nnr_periods 9\nnr_throttled 7\nthrottled_usec 1500\n",
        ] {
            let mut values = BTreeMap::new();
            add_throttling(stat, "cgroup", &mut values);
            assert_eq!(values, expected.clone().into());
        }
    }

    #[test]
    fn the_nearest_group_with_a_limit_has_the_quota() {
        let folder = tempfile::tempdir().unwrap();
        let (above, inner) = (folder.path().join("a"), folder.path().join("a/b/c"));
        fs::create_dir_all(&inner).unwrap();
        let write = |group: &Path, file: &str, text: &str| fs::write(group.join(file), text).unwrap();
        for (file, none, some) in
            [("cpu.max", "max 100000", "50000 100000"), ("cpu.cfs_quota_us", "-1", "50000")]
        {
            write(&above, "cpu.stat", "nr_periods 9\nnr_throttled 7\nthrottled_usec 1500\n");
            write(&inner, "cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_usec 0\n");
            write(&inner, file, none);
            write(&above, file, none);
            assert_eq!(quota_above(&inner), BTreeMap::new());
            write(&above, file, some);
            assert_eq!(quota_above(&inner)["cgroup.throttled_periods"], 7);
            write(&inner, file, some);
            assert_eq!(quota_above(&inner)["cgroup.throttled_periods"], 0);
            assert_eq!(quota_above(&inner)["cgroup_above1.throttled_periods"], 7);
            [&inner, &above].iter().for_each(|group| fs::remove_file(group.join(file)).unwrap());
        }
    }

    #[test]
    fn a_group_of_version_2_is_left_only_if_it_has_no_limits() {
        let group = |quota: &'static str, enabled: &'static str| {
            let read = move |file: &Path| match file.to_str().unwrap() {
                "/sys/fs/cgroup/a/b/cpu.max" => quota.to_owned(),
                "/sys/fs/cgroup/a/cgroup.subtree_control" => enabled.to_owned(),
                _ => String::new(),
            };
            find(TWO, "0::/a/b\n", "memory", read)
        };
        assert_eq!(group("max 100000\n", "cpu memory\n"), Some(("/sys/fs/cgroup/a".into(), Version::Two)));
        assert_eq!(group("50000 100000\n", "cpu memory\n"), None);
        assert_eq!(group("max 100000\n", "cpuset\n"), None);
    }
}
