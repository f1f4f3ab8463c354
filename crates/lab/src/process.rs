//! A process on a host: started in its namespaces, its output kept, its end watched.

pub(crate) mod exec;
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
    time::{Duration, Instant},
};

use kernel::namespaces::{self, Kind};
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use undo::ProcessId;

use crate::{namespace::Namespace, plan};
use log::Log;

/// A process of a lab. It ends with the lab at the latest.
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

#[derive(Debug)]
struct State {
    log: Log,
    ended: Option<ExitStatus>,
    /// Whether nobody can write to the log any more.
    log_is_complete: bool,
}

/// What a watcher tells the lab: the process of this name has ended, or wrote too much.
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
        let request = exec::ExecRequest {
            network: namespaces::of(start.namespace.pid(), Kind::Network),
            control_group: start.control_group,
            cpus: start.cpus,
            directory: start.plan.directory.clone(),
            command: start.command,
        };
        // One pipe for both, as on a terminal: the order of the lines is kept.
        let (output, input) = io::pipe()?;
        let mut command = Command::new(start.program);
        command
            .arg("lab-exec")
            .arg(serde_json::to_string(&request)?)
            .envs(&start.plan.environment)
            .stdin(Stdio::null())
            .stdout(input.try_clone()?)
            .stderr(input)
            // Ctrl-C is for the lab, which then takes everything down in request.
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

    /// Its name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Its number and start, as the machine sees them.
    pub fn id(&self) -> ProcessId {
        self.shared.id
    }

    /// How it ended; none while it runs.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.state().ended
    }

    /// Whether it wrote more than is kept.
    pub fn flooded(&self) -> bool {
        self.state().log.flooded()
    }

    /// The last lines of its output, 20 at most.
    pub fn last_lines(&self) -> Vec<String> {
        self.state().log.last_lines()
    }

    /// Sends it a signal. One that has ended takes none.
    pub fn signal(&self, signal: Signal) {
        // The handle can mean no other process; it may have ended.
        let _ = pidfd_send_signal(&self.shared.handle, signal);
    }

    /// Waits for its end; none if it still runs after `timeout`.
    pub fn wait(&self, timeout: Duration) -> Option<ExitStatus> {
        self.wait_for(timeout, |state| state.ended.is_some()).ended
    }

    /// Waits until it has ended, and all its children that wrote to its log: at most for `timeout`.
    pub(crate) fn wait_for_log(&self, timeout: Duration) {
        drop(self.wait_for(timeout, |state| state.log_is_complete));
    }

    /// Asks it to end, and kills it if it has not within `timeout`.
    pub fn stop(&self, timeout: Duration) -> Option<ExitStatus> {
        for signal in [Signal::TERM, Signal::KILL] {
            self.signal(signal);
            if let Some(status) = self.wait(timeout) {
                return Some(status);
            }
        }
        None
    }

    /// Whether the text that it is waited for has been seen.
    pub(crate) fn has_seen_text(&self) -> bool {
        self.state().log.has_seen_text()
    }

    /// Waits until something has happened to it, at most for `timeout`.
    pub(crate) fn wait_for_change(&self, timeout: Duration) {
        drop(self.shared.changed.wait_timeout(self.state(), timeout));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for(&self, timeout: Duration, met: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let deadline = Instant::now() + timeout;
        let mut state = self.state();
        while !met(&state) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self
                .shared
                .changed
                .wait_timeout(state, left)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state);
        }
        state
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
    /// Keeps the output, and waits for the end, which is that of the process. Its children may go on and write
    /// for as long as the host is there.
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
                self.lock().ended = Some(status);
                self.notify();
            } else if !is_reported && !ended && flood == plan::Flood::Fail && self.lock().log.flooded() {
                is_reported = true;
                self.notify();
            }
        }
        {
            let mut state = self.lock();
            state.log.finish();
            state.log_is_complete = true;
        }
        self.shared.changed.notify_all();
    }

    /// Takes what is in the pipe, at most 1 MiB at a time; false at its end.
    fn keep_output(&mut self) -> bool {
        let mut bytes = [0; 64 * 1024];
        for _ in 0..16 {
            match self.output.read(&mut bytes) {
                Ok(0) => return false,
                Ok(length) => {
                    self.lock().log.push(&bytes[..length]);
                    self.shared.changed.notify_all();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        self.shared.changed.notify_all();
        // Nobody listens any more when the lab is going down.
        let _ = self.events.send(self.shared.name.clone());
    }
}

/// How a process ended, in words.
pub(crate) fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (_, Some(signal)) => format!("was ended by signal {signal}"),
        _ => "ended".to_owned(),
    }
}
