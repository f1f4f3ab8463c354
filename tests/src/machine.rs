//! The resources of this machine, and how busy its processors are.

use std::{
    fs,
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context, Result};
use kernel::noise::allowed_cpus;
use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

/// Processors that this process may use: one for the server, one for the generator, one for other programs. If there are fewer, the last
/// one serves several purposes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cores {
    /// The server's processor.
    pub server: u32,
    /// The generator's processor.
    pub generator: u32,
    /// The processor for other programs.
    pub other: u32,
}

impl Cores {
    /// The first three processors that this process may use.
    ///
    /// # Errors
    /// If the kernel does not report them.
    pub fn of_this_process() -> Result<Self> {
        let mut cores = allowed_cpus()?.into_iter();
        let server = cores.next().context("no processor is allowed")?;
        let generator = cores.next().unwrap_or(server);
        Ok(Self { server, generator, other: cores.next().unwrap_or(generator) })
    }
}

/// Keeps the calling thread, and every program that it starts meanwhile, on certain processors until dropped.
#[derive(Debug)]
pub struct Confined {
    before: CpuSet,
}

impl Confined {
    /// Moves the thread to these processors.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn to(cores: &[u32]) -> Result<Self> {
        let before = sched_getaffinity(None).context("cannot read the allowed processors")?;
        let mut set = CpuSet::new();
        cores.iter().for_each(|&core| set.set(core as usize));
        sched_setaffinity(None, &set).with_context(|| format!("cannot keep to the processors {cores:?}"))?;
        Ok(Self { before })
    }
}

impl Drop for Confined {
    fn drop(&mut self) {
        // These were allowed before, so this fails only if a processor has disappeared.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// Busy time of one processor and elapsed time, in ticks of `/proc/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoreTime {
    /// User, nice, system and interrupt time, without the time that the hypervisor took.
    pub busy: u64,
    /// Busy, idle, waiting and stolen time.
    pub passed: u64,
}

/// Ticks of `/proc/stat` per second: `USER_HZ`, which is 100 on every Linux that Debian ships.
pub const TICKS_PER_S: f64 = 100.0;

impl CoreTime {
    /// Reads the counters of one processor.
    ///
    /// # Errors
    /// If `/proc/stat` does not have them.
    pub fn of(core: u32) -> Result<Self> {
        let stat = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        Self::parse(&stat, core).with_context(|| format!("/proc/stat has no line 'cpu{core}'"))
    }

    fn parse(stat: &str, core: u32) -> Option<Self> {
        let name = format!("cpu{core} ");
        let fields: Vec<u64> = stat
            .lines()
            .find_map(|line| line.strip_prefix(&name))?
            .split_whitespace()
            .map_while(|field| field.parse().ok())
            .collect();
        // Fields: user nice system idle iowait irq softirq steal guest guest_nice; user includes guest.
        let [user, nice, system, idle, iowait, irq, softirq, steal] = *fields.first_chunk::<8>()?;
        let busy = user + nice + system + irq + softirq;
        Some(Self { busy, passed: busy + idle + iowait + steal })
    }

    /// The time since an earlier reading.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            busy: self.busy.saturating_sub(earlier.busy),
            passed: self.passed.saturating_sub(earlier.passed),
        }
    }

    /// Share of the time for which it was busy (0 to 1).
    pub fn busy_ratio(self) -> f64 {
        if self.passed == 0 { 0.0 } else { self.busy as f64 / self.passed as f64 }
    }

    /// Busy time, in seconds.
    pub fn busy_s(self) -> f64 {
        self.busy as f64 / TICKS_PER_S
    }
}

/// Processor time of all threads of a process so far, in seconds, with a resolution of 10 ms.
///
/// # Errors
/// If the kernel does not report it.
pub fn process_cpu_s(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))
        .with_context(|| format!("cannot tell the processor time of process {pid}"))?;
    // The name, in brackets, may contain anything, so search for the last bracket; utime and stime are the 12th and 13th field after it.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).map(|field| field.parse().unwrap_or(0)).sum();
    Ok(ticks as f64 / TICKS_PER_S)
}

/// Resident memory of a process, in bytes.
///
/// # Errors
/// If the kernel does not report it.
pub fn resident_bytes(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    Ok(kib.with_context(|| format!("process {pid} has no memory"))? * 1024)
}

/// Raises this process's limit of open files to the hard limit, which child processes inherit, and returns it.
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // This fails only if another thread has lowered the hard limit meanwhile; the soft limit then stays.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// A lock for tests that use most of this process's descriptors, so that only one of them runs at a time.
pub fn most_descriptors() -> MutexGuard<'static, ()> {
    static MOST: Mutex<()> = Mutex::new(());
    MOST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A description of the machine in one line: kernel, processors, memory.
pub fn description() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        text.lines()
            .find(|line| line.starts_with(name))
            .and_then(|line| line.split_once(':'))
            .map_or_else(|| "?".to_owned(), |(_, value)| value.trim().to_owned())
    };
    let cpuinfo = read("/proc/cpuinfo");
    let processors = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    format!(
        "{} {}, {processors} processors ({}), memory {}",
        read("/proc/sys/kernel/ostype").trim(),
        read("/proc/sys/kernel/osrelease").trim(),
        field(&cpuinfo, "model name"),
        field(&read("/proc/meminfo"), "MemTotal"),
    )
}

/// Finds a program as a shell would, and also in folders that are only in root's search path.
pub fn program(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}

/// The first line that a program prints with this argument, such as its version.
pub fn version(program: &std::path::Path, argument: &str) -> String {
    match Command::new(program).arg(argument).output() {
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            String::from_utf8_lossy(&text).lines().next().unwrap_or("?").trim().to_owned()
        }
        Err(error) => format!("? ({error})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_passes_but_is_not_busy() {
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu1 10 1 20 60 3 2 4 50 5 0\nintr 1\n";
        assert_eq!(CoreTime::parse(stat, 1), Some(CoreTime { busy: 37, passed: 150 }));
        assert_eq!(CoreTime::parse(stat, 10), None);
    }

    #[test]
    fn who_is_confined_and_free_again_has_the_same_processors() {
        let before = allowed_cpus().unwrap();
        let confined = Confined::to(&before[..1]).unwrap();
        assert_eq!(allowed_cpus().unwrap(), before[..1]);
        drop(confined);
        assert_eq!(allowed_cpus().unwrap(), before);
    }

    #[test]
    fn this_machine_has_a_processor_and_it_was_busy_once() {
        let cores = Cores::of_this_process().unwrap();
        assert!(CoreTime::of(cores.server).unwrap().busy > 0);
    }
}
