//! Disturbances that take the processor from a generator (stops, quotas, neighbours), and witnesses that notice others.

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

/// A quota of processor time for a process, in a separate control group. Dropping it removes the group.
#[derive(Debug)]
pub struct Quota(PathBuf);

impl Quota {
    /// Lets a process run for 50 ms of every 100 ms.
    ///
    /// # Errors
    /// If this machine has no usable control groups for processors.
    pub fn half(pid: u32) -> Result<Self> {
        Self::of(pid, [Duration::from_millis(50), Duration::from_millis(100)])
    }

    /// Lets a process run for the first of these times in every period of the second.
    ///
    /// # Errors
    /// If this machine has no usable control groups for processors.
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

    /// The time for which the process has been throttled so far.
    ///
    /// # Errors
    /// If the kernel does not report it.
    pub fn throttled(&self) -> Result<Duration> {
        let stat = fs::read_to_string(self.0.join("cpu.stat"))?;
        // Version 1 of control groups counts nanoseconds, version 2 microseconds.
        let field =
            |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        let ns = field("throttled_time ").or_else(|| field("throttled_usec ").map(|us| us * 1_000));
        ns.map(Duration::from_nanos).context("cpu.stat does not tell what was throttled")
    }

    /// Removes the limit, so that the process can run freely.
    ///
    /// # Errors
    /// If the kernel refuses.
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
        // The kernel refuses while the process is in the group. It has ended by now, but may not have disappeared yet.
        let _ = testing::find(PATIENCE, || fs::remove_dir(&self.0).ok());
    }
}

/// A program that keeps a processor busy.
///
/// # Errors
/// If it cannot be started.
pub fn neighbour(core: u32) -> Result<Process> {
    Launch::new("sh").args(["-c", "while :; do :; done"]).on_core(core).start()
}

/// Stops a process for this time.
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

/// Keeps processors busy with idle-priority threads while nothing else runs on them.
///
/// The host takes a sleeping virtual processor away, and on a crowded host the processor takes milliseconds to wake up. A processor that
/// never sleeps gives the same measurements as real hardware.
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

/// A real-time thread on a processor that looks at the clock every millisecond, to notice when the processor is gone.
#[derive(Debug)]
pub struct Witness {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Gaps>>,
}

/// The times when even a real-time thread had no processor.
#[derive(Debug, Clone, Default)]
pub struct Gaps {
    /// The longest gap.
    pub longest: Duration,
    /// Start and end of each gap of at least [`SHORTEST_GAP`].
    pub spans: Vec<(Instant, Instant)>,
    /// The sum of these gaps as a share of the watched time (0 to 1).
    pub share: f64,
    /// Time for which the witness itself used the processor.
    watching: Duration,
}

impl Gaps {
    /// Whether a lack of processor time may have spoiled times that were measured meanwhile.
    pub fn disturb(&self) -> bool {
        self.share > DISTURBING_SHARE || self.longest > DISTURBING_GAP
    }

    /// The share of a trial (0 to 1) for which its generator waited for the processor, without the time that the witness used.
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

/// Gaps disturb a measurement if they are more than this share of the time (0 to 1), or if one of them is longer than this time.
const DISTURBING_SHARE: f64 = 0.005;
const DISTURBING_GAP: Duration = Duration::from_millis(10);
/// Shorter gaps occur with any timer.
const SHORTEST_GAP: Duration = Duration::from_micros(200);

impl Witness {
    /// Starts to watch a processor.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn on(core: u32) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = thread::Builder::new().name("witness".to_owned()).spawn(move || {
            if let Err(error) = become_on(core, ["--fifo", "50"]) {
                // Without real-time priority, a witness sees nothing, so report everything as disturbed.
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

    /// Calls `work` while witnesses watch all processors of this process. Also returns the longest gap and the largest share of any
    /// processor.
    ///
    /// # Errors
    /// The errors of `work`, and if a witness cannot watch.
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

    /// Ends the witness, and returns the gaps that it saw.
    ///
    /// # Errors
    /// If it could not watch.
    pub fn end(self) -> Result<Gaps> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the witness panicked"))?
    }
}
