//! A process on a host: starts in the host's namespaces, logs its output and reports its end.

pub(crate) mod log;
pub(crate) mod ready;

use std::{
    ffi::OsStr,
    io::{self, Read},
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::Duration,
};

use kernel::namespaces::{self, Kind};
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use undo::ProcessId;

use crate::{exec::ExecRequest, namespace::Namespace, plan};
use log::Log;

/// Handle of a process of a lab. The process ends with the lab at the latest.
#[derive(Debug, Clone)]
pub struct Process {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    id: ProcessId,
    handle: OwnedFd,
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct State {
    log: Log,
    ended: Option<ExitStatus>,
    /// Whether all output has been logged.
    log_is_complete: bool,
}

/// Name of a process that has ended or whose output exceeded its limit.
pub(crate) type Event = String;

/// How and where a process is started.
pub(crate) struct Start<'a> {
    /// This program.
    pub program: &'a OsStr,
    pub namespace: &'a Namespace,
    pub plan: &'a plan::Process,
    pub command: Vec<String>,
    pub cpus: Option<Vec<usize>>,
    pub control_group: Option<PathBuf>,
    pub log_path: PathBuf,
    pub events: mpsc::Sender<Event>,
}

impl Process {
    pub(crate) fn start(start: Start<'_>) -> io::Result<Self> {
        let request = ExecRequest {
            network: namespaces::path_of(start.namespace.pid(), Kind::Network),
            mounts: start.namespace.mounts_path(),
            control_group: start.control_group,
            cpus: start.cpus,
            descriptors: start.plan.descriptors,
            directory: start.plan.directory.clone(),
            command: start.command,
        };
        // Both streams share a pipe, so that their lines keep their order.
        let (output, input) = io::pipe()?;
        let mut command = Command::new(start.program);
        command
            .arg("lab-exec")
            .arg(serde_json::to_string(&request)?)
            .envs(&start.plan.environment)
            .stdin(Stdio::null())
            .stdout(input.try_clone()?)
            .stderr(input)
            // Ctrl-C must not reach the process: the lab takes everything down in order.
            .process_group(0);
        let log = Log::create(&start.log_path, start.plan.log_limit_bytes, ready::awaited_text(start.plan))?;
        let child = start.namespace.spawner().spawn(command)?;
        let id = ProcessId::of(child.id()).ok_or_else(|| io::Error::other("/proc does not show it"))?;
        let handle = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
        let watch = handle.try_clone()?;
        let shared = Arc::new(Shared {
            name: start.plan.name.clone(),
            id,
            handle,
            state: Mutex::new(State { log, ended: None, log_is_complete: false }),
            changed: Condvar::new(),
        });
        let watched = Watched { shared: Arc::clone(&shared), child, watch, output, events: start.events };
        let flood = start.plan.flood;
        thread::Builder::new().name("lab watcher".into()).spawn(move || watched.watch(flood))?;
        Ok(Self { shared })
    }

    /// The name of the process.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The process number and start time, as the machine sees them.
    pub fn id(&self) -> ProcessId {
        self.shared.id
    }

    /// The exit status; none if the process still runs.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.state().ended
    }

    /// Whether the output exceeded its limit.
    pub(crate) fn flooded(&self) -> bool {
        self.state().log.flooded()
    }

    /// The last lines of the output, at most 20.
    pub fn last_lines(&self) -> Vec<String> {
        self.state().log.last_lines()
    }

    /// Sends a signal. Does nothing if the process has ended.
    pub fn signal(&self, signal: Signal) {
        // The handle never refers to another process, so an error only means that the process has ended.
        let _ = pidfd_send_signal(&self.shared.handle, signal);
    }

    /// Waits for the end of the process. None if it still runs after `timeout`.
    pub fn wait(&self, timeout: Duration) -> Option<ExitStatus> {
        self.wait_for(timeout, |state| state.ended.is_some()).ended
    }

    /// Waits, at most for `timeout`, until the process and all its children that wrote to its log have ended.
    pub(crate) fn wait_for_log(&self, timeout: Duration) {
        drop(self.wait_for(timeout, |state| state.log_is_complete));
    }

    /// Sends SIGTERM and then, if the process still runs after `timeout`, SIGKILL. None if the process survives both.
    pub fn stop(&self, timeout: Duration) -> Option<ExitStatus> {
        for signal in [Signal::TERM, Signal::KILL] {
            self.signal(signal);
            if let Some(status) = self.wait(timeout) {
                return Some(status);
            }
        }
        None
    }

    /// Whether the output contained the text of [`Ready::Log`](plan::Ready::Log).
    pub(crate) fn has_seen_text(&self) -> bool {
        self.state().log.has_seen_text()
    }

    /// Waits, at most for `timeout`, until the output or the status changes.
    pub(crate) fn wait_for_change(&self, timeout: Duration) {
        drop(self.shared.changed.wait_timeout(self.state(), timeout));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }

    fn wait_for(&self, timeout: Duration, met: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let waited = self.shared.changed.wait_timeout_while(self.state(), timeout, |state| !met(state));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

struct Watched {
    shared: Arc<Shared>,
    child: Child,
    watch: OwnedFd,
    output: io::PipeReader,
    events: mpsc::Sender<Event>,
}

impl Watched {
    /// Logs the output and waits for the end of the process. Children of the process may still write until the host is
    /// gone.
    fn watch(mut self, flood: plan::Flood) {
        let mut is_open = crate::namespace::make_nonblocking(&self.output).is_ok();
        let (mut is_reported, mut ended) = (false, false);
        while is_open || !ended {
            let output = PollFd::new(&self.output, PollFlags::IN);
            let mut events = if is_open { vec![output] } else { Vec::new() };
            if !ended {
                events.push(PollFd::new(&self.watch, PollFlags::IN));
            }
            if poll(&mut events, None).is_err() {
                continue;
            }
            let has_ended_now = !ended && events.last().is_some_and(|watch| !watch.revents().is_empty());
            drop(events);
            is_open = is_open && self.keep_output();
            if has_ended_now {
                ended = true;
                let status = self.child.wait().unwrap_or_default();
                self.shared.lock().ended = Some(status);
                self.notify();
            } else if !is_reported && !ended && flood == plan::Flood::Fail && self.shared.lock().log.flooded()
            {
                is_reported = true;
                self.notify();
            }
        }
        {
            let mut state = self.shared.lock();
            state.log.finish();
            state.log_is_complete = true;
        }
        self.shared.changed.notify_all();
    }

    /// Logs the bytes that are in the pipe, at most 1 MiB at a time. Returns false when the pipe is closed.
    fn keep_output(&mut self) -> bool {
        let mut bytes = [0; 64 * 1024];
        for _ in 0..16 {
            match self.output.read(&mut bytes) {
                Ok(0) => return false,
                Ok(length) => {
                    self.shared.lock().log.push(&bytes[..length]);
                    self.shared.changed.notify_all();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }

    fn notify(&self) {
        self.shared.changed.notify_all();
        // While the lab goes down, the receiver may already be gone.
        let _ = self.events.send(self.shared.name.clone());
    }
}

/// A description of how a process ended.
pub(crate) fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (_, Some(signal)) => format!("was ended by signal {signal}"),
        _ => "ended".to_owned(),
    }
}
