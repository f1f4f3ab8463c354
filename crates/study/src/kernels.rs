//! The observer of kernels: what they counted for the hosts of a trial.

use std::io;

use kernel::watch::{Watch, WatchedHost};
use lab::plan::Process;
use record::{ResultFolder, Trial, TrialCounters};
use verdict::Role;

use crate::{
    counted::{Counted, lost_hosts, no_counters, role_of_this_machine, this_machine},
    observer::{Observation, Observer, TrialContext},
    remotes::RemoteHosts,
    stop_reason::StopReason,
    study::Setup,
    testbed::Testbed,
};

/// Watches the kernels of a trial's hosts.
#[derive(Debug)]
pub(crate) struct Kernels {
    folder: ResultFolder,
    remotes: RemoteHosts,
    watch: Option<io::Result<Watch>>,
}

impl Kernels {
    pub(crate) fn new(folder: &ResultFolder, remotes: &RemoteHosts) -> Self {
        Self { folder: folder.clone(), remotes: remotes.clone(), watch: None }
    }
}

impl Observer for Kernels {
    fn before(&mut self, context: &mut TrialContext<'_>) -> Result<(), StopReason> {
        self.watch = Some(hosts(context.testbed).and_then(|hosts| Watch::start(hosts, self.remotes.all())));
        Ok(())
    }

    fn after(&mut self, context: &mut TrialContext<'_>, trial: &Trial) -> Result<Observation, StopReason> {
        let Some(watch) = self.watch.take() else { return Ok(Observation::default()) };
        let counters = match watch.and_then(Watch::stop) {
            Ok(counters) => TrialCounters { trial: context.number, ..counters },
            Err(error) => {
                return Ok(Observation { warning: Some(no_counters(&error)), ..Observation::default() });
            }
        };
        self.folder.append_counters(&counters).map_err(|error| StopReason::Failed(error.to_string()))?;
        let mut roles = roles(context.setup, trial);
        roles.extend(self.remotes.all().iter().map(|_| Role::Target));
        let warning = lost_hosts(&counters);
        Ok(Observation { counted: Some(Counted { counters, roles }), warning, ..Observation::default() })
    }
}

/// The hosts of the lab; this machine without one.
fn hosts(testbed: &mut Testbed) -> io::Result<Vec<WatchedHost>> {
    match testbed.lab() {
        Some(lab) => Ok(lab.hosts().map(|host| host.watched()).collect()),
        None => this_machine().map(|host| vec![host]),
    }
}

fn roles(setup: &Setup, trial: &Trial) -> Vec<Role> {
    let Some(plan) = &setup.lab else { return vec![role_of_this_machine(trial)] };
    let own: Vec<&str> = setup.target_processes().collect();
    let is_target = |process: &&Process| own.contains(&process.name.as_str());
    let targets: Vec<usize> = plan.processes.iter().filter(is_target).map(|target| target.host).collect();
    let role = |host| match (setup.from.contains(&host), targets.contains(&host)) {
        (true, true) => Role::Both,
        (true, false) => Role::Load,
        (false, _) => Role::Target,
    };
    (0..plan.hosts.len()).map(role).collect()
}

#[cfg(test)]
mod tests {
    use load::MachineLimits;
    use record::HttpTrial;
    use testing::plans;

    use super::*;

    #[test]
    fn a_host_that_makes_the_load_may_be_the_target_too() {
        let of = |hosts: &str, on: &str| {
            let text = format!(
                "{hosts}[targets.web]\nrun = \"serve\"\n{on}[workload.http]\nusers = 1\nduration = \"1s\"\n"
            );
            let study = crate::file::read("f", &text, &[], &MachineLimits::EXAMPLE).unwrap();
            let trial = plans::trial(HttpTrial { plan: plans::closed(1), ..HttpTrial::default() });
            roles(&study.setup(0, None).unwrap(), &trial)
        };
        assert_eq!(of("", ""), [Role::Both]);
        let hosts = "[hosts]\na = {}\nb = {}\n[[links]]\nname = \"l\"\nbetween = [\"a\", \"b\"]\n";
        assert_eq!(of(hosts, "on = \"b\"\n"), [Role::Load, Role::Target]);
    }
}
