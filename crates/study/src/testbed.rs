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
}

impl Testbed {
    /// Brings up the testbed of a setup. Each process stores its files in the folder of its name within `stored`.
    pub(crate) fn bring_up(
        setup: Setup,
        options: &lab::Options,
        generator: &Generator,
        stored: &Path,
        measure: lab::MeasureLink<'_>,
    ) -> Result<Self, TestbedError> {
        let plan = setup.lab.as_ref().map(|plan| with_target_folders(plan, stored));
        // The workload's own check reports an invalid list, together with its other mistakes.
        let cpus = setup.workload.cpus().and_then(|text| parse_cpus(text).ok()).unwrap_or_default();
        let busy_cpus = cpus.into_iter().map(|cpu| cpu as usize).collect();
        let options = lab::Options { busy_cpus, ..options.clone() };
        let lab = plan.as_ref().map(|plan| Lab::up_and_measure(plan, &options, measure)).transpose()?;
        let folders = setup.target_processes().map(|name| stored.join(name)).collect();
        Ok(Self {
            setup,
            lab,
            generator: generator.clone(),
            stored_folders: folders,
            scratch: stored.join(SCRATCH_FOLDER),
            output: None,
            journals: options.folder.clone(),
        })
    }

    pub(crate) fn lab(&mut self) -> Option<&mut Lab> {
        self.lab.as_mut()
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
        let outcome = self.lab.map_or(Ok(()), Lab::down);
        outcome.err().unwrap_or_default().iter().map(ToString::to_string).collect()
    }

    /// The leftovers of connections on each host of the lab; `prefix` precedes the host's name. Only this study uses the load's hosts, so
    /// every open connection there is left from the last trial.
    pub(crate) fn leftovers(&self, prefix: &str) -> Vec<(String, io::Result<Vec<Leftover>>)> {
        let hosts = self.lab.iter().flat_map(Lab::hosts).enumerate();
        let of = |(index, host): (usize, lab::HostHandle<'_>)| {
            let mut left = host.inside(leftovers::here);
            let open = left.iter_mut().flatten().filter(|left| left.kind == Kind::Open);
            open.filter(|_| self.setup.from.contains(&index)).for_each(|open| open.room = 0);
            (format!("{prefix}{}", host.name()), left)
        };
        hosts.map(of).collect()
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
fn with_target_folders(plan: &Plan, stored: &Path) -> Plan {
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
