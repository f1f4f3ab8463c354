//! The process that runs the copies of a program, waits for them, and ends them with all that they started.
//!
//! It is the reaper of what its children leave behind, so that the kernel counts the processor time of all of them as that
//! of its children (getrusage(2), `RUSAGE_CHILDREN`). Where the process that started it ends, it ends its own.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    os::{fd::OwnedFd, unix::process::CommandExt, unix::process::ExitStatusExt},
    path::Path,
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

use crate::{Order, Report, VARIABLE};

/// How long a program may take to end once it was asked to.
const GRACE: Duration = Duration::from_secs(2);
/// How long copies are started before it is looked whether the first have ended.
const STARTING: Duration = Duration::from_millis(10);
/// How often output is looked at, and the wish to stop.
const LOOK: Duration = Duration::from_millis(50);
/// A copy that writes more to a stream is ended, and has failed.
const MOST_OUTPUT_BYTES: u64 = 64 << 20;
/// So much of the end of standard error is told of a copy that failed.
const TOLD_BYTES: u64 = 2_000;
const TOLD_LINES: usize = 5;

/// Does what the order in the environment ([`VARIABLE`]) says, and writes the report.
///
/// # Errors
/// When there is no order, it cannot be read, or the report not be written.
pub fn run() -> io::Result<()> {
    let order = std::env::var(VARIABLE)
        .map_err(|_| io::Error::other("there is no order: proofload starts this itself"))?;
    let order: Order = serde_json::from_str(&order)?;
    set_child_subreaper(Some(getpid()))?;
    set_parent_process_death_signal(Some(Signal::TERM))?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let parent = getppid().map(|parent| parent.as_raw_nonzero().get() as u32);
    if order.parent.is_some() && order.parent != parent {
        return Err(io::Error::other("the process that started this one has ended"));
    }
    for group in &order.groups {
        fs::write(group, "0")?;
    }
    let report = conduct(&order, &stop);
    let temporary = order.report().with_extension("part");
    fs::write(&temporary, serde_json::to_vec(&report)?)?;
    fs::rename(temporary, order.report())
}

/// A copy on its way.
struct Copy {
    number: u32,
    child: Option<(Child, OwnedFd)>,
    run: CommandRun,
    begun: Instant,
    asked_to_end: Option<Instant>,
}

fn conduct(order: &Order, stop: &AtomicBool) -> Report {
    let (begun, began_s) = (Instant::now(), monotonic_s());
    let mut looked = begun;
    let (mut copies, mut wants): (Vec<Copy>, _) = (Vec::new(), None);
    for &number in &order.copies {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        copies.push(start(order, number, &mut wants));
        // The first of many may end before the last has begun.
        if looked.elapsed() > STARTING {
            attend(&mut copies, order, begun);
            looked = Instant::now();
        }
    }
    let mut interrupted = false;
    while copies.iter().any(|copy| copy.child.is_some()) {
        let of_copy = |copy: &Copy| Some(copy.begun + order.timeout.filter(|_| copy.child.is_some())?);
        let ends = copies.iter().filter_map(of_copy).chain(order.stop_after.map(|length| begun + length));
        let until = ends.filter(|end| *end > Instant::now()).min();
        let until = until.map_or(LOOK, |end| end.saturating_duration_since(Instant::now()).min(LOOK));
        await_change(&copies, until);
        attend(&mut copies, order, begun);
        if stop.load(Ordering::Relaxed) && !interrupted {
            interrupted = true;
            copies.iter_mut().for_each(|copy| copy.ask_to_end(Instant::now()));
        }
    }
    let ended_s = monotonic_s();
    end_strays();
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).ok();
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Report {
        began_s,
        ended_s,
        wants,
        user_s: usage.as_ref().map_or(0.0, |usage| seconds(usage.user_time())),
        system_s: usage.as_ref().map_or(0.0, |usage| seconds(usage.system_time())),
        largest_process_bytes: usage.as_ref().map_or(0, |usage| usage.max_rss().max(0) as u64 * 1024),
        runs: copies.into_iter().map(|copy| copy.run).collect(),
        interrupted,
    }
}

fn monotonic_s() -> f64 {
    clock::monotonic_ns() as f64 / 1e9
}

/// Takes in the copies that have ended, and ends those whose time is up.
fn attend(copies: &mut [Copy], order: &Order, begun: Instant) {
    copies.iter_mut().for_each(|copy| copy.look(order));
    let now = Instant::now();
    for copy in copies.iter_mut().filter(|copy| copy.child.is_some() && copy.asked_to_end.is_none()) {
        if order.stop_after.is_some_and(|length| now >= begun + length) {
            copy.run.stopped = true;
            copy.ask_to_end(now);
        } else if order.timeout.is_some_and(|length| now >= copy.begun + length) {
            copy.run.timed_out = true;
            copy.ask_to_end(now);
        }
    }
    copies.iter().for_each(|copy| copy.insist(now));
}

/// Starts a copy. What this machine has too little of for that is no fault of the program: it goes into `wants`.
fn start(order: &Order, number: u32, wants: &mut Option<String>) -> Copy {
    let begun = Instant::now();
    let mut copy = Copy { number, child: None, run: CommandRun::default(), begun, asked_to_end: None };
    match spawn(order, number) {
        Ok(child) => copy.child = Some(child),
        Err(error) => {
            // What a shell says of a program that is not there.
            let is_missing = error.kind() == io::ErrorKind::NotFound;
            copy.run.status = Some(if is_missing { 127 } else { 126 });
            copy.run.last_lines = error.to_string();
            let for_want = [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM, Errno::NOSPC];
            if for_want.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) {
                let told = format!("copy {number} could not be started on this machine: {error}");
                wants.get_or_insert(told);
            }
        }
    }
    copy
}

fn spawn(order: &Order, number: u32) -> io::Result<(Child, OwnedFd)> {
    let words: Vec<String> = order.command.iter().map(|word| Order::numbered(word, number)).collect();
    let (program, arguments) = words.split_first().ok_or_else(|| io::Error::other("an empty command"))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(File::create(order.output(number))?)
        .stderr(File::create(order.errors(number))?)
        .process_group(0)
        .env_remove(VARIABLE);
    for (name, value) in &order.environment {
        command.env(name, Order::numbered(value, number));
    }
    if let Some(directory) = &order.directory {
        let directory = Order::numbered(&directory.display().to_string(), number);
        fs::create_dir_all(&directory)?;
        command.current_dir(directory);
    }
    let child = command.spawn()?;
    let handle = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    Ok((child, handle))
}

/// Waits until a copy ends, for at most so long.
fn await_change(copies: &[Copy], patience: Duration) {
    let running = copies.iter().filter_map(|copy| copy.child.as_ref());
    let mut handles: Vec<PollFd<'_>> =
        running.map(|(_, handle)| PollFd::new(handle, PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: i64::from(patience.subsec_nanos()) };
    // A signal ends it early, and is looked for next.
    let _ = poll(&mut handles, Some(&timeout));
}

impl Copy {
    /// Whether it has ended, and how; whether it writes too much.
    fn look(&mut self, order: &Order) {
        let Some((child, _)) = &mut self.child else { return };
        let id = Pid::from_child(child);
        // Until it is taken in, its group's number can mean no other: what it left running ends with it.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if matches!(waitid(WaitId::Pid(id), options), Ok(Some(_))) {
            let _ = kill_process_group(id, Signal::KILL);
            let status = child.wait();
            self.child = None;
            self.ended(status.unwrap_or_default(), order);
            return;
        }
        let streams = [order.output(self.number), order.errors(self.number)];
        let is_flood = |path: &Path| fs::metadata(path).is_ok_and(|file| file.len() > MOST_OUTPUT_BYTES);
        if self.asked_to_end.is_none() && streams.iter().any(|path| is_flood(path)) {
            self.run.last_lines = format!("it wrote more than {} MiB", MOST_OUTPUT_BYTES >> 20);
            self.asked_to_end = Some(Instant::now());
            // It is not to write on while it ends.
            let _ = kill_process_group(id, Signal::KILL);
        }
    }

    fn ended(&mut self, status: ExitStatus, order: &Order) {
        self.run.wall_s = self.begun.elapsed().as_secs_f64();
        (self.run.status, self.run.signal) = (status.code(), status.signal());
        let is_expected =
            self.asked_to_end.is_none() && status.code().is_some_and(|code| order.expect.contains(&code));
        self.run.succeeded = self.run.stopped || is_expected;
        if !self.run.succeeded && self.run.last_lines.is_empty() {
            self.run.last_lines = last_lines(&order.errors(self.number))
                .or_else(|| last_lines(&order.output(self.number)))
                .unwrap_or_default();
        }
    }

    fn ask_to_end(&mut self, now: Instant) {
        if let Some((child, _)) = &self.child {
            self.asked_to_end.get_or_insert(now);
            let _ = kill_process_group(Pid::from_child(child), Signal::TERM);
        }
    }

    /// Kills what was asked to end and has not.
    fn insist(&self, now: Instant) {
        let is_late = self.asked_to_end.is_some_and(|asked| now >= asked + GRACE);
        if let (true, Some((child, _))) = (is_late, &self.child) {
            let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
        }
    }
}

/// Ends what left the copies' process groups, and takes in all that has ended.
fn end_strays() {
    let until = Instant::now() + GRACE;
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

/// The processes that were left to this one, by the numbers that it knows them by. `/proc` may be of other numbers: on a host
/// of a lab it is the machine's, and tells a process's numbers in all namespaces that it is in. No number means another
/// process: a child keeps its own until it is taken in.
fn own_children() -> Vec<Pid> {
    let Ok(own) = fs::read_link("/proc/self") else { return Vec::new() };
    let level = numbers_of(&own.display().to_string()).len();
    let text = fs::read_to_string(format!("/proc/self/task/{}/children", own.display())).unwrap_or_default();
    let known =
        text.split_whitespace().filter_map(|number| numbers_of(number).get(level.checked_sub(1)?).copied());
    known.filter_map(Pid::from_raw).collect()
}

/// The numbers of a process in the namespaces of process numbers that it is in, from that of `/proc` inwards.
fn numbers_of(process: &str) -> Vec<i32> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    line.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

fn last_lines(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TOLD_BYTES))).ok()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines[lines.len().saturating_sub(TOLD_LINES)..].join("\n");
    (!last.is_empty()).then_some(last)
}
