//! The observer of kernels: reads the kernel counters of a trial's hosts.

use std::{collections::BTreeMap, io};

use kernel::watch::{PROCESSOR_TIME, Watch, WatchedHost};
use lab::plan::{Plan, Process};
use record::{DeclaredQuantity, Kind, ResultFolder, Trial, TrialCounters, Warning, counters::ProcessorTime};
use verdict::Role;

use crate::{
    balancer_observer::carried,
    counted::{Counted, lost_hosts, no_counters, this_machine},
    links::normalized,
    observer::{Observation, Observer, TrialContext},
    remotes::RemoteHosts,
    stop_reason::{Result, StopReason},
    study::Setup,
    testbed::Testbed,
};

/// Watches the kernels of a trial's hosts.
#[derive(Debug)]
pub(crate) struct Kernels {
    folder: ResultFolder,
    remotes: RemoteHosts,
    watch: Option<io::Result<Watching>>,
}

/// What watches the kernels.
#[derive(Debug)]
enum Watching {
    Here(Watch),
    /// The agents on the hosts, and a watch of the remote hosts.
    There(Watch),
}

impl Kernels {
    pub(crate) fn new(folder: &ResultFolder, remotes: &RemoteHosts) -> Self {
        Self { folder: folder.clone(), remotes: remotes.clone(), watch: None }
    }
}

impl Observer for Kernels {
    fn before(&mut self, context: &mut TrialContext<'_>) -> Result {
        let books_time = context.setup.books_time;
        let start = |hosts, books_time| Watch::start(hosts, &self.remotes.0, books_time);
        self.watch = Some(match context.testbed.machines() {
            Some(machines) => {
                machines.watch(books_time).and_then(|()| start(Vec::new(), false)).map(Watching::There)
            }
            None => hosts(context.testbed).and_then(|hosts| start(hosts, books_time)).map(Watching::Here),
        });
        Ok(())
    }

    fn after(&mut self, context: &mut TrialContext<'_>, trial: &Trial) -> Result<Observation> {
        let Some(watch) = self.watch.take() else { return Ok(Observation::default()) };
        let counters = watch.and_then(|watch| match (watch, context.testbed.machines()) {
            (Watching::There(watch), Some(machines)) => {
                let (mut counters, remotes) = (machines.count()?, watch.stop()?);
                counters.hosts.extend(remotes.hosts);
                Ok(counters)
            }
            (Watching::Here(watch) | Watching::There(watch), _) => watch.stop(),
        });
        let counters = match counters {
            Ok(counters) => TrialCounters { trial: context.number, ..counters },
            Err(error) => {
                return Ok(Observation { warning: Some(no_counters(&error)), ..Observation::default() });
            }
        };
        self.folder.append_counters(&counters).map_err(|error| StopReason::Failed(error.to_string()))?;
        let mut quantities = values(&counters, trial);
        let is_missing = context.setup.books_time && quantities.is_empty();
        let requests = trial.http().map_or(0.0, |http| http.counts.completed as f64);
        quantities.extend(carried(context.setup, &counters, requests));
        let warning = is_missing.then(|| no_processor_time(&counters)).or_else(|| lost_hosts(&counters));
        let counted = Some(match &context.setup.lab {
            None => Counted::without_lab(counters, trial),
            Some(plan) => {
                let mut roles = roles(context.setup, plan);
                roles.extend(self.remotes.0.iter().map(|_| Role::Target));
                Counted { counters, roles }
            }
        });
        Ok(Observation { counted, quantities, warning, ..Observation::default() })
    }
}

/// A quantity of processor time: the suffix of its name, its description for users, and its value as a function of the time and the number
/// of requests.
type TimeQuantity = (&'static str, &'static str, fn(&ProcessorTime, f64) -> Option<f64>);

const TIMES: [TimeQuantity; 3] = [
    ("processor_s", "processor time", |time, _| Some(time.total_s)),
    ("softirq_s", "processor time in softirqs", |time, _| Some(time.softirq_s)),
    (PER_REQUEST, "processor time per request", |time, requests| {
        (requests > 0.0).then(|| time.total_s * 1e6 / requests)
    }),
];
const PER_REQUEST: &str = "processor_us_per_request";
/// The name of the quantities that count all work of this machine.
const MACHINE: &str = "machine";

/// The prefix of the names of a host's quantities.
fn begin_of(host: &str) -> String {
    format!("host_{}_", normalized(host))
}

/// Whether a quantity is processor time, by its name.
pub(crate) fn is_processor_time(name: &str) -> bool {
    let is_of = name.starts_with("host_") || name.starts_with(MACHINE);
    is_of && TIMES.iter().any(|(end, ..)| name.strip_suffix(end).is_some_and(|begin| begin.ends_with('_')))
}

/// The quantities of processor time that a setup yields.
pub(crate) fn quantities(setup: &Setup) -> Vec<DeclaredQuantity> {
    let is_http = setup.workload.kind() == Kind::Http;
    let hosts = setup.lab.iter().filter(|_| setup.books_time).flat_map(|lab| &lab.hosts);
    let balancer = setup.balancer.as_ref().map(|balancer| balancer.host);
    // With a balancer, the main quantities are the times per request of its host and of the whole machine.
    let hosts = hosts.enumerate().map(|(number, host)| {
        (begin_of(&host.name), format!("host {}", host.name), balancer == Some(number))
    });
    let machine =
        setup.books_time.then(|| (format!("{MACHINE}_"), "this machine".to_owned(), balancer.is_some()));
    let times = || TIMES.iter().filter(move |(end, ..)| is_http || *end != PER_REQUEST);
    let of = |(begin, whose, is_main): (String, String, bool)| {
        times().map(move |(end, words, _)| DeclaredQuantity {
            name: format!("{begin}{end}"),
            words: format!("{whose}, {words}"),
            more_is_better: false,
            is_main: is_main && *end == PER_REQUEST,
        })
    };
    hosts.chain(machine).flat_map(of).collect()
}

/// The values of the quantities of processor time in a trial.
fn values(counters: &TrialCounters, trial: &Trial) -> BTreeMap<String, f64> {
    let requests = trial.http().map_or(0.0, |http| http.counts.completed as f64);
    // Without a lab, this machine is watched like a host without a name.
    let hosts = counters.hosts.iter().filter(|host| !host.host.is_empty());
    let hosts = hosts.filter_map(|host| Some((begin_of(&host.host), host.processor.clone()?)));
    let machine = counters.worked().map(|worked| (format!("{MACHINE}_"), worked));
    let of = |(begin, time): (String, ProcessorTime)| {
        TIMES
            .iter()
            .filter_map(move |(end, _, value)| Some((format!("{begin}{end}"), value(&time, requests)?)))
    };
    hosts.chain(machine).flat_map(of).collect()
}

/// The warning that processor time was requested but is unknown.
fn no_processor_time(counters: &TrialCounters) -> Warning {
    let why = counters.machine.missing.get(PROCESSOR_TIME).map_or("", String::as_str);
    Warning::new("no_processor_time", format!("the {PROCESSOR_TIME} is not known: {why}"))
}

/// The hosts of the lab; without a lab, this machine.
fn hosts(testbed: &mut Testbed) -> io::Result<Vec<WatchedHost>> {
    match testbed.lab() {
        Some(lab) => Ok(lab.hosts().map(|host| host.watched()).collect()),
        None => this_machine().map(|host| vec![host]),
    }
}

fn roles(setup: &Setup, plan: &Plan) -> Vec<Role> {
    let names: Vec<&str> = setup.target_processes().collect();
    let is_target = |process: &&Process| names.contains(&process.name.as_str());
    let targets: Vec<usize> = plan.processes.iter().filter(is_target).map(|target| target.host).collect();
    // A trial of programs measures the programs themselves, on all hosts, so each host counts as a target.
    let is_program = setup.workload.kind() == Kind::Command;
    let role = |host| match (setup.from.contains(&host) && !is_program, targets.contains(&host)) {
        (true, true) => Role::Both,
        (true, false) => Role::Load,
        (false, _) => Role::Target,
    };
    (0..plan.hosts.len()).map(role).collect()
}

#[cfg(test)]
mod tests {
    use load::MachineLimits;

    use super::*;

    #[test]
    fn what_a_program_does_is_looked_at_on_both_sides() {
        let text = "[hosts]\na = {}\nb = {}\n[[links]]\nname = \"l\"\nbetween = [\"a\", \"b\"]\n\
                    [workload.command]\nfrom = \"a\"\nrun = \"true\"\n";
        let study = crate::file::read("f", text, &[], &MachineLimits::EXAMPLE).unwrap();
        let setup = study.setup(0, None).unwrap();
        assert_eq!(roles(&setup, setup.lab.as_ref().unwrap()), [Role::Target, Role::Target]);
    }

    #[test]
    fn a_host_that_makes_the_load_may_be_the_target_too() {
        let of = |hosts: &str, on: &str| {
            let text = format!(
                "{hosts}[targets.web]\nrun = \"serve\"\n{on}[workload.http]\nusers = 1\nduration = \"1s\"\n"
            );
            let study = crate::file::read("f", &text, &[], &MachineLimits::EXAMPLE).unwrap();
            let setup = study.setup(0, None).unwrap();
            roles(&setup, setup.lab.as_ref().unwrap())
        };
        assert_eq!(of("", ""), [Role::Both]);
        let hosts = "[hosts]\na = {}\nb = {}\n[[links]]\nname = \"l\"\nbetween = [\"a\", \"b\"]\n";
        assert_eq!(of(hosts, "on = \"b\"\n"), [Role::Load, Role::Target]);
    }
}
