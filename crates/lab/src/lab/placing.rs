//! Which processors the emulated links run on: they go before all ordinary threads, so on a processor that a host is pinned
//! to they would take what is measured, and packets would wait for each other there.

use rustix::{
    process::Pid,
    thread::{CpuSet, sched_getaffinity},
};

use super::{Error, Lab};

impl Lab {
    /// Why the emulated links run on processors that hosts, processes or [`busy_cpus`](super::Options::busy_cpus) are
    /// pinned to; none if they do not.
    pub fn crowding(&self) -> Option<&str> {
        self.crowding.as_deref()
    }

    /// Keeps the emulated links off all processors that something is pinned to. Where nothing is, they run anywhere.
    pub(super) fn place_links(&mut self) -> Result<(), Error> {
        let failed = |cause| Error::failed("choose processors for the links", cause);
        let own = sched_getaffinity(None).map_err(|error| failed(error.into()))?;
        let hosts = self.plan.hosts.iter().flat_map(|host| host.cpus.iter().flatten());
        let mut pinned: Vec<usize> = hosts.chain(&self.options.busy_cpus).copied().collect();
        for process in &self.processes {
            let pid = Pid::from_raw(process.id().pid as i32);
            // One that has ended is pinned to nothing.
            let cpus = pid.and_then(|pid| sched_getaffinity(Some(pid)).ok());
            pinned.extend(cpus.iter().filter(|cpus| cpus.count() < own.count()).flat_map(numbers));
        }
        if pinned.is_empty() || self.links.is_empty() {
            return Ok(());
        }
        let mut free = own;
        pinned.iter().for_each(|&cpu| free.unset(cpu));
        if free.count() == 0 {
            self.crowding = Some(format!(
                "the emulator of the links has no processor of its own: something is pinned to each of those that we may use \
                 ({:?}); leave one out of the hosts' and the workload's 'cpus'",
                numbers(&own).collect::<Vec<_>>()
            ));
            return Ok(());
        }
        self.links.values().try_for_each(|link| link.keep_to(&free)).map_err(failed)
    }
}

fn numbers(cpus: &CpuSet) -> impl Iterator<Item = usize> + use<'_> {
    (0..CpuSet::MAX_CPU).filter(|&cpu| cpus.is_set(cpu))
}
