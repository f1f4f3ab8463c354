//! What stands while trials run: hosts, links, targets, and the place that the load comes from.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use fleet::{FleetError, Workers};
use lab::{
    Lab,
    plan::{Plan, Program},
};
use load::{Circumstances, Host, Part, Tick, conclude, preflight};
use record::{
    Decision, Distribution, HttpPlan, LoadModel, Trial, Validity, VoidReason, VoidRule, units::parse_cpus,
};

use crate::study::Setup;

/// Stands in commands and patterns for the folder that a target's process stores in.
const TARGET_FOLDER: &str = "{target_folder}";

/// A target of whose answers a share fails is no silent one: it is asked so often at the most.
const MOST_PROBES: u32 = 10;

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
}

impl Stand {
    /// Brings up what a setup needs. `worker` are the arguments that make this program a worker process. What processes
    /// store goes into folders of their names within `stored`.
    pub(crate) fn up(
        setup: Setup,
        options: &lab::Options,
        worker: &[String],
        stored: &Path,
        measure: lab::Measure<'_>,
    ) -> Result<Self, StandError> {
        let plan = setup.lab.as_ref().map(|plan| storing_in(plan, stored));
        // Wrong ones are told with the workload's other mistakes.
        let cpus = setup.workload.cpus.as_deref().and_then(|text| parse_cpus(text).ok()).unwrap_or_default();
        let busy_cpus = cpus.into_iter().map(|cpu| cpu as usize).collect();
        let options = lab::Options { busy_cpus, ..options.clone() };
        let lab = plan.as_ref().map(|plan| Lab::up_measuring(plan, &options, measure)).transpose()?;
        let folders = setup.target_processes().map(|name| stored.join(name)).collect();
        let mut stand = Self { setup, lab, quiet_sockets: 0, worker: worker.to_vec(), stored: folders };
        stand.quiet_sockets = stand.sockets();
        Ok(stand)
    }

    /// The lab, if there is one.
    pub(crate) fn lab(&mut self) -> Option<&mut Lab> {
        self.lab.as_mut()
    }

    /// Whether another setup can be run on what stands.
    pub(crate) fn carries(&self, setup: &Setup) -> bool {
        self.setup.lab == setup.lab && self.setup.from == setup.from && self.setup.target == setup.target
    }

    /// The plan of a trial, fitted to the place that the load comes from, with what was changed for that or, as an error,
    /// what does not fit. `decides` tells what it is to decide about.
    pub(crate) fn plan(
        &self,
        setup: &Setup,
        seed: u64,
        decides: impl FnOnce(&HttpPlan) -> Option<Decision>,
    ) -> Result<(HttpPlan, Result<Vec<String>, String>), StandError> {
        let host = self.host().map_err(StandError::Host)?;
        let told = |mistake: load::FieldMistake| format!("{}: {}", mistake.field, mistake.message);
        let plan = setup.workload.plan(&host);
        let mut plan = plan.map_err(|mistakes| {
            StandError::Unfit(mistakes.into_iter().map(told).collect::<Vec<_>>().join("; "))
        })?;
        plan.seed = seed;
        plan.decides = decides(&plan);
        if let (Some(decides), None) = (plan.decides, &setup.workload.drain) {
            // What a goal allows to take longer must be waited for.
            plan.drain_ns = plan.drain_ns.max(decides.longest_ns.min(plan.timeout_ns));
        }
        // Every host that the load comes from has its part of it.
        plan.processes = plan.processes.max(self.setup.from.len() as u32);
        let fitted = match preflight::fit(&mut plan, &host, setup.workload.asked()) {
            Err(refusals) if plan.forced => {
                Ok(refusals.into_iter().map(|r| format!("force although: {r}")).collect())
            }
            fitted => fitted.map_err(|refusals| refusals.join("; ")),
        };
        if setup.workload.processes.is_none() && u64::from(plan.processes) < plan.connections() {
            plan.processes = plan.processes.next_multiple_of(self.setup.from.len().max(1) as u32);
        }
        Ok((plan, fitted))
    }

    /// A trial that this machine has too little for: void, so that a search looks for a load that it can make.
    pub(crate) fn not_run(plan: HttpPlan, command: &[String], why: String) -> Trial {
        let mut trial = conclude(plan, Part::default(), circumstances(command));
        trial.validity =
            Validity::from_reasons(vec![VoidReason { rule: VoidRule::LocalExhaustion, evidence: why }]);
        trial
    }

    /// Runs one trial.
    pub(crate) fn run(
        &self,
        plan: HttpPlan,
        stop: &Arc<AtomicBool>,
        command: &[String],
        mut on_tick: impl FnMut(&Tick),
    ) -> Result<Trial, StandError> {
        let plan = Arc::new(plan);
        let mut circumstances = circumstances(command);
        let hosts = self.workers();
        let workers = if hosts.is_empty() { Workers::Here(&self.worker) } else { Workers::On(&hosts) };
        let part = fleet::run(&plan, workers, stop, |tick| {
            on_tick(&tick);
            circumstances.series.push(tick.interval());
        });
        let plan = Arc::unwrap_or_clone(plan);
        match part {
            Ok(part) => Ok(conclude(plan, part, circumstances)),
            Err(error) if error.is_for_want() => Ok(Self::not_run(plan, command, error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    /// Asks the target by single requests of this plan's, from every host that the load comes from: why none is answered as
    /// expected, in words, if single ones tell; none once each host has an answer. An event in them is of a run of its own,
    /// without receipts. An answer that is later than a trial of `trial` and its drain is none.
    pub(crate) fn silence(
        &self,
        plan: &HttpPlan,
        trial: Option<Duration>,
        stop: &Arc<AtomicBool>,
    ) -> Result<Option<String>, StandError> {
        let mut plan = plan.clone();
        let hosts = self.setup.from.len().max(1);
        let think_time = Distribution::Fixed { ns: 0 };
        plan.load = LoadModel::Closed { users: hosts as u64, loops: Some(1), ramp_up_ns: 0, think_time };
        (plan.duration_ns, plan.requests, plan.decides) = (None, None, None);
        (plan.processes, plan.threads, plan.pipeline) = (hosts as u32, 1, 1);
        if let Some(events) = &mut plan.events {
            (events.receipts, events.retries) = (None, 0);
        }
        if let Some(trial) = trial {
            plan.timeout_ns = plan.timeout_ns.min(trial.as_nanos() as u64 + plan.drain_ns);
        }
        let until = Instant::now() + Duration::from_nanos(plan.timeout_ns);
        let mut why = None;
        for _ in 0..MOST_PROBES {
            let trial = self.run(plan.clone(), stop, &[], |_| ())?;
            why = (trial.counts.completed < hosts as u64).then(|| trial.main_failure()).flatten();
            if why.is_none() || Instant::now() >= until {
                break;
            }
        }
        Ok(why)
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

    /// The limits of the place that the load comes from. Its hosts are on this machine, and only ports are a host's own:
    /// the one that has fewest says how many all have, because each makes the same part of the load.
    fn host(&self) -> io::Result<Host> {
        let hosts: Vec<_> = self.lab.iter().flat_map(Lab::hosts).collect();
        let limits = self.setup.from.iter().filter_map(|&number| hosts.get(number));
        let limits: Vec<Host> = limits.map(|host| host.inside(Host::read)).collect::<io::Result<_>>()?;
        match limits.iter().min_by_key(|host| host.ports) {
            Some(least) => Ok(Host { ports: least.ports * limits.len() as u64, ..*least }),
            None => Host::read(),
        }
    }

    fn workers(&self) -> Vec<Vec<String>> {
        let (Some(lab), Ok(program)) = (&self.lab, std::env::current_exe()) else { return Vec::new() };
        let mut command = vec![program.display().to_string()];
        command.extend(self.worker.iter().cloned());
        let hosts: Vec<_> = lab.hosts().collect();
        self.setup.from.iter().map(|&host| hosts[host].arguments_to_run(&command)).collect()
    }

    /// TCP sockets in use where the load comes from, TIME_WAIT not counted; 0 where that is the machine's own
    /// network, in which others have theirs.
    fn sockets(&self) -> u64 {
        let Some(lab) = &self.lab else { return 0 };
        let hosts: Vec<_> = lab.hosts().collect();
        self.setup.from.iter().filter_map(|&host| hosts[host].inside(kernel::tcp_sockets).ok()).sum()
    }
}

fn circumstances(command: &[String]) -> Circumstances {
    Circumstances {
        started_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64()),
        command: command.to_vec(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        series: Vec::new(),
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
