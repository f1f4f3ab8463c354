//! A lab that is up.

mod bring_up;
mod pinning;
mod take_down;
mod watch;

use std::{
    collections::BTreeMap,
    fs, io,
    net::IpAddr,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
};

use kernel::{
    namespaces::{self, Kind},
    watch::WatchedHost,
};
use settings::placeholders;
use undo::{Change, Folder, Journal, ProcessId};

pub(crate) use bring_up::PLAN_FILE;

use crate::{
    error::Error,
    exec::ExecRequest,
    link,
    namespace::Namespace,
    network,
    plan::{self, Plan},
    preflight,
    process::{self, Process},
    program,
    segment_port::SegmentPort,
    spawner::Spawner,
};
use take_down::GRACE;

/// The kind of a lab's journal.
pub(crate) const KIND: &str = "lab";
/// Prefix of the roles of holder processes in the journal; the host's name follows.
pub(crate) const HOST_ROLE: &str = "host ";
/// Options for bringing a lab up.
#[derive(Debug, Clone)]
pub struct Options {
    /// Path of this program. The lab starts it again for its holders (the processes that keep the hosts' namespaces), for its
    /// links and for its processes.
    pub program: PathBuf,
    /// Folder of the journal and of the lab's files.
    pub folder: Folder,
    /// Whether the lab runs in a user namespace; see [`enter_user_namespace`](crate::enter_user_namespace).
    pub rootless: bool,
    /// Folder for copies of the logs, with secrets masked, when the lab goes down; none discards the logs.
    pub keep_logs: Option<PathBuf>,
    /// Files and folders of this machine that stay visible in hosts even where a private folder would hide them. The program
    /// and the lab's own folder are always visible and need not be listed.
    pub shared: Vec<PathBuf>,
    /// Processors that emulated links avoid because something outside the lab is pinned to them, such as a study's
    /// generator.
    pub busy_cpus: Vec<usize>,
    /// Cancels [`Lab::up`] when set.
    pub stop: Arc<AtomicBool>,
    /// Whether the plan's only host is this machine itself. The host then has the machine's own network, whose changes are
    /// undone with the lab. Its processes start by [`Lab::start_stage`].
    pub on_machine: bool,
}

impl Options {
    /// Options with the path of this program and the user's folder.
    ///
    /// # Errors
    /// When the path or the folder cannot be determined.
    pub fn new() -> Result<Self, Error> {
        let program = std::env::current_exe().map_err(|cause| Error::failed("find this program", cause))?;
        let folder = Folder::of_this_user()?;
        let stop = Arc::new(AtomicBool::new(false));
        Ok(Self {
            program,
            folder,
            rootless: false,
            keep_logs: None,
            shared: Vec::new(),
            busy_cpus: Vec::new(),
            stop,
            on_machine: false,
        })
    }

    /// Returns an error once [`stop`](Self::stop) is set.
    fn check_not_cancelled(&self) -> Result<(), Error> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Cancelled) } else { Ok(()) }
    }
}

/// Measures one emulated link, given with its name, while a lab is being brought up.
pub type MeasureLink<'a> = &'a mut dyn FnMut(&str, &mut link::Link) -> Result<(), link::LinkError>;

/// A lab that is up. Dropping it takes it down.
#[derive(Debug)]
pub struct Lab {
    plan: Plan,
    options: Options,
    // Fields are dropped in this order: processes, links, namespaces, and last the journal, which undoes the remaining
    // changes.
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
    /// The name of the host.
    pub fn name(&self) -> &str {
        &self.lab.plan.hosts[self.index].name
    }

    /// Whether the host is this machine itself.
    pub fn is_machine(&self) -> bool {
        self.lab.options.on_machine
    }

    /// The addresses of the host's interfaces, in the order of the links.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.lab.plan.ends_of(self.index).map(|(_, end)| end.address).collect()
    }

    /// The process that owns the host's namespaces.
    pub fn holder(&self) -> ProcessId {
        self.lab.hosts[self.index].id()
    }

    /// The data that a watch needs to read the host's counters.
    pub fn watched(&self) -> WatchedHost {
        WatchedHost {
            name: self.name().to_owned(),
            network: self.lab.hosts[self.index].handle(),
            // The lab keeps the file that lists the group's processes.
            group: self.lab.control_groups.get(&self.index).and_then(|file| Some(file.parent()?.to_owned())),
        }
    }

    /// The ports of the segments that the host is on.
    pub fn segment_ports(&self) -> Vec<SegmentPort> {
        let links = self.lab.plan.links.iter();
        let port = |link: &plan::Link| {
            let position = link.ends.iter().position(|end| end.host == self.index)?;
            let segment = self.lab.segments.get(&link.name)?;
            Some(SegmentPort { network: segment.handle(), index: network::port_index(position) })
        };
        links.filter_map(port).collect()
    }

    /// Arguments with which this program enters the host (its network, private folders, processors and control group) and executes
    /// `command`. The process ends with the thread that started it. For callers that connect the standard streams of
    /// the process themselves.
    pub fn arguments_to_run(&self, command: &[String]) -> Vec<String> {
        let request = ExecRequest {
            network: namespaces::path_of(self.holder().pid, Kind::Network),
            mounts: self.lab.hosts[self.index].mounts_path(),
            control_group: self.lab.control_groups.get(&self.index).cloned(),
            descriptors: None,
            cpus: self.lab.plan.hosts[self.index].cpus.clone(),
            directory: None,
            command: command.to_vec(),
        };
        let request = serde_json::to_string(&request).expect("all paths are UTF-8");
        vec!["lab-exec".to_owned(), request]
    }

    /// Replaces the placeholders in a command for this host: `{NAME}` by the address of the host NAME, `{self}` by this
    /// host's address, `{ssh_config}` by the path of the client configuration that the lab's sshd wrote.
    pub fn expand_placeholders(&self, words: &[String]) -> Vec<String> {
        self.lab.expand_placeholders(self.index, words)
    }

    /// Runs `work` on a new thread inside the host's network namespace.
    ///
    /// # Errors
    /// When the namespace cannot be entered, and the errors of `work`.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        namespaces::run_in_network(self.lab.hosts[self.index].network(), work)
    }
}

impl Lab {
    /// Brings a lab up: hosts, links, then the processes. A stage of processes starts when the previous stage is ready.
    ///
    /// # Errors
    /// If an action fails or the caller cancels. Everything created so far has been removed.
    pub fn up(plan: &Plan, options: &Options) -> Result<Self, Error> {
        Self::up_and_measure(plan, options, &mut |_, _| Ok(()))
    }

    /// Like [`up`](Self::up), but also calls `measure` for each emulated link before any process runs.
    ///
    /// # Errors
    /// Those of [`up`](Self::up) and of `measure`.
    pub fn up_and_measure(plan: &Plan, options: &Options, measure: MeasureLink<'_>) -> Result<Self, Error> {
        Self::up_placed(plan, options, &|plan, _| plan.clone(), measure)
    }

    /// Like [`up`](Self::up), but brings up the plan that `place` makes from `plan` and the lab's folder.
    ///
    /// # Errors
    /// Those of [`up`](Self::up).
    pub fn up_in_folder(
        plan: &Plan,
        options: &Options,
        place: &dyn Fn(&Plan, &Path) -> Plan,
    ) -> Result<Self, Error> {
        Self::up_placed(plan, options, place, &mut |_, _| Ok(()))
    }

    fn up_placed(
        plan: &Plan,
        options: &Options,
        place: &dyn Fn(&Plan, &Path) -> Plan,
        measure: MeasureLink<'_>,
    ) -> Result<Self, Error> {
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
            plan: place(plan, &run_folder),
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
                // The first error is the cause, so errors of the removal are dropped. The journal keeps the changes
                // that remain.
                let _ = lab.take_down();
                Err(error)
            }
        }
    }

    /// The plan of the lab.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// A message that names a host whose congestion control is not the lab's default; none if all hosts have the default or
    /// chose another themselves.
    pub fn other_congestion(&self) -> Option<String> {
        use crate::congestion::{ALLOWED, DEFAULT, SETTING};
        let (hosts, read) = (&self.plan.hosts, || kernel::read(kernel::sysctl_path(SETTING)));
        let other = self.hosts().zip(hosts).filter(|(_, host)| !host.sysctls.contains_key(SETTING)).find_map(
            |(handle, host)| {
                let used = handle.inside(read).ok()?;
                (used.trim() != DEFAULT).then(|| (host.name.clone(), used.trim().to_owned()))
            },
        );
        let (host, used) = other?;
        Some(format!(
            "hosts such as {host} use the congestion control {used} and not {DEFAULT}, because the machine does not allow them to \
             choose: on the machine itself, root can add {DEFAULT} to {ALLOWED}"
        ))
    }

    /// All hosts, in the order of the plan.
    pub fn hosts(&self) -> impl Iterator<Item = HostHandle<'_>> {
        (0..self.hosts.len()).map(|index| HostHandle { lab: self, index })
    }

    /// The process with this name. If several have the name, the one started last.
    pub fn process(&self, name: &str) -> Option<&Process> {
        self.processes.iter().rev().find(|process| process.name() == name)
    }

    /// The emulated links with their names, without those that the kernel emulates (`driver = "netem"`).
    pub fn links(&mut self) -> impl Iterator<Item = (&str, &mut link::Link)> {
        self.links.iter_mut().map(|(name, link)| (name.as_str(), link))
    }

    /// The folder of the lab's configuration files and logs while the lab is up.
    pub fn run_folder(&self) -> &Path {
        &self.run_folder
    }

    fn expand_placeholders(&self, self_host: usize, words: &[String]) -> Vec<String> {
        let stands_for = |name: &str| {
            if program::writes_file(&self.plan, name) {
                return Some(self.run_folder.join(name).display().to_string());
            }
            let host = if name == "self" { Some(self_host) } else { self.plan.host(name) };
            Some(self.plan.address_of(host?)?.to_string())
        };
        words.iter().map(|word| placeholders::expand(word, &stands_for)).collect()
    }

    /// Starts one more process and waits until the process is ready.
    ///
    /// # Errors
    /// If the process cannot be started or does not become ready. A process that does not become ready has been
    /// stopped.
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
    /// Changes that could not be undone. The journal keeps them, and the next command tries again.
    pub fn down(mut self) -> Result<(), Vec<Error>> {
        self.take_down()
    }

    /// Takes everything down, like [`down`](Self::down). Also returns the logs that are not empty, by the names of their
    /// files, with secrets masked.
    pub fn down_with_logs(mut self) -> (Vec<(String, String)>, Vec<Error>) {
        let mut logs = Vec::new();
        let errors = self.take_down_and(&mut |folder| {
            logs = take_down::logs(folder)?;
            Ok(())
        });
        (logs, errors.err().unwrap_or_default())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // The journal keeps the changes that cannot be undone; the next command tries again.
        let _ = self.take_down();
    }
}
