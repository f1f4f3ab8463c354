//! Access to the kernel of a machine: files in `/proc`, sysctls, control groups and namespaces.
//!
//! The crate `undo` decides whether a process belongs to proofload.

pub mod cgroups;
pub mod counters;
mod ethtool;
pub mod hardware;
pub mod leftovers;
pub mod namespaces;
pub mod netlink;
pub mod noise;
mod processor_time;
pub mod programs;
pub mod remote;
#[cfg(test)]
mod saved_tests;
pub mod senders;
mod series;
mod source;
pub mod ssh;
pub mod tcp;
#[cfg(test)]
mod testing;
pub mod tune;
pub mod watch;

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

/// Reads a file in `/proc` or `/sys`.
///
/// # Errors
/// If it cannot be read. The error names the file.
pub fn read(path: impl AsRef<Path>) -> io::Result<String> {
    let path = path.as_ref();
    let explain =
        |error: io::Error| io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display()));
    File::open(path).and_then(|mut file| read_rest(&mut file)).map_err(explain)
}

/// Reads the rest of an open file in `/proc` or `/sys`.
pub(crate) fn read_rest(file: &mut File) -> io::Result<String> {
    // These files do not report their size, so the capacity avoids many small reads. Without `take`, `read_to_string`
    // would request the size first.
    let mut text = String::with_capacity(8 << 10);
    file.take(u64::MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// The number after `name` in the first line that starts with `name`.
pub fn number(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The file of a sysctl such as `net.ipv4.tcp_rmem`.
pub fn sysctl_path(name: &str) -> PathBuf {
    // A slash stands for a dot in an interface's name (sysctl(8)).
    let parts = name.split('.').map(|part| part.replace('/', "."));
    std::iter::once("/proc/sys".to_owned()).chain(parts).collect()
}

/// The kernel's release, such as `6.12.48`; empty if unknown.
pub fn release() -> String {
    read(sysctl_path("kernel.osrelease")).unwrap_or_default().trim().to_owned()
}

/// 128 random bits in hexadecimal.
///
/// # Errors
/// If the kernel cannot provide random numbers.
pub fn random_hex() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

/// The ids of all processes.
pub fn processes() -> Vec<u32> {
    numbers("/proc")
}

/// The ids of a process's threads; empty if the process has ended.
pub fn threads(process: u32) -> Vec<u32> {
    numbers(format!("/proc/{process}/task"))
}

fn numbers(folder: impl AsRef<Path>) -> Vec<u32> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.parse().ok()).collect()
}

/// The names in a folder, sorted; empty if the folder cannot be read.
pub(crate) fn names(folder: impl AsRef<Path>) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Time that the calling thread has waited on a run queue, in nanoseconds; none if the kernel does not count it.
pub fn waited_for_processor_ns() -> Option<u64> {
    read("/proc/thread-self/schedstat").ok()?.split_whitespace().nth(1)?.parse().ok()
}

/// Time for which the hypervisor took processors away, in ticks, summed over all processors; 0 if unknown.
pub fn steal_ticks() -> u64 {
    read("/proc/stat").ok().and_then(|stat| steal(&stat)).unwrap_or_default()
}

fn steal(stat: &str) -> Option<u64> {
    // Fields: user nice system idle iowait irq softirq steal.
    stat.lines().find_map(|line| line.strip_prefix("cpu "))?.split_whitespace().nth(7)?.parse().ok()
}

/// A protocol's counter in the text of `/proc/net/snmp` or `/proc/net/netstat`. Each line of names is followed by the
/// line of their values.
pub fn protocol_number(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol)?.strip_prefix(": "));
    let (names, numbers) = (lines.next()?, lines.next()?);
    names.split(' ').zip(numbers.split(' ')).find(|(other, _)| *other == name)?.1.parse().ok()
}

/// Number of bytes that programs left to the kernel when they ended and that the peers have not acknowledged. `table`
/// is the text of `/proc/net/tcp` or `tcp6`. The number is the sum of the send queues of sockets without an inode in
/// the states FIN_WAIT1, LAST_ACK and CLOSING (include/net/tcp_states.h), without the FIN, which counts as a byte
/// there.
pub fn unacknowledged_bytes(table: &str) -> u64 {
    let left = |line: &str| {
        // Fields, proc_pid_net(5): sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout
        // inode …
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_left = matches!(fields.get(3), Some(&("04" | "09" | "0B"))) && fields.get(9) == Some(&"0");
        let queue = fields.get(4).filter(|_| is_left)?.split(':').next()?;
        Some(u64::from_str_radix(queue, 16).ok()?.saturating_sub(1))
    };
    table.lines().skip(1).filter_map(left).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_sockets_that_nobody_holds_are_counted() {
        let count = |queue: &str, inode: u32| {
            let line = |state| {
                format!(
                    "0: 0100007F:1F90 0100007F:9C40 {state} {queue}:00000000 00:00000000 00000000 0 0 {inode}\n"
                )
            };
            let table = ["01", "04", "05", "06", "08", "09", "0A", "0B"].map(line).concat();
            unacknowledged_bytes(&format!("sl  local_address rem_address   st tx_queue\n{table}"))
        };
        assert_eq!(count("000005A9", 0), 3 * 1448);
        assert_eq!(count("00000001", 0), 0, "the end of the stream is no byte of the program");
        assert_eq!(count("000005A9", 7), 0, "another program's");
    }

    #[test]
    fn numbers_are_read_after_their_names() {
        assert_eq!(number("VmPeak:\t 9 kB\nVmSize:\t  123 kB\n", "VmSize:"), Some(123));
        assert_eq!(number("Uid:\t65534\t65534\t65534\t65534\n", "Uid:"), Some(65_534));
        assert_eq!(number("total_inactive_file 5\ninactive_file 7\n", "inactive_file"), Some(7));
        assert_eq!(number("x 1", "y"), None);
    }

    #[test]
    fn numbers_of_a_protocol_are_found_by_their_names() {
        let text = "Tcp: InSegs OutSegs\nTcp: 1 2\nUdp: InDatagrams OutSegs\nUdp: 5 7\n";
        let udp = |name| protocol_number(text, "Udp", name);
        assert_eq!((udp("OutSegs"), udp("x")), (Some(7), None));
    }

    #[test]
    fn the_eighth_field_is_steal() {
        assert_eq!(steal("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 1 1 1 1 1 1 1 1 1\n"), Some(8));
    }

    #[test]
    fn names_of_sysctls_become_paths() {
        let path = sysctl_path("net.ipv4.conf.eth0/1.arp_ignore");
        assert_eq!(path.to_str(), Some("/proc/sys/net/ipv4/conf/eth0.1/arp_ignore"));
    }

    #[test]
    fn this_thread_is_seen() {
        let pid = std::process::id();
        assert!(processes().contains(&pid) && threads(pid).contains(&pid));
        assert!(!release().is_empty());
    }
}
