//! The observer of kernels: what they counted for the hosts of a trial.

use std::io;

use kernel::watch::{Watch, WatchedHost};
use record::{ResultFolder, Trial, TrialCounters};
use verdict::Role;

use crate::{
    counted::{Counted, lost_hosts, no_counters, role_of_this_machine, this_machine},
    observer::{Observation, Observer, TrialContext},
    remotes::RemoteHosts,
    stop_reason::StopReason,
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
        let mut roles = roles(context.testbed, &context.setup.from, trial);
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

fn roles(testbed: &mut Testbed, from: &[usize], trial: &Trial) -> Vec<Role> {
    let Some(lab) = testbed.lab() else { return vec![role_of_this_machine(trial)] };
    let role = |index| if from.contains(&index) { Role::Load } else { Role::Target };
    (0..lab.hosts().count()).map(role).collect()
}
