//! Limits of this machine that a trial may run into.

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
use serde::{Deserialize, Serialize};

/// Resident and mapped memory of this process when limits were first read, in bytes. Memory that trials have added since then
/// is reused by the next trial, so it counts as available.
static INITIAL_MEMORY: OnceLock<(u64, u64)> = OnceLock::new();

/// Memory that this process maps after limits were read, besides its connections, in bytes: thread stacks and buffers of the kernel
/// observers.
const OTHER_MAPPED_BYTES: u64 = 10 * 1024 * 1024;

/// Limits of this machine and process that a plan may run into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineLimits {
    /// Hard limit of descriptors of a process.
    pub hard_descriptors: u64,
    /// Local ports that the kernel assigns, per pair of local and target address.
    pub ports: u64,
    /// Memory that is available without swapping, within the limits of this process and its cgroups, in bytes.
    pub available_memory_bytes: u64,
    /// Processors on which this process may run.
    pub cpus: u32,
    /// Number of processes and threads that this user and cgroup may still start.
    pub tasks: u64,
}

impl MachineLimits {
    /// Limits for tests and examples, large enough for their plans.
    pub const EXAMPLE: Self = Self {
        hard_descriptors: 20_000,
        ports: 28_232,
        available_memory_bytes: 1 << 34,
        cpus: 2,
        tasks: 30_000,
    };

    /// Limits that no plan reaches, for a machine that is not known yet.
    pub const BOUNDLESS: Self = Self {
        hard_descriptors: 1 << 40,
        ports: 1 << 40,
        available_memory_bytes: 1 << 60,
        cpus: 2,
        tasks: 1 << 40,
    };

    /// Reads this machine's limits.
    ///
    /// # Errors
    /// When /proc does not have them; the error names the file.
    pub fn read() -> io::Result<Self> {
        let file = kernel::sysctl_path("net.ipv4.ip_local_port_range");
        let ports = read(&file)?;
        let Some(ports) = kernel::leftovers::ports(&ports) else {
            let message = format!("{} contains '{}' instead of two numbers", file.display(), ports.trim());
            return Err(io::Error::other(message));
        };
        let memory = read("/proc/meminfo")?;
        let available_bytes = number(&memory, "MemAvailable:").unwrap_or(u64::MAX / 1024) * 1024;
        let address_space = getrlimit(Resource::As).current.unwrap_or(u64::MAX);
        let status = read("/proc/self/status")?;
        let status_bytes = |name: &str| number(&status, name).unwrap_or(0) * 1024;
        let (resident_bytes, mapped_bytes) = (status_bytes("VmRSS:"), status_bytes("VmSize:"));
        let (initial_resident, initial_mapped) =
            *INITIAL_MEMORY.get_or_init(|| (resident_bytes, mapped_bytes));
        Ok(Self {
            hard_descriptors: getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX),
            ports,
            available_memory_bytes: available_bytes
                .min(cgroup_memory_bytes())
                .saturating_add(resident_bytes.saturating_sub(initial_resident))
                .min(address_space.saturating_sub(initial_mapped + OTHER_MAPPED_BYTES)),
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            tasks: user_tasks().min(cgroup_tasks()),
        })
    }
}

/// Raises this process's soft descriptor limit to the hard one; returns the new limit.
pub fn raise_descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // If the kernel refuses, the old limit stays.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Number of tasks that `ulimit -u` still allows this user. All processes of the user count. The limit does not apply to
/// root.
fn user_tasks() -> u64 {
    let Some(limit) = getrlimit(Resource::Nproc).current else { return u64::MAX };
    let unlimited = CapabilitySet::SYS_RESOURCE | CapabilitySet::SYS_ADMIN;
    if getuid().is_root() || capabilities(None).is_ok_and(|sets| sets.effective.intersects(unlimited)) {
        return u64::MAX;
    }
    let user = u64::from(getuid().as_raw());
    let mut used = 0;
    for process in kernel::processes() {
        let Ok(status) = read(format!("/proc/{process}/status")) else { continue };
        if number(&status, "Uid:") == Some(user) {
            used += number(&status, "Threads:").unwrap_or(0);
        }
    }
    limit.saturating_sub(used)
}

fn cgroup_tasks() -> u64 {
    min_of_cgroups("pids", |group| {
        let file = |name: &str| read_number(&group.join(name));
        Some(file("pids.max")?.saturating_sub(file("pids.current")?))
    })
}

fn cgroup_memory_bytes() -> u64 {
    min_of_cgroups("memory", |group| {
        let file = |name: &str| read_number(&group.join(name));
        let limit = file("memory.max").or_else(|| file("memory.limit_in_bytes"))?;
        let used = file("memory.current").or_else(|| file("memory.usage_in_bytes"))?;
        // The kernel frees the page cache when memory is needed, so its inactive part counts as available.
        let cached = fs::read_to_string(group.join("memory.stat")).ok();
        let cached = cached.and_then(|text| number(&text, "inactive_file")).unwrap_or(0);
        Some(limit.saturating_sub(used.saturating_sub(cached)))
    })
}

/// The minimum of `available` over this process's cgroup and its ancestors, of both cgroup versions.
fn min_of_cgroups(controller: &str, available: impl Fn(&Path) -> Option<u64>) -> u64 {
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
    // In a container the path may be the host's: the process's group is then the mount itself.
    let groups = folders.flatten().flat_map(|(group, mount)| {
        let within = |folder: &&Path| folder.starts_with(&mount);
        group.ancestors().take_while(within).filter_map(&available).collect::<Vec<_>>()
    });
    groups.min().unwrap_or(u64::MAX)
}

/// Reads a file that holds one number; `None` if it is missing or does not hold a number (such as `max`).
fn read_number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_limits() {
        let limits = MachineLimits::read().unwrap();
        assert!(limits.hard_descriptors > 0 && limits.ports > 0 && limits.cpus > 0, "{limits:?}");
        assert!(limits.available_memory_bytes > 0 && limits.tasks > 0, "{limits:?}");
        assert!(raise_descriptors() <= limits.hard_descriptors);
    }
}
