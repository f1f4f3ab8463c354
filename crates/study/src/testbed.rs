//! The testbed of a trial: hosts, links, targets, and the hosts that make the load.

mod command;
mod http;

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use fleet::FleetError;
use kernel::leftovers::{self, Kind, Leftover};
use lab::{
    Lab,
    plan::{Plan, Program},
};
use record::units::parse_cpus;

use crate::{
    Workload,
    generator::Generator,
    machines::{PlacedHosts, Placement},
    study::{Action, ActionKind, Setup},
};

pub(crate) use command::{Hook, Kept};

/// Placeholder in commands and patterns for the folder in which a target's process stores its files.
const TARGET_FOLDER: &str = "{target_folder}";

/// Folder for files that programs keep while the testbed is up. It cannot be the name of a process.
const SCRATCH_FOLDER: &str = ".scratch";

/// Hosts and targets that are up; no lab if the target is external.
#[derive(Debug)]
pub(crate) struct Testbed {
    setup: Setup,
    lab: Option<Lab>,
    /// The hosts, if they are machines; there is no lab then.
    machines: Option<PlacedHosts>,
    generator: Generator,
    /// Folders in which the target's processes store their files.
    pub(crate) stored_folders: Vec<PathBuf>,
    /// The folder for `{scratch}`.
    scratch: PathBuf,
    /// The folder to which programs write their output; `None` before the first program.
    output: Option<::command::OutputFolder>,
    /// Journals of the changes to this machine.
    journals: undo::Folder,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum TestbedError {
    #[error(transparent)]
    Lab(#[from] lab::Error),
    #[error("{0}")]
    Target(lab::ProcessFailure),
    #[error(transparent)]
    Fleet(#[from] FleetError),
    #[error("the plan does not fit this machine: {0}")]
    Unfit(String),
    #[error("cannot read this machine's limits: {0}")]
    MachineLimits(io::Error),
    #[error("cannot read the traffic counters of the hosts: {0}")]
    Traffic(io::Error),
    #[error("{0}")]
    Program(String),
    #[error("{0}")]
    Machine(String),
}

impl Testbed {
    /// Brings up the testbed of a setup. Each process stores its files in the folder of its name within `stored`.
    pub(crate) fn bring_up(
        setup: Setup,
        options: &lab::Options,
        generator: &Generator,
        placement: Option<&Placement>,
        stored: &Path,
        measure: lab::MeasureLink<'_>,
    ) -> Result<Self, TestbedError> {
        if let (Some(plan), Some(placement)) = (&setup.lab, placement) {
            let machines = PlacedHosts::bring_up(plan, placement, options.keep_logs.clone());
            return Ok(Self {
                machines: Some(machines.map_err(TestbedError::Machine)?),
                lab: None,
                generator: generator.clone(),
                stored_folders: Vec::new(),
                scratch: stored.join(SCRATCH_FOLDER),
                output: None,
                journals: options.folder.clone(),
                setup,
            });
        }
        let plan = setup.lab.as_ref().map(|plan| with_target_folders(plan, stored));
        // The workload's own check reports an invalid list, together with its other mistakes.
        let cpus = setup.workload.cpus().and_then(|text| parse_cpus(text).ok()).unwrap_or_default();
        let busy_cpus = cpus.into_iter().map(|cpu| cpu as usize).collect();
        let mut options = lab::Options { busy_cpus, ..options.clone() };
        let mut output = None;
        if plan.iter().flat_map(|plan| &plan.hosts).any(|host| !host.private.is_empty()) {
            // Such a host shows only what is there when it is made. The folder of the result is shared, and not the
            // targets' folder in it, because that one is replaced by others.
            options.shared.extend(stored.parent().map(Path::to_owned));
            let folder = ::command::OutputFolder::create(&options.folder).map_err(|error| {
                TestbedError::Program(format!("cannot create a folder for programs: {error}"))
            })?;
            options.shared.push(output.insert(folder).path().to_owned());
        }
        let lab = plan.as_ref().map(|plan| Lab::up_and_measure(plan, &options, measure)).transpose()?;
        let folders = setup.target_processes().map(|name| stored.join(name)).collect();
        Ok(Self {
            setup,
            lab,
            machines: None,
            generator: generator.clone(),
            stored_folders: folders,
            scratch: stored.join(SCRATCH_FOLDER),
            output,
            journals: options.folder,
        })
    }

    pub(crate) fn lab(&mut self) -> Option<&mut Lab> {
        self.lab.as_mut()
    }

    /// The hosts, if they are machines.
    pub(crate) fn machines(&self) -> Option<&PlacedHosts> {
        self.machines.as_ref()
    }

    pub(crate) fn workload(&self) -> &Workload {
        &self.setup.workload
    }

    /// Whether the testbed can run another setup as it is.
    pub(crate) fn supports(&self, setup: &Setup) -> bool {
        self.setup.lab == setup.lab && self.setup.from == setup.from && self.setup.target == setup.target
    }

    /// Returns an error if a process has ended or written too much.
    pub(crate) fn failure(&self) -> Result<(), TestbedError> {
        if let Some(machines) = &self.machines {
            let mut failures = machines.failures().into_iter();
            return match failures.find(|failure| !self.is_killed_by_action(&failure.name)) {
                Some(failure) => Err(TestbedError::Target(failure)),
                None => Ok(()),
            };
        }
        while let Some(failure) = self.lab.as_ref().and_then(|lab| lab.watch(Duration::ZERO)) {
            if !self.is_killed_by_action(&failure.name) {
                return Err(TestbedError::Target(failure));
            }
        }
        Ok(())
    }

    /// Whether a process runs on a host on which an action kills programs.
    fn is_killed_by_action(&self, process: &str) -> bool {
        let plan = self.setup.lab.as_ref();
        let host = plan
            .and_then(|plan| plan.processes.iter().find(|planned| planned.name == process))
            .map(|planned| planned.host);
        let kills = |action: &Action| matches!(action.what, ActionKind::Kill(_)) && Some(action.host) == host;
        self.setup.actions.iter().any(kills)
    }

    /// Removes the testbed. Returns a message for each part that could not be removed; the journal keeps it.
    pub(crate) fn take_down(self) -> Vec<String> {
        if let Some(machines) = &self.machines {
            return machines.take_down();
        }
        let outcome = self.lab.map_or(Ok(()), Lab::down);
        outcome.err().unwrap_or_default().iter().map(ToString::to_string).collect()
    }

    /// The leftovers of connections on each host of the lab; `prefix` precedes the host's name. Only this study uses the load's hosts, so
    /// every open connection there is left from the last trial.
    pub(crate) fn leftovers(&self, prefix: &str) -> Vec<(String, io::Result<Vec<Leftover>>)> {
        let of_lab = self.lab.iter().flat_map(Lab::hosts);
        let of_lab = of_lab.map(|host| (host.name().to_owned(), host.inside(leftovers::here)));
        let of_machines = self.machines.iter().flat_map(PlacedHosts::leftovers);
        // On a machine, other programs may have connections, too.
        let is_own = |index: &usize| self.lab.is_some() && self.setup.from.contains(index);
        let of = |(index, (host, mut left)): (usize, (String, io::Result<Vec<Leftover>>))| {
            let open = left.iter_mut().flatten().filter(|left| left.kind == Kind::Open);
            open.filter(|_| is_own(&index)).for_each(|open| open.room = 0);
            (format!("{prefix}{host}"), left)
        };
        of_lab.chain(of_machines).enumerate().map(of).collect()
    }
}

/// Whether a pattern contains the placeholder of the target's folder.
pub(crate) fn has_target_folder(pattern: &str) -> bool {
    pattern.contains(TARGET_FOLDER)
}

/// Replaces the placeholder of the target's folder.
pub(crate) fn substitute_target_folder(text: &str, folder: &Path) -> String {
    text.replace(TARGET_FOLDER, &folder.display().to_string())
}

/// The plan with the folder of each process in place of its placeholder.
pub(crate) fn with_target_folders(plan: &Plan, stored: &Path) -> Plan {
    let mut plan = plan.clone();
    for process in &mut plan.processes {
        let folder = stored.join(&process.name);
        let substitute = |text: &mut String| *text = substitute_target_folder(text, &folder);
        match &mut process.program {
            Program::Command(words) => words.iter_mut().for_each(substitute),
            Program::Known(known) => {
                known.args.iter_mut().for_each(substitute);
                known.store = Some(folder.clone());
            }
        }
        process.environment.values_mut().for_each(substitute);
        if let Some(directory) = &mut process.directory {
            *directory = substitute_target_folder(&directory.display().to_string(), &folder).into();
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use lab::plan::Process;
    use std::{collections::BTreeMap, time::Duration};

    use super::*;

    #[test]
    fn every_process_stores_in_a_folder_of_its_own() {
        let process = |name: &str| Process {
            name: name.to_owned(),
            host: 0,
            program: Program::Command(vec!["x".to_owned(), "--to={target_folder}/a".to_owned()]),
            environment: BTreeMap::from([("TO".to_owned(), "{target_folder}".to_owned())]),
            directory: Some("{target_folder}/b".into()),
            ready: None,
            ready_timeout: Duration::ZERO,
            log_limit_bytes: 0,
            flood: lab::plan::Flood::Fail,
            descriptors: None,
            may_end: false,
            stage: 0,
        };
        let plan = Plan { processes: vec![process("one"), process("two")], ..Plan::default() };
        let plan = with_target_folders(&plan, Path::new("/r/stored"));
        let second = &plan.processes[1];
        assert_eq!(second.program, Program::Command(vec!["x".to_owned(), "--to=/r/stored/two/a".to_owned()]));
        assert_eq!(second.environment["TO"], "/r/stored/two");
        assert_eq!(second.directory.as_deref(), Some(Path::new("/r/stored/two/b")));
    }
}
