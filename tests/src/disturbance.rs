//! What takes the processor from a generator: stops, quotas, neighbours. And who watches that nothing else does.

use std::{
    fs,
    path::PathBuf,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use rustix::{
    process::Signal,
    thread::{CpuSet, gettid, sched_setaffinity},
};

use crate::process::{Launch, Process};

/// A quota of processor time for a process: a control group of its own, which goes with this.
#[derive(Debug)]
pub struct Quota(PathBuf);

impl Quota {
    /// Lets a process run for 50 ms of every 100 ms.
    ///
    /// # Errors
    /// When this machine has no control group of processors that may be used.
    pub fn half(pid: u32) -> Result<Self> {
        let name = format!("proofload-test-{}-{pid}", std::process::id());
        let v1 = PathBuf::from("/sys/fs/cgroup/cpu");
        let is_v1 = v1.is_dir();
        let folder = if is_v1 { v1 } else { PathBuf::from("/sys/fs/cgroup") }.join(name);
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let quota = Self(folder);
        let write = |file: &str, text: &str| {
            fs::write(quota.0.join(file), text).with_context(|| format!("cannot write {file}"))
        };
        if is_v1 {
            write("cpu.cfs_period_us", "100000")?;
            write("cpu.cfs_quota_us", "50000")?;
        } else {
            write("cpu.max", "50000 100000")?;
        }
        write("cgroup.procs", &pid.to_string())?;
        Ok(quota)
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // Refused as long as the process is in it: it has ended by then, but may not be gone yet.
        let deadline = Instant::now() + Duration::from_secs(2);
        while fs::remove_dir(&self.0).is_err() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A program that wants a processor all the time.
///
/// # Errors
/// When it cannot be started.
pub fn neighbour(core: u32) -> Result<Process> {
    Launch::new("sh").args(["-c", "while :; do :; done"]).on_core(core).start()
}

/// Stops a process for so long.
pub fn stop_for(process: &mut Process, time: Duration) {
    process.signal(Signal::STOP);
    thread::sleep(time);
    process.signal(Signal::CONT);
}

/// A thread of real-time priority on a processor, which looks at the clock every millisecond.
#[derive(Debug)]
pub struct Witness {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Duration>>,
}

impl Witness {
    /// Watches a processor.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn on(core: u32) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = thread::Builder::new().name("witness".to_owned()).spawn(move || {
            let mut set = CpuSet::new();
            set.set(core as usize);
            sched_setaffinity(None, &set)?;
            let own = gettid().as_raw_nonzero().to_string();
            let status = Command::new("chrt").args(["--fifo", "--pid", "50", &own]).status()?;
            if !status.success() {
                bail!("chrt refused real-time priority");
            }
            let mut longest = Duration::ZERO;
            while !seen.load(Ordering::Relaxed) {
                let before = Instant::now();
                thread::sleep(Duration::from_millis(1));
                longest = longest.max(before.elapsed().saturating_sub(Duration::from_millis(1)));
            }
            Ok(longest)
        })?;
        Ok(Self { stop, thread })
    }

    /// Ends it; gives the longest time by which it woke late: even real-time priority did not get the processor then.
    ///
    /// # Errors
    /// When it could not watch.
    pub fn end(self) -> Result<Duration> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the witness panicked"))?
    }
}
