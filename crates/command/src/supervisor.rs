//! The process that runs the copies of a program, waits for them, and ends them with all their descendants.
//!
//! It is the subreaper of its descendants, so that the kernel adds their processor time to that of its children
//! (getrusage(2), `RUSAGE_CHILDREN`). If its parent process ends, it ends its copies.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    os::{fd::OwnedFd, unix::process::CommandExt, unix::process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use nix::sys::resource::{UsageWho, getrusage};
use record::CommandRun;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{
        Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, getppid, kill_process,
        kill_process_group, pidfd_open, set_child_subreaper, set_parent_process_death_signal, wait, waitid,
    },
};

use crate::{JOB_VARIABLE, Job, Report, Rest, job::wall_s, rest::Watch};

/// Time that a program has to end after SIGTERM.
const GRACE_PERIOD: Duration = Duration::from_secs(2);
/// Interval between checks of running copies while others are started.
const CHECK_INTERVAL_WHILE_STARTING: Duration = Duration::from_millis(10);
/// Interval between checks of output and of stop requests.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// If a wait lasts this much longer than requested, the process may have been frozen and may have noticed an exit long after it happened.
const MAX_LATENESS: Duration = Duration::from_millis(10);
/// Maximum size of an output stream, in bytes. The supervisor ends a copy that exceeds it, and counts it as failed.
const MAX_OUTPUT_BYTES: u64 = 64 << 20;
/// Maximum number of bytes from the end of standard error that are reported for a failed copy.
const MAX_REPORTED_BYTES: u64 = 2_000;
const MAX_REPORTED_LINES: usize = 5;

/// Runs the job in the environment variable [`JOB_VARIABLE`] and writes the report.
///
/// # Errors
/// If there is no readable job, or the report cannot be written.
pub fn run() -> io::Result<()> {
    let job = std::env::var(JOB_VARIABLE)
        .map_err(|_| io::Error::other("the environment has no job: only proofload may start this command"))?;
    let job: Job = serde_json::from_str(&job)?;
    set_child_subreaper(Some(getpid()))?;
    set_parent_process_death_signal(Some(Signal::TERM))?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let parent = getppid().map(|parent| parent.as_raw_nonzero().get() as u32);
    if job.parent.is_some() && job.parent != parent {
        return Err(io::Error::other("the process that started this one has ended"));
    }
    let join = |group: &PathBuf| {
        fs::write(group, "0").err().map(|error| explained("join", group, &error).to_string())
    };
    let outside = job.groups.iter().find_map(join);
    // This signal also interrupts a wait during which this process was stopped.
    let was_stopped = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGCONT, Arc::clone(&was_stopped))?;
    let report = Report { outside, ..run_copies(&job, &stop, Absences::new(&was_stopped)) };
    job.write_report(&report).map_err(|error| explained("write a report in", &job.folder, &error))
}

fn explained(verb: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {verb} {}: {error}", path.display()))
}

/// Measures how long this process was stopped, or waited for a processor.
struct Absences<'a> {
    was_stopped: &'a AtomicBool,
    since: Instant,
    waited_ns: u64,
}

impl<'a> Absences<'a> {
    fn new(was_stopped: &'a AtomicBool) -> Self {
        let waited_ns = kernel::waited_for_processor_ns().unwrap_or(0);
        Self { was_stopped, since: Instant::now(), waited_ns }
    }

    /// Returns an upper bound of the time since the last call for which this process was stopped or had no processor. If the call comes
    /// later than `due` after the last one, the process may have been frozen, so all of that time counts.
    fn take(&mut self, due: Duration) -> Duration {
        let elapsed = self.since.elapsed();
        let before_ns = self.waited_ns;
        (self.since, self.waited_ns) = (Instant::now(), kernel::waited_for_processor_ns().unwrap_or(0));
        match self.was_stopped.swap(false, Ordering::Relaxed) || elapsed > due.saturating_add(MAX_LATENESS) {
            true => elapsed,
            false => Duration::from_nanos(self.waited_ns.saturating_sub(before_ns)),
        }
    }

    /// Like [`Self::take`], for the start of copies: only a stop counts, because the copies themselves keep the processors busy.
    fn take_at_start(&mut self) -> Duration {
        let is_stopped = self.was_stopped.load(Ordering::Relaxed);
        let away = self.take(Duration::MAX);
        if is_stopped { away } else { Duration::ZERO }
    }
}

/// A copy of the program.
struct Copy {
    number: u32,
    child: Option<(Child, OwnedFd)>,
    run: CommandRun,
    started: Instant,
    terminated_at: Option<Instant>,
}

fn run_copies(job: &Job, stop: &AtomicBool, mut absences: Absences<'_>) -> Report {
    // Without the tables of sockets, the supervisor cannot tell how much the host still sends.
    let watch = job.settle.and_then(|settle| Some((settle, Watch::start().ok()?)));
    let (started, began_s) = (Instant::now(), clock::monotonic_s());
    let mut last_check = started;
    let (mut copies, mut shortage): (Vec<Copy>, _) = (Vec::new(), None);
    for &number in &job.copies {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        copies.push(start(job, number, &mut shortage));
        // With many copies, the first may end before the last has started.
        if last_check.elapsed() > CHECK_INTERVAL_WHILE_STARTING {
            check_copies(&mut copies, job, started, Duration::ZERO);
            last_check = Instant::now();
        }
    }
    let (mut interrupted, mut away_at_end) = (copies.len() < job.copies.len(), Duration::ZERO);
    // A copy that starts late prolongs the wall time of all copies.
    let away_at_start = absences.take_at_start();
    while copies.iter().any(|copy| copy.child.is_some()) {
        let deadline_of = |copy: &Copy| Some(copy.started + job.timeout.filter(|_| copy.child.is_some())?);
        let deadlines =
            copies.iter().filter_map(deadline_of).chain(job.stop_after.map(|length| started + length));
        let until = deadlines.filter(|end| *end > Instant::now()).min();
        let until = until
            .map_or(POLL_INTERVAL, |end| end.saturating_duration_since(Instant::now()).min(POLL_INTERVAL));
        let running = running_copies(&copies);
        wait_for_exit(&copies, until);
        let away = absences.take(until);
        check_copies(&mut copies, job, started, away);
        if running_copies(&copies) < running {
            away_at_end = away;
        }
        if stop.load(Ordering::Relaxed) && !interrupted {
            interrupted = true;
            copies.iter_mut().for_each(|copy| copy.terminate(Instant::now()));
        }
    }
    let ended_s = clock::monotonic_s();
    kill_orphans();
    let rest = watch.and_then(|(settle, watch)| watch.finish(ended_s, settle, stop).ok());
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).ok();
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Report {
        began_s,
        ended_s,
        rest: rest.unwrap_or_else(|| Rest::none(ended_s)),
        away_s: (away_at_start + away_at_end).as_secs_f64(),
        outside: None,
        shortage,
        user_s: usage.as_ref().map_or(0.0, |usage| seconds(usage.user_time())),
        system_s: usage.as_ref().map_or(0.0, |usage| seconds(usage.system_time())),
        largest_process_bytes: usage.as_ref().map_or(0, |usage| usage.max_rss().max(0) as u64 * 1024),
        runs: copies.into_iter().map(|copy| copy.run).collect(),
        interrupted,
    }
}

fn running_copies(copies: &[Copy]) -> usize {
    copies.iter().filter(|copy| copy.child.is_some()).count()
}

/// Records copies that have ended, and ends copies that have reached a time limit. An exit may have gone unnoticed for up to `away`.
fn check_copies(copies: &mut [Copy], job: &Job, started: Instant, away: Duration) {
    copies.iter_mut().for_each(|copy| copy.check(job, away));
    let now = Instant::now();
    for copy in copies.iter_mut().filter(|copy| copy.child.is_some() && copy.terminated_at.is_none()) {
        if job.stop_after.is_some_and(|length| now >= started + length) {
            copy.run.stopped = true;
            copy.terminate(now);
        } else if job.timeout.is_some_and(|length| now >= copy.started + length) {
            copy.run.timed_out = true;
            copy.terminate(now);
        }
    }
    copies.iter().for_each(|copy| copy.kill_if_overdue(now));
}

/// Starts a copy. If this machine lacks a resource, that is not the program's fault: `shortage` gets the reason.
fn start(job: &Job, number: u32, shortage: &mut Option<String>) -> Copy {
    let started = Instant::now();
    let mut copy = Copy { number, child: None, run: CommandRun::default(), started, terminated_at: None };
    match spawn(job, number) {
        Ok(child) => copy.child = Some(child),
        Err(error) => {
            // The exit statuses that a shell uses for these errors.
            let is_missing = error.kind() == io::ErrorKind::NotFound;
            copy.run.status = Some(if is_missing { 127 } else { 126 });
            copy.run.reason = Some(format!("could not be started: {error}"));
            let shortages = [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM, Errno::NOSPC];
            if shortages.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) {
                let why = format!("copy {number} could not be started on this machine: {error}");
                shortage.get_or_insert(why);
            }
        }
    }
    copy
}

fn spawn(job: &Job, number: u32) -> io::Result<(Child, OwnedFd)> {
    let words: Vec<String> = job.command.iter().map(|word| Job::with_copy_number(word, number)).collect();
    let (program, arguments) = words.split_first().ok_or_else(|| io::Error::other("the command is empty"))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(job.create(&job.output(number))?)
        .stderr(job.create(&job.errors(number))?)
        .process_group(0)
        .env_remove(JOB_VARIABLE);
    for (name, value) in &job.environment {
        command.env(name, Job::with_copy_number(value, number));
    }
    if let Some(directory) = &job.directory {
        let directory = Job::with_copy_number(&directory.display().to_string(), number);
        fs::create_dir_all(&directory)?;
        command.current_dir(directory);
    }
    let child = command.spawn()?;
    let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    Ok((child, pidfd))
}

/// Waits until a copy ends, at most for `timeout`.
fn wait_for_exit(copies: &[Copy], timeout: Duration) {
    let running = copies.iter().filter_map(|copy| copy.child.as_ref());
    let mut poll_fds: Vec<PollFd<'_>> = running.map(|(_, pidfd)| PollFd::new(pidfd, PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
    // A signal interrupts the call; the caller checks for it.
    let _ = poll(&mut poll_fds, Some(&timeout));
}

impl Copy {
    /// Records the exit of the copy, and ends it if it writes too much.
    fn check(&mut self, job: &Job, away: Duration) {
        let Some((child, _)) = &mut self.child else { return };
        let id = Pid::from_child(child);
        // Before the copy is waited for, no other process group can have its number, so the kill hits only its descendants.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if matches!(waitid(WaitId::Pid(id), options), Ok(Some(_))) {
            let _ = kill_process_group(id, Signal::KILL);
            let status = child.wait();
            self.child = None;
            self.record_exit(status.unwrap_or_default(), job, away);
            return;
        }
        let streams = [job.output(self.number), job.errors(self.number)];
        let is_too_long = |path: &Path| fs::metadata(path).is_ok_and(|file| file.len() > MAX_OUTPUT_BYTES);
        if self.terminated_at.is_none() && streams.iter().any(|path| is_too_long(path)) {
            self.run.reason = Some(format!("wrote more than {} MiB", MAX_OUTPUT_BYTES >> 20));
            self.terminated_at = Some(Instant::now());
            // SIGKILL prevents further output.
            let _ = kill_process_group(id, Signal::KILL);
        }
    }

    fn record_exit(&mut self, status: ExitStatus, job: &Job, away: Duration) {
        self.run.wall_s = wall_s(self.started.elapsed().as_secs_f64(), away.as_secs_f64());
        (self.run.status, self.run.signal) = (status.code(), status.signal());
        let is_expected =
            self.terminated_at.is_none() && status.code().is_some_and(|code| job.expect.contains(&code));
        self.run.succeeded = self.run.stopped || is_expected;
        if !self.run.succeeded {
            self.run.last_lines = last_lines(&job.errors(self.number))
                .or_else(|| last_lines(&job.output(self.number)))
                .unwrap_or_default();
        }
    }

    fn terminate(&mut self, now: Instant) {
        if let Some((child, _)) = &self.child {
            self.terminated_at.get_or_insert(now);
            let _ = kill_process_group(Pid::from_child(child), Signal::TERM);
        }
    }

    /// Kills a copy that has not ended in time after SIGTERM.
    fn kill_if_overdue(&self, now: Instant) {
        let is_late = self.terminated_at.is_some_and(|asked| now >= asked + GRACE_PERIOD);
        if let (true, Some((child, _))) = (is_late, &self.child) {
            let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
        }
    }
}

/// Kills descendants that left the copies' process groups, and waits for all that have ended.
fn kill_orphans() {
    let until = Instant::now() + GRACE_PERIOD;
    loop {
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        let left = own_children();
        if left.is_empty() || Instant::now() >= until {
            return;
        }
        for child in left {
            let _ = kill_process(child, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The orphans that this process has inherited, by their process ids in its own namespace. On a host of a lab, `/proc` belongs to the
/// machine and lists the ids of a process in all its namespaces. An id cannot mean another process, because a child keeps it until it is
/// waited for.
fn own_children() -> Vec<Pid> {
    let Ok(own_pid) = fs::read_link("/proc/self") else { return Vec::new() };
    let level = pids_in_namespaces(&own_pid.display().to_string()).len();
    let text =
        fs::read_to_string(format!("/proc/self/task/{}/children", own_pid.display())).unwrap_or_default();
    let known = text
        .split_whitespace()
        .filter_map(|number| pids_in_namespaces(number).get(level.checked_sub(1)?).copied());
    known.filter_map(Pid::from_raw).collect()
}

/// The ids of a process in its nested namespaces, from that of `/proc` inwards.
fn pids_in_namespaces(process: &str) -> Vec<i32> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    line.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

fn last_lines(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MAX_REPORTED_BYTES))).ok()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    // The holes of a sparse file, such as a log, are read as zero bytes, which are not part of the text.
    bytes.retain(|byte| *byte != 0);
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines[lines.len().saturating_sub(MAX_REPORTED_LINES)..].join("\n");
    (!last.is_empty()).then_some(last)
}
