//! Chooses the processors of the emulated links. The links' threads have real-time priority. On a processor that a host
//! is pinned to, they would take time from the measured programs and deal with their own packets late.

use std::{collections::BTreeMap, iter};

use rustix::{
    process::Pid,
    thread::{CpuSet, sched_getaffinity},
};

use super::{Error, Lab, Namespace};

impl Lab {
    /// A message if the emulated links share processors with pinned hosts, pinned processes or
    /// [`busy_cpus`](super::Options::busy_cpus); none otherwise.
    pub fn cpu_contention(&self) -> Option<&str> {
        self.cpu_contention.as_deref()
    }

    /// Pins the emulated links to the processors that no other thread is pinned to. If no other thread is pinned, the
    /// links stay unpinned.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn pin_links(&mut self) -> Result<(), Error> {
        if self.links.is_empty() {
            return Ok(());
        }
        let failed = |cause| Error::failed("choose processors for the links", cause);
        let allowed = sched_getaffinity(None).map_err(|error| failed(error.into()))?;
        let hosts = self.plan.hosts.iter().flat_map(|host| host.cpus.iter().flatten());
        let mut pinned: Vec<usize> = hosts.chain(&self.options.busy_cpus).copied().collect();
        let processes = self.processes.iter().map(|process| process.id().pid);
        let roots: Vec<u32> = processes.chain(self.hosts.iter().map(Namespace::pid)).collect();
        for cpus in descendant_affinities(&roots) {
            pinned.extend(cpu_numbers(&cpus).filter(|_| cpus.count() < allowed.count()));
        }
        if pinned.is_empty() {
            return Ok(());
        }
        let mut free = allowed;
        pinned.iter().for_each(|&cpu| free.unset(cpu));
        if free.count() == 0 {
            self.cpu_contention = Some(format!(
                "the link emulator has no processor of its own: hosts, processes or the workload are pinned to all available \
                 processors ({:?}); leave one of them out of 'cpus'",
                cpu_numbers(&allowed).collect::<Vec<_>>()
            ));
            return Ok(());
        }
        self.links.values().try_for_each(|link| link.pin_to(&free)).map_err(failed)
    }
}

/// The processor sets of all threads of these processes and of their descendants. Orphans on a host are included,
/// because they become children of the host's holder.
fn descendant_affinities(roots: &[u32]) -> Vec<CpuSet> {
    let processes = kernel::processes().into_iter();
    let parents: BTreeMap<u32, u32> =
        processes.filter_map(|pid| Some((pid, undo::parent_pid(pid)?))).collect();
    // If process numbers are reused during the scan, the chain of parents could be a cycle, so its length is bounded.
    let ancestors = |pid: u32| iter::successors(Some(pid), |pid| parents.get(pid).copied()).take(1_000);
    let descendants = parents.keys().filter(|pid| ancestors(**pid).any(|pid| roots.contains(&pid)));
    // Threads that ended during the scan are skipped.
    let threads = descendants.flat_map(|pid| kernel::threads(*pid));
    threads.filter_map(|thread| sched_getaffinity(Pid::from_raw(thread as i32)).ok()).collect()
}

fn cpu_numbers(cpus: &CpuSet) -> impl Iterator<Item = usize> + use<'_> {
    (0..CpuSet::MAX_CPU).filter(|&cpu| cpus.is_set(cpu))
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::CommandExt,
        process::{Command, Stdio},
    };

    use rustix::process::{Signal, kill_process_group};

    use super::*;

    #[test]
    fn children_that_pin_themselves_are_seen() {
        let cpu = cpu_numbers(&sched_getaffinity(None).unwrap()).last().unwrap();
        // `cat` ends at the end of its input. Descriptor 3 passes the input to it, because a shell starts background
        // programs without input.
        let script = format!("exec 3<&0; taskset -c {cpu} cat <&3 & wait");
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", &script]).process_group(0).stdin(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let is_seen = || descendant_affinities(&[shell.id()]).iter().any(|cpus| cpu_numbers(cpus).eq([cpu]));
        let found = testing::find(testing::PATIENCE, || is_seen().then_some(()));
        kill_process_group(Pid::from_child(&shell), Signal::KILL).unwrap();
        shell.wait().unwrap();
        found.expect("it has pinned itself");
    }
}
