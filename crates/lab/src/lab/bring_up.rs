//! Brings a lab up: hosts, then links, then processes, stage by stage.

use std::{ffi::OsString, fs, io, os::unix::fs::OpenOptionsExt, path::Path, sync::atomic::Ordering};

use undo::Change;

use super::{Error, HOST_ROLE, Lab, MeasureLink};
use crate::{
    namespace::StartingHolder,
    network, own_network,
    plan::{self, KnownKind, LinkKind, Plan, Program},
    private::PrivateFolders,
    process::{self, Process},
    program::ProgramContext,
    quota::Quotas,
};

/// Name of the file with the plan, in the run folder.
pub(crate) const PLAN_FILE: &str = "plan.json";

impl Lab {
    pub(super) fn bring_up(&mut self, measure: MeasureLink<'_>) -> Result<(), Error> {
        write_plan(&self.plan, &self.run_folder.join(PLAN_FILE))
            .map_err(|cause| Error::failed("write the plan", cause))?;
        self.make_namespaces()?;
        self.make_control_groups()?;
        if let (true, Some(journal)) = (self.options.on_machine, &self.journal) {
            let failed = |why| Error::failed("set up this machine", io::Error::other(why));
            return self
                .plan
                .hosts
                .iter()
                .try_for_each(|host| own_network::set_up(host, journal))
                .map_err(failed);
        }
        let network = network::NetworkBuilder {
            plan: &self.plan,
            hosts: &self.hosts,
            segments: &self.segments,
            spawner: &self.spawner,
            program: &self.options.program,
            run_folder: &self.run_folder,
            journal: self.journal.as_ref(),
        };
        self.links = network.build(|| self.options.stop.load(Ordering::Relaxed))?;
        self.pin_links()?;
        // While links share processors with pinned threads, a measurement says nothing about the trials, so none is
        // made.
        for (name, link) in self.links.iter_mut().filter(|_| self.cpu_contention.is_none()) {
            self.options.check_not_cancelled()?;
            measure(name, link).map_err(|cause| Error::Link { name: name.clone(), cause })?;
        }
        let stages = self.plan.processes.iter().map(|process| process.stage).max();
        for stage in 0..=stages.unwrap_or(0) {
            self.start_stage(stage)?;
        }
        // A process may have pinned itself meanwhile, so the processors of the links are chosen again.
        self.pin_links()?;
        self.options.check_not_cancelled()
    }

    /// Starts the processes of a stage, and waits until they are ready.
    ///
    /// # Errors
    /// If a process cannot be started or does not become ready, or the caller cancels.
    pub fn start_stage(&mut self, stage: usize) -> Result<(), Error> {
        let planned: Vec<plan::Process> =
            self.plan.processes.iter().filter(|process| process.stage == stage).cloned().collect();
        let mut started = Vec::new();
        for process in &planned {
            self.options.check_not_cancelled()?;
            started.push(self.start(process)?);
        }
        for (planned, process) in planned.iter().zip(&started) {
            self.wait_until_ready(planned, process)?;
        }
        Ok(())
    }

    /// Starts a process without waiting until it is ready.
    pub(super) fn start(&mut self, planned: &plan::Process) -> Result<Process, Error> {
        let failed = |cause| Error::failed(format!("start {}", planned.name), cause);
        // A process may be started several times, and each run has its own files.
        let mut names = (1..).map(|time| match time {
            1 => planned.name.clone(),
            time => format!("{}.{time}", planned.name),
        });
        let is_free = |name: &String| !self.run_folder.join(format!("{name}.log")).exists();
        let name = names.find(is_free).unwrap_or_default();
        let command = self.command(planned, &self.run_folder.join(&name)).map_err(failed)?;
        let host = &self.plan.hosts[planned.host];
        let start = process::Start {
            program: self.options.program.as_os_str(),
            namespace: &self.hosts[planned.host],
            plan: planned,
            command,
            cpus: host.cpus.clone(),
            control_group: self.control_groups.get(&planned.host).cloned(),
            log_path: self.run_folder.join(format!("{name}.log")),
            events: self.events.0.clone(),
        };
        let process = Process::start(start).map_err(failed)?;
        self.processes.push(process.clone());
        self.record_all(vec![Change::Process { process: process.id(), role: planned.name.clone() }])?;
        Ok(process)
    }

    fn make_namespaces(&mut self) -> Result<(), Error> {
        let is_made =
            |link: &&plan::Link| matches!(link.kind, LinkKind::Segment { .. }) && !self.options.on_machine;
        let segments = self.plan.links.iter().filter(is_made);
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
        // The hosts are the first of the names; the others are segments.
        for (index, name) in names.iter().enumerate() {
            self.options.check_not_cancelled()?;
            let host = Some(index).filter(|&index| index < self.plan.hosts.len());
            let private = host.and_then(|host| self.private_folders(host));
            let holder = StartingHolder::start(&program, self.options.on_machine, private.as_ref());
            starting.push(holder.map_err(failed(name))?);
        }
        let mut changes = Vec::new();
        for (name, starting) in names.iter().zip(&starting) {
            changes
                .push(Change::Process { process: starting.id().map_err(failed(name))?, role: name.clone() });
        }
        self.record_all(changes)?;
        for (name, starting) in names.iter().zip(starting) {
            let namespace = starting.wait_until_ready().map_err(failed(name))?;
            match name.strip_prefix("segment ") {
                Some(link) => drop(self.segments.insert(link.to_owned(), namespace)),
                None => self.hosts.push(namespace),
            }
        }
        Ok(())
    }

    /// The private folders of a host; `None` if it has none, or is a machine, which has folders of its own.
    fn private_folders(&self, host: usize) -> Option<PrivateFolders> {
        let (options, folders) = (&self.options, self.plan.hosts[host].private.clone());
        if folders.is_empty() || options.on_machine {
            return None;
        }
        let own = [&options.program, &self.run_folder].into_iter();
        let shared = own.chain(&options.shared).cloned().collect();
        let journals = (!options.rootless).then(|| options.folder.path());
        let private = PrivateFolders::new(folders, shared, journals);
        let is_sshd = |process: &plan::Process| match &process.program {
            Program::Known(known) => process.host == host && matches!(known.kind, KnownKind::Sshd(_)),
            Program::Command(_) => false,
        };
        let runs_sshd = self.plan.processes.iter().any(is_sshd);
        Some(if runs_sshd { private.with_sshd() } else { private })
    }

    fn make_control_groups(&mut self) -> Result<(), Error> {
        let hosts = self.plan.hosts.iter().enumerate();
        let limited: Vec<_> =
            hosts.filter_map(|(index, host)| Some((index, &host.name, host.cpu_quota?))).collect();
        let Some(journal) = self.journal.as_ref().filter(|_| !limited.is_empty()) else { return Ok(()) };
        let failed = |cause| Error::failed("limit processor time (cpu_quota)", cause);
        let quotas = Quotas::make(journal).map_err(failed)?;
        for (index, name, processors) in limited {
            self.control_groups.insert(index, quotas.add(name, processors, journal).map_err(failed)?);
        }
        Ok(())
    }

    /// The command line of a process. A known program's files are written into `folder`.
    fn command(&self, planned: &plan::Process, folder: &Path) -> io::Result<Vec<String>> {
        match &planned.program {
            Program::Known(known) => {
                let context = ProgramContext {
                    known,
                    process: planned,
                    plan: &self.plan,
                    folder,
                    run_folder: &self.run_folder,
                    program: &self.options.program,
                    rootless: self.options.rootless,
                };
                context.command()
            }
            Program::Command(words) => Ok(self.expand_placeholders(planned.host, words)),
        }
    }

    fn record_all(&self, changes: Vec<Change>) -> Result<(), Error> {
        if let Some(journal) = &self.journal {
            journal.record_all(changes)?;
        }
        Ok(())
    }
}

/// Writes the plan, with secrets masked, for commands that list or show running labs.
fn write_plan(plan: &Plan, path: &Path) -> io::Result<()> {
    let mut plan = plan.clone();
    for process in &mut plan.processes {
        let (Program::Command(words) | Program::Known(plan::Known { args: words, .. })) =
            &mut process.program;
        words.iter_mut().for_each(|word| *word = secrets::mask(word).into_owned());
        for (name, value) in &mut process.environment {
            *value = secrets::mask::mask_header(name, value);
        }
    }
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    Ok(serde_json::to_writer(file, &plan)?)
}
