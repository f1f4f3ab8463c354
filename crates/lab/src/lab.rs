//! A lab that is up.

mod bring_up;
mod pinning;
mod take_down;
mod watch;

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    net::IpAddr,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
};

use kernel::namespaces::{self, Kind};
use settings::places;
use undo::{Change, Folder, Journal, ProcessId};

pub(crate) use bring_up::PLAN_FILE;

use crate::{
    link,
    namespace::Namespace,
    plan::{self, Plan},
    preflight,
    process::{self, Process},
    spawner::Spawner,
};
use take_down::GRACE;

/// The kind of a lab's journal.
pub(crate) const KIND: &str = "lab";
/// What the role of a host's holder begins with, in the journal.
pub(crate) const HOST_ROLE: &str = "host ";
/// How a lab is brought up.
#[derive(Debug, Clone)]
pub struct Options {
    /// This program: it is started again as the lab's own processes.
    pub program: PathBuf,
    /// Where the journal and the lab's files lie.
    pub folder: Folder,
    /// Whether it runs in a user namespace; see [`enter_user_namespace`](crate::enter_user_namespace).
    pub rootless: bool,
    /// Where the logs are copied when the lab goes down, without secrets.
    pub keep_logs: Option<PathBuf>,
    /// Processors that something beside the lab is pinned to, such as the generator of a study: emulated links stay off
    /// them.
    pub busy_cpus: Vec<usize>,
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
        Ok(Self { program, folder, rootless: false, keep_logs: None, busy_cpus: Vec::new(), stop })
    }

    /// Refuses to go on once it was called off.
    fn check_not_cancelled(&self) -> Result<(), Error> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Cancelled) } else { Ok(()) }
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
    /// This machine cannot have it.
    #[error("this machine cannot have this lab: {}", .0.join("; "))]
    Unsupported(Vec<String>),
    /// It was called off.
    #[error("called off while the lab was brought up")]
    Cancelled,
}

impl Error {
    pub(crate) fn failed(what: impl Into<String>, cause: io::Error) -> Self {
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

/// Measures an emulated link of a lab that is being brought up.
pub type MeasureLink<'a> = &'a mut dyn FnMut(&str, &mut link::Link) -> Result<(), link::LinkError>;

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
    control_groups: BTreeMap<usize, PathBuf>,
    cpu_contention: Option<String>,
    spawner: Spawner,
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
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.lab.plan.ends_of(self.index).map(|(_, end)| end.address).collect()
    }

    /// The process that holds its namespaces.
    pub fn holder(&self) -> ProcessId {
        self.lab.hosts[self.index].id()
    }

    /// The arguments that make this program put itself on the host (its network, processors and control group) and
    /// become `command`; it dies with the thread that started it. For those who must hold its standard streams.
    pub fn arguments_to_run(&self, command: &[String]) -> Vec<String> {
        let request = process::exec::ExecRequest {
            network: namespaces::of(self.holder().pid, Kind::Network),
            control_group: self.lab.control_groups.get(&self.index).cloned(),
            cpus: self.lab.plan.hosts[self.index].cpus.clone(),
            directory: None,
            command: command.to_vec(),
        };
        let request = serde_json::to_string(&request).expect("its paths are text that we made");
        vec!["lab-exec".to_owned(), request]
    }

    /// The words of a command that is to run on the host, as those of its processes: `{NAME}` becomes the address of the host
    /// NAME, `{self}` its own, `{ssh_config}` a file that an sshd of the lab has written.
    pub fn finished(&self, words: &[String]) -> Vec<String> {
        self.lab.finished(self.index, words)
    }

    /// Runs `work` on a thread of its own inside the host's network.
    ///
    /// # Errors
    /// When the network cannot be entered, and those of `work`.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        namespaces::inside(self.lab.hosts[self.index].network(), work)
    }
}

impl Lab {
    /// Brings a lab up: hosts, links, then the processes, stage by stage, each ready before the next.
    ///
    /// # Errors
    /// When anything fails or is called off; nothing is left then.
    pub fn up(plan: &Plan, options: &Options) -> Result<Self, Error> {
        Self::up_and_measure(plan, options, &mut |_, _| Ok(()))
    }

    /// The same; `measure` is called for each emulated link, by its name, before anything runs over it.
    ///
    /// # Errors
    /// As [`up`](Self::up), and those of `measure`.
    pub fn up_and_measure(plan: &Plan, options: &Options, measure: MeasureLink<'_>) -> Result<Self, Error> {
        let missing = preflight::missing_requirements(plan);
        if !missing.is_empty() {
            return Err(Error::Unsupported(missing));
        }
        let journal = Journal::open(&options.folder, KIND, &plan.title)?;
        let run_folder = options.folder.path().join(format!("{}.lab", journal.run()));
        journal.record(Change::Folder { path: run_folder.clone() })?;
        let made = fs::DirBuilder::new().mode(0o700).create(&run_folder);
        made.map_err(|cause| Error::failed(format!("make {}", run_folder.display()), cause))?;
        let spawner = Spawner::start().map_err(|cause| Error::failed("start a thread", cause))?;
        let mut lab = Self {
            plan: plan.clone(),
            options: options.clone(),
            processes: Vec::new(),
            links: BTreeMap::new(),
            hosts: Vec::new(),
            segments: BTreeMap::new(),
            control_groups: BTreeMap::new(),
            cpu_contention: None,
            spawner,
            events: mpsc::channel(),
            run_folder,
            journal: Some(journal),
        };
        match lab.bring_up(measure) {
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

    /// All hosts, in the plan's order.
    pub fn hosts(&self) -> impl Iterator<Item = HostHandle<'_>> {
        (0..self.hosts.len()).map(|index| HostHandle { lab: self, index })
    }

    /// The process of this name.
    pub fn process(&self, name: &str) -> Option<&Process> {
        self.processes.iter().rev().find(|process| process.name() == name)
    }

    /// The emulated links by their names; those that the kernel makes (`driver = "netem"`) are not among them.
    pub fn links(&mut self) -> impl Iterator<Item = (&str, &mut link::Link)> {
        self.links.iter_mut().map(|(name, link)| (name.as_str(), link))
    }

    /// Where its configuration and logs lie while it is up.
    pub fn run_folder(&self) -> &Path {
        &self.run_folder
    }

    fn finished(&self, own: usize, words: &[String]) -> Vec<String> {
        let stands_for = |name: &str| {
            if self.plan.writes_file(name) {
                return Some(self.run_folder.join(name).display().to_string());
            }
            let host = if name == "self" { Some(own) } else { self.plan.host(name) };
            Some(self.plan.address_of(host?)?.to_string())
        };
        words.iter().map(|word| places::finished(word, &stands_for)).collect()
    }

    /// Starts one more process and waits until it is ready.
    ///
    /// # Errors
    /// When it cannot be started or does not get ready; it has been ended then.
    pub fn spawn(&mut self, process: &plan::Process) -> Result<Process, Error> {
        let planned = |name: &str| self.plan.processes.iter().any(|planned| planned.name == name);
        self.processes.retain(|process| process.ended().is_none() || planned(process.name()));
        let started = self.start(process)?;
        if let Err(error) = self.wait_until_ready(process, &started) {
            started.stop(GRACE);
            return Err(error);
        }
        Ok(started)
    }

    /// Takes everything down.
    ///
    /// # Errors
    /// What could not be taken down. It is written down, and tried again by the next command.
    pub fn down(mut self) -> Result<(), Vec<Error>> {
        self.take_down()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // What cannot be taken down is written down, for the next command.
        let _ = self.take_down();
    }
}

/// Where the process of an emulated link leaves what it has to say.
pub(crate) fn link_log(run_folder: &Path, link: &str) -> PathBuf {
    // No process has such a name.
    run_folder.join(format!("link.{link}.log"))
}
