//! Actions on hosts during a trial.

use std::{
    fs,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::Path,
    process::{Child, ChildStderr, Command, Stdio},
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use fleet::HostMachine;
use lab::{HostHandle, SegmentPort};
use load::Tick;
use record::{ActionRecord, VoidReason, VoidRule};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::{
    balancer_observer::{in_host, own_command},
    machines::Question,
    study::{ActionKind, Setup},
    testbed::Testbed,
};

/// Longest time that a command may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How much longer a machine may take to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// Commands that this program starts itself, also in hosts of a lab.
const HELPERS: [&str; 5] = ["lab-holder", "lab-exec", "link-worker", "command-run", "worker"];

/// The actions of a running trial.
#[derive(Debug)]
pub(crate) struct RunningActions {
    /// Sends the start time of the load. Dropping it at the end of the load ends the thread's wait.
    began: Sender<Instant>,
    thread: JoinHandle<Vec<ActionRecord>>,
}

/// An action, ready to be performed.
#[derive(Debug)]
struct Prepared {
    record: ActionRecord,
    at: Duration,
    how: How,
}

#[derive(Debug)]
enum How {
    /// A command line that runs inside the host.
    Run(Vec<String>),
    /// The name of the programs, and a namespace of the host: the name of its file in `/proc/PID/ns` and its inode.
    Kill(String, &'static str, u64),
    Switch(Vec<SegmentPort>, bool),
    /// By the agent on a machine.
    There(Arc<HostMachine>, ActionKind),
}

impl RunningActions {
    /// Starts a thread that performs a setup's actions at their times. `None` if there are none.
    ///
    /// # Errors
    /// If an action cannot be prepared.
    pub(crate) fn start(testbed: &mut Testbed, setup: &Setup) -> io::Result<Option<Self>> {
        if setup.actions.is_empty() {
            return Ok(None);
        }
        let mut all = Vec::new();
        for action in &setup.actions {
            let (host, how) = match testbed.machines() {
                Some(machines) => {
                    let (name, machine, what) = machines.action(action.host, &action.what);
                    (name, How::There(machine, what))
                }
                None => {
                    let host = testbed.lab().and_then(|lab| lab.hosts().nth(action.host));
                    let Some(host) = host else { return Ok(None) };
                    (host.name().to_owned(), How::of(&host, &action.what)?)
                }
            };
            let what = match &action.what {
                ActionKind::Balance(words) => format!("balance {}", words.join(" ")),
                ActionKind::Command(words) => words.join(" "),
                ActionKind::Kill(name) => format!("kill {name}"),
                ActionKind::Link(true) => "link up".to_owned(),
                ActionKind::Link(false) => "link down".to_owned(),
            };
            let record = ActionRecord {
                host,
                what: secrets::mask(&what).into_owned(),
                planned_s: action.at.as_secs_f64(),
                began_s: None,
                took_s: 0.0,
                error: None,
            };
            all.push(Prepared { record, at: action.at, how });
        }
        let (began, told) = mpsc::channel();
        let first = Instant::now();
        let run = move || run_all(all, first, &told);
        let thread = thread::Builder::new().name("actions".to_owned()).spawn(run)?;
        Ok(Some(Self { began, thread }))
    }

    /// Sends the start of the load to the thread, computed from a tick that has just ended.
    pub(crate) fn tick(&self, tick: &Tick) {
        if let Some(began) = Instant::now().checked_sub(Duration::from_nanos(tick.end_ns)) {
            // Sending fails if all actions are done; the time then no longer matters.
            let _ = self.began.send(began);
        }
    }

    /// Waits for the action in progress, skips the actions that are not due yet, and returns the records of all actions.
    pub(crate) fn finish(self) -> Vec<ActionRecord> {
        drop(self.began);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// The reasons why a trial with these actions is void; empty if all succeeded.
pub(crate) fn void_reasons(actions: &[ActionRecord]) -> Vec<VoidReason> {
    let failed = actions.iter().filter_map(|action| {
        let ActionRecord { host, what, .. } = action;
        let evidence = format!("on {host}, '{what}' failed: {}", action.error.as_ref()?);
        Some(VoidReason { rule: VoidRule::Action, evidence })
    });
    failed.collect()
}

fn run_all(actions: Vec<Prepared>, mut began: Instant, told: &Receiver<Instant>) -> Vec<ActionRecord> {
    // Actions run in the order of their times, but their records keep the order of the file.
    let mut order: Vec<usize> = (0..actions.len()).collect();
    order.sort_by_key(|index| actions[*index].at);
    let mut records: Vec<ActionRecord> = actions.iter().map(|action| action.record.clone()).collect();
    for index in order {
        let (action, record) = (&actions[index], &mut records[index]);
        if !wait_for(action.at, &mut began, told) {
            record.error = Some("the load ended before the action was due".to_owned());
            continue;
        }
        let started = Instant::now();
        record.began_s = Some(started.saturating_duration_since(began).as_secs_f64());
        record.error = action.how.perform().err().map(|why| secrets::mask(&why).into_owned());
        record.took_s = started.elapsed().as_secs_f64();
    }
    records
}

/// Waits until `at` after the start of the load. Each tick corrects the estimate of that start. Returns false if the load ends first.
fn wait_for(at: Duration, began: &mut Instant, told: &Receiver<Instant>) -> bool {
    loop {
        let left = (*began + at).saturating_duration_since(Instant::now());
        match told.recv_timeout(left) {
            // A tick may be late but never early, so the latest time is the best estimate.
            Ok(time) => *began = time,
            Err(RecvTimeoutError::Timeout) => return true,
            Err(RecvTimeoutError::Disconnected) => return false,
        }
    }
}

/// Performs an action on a host at once.
///
/// # Errors
/// The reason why it failed.
pub(crate) fn act(host: HostHandle<'_>, what: &ActionKind) -> Result<(), String> {
    How::of(&host, what).map_err(|error| error.to_string())?.perform()
}

impl How {
    fn of(host: &HostHandle<'_>, what: &ActionKind) -> io::Result<Self> {
        Ok(match what {
            ActionKind::Balance(words) => {
                let words: Vec<&str> =
                    std::iter::once("balance").chain(words.iter().map(String::as_str)).collect();
                Self::Run(own_command(host, &words)?)
            }
            ActionKind::Command(words) => Self::Run(in_host(host, &host.expand_placeholders(words))?),
            ActionKind::Kill(name) => {
                // A machine has other programs in the network, too.
                let kind = if host.is_machine() { "pid" } else { "net" };
                let namespace = fs::metadata(format!("/proc/{}/ns/{kind}", host.holder().pid))?.ino();
                Self::Kill(name.clone(), kind, namespace)
            }
            ActionKind::Link(_) if host.is_machine() => {
                return Err(io::Error::other("a machine's interfaces are not switched: it would be lost"));
            }
            ActionKind::Link(on) => Self::Switch(host.segment_ports(), *on),
        })
    }

    fn perform(&self) -> Result<(), String> {
        let done = match self {
            Self::Run(command) => return run(command),
            Self::There(machine, what) => {
                return machine.ask(&Question::Act(what.clone()), TIMEOUT + ANSWER_WAIT);
            }
            Self::Kill(name, kind, namespace) => kill(name, kind, *namespace, Path::new("/proc/self/exe")),
            Self::Switch(ports, on) => ports.iter().try_for_each(|port| port.switch(*on)),
        };
        done.map_err(|error| error.to_string())
    }
}

/// Runs a command, and kills it if it takes too long.
fn run(command: &[String]) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(text)?;
    if !ends_within(&child, TIMEOUT).map_err(text)? {
        child.kill().and_then(|()| child.wait()).map_err(text)?;
        return Err(format!("it took longer than {} s", TIMEOUT.as_secs()));
    }
    let status = child.wait().map_err(text)?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{status}: {}", child.stderr.map(what_was_written).unwrap_or_default())),
    }
}

fn ends_within(child: &Child, timeout: Duration) -> io::Result<bool> {
    undo::readable_within(pidfd_open(Pid::from_child(child), PidfdFlags::empty())?, timeout)
}

/// The standard error of a process that has ended. Its children may still hold the pipe open.
fn what_was_written(mut stderr: ChildStderr) -> String {
    let mut bytes = [0; 4096];
    let read = rustix::io::ioctl_fionbio(&stderr, true)
        .map_err(io::Error::from)
        .and_then(|()| stderr.read(&mut bytes));
    String::from_utf8_lossy(&bytes[..read.unwrap_or_default()]).trim().to_owned()
}

/// Kills the programs of this name in a namespace. Spares this program's own [`HELPERS`], which run from `own_program`: they hold
/// the namespace and work in it.
fn kill(name: &str, kind: &str, namespace: u64, own_program: &Path) -> io::Result<()> {
    let file = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino()));
    let own_file = file(own_program)?;
    let is_helper = |pid: u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let first = words.split(|byte| *byte == 0).nth(1);
        first.is_some_and(|first| HELPERS.iter().any(|helper| helper.as_bytes() == first))
            && file(Path::new(&format!("/proc/{pid}/exe"))).is_ok_and(|program| program == own_file)
    };
    let is_wanted = |pid: u32| {
        let is_in_host =
            fs::metadata(format!("/proc/{pid}/ns/{kind}")).is_ok_and(|file| file.ino() == namespace);
        let comm = fs::read_to_string(format!("/proc/{pid}/comm"));
        is_in_host && comm.is_ok_and(|comm| comm.trim_end() == name) && !is_helper(pid)
    };
    let mut killed = 0;
    for pid in kernel::processes() {
        let Some(process) = i32::try_from(pid).ok().and_then(Pid::from_raw).filter(|_| is_wanted(pid)) else {
            continue;
        };
        let Ok(handle) = pidfd_open(process, PidfdFlags::empty()) else { continue };
        // Another process may have received this id before the handle was opened, so check again.
        if is_wanted(pid) {
            pidfd_send_signal(&handle, Signal::KILL)?;
            killed += 1;
        }
    }
    match killed {
        0 => Err(io::Error::other(format!("no program '{name}' runs there"))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(at_ms: u64, words: &[&str]) -> Prepared {
        let record = ActionRecord {
            host: "h".to_owned(),
            what: words.join(" "),
            planned_s: at_ms as f64 / 1e3,
            began_s: None,
            took_s: 0.0,
            error: None,
        };
        let words = words.iter().map(|&word| word.to_owned()).collect();
        Prepared { record, at: Duration::from_millis(at_ms), how: How::Run(words) }
    }

    #[test]
    fn actions_are_done_at_their_times_and_those_after_the_end_are_not() {
        let (began, told) = mpsc::channel();
        let folder = tempfile::tempdir().unwrap();
        let last = folder.path().join("last");
        let actions = vec![
            action(40, &["false"]),
            action(5, &["true"]),
            action(3_600_000, &["true"]),
            action(60, &["touch", last.to_str().unwrap()]),
        ];
        let start = Instant::now();
        let thread = thread::spawn(move || run_all(actions, start, &told));
        // The load began later than `start`.
        began.send(start + Duration::from_millis(20)).unwrap();
        testing::until("the others are done", || last.exists());
        drop(began);
        let records = thread.join().unwrap();
        assert_eq!(records[1].error, None, "{records:?}");
        assert!(records[0].error.as_ref().unwrap().contains("exit status: 1"), "{records:?}");
        assert!(
            records.iter().take(2).all(|record| record.began_s.unwrap() >= record.planned_s),
            "{records:?}"
        );
        assert!(
            records[2].began_s.is_none() && records[2].error.as_ref().unwrap().contains("before the action")
        );
        let reasons = void_reasons(&records);
        assert!(
            reasons.len() == 2 && reasons[0].evidence.starts_with("on h, 'false' failed: "),
            "{reasons:?}"
        );
    }

    #[test]
    fn a_program_is_killed_by_its_name_and_network() {
        let network = fs::metadata("/proc/self/ns/net").unwrap().ino();
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("own-shell");
        fs::copy("/bin/sh", &program).unwrap();
        assert!(
            kill("no-such-program", "net", network, &program).unwrap_err().to_string().contains("no program")
        );
        // Two processes of the same name: one holds the host, and the other must be killed.
        let start = |program: &Path, word: &str| {
            fs::write(folder.path().join(word), "read line\n").unwrap();
            let mut command = Command::new(program);
            command.arg(word).current_dir(folder.path()).stdin(Stdio::piped());
            let child = testing::find(testing::PATIENCE, || match command.spawn() {
                // A child that another test has just forked keeps the program open for writing until the child calls exec.
                Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => None,
                spawned => Some(spawned.unwrap()),
            });
            let child = child.expect("the program is not open for long");
            let words = format!("/proc/{}/cmdline", child.id());
            testing::until("it has its words", || fs::read_to_string(&words).unwrap().contains(word));
            child
        };
        let mut holder = start(&program, "lab-holder");
        let mut meant = start(&program, "balance");
        testing::until("it has its name", || kill("own-shell", "net", network, &program).is_ok());
        assert!(!meant.wait().unwrap().success());
        assert!(holder.try_wait().unwrap().is_none(), "the holder is killed");
        let other = Path::new("/proc/self/exe");
        testing::until("it has its name", || kill("own-shell", "net", network, other).is_ok());
        assert!(!holder.wait().unwrap().success());
    }

    #[test]
    fn what_a_failed_command_says_is_told() {
        let command = ["sh", "-c", "echo this is why >&2; exit 3"].map(str::to_owned);
        assert_eq!(run(&command), Err("exit status: 3: this is why".to_owned()));
    }
}
