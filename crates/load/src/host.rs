//! What this machine lets a trial use.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use kernel::{number, read};
use rustix::{
    process::{Resource, Rlimit, getrlimit, getuid, setrlimit},
    thread::{CapabilitySet, capabilities},
};

/// What was resident and mapped of this process when limits were first read, in bytes. What was added since by a trial
/// is there for the next one.
static FIRST_MEMORY: OnceLock<(u64, u64)> = OnceLock::new();

/// Limits of this machine and process that a plan may run into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host {
    /// Most descriptors a process may raise its own limit to.
    pub hard_descriptors: u64,
    /// Local ports that the kernel hands out, per pair of local and target address.
    pub ports: u64,
    /// Memory that can be had without swapping, within the limits of this process and its cgroups, in bytes.
    pub available_memory_bytes: u64,
    /// Processors this process may run on.
    pub cpus: u32,
    /// Processes and threads that this user and cgroup may still start.
    pub tasks: u64,
}

impl Host {
    /// A machine for tests and examples, with room for what they plan.
    pub const EXAMPLE: Self = Self {
        hard_descriptors: 20_000,
        ports: 28_232,
        available_memory_bytes: 1 << 34,
        cpus: 2,
        tasks: 30_000,
    };

    /// Reads this machine's limits.
    ///
    /// # Errors
    /// When /proc does not tell them; names the file.
    pub fn read() -> io::Result<Self> {
        let file = kernel::setting("net.ipv4.ip_local_port_range");
        let ports = read(&file)?;
        let bounds: Vec<u64> = ports.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        let [low, high] = bounds[..] else {
            let what = format!("{} holds '{}', not two numbers", file.display(), ports.trim());
            return Err(io::Error::other(what));
        };
        let memory = read("/proc/meminfo")?;
        let available_bytes = number(&memory, "MemAvailable:").unwrap_or(u64::MAX / 1024) * 1024;
        let address_space = getrlimit(Resource::As).current.unwrap_or(u64::MAX);
        let status = read("/proc/self/status")?;
        let of_process = |name: &str| number(&status, name).unwrap_or(0) * 1024;
        let (resident_bytes, mapped_bytes) = (of_process("VmRSS:"), of_process("VmSize:"));
        let (resident_first, mapped_first) = *FIRST_MEMORY.get_or_init(|| (resident_bytes, mapped_bytes));
        Ok(Self {
            hard_descriptors: getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX),
            ports: (high + 1).saturating_sub(low),
            available_memory_bytes: available_bytes
                .min(cgroup_memory_bytes())
                .saturating_add(resident_bytes.saturating_sub(resident_first))
                .min(address_space.saturating_sub(mapped_first)),
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            tasks: user_tasks().min(cgroup_tasks()),
        })
    }
}

/// Raises this process's own descriptor limit as far as it may; gives what it is then.
pub fn raise_descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // A refusal leaves the old limit, which the pre-flight check then meets.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// What `ulimit -u` leaves this user, whose processes anywhere count; it does not bind root.
fn user_tasks() -> u64 {
    let Some(limit) = getrlimit(Resource::Nproc).current else { return u64::MAX };
    let free = CapabilitySet::SYS_RESOURCE | CapabilitySet::SYS_ADMIN;
    if getuid().is_root() || capabilities(None).is_ok_and(|sets| sets.effective.intersects(free)) {
        return u64::MAX;
    }
    let user = u64::from(getuid().as_raw());
    let of_user = |status: &String| number(status, "Uid:") == Some(user);
    let processes = kernel::processes().into_iter();
    let statuses = processes.filter_map(|process| read(format!("/proc/{process}/status")).ok());
    let used: u64 = statuses.filter(of_user).filter_map(|status| number(&status, "Threads:")).sum();
    limit.saturating_sub(used)
}

fn cgroup_tasks() -> u64 {
    let left = |group: &Path| {
        let of = |name: &str| read_number(&group.join(name));
        Some(of("pids.max")?.saturating_sub(of("pids.current")?))
    };
    least_of_cgroups("pids", left)
}

fn cgroup_memory_bytes() -> u64 {
    let left = |group: &Path| {
        let of = |name: &str| read_number(&group.join(name));
        let limit = of("memory.max").or_else(|| of("memory.limit_in_bytes"))?;
        let used = of("memory.current").or_else(|| of("memory.usage_in_bytes"))?;
        // Files that were read are given back when memory is wanted.
        let cached = fs::read_to_string(group.join("memory.stat")).ok();
        let cached = cached.and_then(|text| number(&text, "inactive_file")).unwrap_or(0);
        Some(limit.saturating_sub(used.saturating_sub(cached)))
    };
    least_of_cgroups("memory", left)
}

/// The least of what the cgroup of this process and those around it leave, of either version.
fn least_of_cgroups(controller: &str, left: impl Fn(&Path) -> Option<u64>) -> u64 {
    let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let folders = text.lines().filter_map(|line| {
        let [_, controllers, path] = line.splitn(3, ':').collect::<Vec<_>>()[..] else { return None };
        let mounts = match controllers {
            "" => ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(PathBuf::from).to_vec(),
            names if names.split(',').any(|name| name == controller) => {
                vec![Path::new("/sys/fs/cgroup").join(controller)]
            }
            _ => Vec::new(),
        };
        Some(mounts.into_iter().map(move |mount| (mount.join(path.trim_start_matches('/')), mount)))
    });
    // In a container the path may be that of the machine outside: the mount itself is then the own group.
    let groups = folders.flatten().flat_map(|(group, mount)| {
        let within = |folder: &&Path| folder.starts_with(&mount);
        group.ancestors().take_while(within).filter_map(&left).collect::<Vec<_>>()
    });
    groups.min().unwrap_or(u64::MAX)
}

/// A number in a file of its own; none where it is missing or no number (`max`).
fn read_number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_limits() {
        let host = Host::read().unwrap();
        assert!(host.hard_descriptors > 0 && host.ports > 0 && host.cpus > 0, "{host:?}");
        assert!(host.available_memory_bytes > 0 && host.tasks > 0, "{host:?}");
        assert!(raise_descriptors() <= host.hard_descriptors);
    }
}
