//! What the processes of a network namespace use: processors and descriptors.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
};

use crate::namespaces::{self, Kind};

/// A process at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The process id.
    pub pid: u32,
    /// When the process began, in ticks since the machine's start. With `pid`, it identifies the process.
    pub began_ticks: u64,
    /// The name of the program, cut by the kernel to 15 bytes.
    pub name: String,
    /// The threads by their ids.
    pub threads: BTreeMap<u32, ThreadTimes>,
    /// Open descriptors; none if this user may not see them.
    pub descriptors: Option<u64>,
    /// How many descriptors the process may have open; none if unlimited or unknown.
    pub max_descriptors: Option<u64>,
}

/// The times of a thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// Time on a processor, in nanoseconds.
    pub running_ns: u64,
    /// Time ready to run without a processor, in nanoseconds.
    pub waiting_ns: u64,
}

/// All processes by the identity of their network namespace ([`namespaces::identity`]). Those of other users are not seen
/// without the right to.
pub fn by_network() -> BTreeMap<(u64, u64), Vec<u32>> {
    let mut all: BTreeMap<_, Vec<u32>> = BTreeMap::new();
    for pid in crate::processes() {
        if let Ok(network) = fs::metadata(namespaces::path_of(pid, Kind::Network)) {
            all.entry((network.dev(), network.ino())).or_default().push(pid);
        }
    }
    all
}

/// The inodes of a process's sockets; none if this user may not see them.
pub fn sockets(pid: u32) -> BTreeSet<u32> {
    let entries =
        fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd")).into_iter().flatten().flatten();
    let inode = |entry: fs::DirEntry| {
        let target = fs::read_link(entry.path()).ok()?;
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    entries.filter_map(inode).collect()
}

/// Looks at a process; none once it has ended.
pub fn read(pid: u32) -> Option<Program> {
    let folder = Path::new("/proc").join(pid.to_string());
    let (name, began_ticks) = name_and_begin(&crate::read(folder.join("stat")).ok()?)?;
    let times = |thread: u32| {
        let text = crate::read(folder.join(format!("task/{thread}/schedstat"))).ok()?;
        Some((thread, parse_times(&text)?))
    };
    Some(Program {
        pid,
        began_ticks,
        name,
        threads: crate::threads(pid).into_iter().filter_map(times).collect(),
        descriptors: descriptors(pid),
        max_descriptors: crate::read(folder.join("limits")).ok().and_then(|limits| soft_limit(&limits)),
    })
}

/// The number of a process's open descriptors; none if it has ended or this user may not see them.
pub fn descriptors(pid: u32) -> Option<u64> {
    let folder = Path::new("/proc").join(pid.to_string()).join("fd");
    // Since Linux 6.2, the size of the folder is their number.
    match fs::metadata(&folder).ok()?.len() {
        0 => fs::read_dir(&folder).ok().map(|entries| entries.count() as u64),
        number => Some(number),
    }
}

/// The name and the begin from `/proc/PID/stat`, where the name in parentheses may contain any character.
fn name_and_begin(stat: &str) -> Option<(String, u64)> {
    let (before, after) = (stat.split_once('(')?.1.rsplit_once(')')?.0, stat.rsplit_once(')')?.1);
    // proc_pid_stat(5): the begin is the 22nd field, and the one after the name is the third.
    Some((before.to_owned(), after.split_whitespace().nth(22 - 3)?.parse().ok()?))
}

/// Time on a processor, time waiting for one, number of time slices.
pub(crate) fn parse_times(schedstat: &str) -> Option<ThreadTimes> {
    let mut numbers = schedstat.split_whitespace().map(str::parse);
    Some(ThreadTimes { running_ns: numbers.next()?.ok()?, waiting_ns: numbers.next()?.ok()? })
}

/// `Max open files            1024                 4096                 files`
fn soft_limit(limits: &str) -> Option<u64> {
    crate::number(limits, "Max open files")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn this_process_is_in_its_namespace_and_works() {
        let own = std::process::id();
        let network = namespaces::own_identity(Kind::Network).unwrap();
        assert!(by_network()[&network].contains(&own));
        let before = read(own).unwrap();
        let files: Vec<fs::File> = (0..10).map(|_| fs::File::open("/proc/self/stat").unwrap()).collect();
        let until = Instant::now() + Duration::from_millis(20);
        while Instant::now() < until {}
        let after = read(own).unwrap();
        drop(files);
        assert_eq!((&after.name, after.began_ticks), (&before.name, before.began_ticks));
        // The threads of other tests come and go.
        let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let running = |program: &Program| program.threads[&thread].running_ns;
        assert!(running(&after) > running(&before), "{before:?} {after:?}");
        assert!(after.descriptors.unwrap() >= 10 && after.max_descriptors.unwrap() >= 10, "{after:?}");
        assert_eq!(read(0), None);
    }

    #[test]
    fn a_name_may_contain_anything() {
        let stat = "7 (a) (b c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(name_and_begin(stat), Some(("a) (b c".to_owned(), 4711)));
        assert_eq!(name_and_begin("7 (a"), None);
    }
}
