//! What takes the processor from a generator: stops, quotas, neighbours. And who watches that nothing else does.

use std::{
    fmt, fs,
    path::PathBuf,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::proofload::Trial;
use anyhow::{Context, Result, anyhow, bail};
use rustix::{
    process::Signal,
    thread::{CpuSet, gettid, sched_setaffinity},
    time::{ClockId, clock_gettime},
};
use testing::PATIENCE;

use crate::{
    machine::Cores,
    process::{Launch, Process},
};

/// A quota of processor time for a process: a control group of its own, which goes with this.
#[derive(Debug)]
pub struct Quota(PathBuf);

impl Quota {
    /// Lets a process run for 50 ms of every 100 ms.
    ///
    /// # Errors
    /// When this machine has no control group of processors that may be used.
    pub fn half(pid: u32) -> Result<Self> {
        Self::of(pid, [Duration::from_millis(50), Duration::from_millis(100)])
    }

    /// Lets a process run for the first of these times in every period of the second.
    ///
    /// # Errors
    /// When this machine has no control group of processors that may be used.
    pub fn of(pid: u32, times: [Duration; 2]) -> Result<Self> {
        let name = format!("proofload-test-{}-{pid}", std::process::id());
        let v1 = PathBuf::from("/sys/fs/cgroup/cpu");
        let is_v1 = v1.is_dir();
        let folder = if is_v1 { v1 } else { PathBuf::from("/sys/fs/cgroup") }.join(name);
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let quota = Self(folder);
        let [time_us, period_us] = times.map(|time| time.as_micros());
        if is_v1 {
            quota.write("cpu.cfs_period_us", &period_us.to_string())?;
            quota.write("cpu.cfs_quota_us", &time_us.to_string())?;
        } else {
            quota.write("cpu.max", &format!("{time_us} {period_us}"))?;
        }
        quota.write("cgroup.procs", &pid.to_string())?;
        Ok(quota)
    }

    /// How long the process was kept from its processors so far.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn throttled(&self) -> Result<Duration> {
        let stat = fs::read_to_string(self.0.join("cpu.stat"))?;
        // The older version counts nanoseconds, the newer one microseconds.
        let field =
            |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        let ns = field("throttled_time ").or_else(|| field("throttled_usec ").map(|us| us * 1_000));
        ns.map(Duration::from_nanos).context("cpu.stat does not tell what was throttled")
    }

    /// Lets the process run again as it wants.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn lift(&self) -> Result<()> {
        match self.0.join("cpu.max").exists() {
            true => self.write("cpu.max", "max"),
            false => self.write("cpu.cfs_quota_us", "-1"),
        }
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        fs::write(self.0.join(file), text).with_context(|| format!("cannot write {file}"))
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // Refused as long as the process is in it: it has ended by then, but may not be gone yet.
        let _ = testing::find(PATIENCE, || fs::remove_dir(&self.0).ok());
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

/// Moves the calling thread to a processor, and gives it a scheduling class and priority as `chrt` names them.
pub(crate) fn become_on(core: u32, [class, priority]: [&str; 2]) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core as usize);
    sched_setaffinity(None, &set)?;
    let own = gettid().as_raw_nonzero().to_string();
    let status = Command::new("chrt").args([class, "--pid", priority, &own]).status()?;
    if !status.success() {
        bail!("chrt refused {class}");
    }
    Ok(())
}

/// Processors that have something to do whenever nothing else wants them.
///
/// A virtual processor that sleeps is given away by its host, and one that wakes up on a crowded host waits for
/// milliseconds until it runs. What is measured on one that never sleeps is measured as on real hardware.
#[derive(Debug)]
pub struct Awake {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Awake {
    /// Keeps the processors of a measurement awake until this is dropped.
    pub fn keep(cores: Cores) -> Self {
        Self::keep_all(&[cores.generator, cores.server])
    }

    /// Keeps these processors awake until this is dropped.
    pub fn keep_all(cores: &[u32]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let spin = |core: u32| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                become_on(core, ["--idle", "0"])?;
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                Ok(())
            })
        };
        let threads = cores.iter().copied().map(spin).collect();
        Self { stop, threads }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if let Ok(Err(error)) = thread.join() {
                eprintln!("a processor was not kept awake: {error}");
            }
        }
    }
}

/// A thread of real-time priority on a processor, which looks at the clock every millisecond.
#[derive(Debug)]
pub struct Witness {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Gaps>>,
}

/// When even real-time priority did not get a processor.
#[derive(Debug, Clone, Default)]
pub struct Gaps {
    /// The longest time.
    pub longest: Duration,
    /// Those of 200 µs and more: from when to when.
    pub spans: Vec<(Instant, Instant)>,
    /// Those of [`SHORTEST_GAP`] and more together, as a share of the time watched (0 to 1).
    pub share: f64,
    /// For how long the witness itself had the processor.
    watching: Duration,
}

impl Gaps {
    /// Whether a time measured meanwhile may be wrong for want of a processor.
    pub fn disturb(&self) -> bool {
        self.share > DISTURBING_SHARE || self.longest > DISTURBING_GAP
    }

    /// The share of a trial (0 to 1) for which its generator waited for the processor, the witness's turns left out.
    pub fn waited_share(&self, trial: &Trial) -> f64 {
        let waited_s = trial.cpu.runqueue_wait_s.unwrap_or(0.0) - self.watching.as_secs_f64();
        waited_s.max(0.0) / trial.elapsed_s
    }
}

impl fmt::Display for Gaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let longest_ms = self.longest.as_secs_f64() * 1e3;
        write!(f, "{:.2} % of the time, {longest_ms:.1} ms at the longest", self.share * 100.0)
    }
}

/// Gaps of more than this share of the time (0 to 1), or one that is longer, disturb what is measured.
const DISTURBING_SHARE: f64 = 0.005;
const DISTURBING_GAP: Duration = Duration::from_millis(10);
/// Shorter gaps are those of any timer.
const SHORTEST_GAP: Duration = Duration::from_micros(200);

impl Witness {
    /// Watches a processor.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn on(core: u32) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = thread::Builder::new().name("witness".to_owned()).spawn(move || {
            if let Err(error) = become_on(core, ["--fifo", "50"]) {
                // Who is no better than others sees nothing: everything counts as disturbed.
                eprintln!("no witness: {error}");
                return Ok(Gaps { longest: Duration::MAX, share: 1.0, ..Gaps::default() });
            }
            let (began, mut longest, mut spans) = (Instant::now(), Duration::ZERO, Vec::new());
            while !seen.load(Ordering::Relaxed) {
                let before = Instant::now();
                thread::sleep(Duration::from_millis(1));
                let (due, now) = (before + Duration::from_millis(1), Instant::now());
                let gap = now.saturating_duration_since(due);
                longest = longest.max(gap);
                if gap >= SHORTEST_GAP {
                    spans.push((due, now));
                }
            }
            let total: Duration = spans.iter().map(|&(from, to)| to - from).sum();
            let used = clock_gettime(ClockId::ThreadCPUTime);
            let watching = Duration::new(used.tv_sec as u64, used.tv_nsec as u32);
            let share = total.as_secs_f64() / began.elapsed().as_secs_f64();
            Ok(Gaps { longest, spans, share, watching })
        })?;
        Ok(Self { stop, thread })
    }

    /// Does something while every processor of this process is watched. Also the longest gap and the largest share of all of them.
    ///
    /// # Errors
    /// Those of what is done, and when a witness cannot watch.
    pub fn of_all<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Gaps)> {
        let witnesses: Vec<Self> =
            kernel::noise::allowed_cpus()?.into_iter().map(Self::on).collect::<Result<_>>()?;
        let done = work();
        let gaps: Vec<Gaps> = witnesses.into_iter().map(Self::end).collect::<Result<_>>()?;
        let worst = gaps.into_iter().fold(Gaps::default(), |worst, gaps| Gaps {
            longest: worst.longest.max(gaps.longest),
            share: worst.share.max(gaps.share),
            ..worst
        });
        Ok((done?, worst))
    }

    /// Ends it; gives by how much it woke late.
    ///
    /// # Errors
    /// When it could not watch.
    pub fn end(self) -> Result<Gaps> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the witness panicked"))?
    }
}
