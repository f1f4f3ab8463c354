//! Use of processors and descriptors by the processes of a network namespace.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
};

use record::units::parse_cpus;

use crate::namespaces::{self, Kind};

/// The unit of processes' and processors' times, in nanoseconds. `USER_HZ` is 100 on all architectures that proofload
/// supports.
pub(crate) const TICK_NS: u64 = 10_000_000;

/// The state of a process at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The process id.
    pub pid: u32,
    /// Start of the process, in ticks since the machine's boot. Together with `pid`, it identifies the process.
    pub began_ticks: u64,
    /// The name of the program, which the kernel cuts to 15 bytes.
    pub name: String,
    /// The parent process, which waits for its end.
    pub parent: u32,
    /// The process group.
    pub process_group: u32,
    /// Processor time of all its threads, including those that have ended, in nanoseconds.
    pub running_ns: u64,
    /// Processor time of its children, and of their children, that have ended and been waited for, in nanoseconds.
    pub children_ns: u64,
    /// The threads by their ids.
    pub threads: BTreeMap<u32, ThreadTimes>,
    /// The threads that wait for a device (state D).
    pub blocked: BTreeSet<u32>,
    /// Whether a signal stopped it (state T).
    pub is_stopped: bool,
    /// Number of open descriptors; none if this user may not read it.
    pub descriptors: Option<u64>,
    /// Maximum number of open descriptors; none if unlimited or unknown.
    pub max_descriptors: Option<u64>,
}

/// The times of a thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// Time on a processor, in nanoseconds.
    pub running_ns: u64,
    /// Time in which the thread was ready to run but had no processor, in nanoseconds.
    pub waiting_ns: u64,
}

/// All processes by the identity of their network namespace ([`namespaces::identity`]). Without the privilege to
/// inspect them, processes of other users are missing.
pub fn by_network() -> BTreeMap<(u64, u64), Vec<u32>> {
    let mut all: BTreeMap<_, Vec<u32>> = BTreeMap::new();
    for pid in crate::processes() {
        if let Ok(network) = fs::metadata(namespaces::path_of(pid, Kind::Network)) {
            all.entry((network.dev(), network.ino())).or_default().push(pid);
        }
    }
    all
}

/// The first process of a machine opens the sockets of services that others run, and is the parent of them all.
pub(crate) const FIRST: u32 = 1;

/// The processes that the first thread of a process began and that have not ended.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let list = crate::read(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// The inodes of a process's sockets; none if this user may not read them.
pub fn sockets(pid: u32) -> BTreeSet<u32> {
    let entries =
        fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd")).into_iter().flatten().flatten();
    let inode = |entry: fs::DirEntry| {
        let target = fs::read_link(entry.path()).ok()?;
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    entries.filter_map(inode).collect()
}

/// A process at one moment, with the texts that show whether its threads have run since.
#[derive(Debug)]
pub(crate) struct Look {
    /// Contents of `schedstat` by thread.
    times: Vec<(u32, String)>,
    pub(crate) program: Program,
}

/// Reads the state of a process; none if it has ended. If no thread has run since `last`, reads nothing else but whether a signal
/// stopped it.
pub(crate) fn look(pid: u32, last: Option<Look>) -> Option<Look> {
    let folder = Path::new("/proc").join(pid.to_string());
    let text = |thread: u32| {
        crate::read(folder.join(format!("task/{thread}/schedstat"))).ok().map(|text| (thread, text))
    };
    let times: Vec<(u32, String)> = crate::threads(pid).into_iter().filter_map(text).collect();
    let stat = crate::read(folder.join("stat")).ok()?;
    if let Some(mut last) = last.filter(|last| last.times == times && !times.is_empty()) {
        last.program.is_stopped = is_stopped(&stat);
        return Some(last);
    }
    let limits = crate::read(folder.join("limits")).unwrap_or_default();
    let of_thread =
        |thread: &u32| crate::read(folder.join(format!("task/{thread}/stat"))).unwrap_or_default();
    let threads = times.iter().filter_map(|(thread, text)| Some((*thread, parse_times(text)?))).collect();
    let mut program = parse(pid, &stat, &limits, threads, descriptors(pid))?;
    // The state of a process is only that of its first thread, so the other threads are checked too.
    let others = times.iter().map(|(thread, _)| *thread).filter(|thread| *thread != pid);
    program.blocked.extend(others.filter(|thread| is_blocked(&of_thread(thread))));
    Some(Look { times, program })
}

/// The name and the fields after it, which begin with the third field, the state. proc_pid_stat(5): the name in
/// parentheses may contain any character.
fn fields(stat: &str) -> Option<(&str, &str)> {
    stat.split_once('(')?.1.rsplit_once(')')
}

/// Whether a process or a thread waits for a device.
fn is_blocked(stat: &str) -> bool {
    has_state(stat, &['D'])
}

/// Whether a signal or a debugger stopped a process.
fn is_stopped(stat: &str) -> bool {
    has_state(stat, &['T', 't'])
}

fn has_state(stat: &str, states: &[char]) -> bool {
    fields(stat).is_some_and(|(_, fields)| fields.trim_start().starts_with(states))
}

/// Parses a process from the texts of its files in `/proc`. `blocked` covers only its first thread.
pub(crate) fn parse(
    pid: u32,
    stat: &str,
    limits: &str,
    threads: BTreeMap<u32, ThreadTimes>,
    descriptors: Option<u64>,
) -> Option<Program> {
    let (name, fields) = fields(stat)?;
    let field = |number: usize| fields.split_whitespace().nth(number - 3);
    let ticks_ns = |number: usize| Some(field(number)?.parse::<u64>().ok()? * TICK_NS);
    Some(Program {
        pid,
        began_ticks: field(22)?.parse().ok()?,
        name: name.to_owned(),
        parent: field(4)?.parse().ok()?,
        process_group: field(5)?.parse().ok()?,
        running_ns: ticks_ns(14)? + ticks_ns(15)?,
        children_ns: ticks_ns(16)? + ticks_ns(17)?,
        threads,
        blocked: is_blocked(stat).then_some(pid).into_iter().collect(),
        is_stopped: is_stopped(stat),
        descriptors,
        // The line has the form `Max open files            1024                 4096                 files`.
        max_descriptors: crate::number(limits, "Max open files"),
    })
}

/// Number of a process's open descriptors; none if the process has ended or this user may not read it.
pub fn descriptors(pid: u32) -> Option<u64> {
    let folder = Path::new("/proc").join(pid.to_string()).join("fd");
    // Since Linux 6.2, the size of the folder is the number of descriptors.
    match fs::metadata(&folder).ok()?.len() {
        0 => fs::read_dir(&folder).ok().map(|entries| entries.count() as u64),
        number => Some(number),
    }
}

/// The processors that at least one of these threads may use, such as `0-3,8`; none if the process has ended.
pub(crate) fn cpus(pid: u32, threads: &[u32]) -> Option<String> {
    let folder = Path::new("/proc").join(pid.to_string()).join("task");
    let of_thread = |thread: &u32| {
        let status = crate::read(folder.join(thread.to_string()).join("status")).ok()?;
        Some(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim().to_owned())
    };
    let lists: BTreeSet<String> = threads.iter().filter_map(of_thread).collect();
    if lists.len() <= 1 {
        return lists.into_iter().next();
    }
    let all: BTreeSet<u32> = lists.iter().filter_map(|list| parse_cpus(list).ok()).flatten().collect();
    Some(all.iter().map(u32::to_string).collect::<Vec<_>>().join(","))
}

/// Parses `schedstat`: time on a processor, time waiting for a processor, number of time slices.
pub(crate) fn parse_times(schedstat: &str) -> Option<ThreadTimes> {
    let mut numbers = schedstat.split_whitespace().map(str::parse);
    Some(ThreadTimes { running_ns: numbers.next()?.ok()?, waiting_ns: numbers.next()?.ok()? })
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn read(pid: u32) -> Option<Program> {
        look(pid, None).map(|look| look.program)
    }

    #[test]
    fn this_process_is_in_its_namespace_and_works() {
        let pid = std::process::id();
        let network = namespaces::own_identity(Kind::Network).unwrap();
        assert!(by_network()[&network].contains(&pid));
        let before = read(pid).unwrap();
        let files: Vec<fs::File> = (0..10).map(|_| fs::File::open("/proc/self/stat").unwrap()).collect();
        // Only this test's own thread is checked, because threads of other tests begin and end meanwhile.
        let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let running = |program: &Program| program.threads[&thread].running_ns;
        let has_run = || read(pid).filter(|after| running(after) > running(&before));
        let after = testing::find(testing::PATIENCE, has_run).expect("this thread has run");
        drop(files);
        assert_eq!((&after.name, after.began_ticks), (&before.name, before.began_ticks));
        assert!(after.descriptors.unwrap() >= 10 && after.max_descriptors.unwrap() >= 10, "{after:?}");
        assert_eq!(read(0), None);
    }

    #[test]
    fn a_process_may_use_what_any_of_its_threads_may() {
        let (pid, all) = (std::process::id(), crate::noise::allowed_cpus().unwrap());
        let own = || rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let (others, parsed) =
            (own(), move |threads: &[u32]| parse_cpus(&cpus(pid, threads).unwrap()).unwrap());
        std::thread::spawn(move || {
            let mut first = rustix::thread::CpuSet::new();
            first.set(all[0] as usize);
            rustix::thread::sched_setaffinity(None, &first).unwrap();
            assert_eq!(cpus(pid, &[own()]), Some(all[0].to_string()));
            assert_eq!((parsed(&[others]), parsed(&[own(), others])), (all.clone(), all));
        })
        .join()
        .unwrap();
        assert_eq!(cpus(0, &[1]), None);
    }

    #[test]
    fn a_process_that_has_not_run_is_not_read_again() {
        // The child waits for the end of its input.
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        testing::until("it waits", || {
            crate::read(format!("/proc/{}/stat", child.id())).unwrap().contains("(cat) S")
        });
        let mut first = look(child.id(), None).unwrap();
        first.program.descriptors = Some(4_711);
        let second = look(child.id(), Some(first)).unwrap();
        assert_eq!(second.program.descriptors, Some(4_711), "as it was");
        let other = Look { times: vec![(child.id(), "1 2 3".to_owned())], ..second };
        assert_ne!(look(child.id(), Some(other)).unwrap().program.descriptors, Some(4_711), "it has run");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_name_may_contain_anything() {
        let stat = "7 (a) (b c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        let program = parse(7, stat, "", BTreeMap::new(), None).unwrap();
        assert_eq!((program.name.as_str(), program.process_group, program.began_ticks), ("a) (b c", 2, 4711));
        assert!(program.blocked.is_empty());
        let blocked = parse(7, &stat.replace(") S ", ") D "), "", BTreeMap::new(), None).unwrap();
        assert!(blocked.blocked == BTreeSet::from([7]) && !blocked.is_stopped);
        let stopped = parse(7, &stat.replace(") S ", ") T "), "", BTreeMap::new(), None).unwrap();
        assert!(stopped.is_stopped && stopped.blocked.is_empty());
        assert_eq!(parse(7, "7 (a", "", BTreeMap::new(), None), None);
    }
}
