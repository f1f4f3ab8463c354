//! What this machine lets a trial use.

use std::{fs, io};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Limits of this machine and process that a plan may run into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host {
    /// Most descriptors a process may raise its own limit to.
    pub hard_descriptors: u64,
    /// Local ports that the kernel hands out, per pair of local and target address.
    pub ports: u64,
    /// Memory that can be had without swapping, in bytes.
    pub available_memory_bytes: u64,
    /// Processors this process may run on.
    pub cpus: u32,
}

impl Host {
    /// Reads this machine's limits.
    ///
    /// # Errors
    /// When /proc does not tell them; names the file.
    pub fn read() -> io::Result<Self> {
        let ports = read("/proc/sys/net/ipv4/ip_local_port_range")?;
        let bounds: Vec<u64> = ports.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        let [low, high] = bounds[..] else {
            return Err(io::Error::other(format!(
                "/proc/sys/net/ipv4/ip_local_port_range holds '{}', not two numbers",
                ports.trim()
            )));
        };
        let memory = read("/proc/meminfo")?;
        let available_kib = memory
            .lines()
            .find_map(|line| {
                line.strip_prefix("MemAvailable:")?.trim().strip_suffix("kB")?.trim().parse().ok()
            })
            .unwrap_or(u64::MAX / 1024);
        Ok(Self {
            hard_descriptors: getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX),
            ports: (high + 1).saturating_sub(low),
            available_memory_bytes: available_kib * 1024,
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
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

fn read(path: &str) -> io::Result<String> {
    fs::read_to_string(path).map_err(|e| io::Error::other(format!("cannot read {path}: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_limits() {
        let host = Host::read().unwrap();
        assert!(host.hard_descriptors > 0 && host.ports > 0 && host.cpus > 0, "{host:?}");
        assert!(raise_descriptors() <= host.hard_descriptors);
    }
}
