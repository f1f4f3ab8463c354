//! A lab that is up.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt, fs, io,
    net::Ipv4Addr,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::DirBuilderExt,
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use rustix::process::Signal;
use undo::{Change, Folder, Journal, ProcessId};

use crate::{
    keeper::Keeper,
    link,
    namespace::{Namespace, Starting},
    network,
    plan::{self, Flood, LinkKind, Plan, Program, Ready},
    process::{self, Process, describe, known, ready},
    quota::Quotas,
};

/// The kind of a lab's journal.
pub(crate) const KIND: &str = "lab";
/// What the role of a host's holder begins with, in the journal.
pub(crate) const HOST_ROLE: &str = "host ";
/// How long processes may take to end by themselves when the lab is taken down.
const GRACE: Duration = Duration::from_millis(200);
/// Between two looks at whether a process is ready.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How a lab is brought up.
#[derive(Debug, Clone)]
pub struct Options {
    /// This program: it is started again for the lab's helpers.
    pub program: PathBuf,
    /// Where the journal and the lab's files lie.
    pub folder: Folder,
    /// Whether it runs in a user namespace; see [`enter_user_namespace`](crate::enter_user_namespace).
    pub rootless: bool,
    /// Where the logs are copied when the lab goes down.
    pub keep_logs: Option<PathBuf>,
    /// Calls the bringing up off when set.
    pub stop: Arc<AtomicBool>,
}

impl Options {
    /// With this program's own path and the user's folder.
    ///
    /// # Errors
    /// When one of them cannot be had.
    pub fn new() -> Result<Self, Error> {
        let program = std::env::current_exe().map_err(|cause| Error::failed("find this program", cause))?;
        let folder = Folder::of_this_user()?;
        let stop = Arc::new(AtomicBool::new(false));
        Ok(Self { program, folder, rootless: false, keep_logs: None, stop })
    }
}

/// Why a lab is not up. Everything that was made has been taken down again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something could not be made.
    #[error("cannot {what}: {cause}")]
    Failed {
        /// What was tried.
        what: String,
        /// The kernel's reason.
        cause: io::Error,
    },
    /// A link could not be made.
    #[error("link {name}: {cause}")]
    Link {
        /// Its name.
        name: String,
        /// Why.
        cause: link::LinkError,
    },
    /// A process is not as it should be.
    #[error("{0}")]
    Process(ProcessFailure),
    /// It could not be written down, or not be undone.
    #[error(transparent)]
    Undo(#[from] undo::Error),
    /// It was called off.
    #[error("called off while the lab was brought up")]
    CalledOff,
}

impl Error {
    fn failed(what: impl Into<String>, cause: io::Error) -> Self {
        Self::Failed { what: what.into(), cause }
    }
}

/// A process that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessFailure {
    /// The process.
    pub name: String,
    /// What is wrong.
    pub why: String,
    /// The last lines of its output.
    pub last_lines: Vec<String>,
}

impl fmt::Display for ProcessFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.why)?;
        if self.last_lines.is_empty() {
            return write!(f, "; it wrote nothing");
        }
        write!(f, "; the end of its output:")?;
        self.last_lines.iter().try_for_each(|line| write!(f, "\n    | {line}"))
    }
}

/// A lab that is up. Dropping it takes it down.
#[derive(Debug)]
pub struct Lab {
    plan: Plan,
    options: Options,
    // In the order in which they go: processes, links, namespaces, and last the journal, which undoes
    // whatever is left.
    processes: Vec<Process>,
    links: BTreeMap<String, link::Link>,
    hosts: Vec<Namespace>,
    segments: BTreeMap<String, Namespace>,
    groups: BTreeMap<usize, PathBuf>,
    keeper: Keeper,
    events: (mpsc::Sender<process::Event>, mpsc::Receiver<process::Event>),
    run_folder: PathBuf,
    journal: Option<Journal>,
}

/// A host of a lab that is up.
#[derive(Debug, Clone, Copy)]
pub struct HostHandle<'a> {
    lab: &'a Lab,
    index: usize,
}

impl HostHandle<'_> {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.lab.plan.hosts[self.index].name
    }

    /// The addresses of its interfaces, in the order of the links.
    pub fn addresses(&self) -> Vec<Ipv4Addr> {
        self.lab.plan.ends_of(self.index).map(|(_, end)| end.address).collect()
    }

    /// Its network namespace.
    pub fn ns_fd(&self) -> BorrowedFd<'_> {
        self.lab.hosts[self.index].network()
    }

    /// The process that holds its namespaces.
    pub fn holder(&self) -> ProcessId {
        self.lab.hosts[self.index].id()
    }

    /// Runs `work` on a thread of its own inside the host's network.
    ///
    /// # Errors
    /// When the network cannot be entered, and those of `work`.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        crate::namespace::inside(self.ns_fd(), work)
    }
}

impl Lab {
    /// Brings a lab up: hosts, links, then the processes, stage by stage, each ready before the next.
    ///
    /// # Errors
    /// When anything fails or is called off; nothing is left then.
    pub fn up(plan: &Plan, options: &Options) -> Result<Self, Error> {
        let journal = Journal::open(&options.folder, KIND, &plan.title)?;
        let run_folder = options.folder.path().join(format!("{}.lab", journal.run()));
        journal.record(Change::Folder { path: run_folder.clone() })?;
        let made = fs::DirBuilder::new().mode(0o700).create(&run_folder);
        made.map_err(|cause| Error::failed(format!("make {}", run_folder.display()), cause))?;
        let keeper = Keeper::start().map_err(|cause| Error::failed("start a thread", cause))?;
        let mut lab = Self {
            plan: plan.clone(),
            options: options.clone(),
            processes: Vec::new(),
            links: BTreeMap::new(),
            hosts: Vec::new(),
            segments: BTreeMap::new(),
            groups: BTreeMap::new(),
            keeper,
            events: mpsc::channel(),
            run_folder,
            journal: Some(journal),
        };
        match lab.bring_up() {
            Ok(()) => Ok(lab),
            Err(error) => {
                // What cannot be taken down stays in the journal; the first error is the one that matters.
                let _ = lab.take_down();
                Err(error)
            }
        }
    }

    /// What it consists of.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// A host by its name.
    pub fn host(&self, name: &str) -> Option<HostHandle<'_>> {
        self.plan.host(name).map(|index| HostHandle { lab: self, index })
    }

    /// All hosts, in the plan's order.
    pub fn hosts(&self) -> impl Iterator<Item = HostHandle<'_>> {
        (0..self.hosts.len()).map(|index| HostHandle { lab: self, index })
    }

    /// The process of this name.
    pub fn process(&self, name: &str) -> Option<&Process> {
        self.processes.iter().rev().find(|process| process.name() == name)
    }

    /// An emulated link by its name.
    pub fn link(&mut self, name: &str) -> Option<&mut link::Link> {
        self.links.get_mut(name)
    }

    /// Where its configuration and logs lie while it is up.
    pub fn run_folder(&self) -> &Path {
        &self.run_folder
    }

    /// Starts one more process and waits until it is ready.
    ///
    /// # Errors
    /// When it cannot be started or does not get ready; it has been ended then.
    pub fn spawn(&mut self, process: &plan::Process) -> Result<Process, Error> {
        let started = self.start(process)?;
        if let Err(error) = self.await_ready(process, &started) {
            started.stop(GRACE);
            return Err(error);
        }
        Ok(started)
    }

    /// Waits until a process of the plan is not as it should be: has ended though it must not, or wrote too
    /// much. None if all are well after `patience`.
    pub fn watch(&self, patience: Duration) -> Option<ProcessFailure> {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let name = self.events.1.recv_timeout(left).ok()?;
            let planned = self.plan.processes.iter().find(|planned| planned.name == name);
            if let (Some(planned), Some(process)) = (planned, self.process(&name))
                && let Some(failure) = failure(planned, process)
            {
                return Some(failure);
            }
        }
    }

    /// Takes everything down.
    ///
    /// # Errors
    /// What could not be taken down. It is written down, and tried again by the next command.
    pub fn down(mut self) -> Result<(), Vec<Error>> {
        self.take_down()
    }

    fn bring_up(&mut self) -> Result<(), Error> {
        self.make_namespaces()?;
        self.make_groups()?;
        let network = network::Network {
            plan: &self.plan,
            hosts: &self.hosts,
            segments: &self.segments,
            keeper: &self.keeper,
            program: &self.options.program,
        };
        self.links = network.build(|| self.options.stop.load(Ordering::Relaxed))?;
        let stages = self.plan.processes.iter().map(|process| process.stage).max();
        for stage in 0..=stages.unwrap_or(0) {
            let planned: Vec<plan::Process> =
                self.plan.processes.iter().filter(|process| process.stage == stage).cloned().collect();
            let started: Vec<Process> =
                planned.iter().map(|process| self.start(process)).collect::<Result<_, _>>()?;
            for (planned, process) in planned.iter().zip(&started) {
                self.await_ready(planned, process)?;
            }
        }
        self.go_on()
    }

    fn make_namespaces(&mut self) -> Result<(), Error> {
        let segments = self.plan.links.iter().filter(|link| link.kind == LinkKind::Segment);
        let names: Vec<String> =
            self.plan.hosts.iter().map(|host| format!("{HOST_ROLE}{}", host.name)).collect();
        let names: Vec<String> =
            names.into_iter().chain(segments.map(|link| format!("segment {}", link.name))).collect();
        let failed = |name: &str| {
            let what = format!("make {name}");
            move |cause| Error::failed(what, cause)
        };
        let program: OsString = self.options.program.clone().into();
        let mut starting = Vec::new();
        for name in &names {
            self.go_on()?;
            starting.push(Starting::start(&program).map_err(failed(name))?);
        }
        let mut changes = Vec::new();
        for (name, starting) in names.iter().zip(&starting) {
            changes
                .push(Change::Process { process: starting.id().map_err(failed(name))?, role: name.clone() });
        }
        self.record_all(changes)?;
        for (name, starting) in names.iter().zip(starting) {
            let namespace = starting.ready().map_err(failed(name))?;
            match name.strip_prefix("segment ") {
                Some(link) => drop(self.segments.insert(link.to_owned(), namespace)),
                None => self.hosts.push(namespace),
            }
        }
        Ok(())
    }

    fn make_groups(&mut self) -> Result<(), Error> {
        let hosts = self.plan.hosts.iter().enumerate();
        let limited: Vec<_> =
            hosts.filter_map(|(index, host)| Some((index, &host.name, host.cpu_quota?))).collect();
        let Some(journal) = self.journal.as_ref().filter(|_| !limited.is_empty()) else { return Ok(()) };
        let failed = |cause| Error::failed("limit processor time (cpu_quota)", cause);
        let quotas = Quotas::make(journal).map_err(failed)?;
        for (index, name, processors) in limited {
            self.groups.insert(index, quotas.add(name, processors, journal).map_err(failed)?);
        }
        Ok(())
    }

    fn start(&mut self, planned: &plan::Process) -> Result<Process, Error> {
        self.go_on()?;
        let failed = |cause| Error::failed(format!("start {}", planned.name), cause);
        let command = self.command(planned).map_err(failed)?;
        let host = &self.plan.hosts[planned.host];
        let start = process::Start {
            program: self.options.program.as_os_str(),
            namespace: &self.hosts[planned.host],
            plan: planned,
            command,
            cpus: host.cpus.clone(),
            control_group: self.groups.get(&planned.host).cloned(),
            log_path: self.run_folder.join(format!("{}.log", planned.name)),
            events: self.events.0.clone(),
        };
        let process = Process::start(start).map_err(failed)?;
        self.processes.push(process.clone());
        self.record_all(vec![Change::Process { process: process.id(), role: planned.name.clone() }])?;
        Ok(process)
    }

    /// The words of its command line, with the hosts' addresses in their places.
    fn command(&self, planned: &plan::Process) -> io::Result<Vec<String>> {
        match &planned.program {
            Program::Known(wanted) => {
                let folder = self.run_folder.join(&planned.name);
                known::set_up(wanted, &folder, &self.options.program, self.options.rootless)
            }
            Program::Command(words) => {
                Ok(words.iter().map(|word| substitute(word, &self.plan, planned.host)).collect())
            }
        }
    }

    fn await_ready(&self, planned: &plan::Process, process: &Process) -> Result<(), Error> {
        let Some(wanted) = &planned.ready else { return Ok(()) };
        let own = self.plan.address_of(planned.host).unwrap_or(Ipv4Addr::LOCALHOST);
        let network = self.hosts[planned.host].handle();
        let deadline = Instant::now() + planned.ready_timeout;
        let mut reason;
        loop {
            self.go_on()?;
            if let Some(failure) = failure(planned, process) {
                return Err(Error::Process(failure));
            }
            reason = match wanted {
                Ready::Log(text) if !process.text_seen() => format!("its output does not hold '{text}'"),
                Ready::Exit if process.ended().is_none() => "it has not ended".to_owned(),
                _ => match ready::look(wanted, &network, own) {
                    Ok(()) => return Ok(()),
                    Err(error) => error.to_string(),
                },
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            process.wait_for_change(LOOK_EVERY.min(left));
        }
        let why = format!("did not get ready within {:?}: {reason}", planned.ready_timeout);
        Err(Error::Process(ProcessFailure {
            name: planned.name.clone(),
            why,
            last_lines: process.last_lines(),
        }))
    }

    fn go_on(&self) -> Result<(), Error> {
        if self.options.stop.load(Ordering::Relaxed) { Err(Error::CalledOff) } else { Ok(()) }
    }

    fn record_all(&self, changes: Vec<Change>) -> Result<(), Error> {
        if let Some(journal) = &self.journal {
            journal.record_all(changes)?;
        }
        Ok(())
    }

    fn take_down(&mut self) -> Result<(), Vec<Error>> {
        let Some(journal) = self.journal.take() else { return Ok(()) };
        let mut errors = Vec::new();
        self.end_processes();
        self.links.clear();
        let namespaces = self.hosts.iter_mut().chain(self.segments.values_mut());
        // All are told before the first is waited for: the kernel takes them down at the same time.
        namespaces.for_each(Namespace::kill);
        self.hosts.clear();
        self.segments.clear();
        // What was not asked to end, or did not want to, has been killed with its host by now.
        for process in self.processes.drain(..) {
            process.wait(GRACE);
        }
        if let Some(folder) = &self.options.keep_logs
            && let Err(cause) = copy_logs(&self.run_folder, folder)
        {
            errors.push(Error::failed(format!("keep the logs in {}", folder.display()), cause));
        }
        if let Err(failures) = journal.finish() {
            errors.extend(failures.into_iter().map(Error::from));
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// Asks all processes to end, and gives them a moment.
    fn end_processes(&self) {
        let running = || self.processes.iter().filter(|process| process.ended().is_none());
        running().for_each(|process| process.signal(Signal::TERM));
        let deadline = Instant::now() + GRACE;
        for process in running() {
            process.wait(deadline.saturating_duration_since(Instant::now()));
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // What cannot be taken down is written down, for the next command.
        let _ = self.take_down();
    }
}

/// What is wrong with a process, if anything is.
fn failure(planned: &plan::Process, process: &Process) -> Option<ProcessFailure> {
    let why = match process.ended() {
        Some(status) if planned.may_end && status.success() => return None,
        Some(status) => describe(status),
        None if planned.flood == Flood::Fail && process.flooded() => {
            format!("wrote more than {} bytes (log_limit)", planned.log_limit_bytes)
        }
        None => return None,
    };
    Some(ProcessFailure { name: planned.name.clone(), why, last_lines: process.last_lines() })
}

/// `{NAME}` becomes the address of the host NAME, `{self}` that of `own`; other braces stay.
fn substitute(word: &str, plan: &Plan, own: usize) -> String {
    let mut result = String::new();
    let mut rest = word;
    while let Some(open) = rest.find('{') {
        let (before, after) = rest.split_at(open);
        result += before;
        let address = after[1..].split_once('}').and_then(|(name, _)| {
            let host = if name == "self" { Some(own) } else { plan.host(name) };
            Some((plan.address_of(host?)?, name.len() + 2))
        });
        let length = match address {
            Some((address, length)) => {
                result += &address.to_string();
                length
            }
            None => {
                result.push('{');
                1
            }
        };
        rest = &after[length..];
    }
    result + rest
}

fn copy_logs(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        if let (Some(name), true) = (path.file_name(), path.extension().is_some_and(|e| e == "log")) {
            fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}

impl AsFd for HostHandle<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ns_fd()
    }
}
