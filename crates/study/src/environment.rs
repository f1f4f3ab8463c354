//! Describes the properties of this machine that affect results.

use std::collections::BTreeMap;

use load::MachineLimits;
use record::{
    Environment,
    environment::{SCHEMA, Tuned},
};

/// Kernel settings that limit how much load can be made or carried.
const SYSCTLS: [&str; 16] = [
    "net.core.netdev_max_backlog",
    "net.core.rmem_max",
    "net.core.somaxconn",
    "net.core.wmem_max",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_max_tw_buckets",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_wmem",
    "net.netfilter.nf_conntrack_max",
];

/// Reads the environment. Values that the kernel does not report stay empty.
pub(crate) fn read(host: &MachineLimits) -> Environment {
    let file = |path: &str| kernel::read(path).unwrap_or_default();
    let cpu_info = file("/proc/cpuinfo");
    let of_cpu = |key: &str| {
        let line = cpu_info.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let hypervisor = of_cpu("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    let system = file("/etc/os-release")
        .lines()
        .find_map(|line| Some(line.strip_prefix("PRETTY_NAME=")?.trim_matches('"').to_owned()));
    let sysctls: BTreeMap<String, String> = SYSCTLS
        .iter()
        .filter_map(|name| {
            let value = kernel::read(kernel::sysctl_path(name)).ok()?;
            Some(((*name).to_owned(), value.split_whitespace().collect::<Vec<_>>().join(" ")))
        })
        .collect();
    Environment {
        schema: SCHEMA.to_owned(),
        proofload_version: env!("CARGO_PKG_VERSION").to_owned(),
        cpu_model: of_cpu("model name").unwrap_or_default(),
        cpus: host.cpus,
        memory_bytes: kernel::number(&file("/proc/meminfo"), "MemTotal:").unwrap_or_default() * 1024,
        kernel: kernel::release(),
        system: system.unwrap_or_default(),
        hard_descriptors: host.hard_descriptors,
        virtualisation: if hypervisor { "hypervisor" } else { "" }.to_owned(),
        sysctls,
        tuning: tuning(),
        load_average: file("/proc/loadavg")
            .split(' ')
            .next()
            .and_then(|n| n.parse().ok())
            .unwrap_or_default(),
    }
}

/// The changes of `proofload host tune` in this network namespace.
fn tuning() -> BTreeMap<String, Tuned> {
    // If this user has no journal folder, this user has tuned nothing.
    let tuned = undo::Folder::of_this_user().and_then(|folder| undo::tuned(&folder)).unwrap_or_default();
    let entry = |setting: undo::Setting| {
        let name = kernel::tune::name_of(&setting.path);
        let after = kernel::tune::present(&name)?;
        let before = setting.before.replace('\t', " ");
        Some((name, Tuned { before, after }))
    };
    tuned.into_iter().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_described() {
        let host = MachineLimits::read().unwrap();
        let environment = read(&host);
        assert_eq!(environment.cpus, host.cpus);
        assert!(environment.memory_bytes > 0 && !environment.kernel.is_empty(), "{environment:?}");
        assert!(environment.sysctls.contains_key("net.core.somaxconn"), "{environment:?}");
    }
}
