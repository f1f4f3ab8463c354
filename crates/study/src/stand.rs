//! What stands while trials run: hosts, links, targets, and the place that the load comes from.

mod command;
mod http;

use std::{
    io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use fleet::FleetError;
use lab::{
    Lab,
    plan::{Plan, Program},
};
use record::units::parse_cpus;

use crate::{Workload, study::Setup};

/// Stands in commands and patterns for the folder that a target's process stores in.
const TARGET_FOLDER: &str = "{target_folder}";

pub(crate) use command::{GOODPUT, Step};

/// Where programs keep what they need for as long as hosts and target stand; no process has such a name.
const SCRATCH_FOLDER: &str = ".scratch";

/// How often sockets are looked at while they settle, and the wish to stop during a pause.
const GLANCE: Duration = Duration::from_millis(20);

/// Hosts and targets that are up, or nothing where the target runs already.
#[derive(Debug)]
pub(crate) struct Stand {
    setup: Setup,
    lab: Option<Lab>,
    /// Sockets in use on the load's hosts before the first trial.
    quiet_sockets: u64,
    /// Arguments of a worker process.
    worker: Vec<String>,
    /// The folders that the target's processes store in.
    stored: Vec<PathBuf>,
    /// The folder that stands for `{scratch}`.
    scratch: PathBuf,
    /// The journals of what is changed on this machine.
    folder: undo::Folder,
}

/// Why a trial could not be run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StandError {
    #[error(transparent)]
    Lab(#[from] lab::Error),
    #[error("{0}")]
    Target(lab::ProcessFailure),
    #[error(transparent)]
    Fleet(#[from] FleetError),
    #[error("the plan does not fit this machine: {0}")]
    Unfit(String),
    #[error("cannot read this machine's limits: {0}")]
    Host(io::Error),
    #[error("{0}")]
    Program(String),
}

impl Stand {
    /// Brings up what a setup needs. `worker` are the arguments that make this program a worker process. What processes
    /// store goes into folders of their names within `stored`.
    pub(crate) fn up(
        setup: Setup,
        options: &lab::Options,
        worker: &[String],
        stored: &Path,
        measure: lab::MeasureLink<'_>,
    ) -> Result<Self, StandError> {
        let plan = setup.lab.as_ref().map(|plan| storing_in(plan, stored));
        // Wrong ones are told with the workload's other mistakes.
        let cpus = setup.workload.cpus().and_then(|text| parse_cpus(text).ok()).unwrap_or_default();
        let busy_cpus = cpus.into_iter().map(|cpu| cpu as usize).collect();
        let options = lab::Options { busy_cpus, ..options.clone() };
        let lab = plan.as_ref().map(|plan| Lab::up_and_measure(plan, &options, measure)).transpose()?;
        let folders = setup.target_processes().map(|name| stored.join(name)).collect();
        let mut stand = Self {
            setup,
            lab,
            quiet_sockets: 0,
            worker: worker.to_vec(),
            stored: folders,
            scratch: stored.join(SCRATCH_FOLDER),
            folder: options.folder.clone(),
        };
        stand.quiet_sockets = stand.sockets();
        Ok(stand)
    }

    /// The lab, if there is one.
    pub(crate) fn lab(&mut self) -> Option<&mut Lab> {
        self.lab.as_mut()
    }

    /// The workload that it was brought up for.
    pub(crate) fn workload(&self) -> &Workload {
        &self.setup.workload
    }

    /// Whether another setup can be run on what stands.
    pub(crate) fn carries(&self, setup: &Setup) -> bool {
        self.setup.lab == setup.lab && self.setup.from == setup.from && self.setup.target == setup.target
    }

    /// The folders that the target's processes store in, one each.
    pub(crate) fn stored(&self) -> &[PathBuf] {
        &self.stored
    }

    /// Something that ended or wrote too much, although it should not have.
    pub(crate) fn failure(&self) -> Result<(), StandError> {
        match self.lab.as_ref().and_then(|lab| lab.watch(Duration::ZERO)) {
            Some(failure) => Err(StandError::Target(failure)),
            None => Ok(()),
        }
    }

    /// Waits until the connections of the last trial are gone. Returns how many are left after `patience`.
    pub(crate) fn settle(&self, patience: Duration, stop: &AtomicBool) -> u64 {
        let begun = Instant::now();
        loop {
            let left = self.sockets().saturating_sub(self.quiet_sockets);
            if left == 0 || begun.elapsed() >= patience || stop.load(Ordering::Relaxed) {
                return left;
            }
            thread::sleep(GLANCE);
        }
    }

    /// Takes everything down. What could not be taken down is in the journal, and is told.
    pub(crate) fn down(self) -> Vec<String> {
        let outcome = self.lab.map_or(Ok(()), Lab::down);
        outcome.err().unwrap_or_default().iter().map(ToString::to_string).collect()
    }

    /// TCP sockets in use where the load comes from, TIME_WAIT not counted; 0 where that is the machine's own
    /// network, in which others have theirs.
    fn sockets(&self) -> u64 {
        let Some(lab) = &self.lab else { return 0 };
        let hosts: Vec<_> = lab.hosts().collect();
        self.setup.from.iter().filter_map(|&host| hosts[host].inside(kernel::tcp_sockets).ok()).sum()
    }
}

/// Whether a pattern is within the folder of a target's process.
pub(crate) fn names_target_folder(pattern: &str) -> bool {
    pattern.contains(TARGET_FOLDER)
}

/// A text with the folder of a target's process in its place.
pub(crate) fn put_target_folder(text: &str, folder: &Path) -> String {
    text.replace(TARGET_FOLDER, &folder.display().to_string())
}

/// The plan with the folder of each process, which is called like it, in its place.
fn storing_in(plan: &Plan, stored: &Path) -> Plan {
    let mut plan = plan.clone();
    for process in &mut plan.processes {
        let folder = stored.join(&process.name);
        let put = |text: &mut String| *text = put_target_folder(text, &folder);
        match &mut process.program {
            Program::Command(words) => words.iter_mut().for_each(put),
            Program::Known(known) => {
                known.args.iter_mut().for_each(put);
                known.store = Some(folder.clone());
            }
        }
        process.environment.values_mut().for_each(put);
        if let Some(directory) = &mut process.directory {
            *directory = put_target_folder(&directory.display().to_string(), &folder).into();
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
            may_end: false,
            stage: 0,
        };
        let plan = Plan { processes: vec![process("one"), process("two")], ..Plan::default() };
        let plan = storing_in(&plan, Path::new("/r/stored"));
        let second = &plan.processes[1];
        assert_eq!(second.program, Program::Command(vec!["x".to_owned(), "--to=/r/stored/two/a".to_owned()]));
        assert_eq!(second.environment["TO"], "/r/stored/two");
        assert_eq!(second.directory.as_deref(), Some(Path::new("/r/stored/two/b")));
    }
}
