//! The hosts of a setting that are machines. All are asked at the same time.

use std::{
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use fleet::HostMachine;
use kernel::leftovers::Leftover;
use lab::{
    Balancer, ProcessFailure,
    plan::{End, Link, Plan, Program},
};
use record::{TrialCounters, counters::HostCounters};
use serde::de::DeserializeOwned;
use settings::placeholders;

use super::{
    placement::Placement,
    questions::{BalancerQuestion, Failure, Farewell, OWN_PROGRAM, Question},
};
use crate::study::ActionKind;

/// Maximum wait for an answer, besides the work that it needs.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// Maximum wait until a host is down.
const DOWN_WAIT: Duration = Duration::from_secs(60);

/// The hosts of a setting, each a machine, in the order of the plan.
#[derive(Debug)]
pub(crate) struct PlacedHosts {
    plan: Plan,
    machines: Vec<Arc<HostMachine>>,
    /// Folder for the logs when the hosts are taken down.
    logs: Option<PathBuf>,
}

impl PlacedHosts {
    /// Brings up the hosts of a plan: first all hosts, then their processes, stage by stage.
    ///
    /// # Errors
    /// The reason, with the machine's name. What was brought up until then has been taken down.
    pub(crate) fn bring_up(
        plan: &Plan,
        placement: &Placement,
        logs: Option<PathBuf>,
    ) -> Result<Self, String> {
        let machine = |host: &lab::plan::Host| {
            let placed =
                placement.get(&host.name).ok_or_else(|| format!("no machine is the host {}", host.name))?;
            Ok(Arc::clone(&placed.machine))
        };
        let machines = plan.hosts.iter().map(machine).collect::<Result<Vec<_>, String>>()?;
        let hosts = Self { plan: plan.clone(), machines, logs };
        match hosts.start() {
            Ok(()) => Ok(hosts),
            Err(why) => {
                let failures = hosts.take_down();
                Err(std::iter::once(why).chain(failures).collect::<Vec<_>>().join("; "))
            }
        }
    }

    fn start(&self) -> Result<(), String> {
        self.each(|_, machine| machine.reconnect())?;
        self.each(|host, machine| {
            let (plan, secrets) = (Box::new(own_part(&self.plan, host)), secrets::mask::learned());
            machine.ask::<()>(&Question::Up { plan, secrets }, ANSWER_WAIT)
        })?;
        let stages = self.plan.processes.iter().map(|process| process.stage).max();
        for stage in 0..=stages.unwrap_or(0) {
            self.each(|host, machine| {
                let of_stage = self.plan.processes.iter();
                let of_stage = of_stage.filter(|process| process.host == host && process.stage == stage);
                match of_stage.map(|process| process.ready_timeout).reduce(|all, one| all + one) {
                    Some(wait) => machine.ask::<()>(&Question::Stage(stage), ANSWER_WAIT + wait),
                    None => Ok(()),
                }
            })?;
        }
        Ok(())
    }

    /// Why a machine is lost; none if none is.
    pub(crate) fn lost(&self) -> Option<String> {
        self.machines.iter().find_map(|machine| machine.lost())
    }

    /// The processes that have failed since the last call. Skips machines that are lost, also those that are lost because
    /// they do not answer.
    pub(crate) fn failures(&self) -> Vec<ProcessFailure> {
        let of = |_: usize, machine: &HostMachine| {
            let failed: Result<Vec<Failure>, String> = machine.ask(&Question::Failures, ANSWER_WAIT);
            Ok(failed.unwrap_or_default())
        };
        let failures = self.each(of).unwrap_or_default();
        failures.into_iter().flatten().map(ProcessFailure::from).collect()
    }

    /// The leftovers of connections on each host, by its name.
    pub(crate) fn leftovers(&self) -> Vec<(String, io::Result<Vec<Leftover>>)> {
        let of = |host: usize, machine: &HostMachine| {
            let left = machine.ask(&Question::Leftovers, ANSWER_WAIT).map_err(io::Error::other);
            Ok((self.plan.hosts[host].name.clone(), left))
        };
        self.each(of).unwrap_or_default()
    }

    /// Begins to watch the kernels of all hosts.
    ///
    /// # Errors
    /// If a kernel cannot be watched.
    pub(crate) fn watch(&self, books_time: bool) -> io::Result<()> {
        let watching: Result<Vec<()>, String> = self.ask_each(&Question::Watch { books_time }, ANSWER_WAIT);
        watching.map(drop).map_err(io::Error::other)
    }

    /// What the kernels have counted since [`watch`](Self::watch).
    ///
    /// # Errors
    /// If a machine does not answer.
    pub(crate) fn count(&self) -> io::Result<TrialCounters> {
        let all: Vec<TrialCounters> =
            self.ask_each(&Question::Count, ANSWER_WAIT).map_err(io::Error::other)?;
        let mut merged = TrialCounters::default();
        for (counted, host) in all.into_iter().zip(&self.plan.hosts) {
            merged.schema = counted.schema;
            merged.elapsed_s = merged.elapsed_s.max(counted.elapsed_s);
            merged.reading_s = merged.reading_s.max(counted.reading_s);
            merged.hosts.extend(counted.hosts.into_iter().map(|of_host| HostCounters {
                host: host.name.clone(),
                machine: Some(counted.machine.clone()),
                elapsed_s: Some(counted.elapsed_s),
                ..of_host
            }));
        }
        Ok(merged)
    }

    /// The name of a host, its machine, and an action with the addresses of other hosts in place of their names.
    pub(crate) fn action(&self, host: usize, what: &ActionKind) -> (String, Arc<HostMachine>, ActionKind) {
        let what = match what {
            ActionKind::Command(words) => {
                ActionKind::Command(words.iter().map(|word| of_machine(&self.plan, host, word)).collect())
            }
            other => other.clone(),
        };
        (self.plan.hosts[host].name.clone(), Arc::clone(&self.machines[host]), what)
    }

    /// Asks the balancer's host about the balancer.
    ///
    /// # Errors
    /// If it cannot answer.
    pub(crate) fn ask_balancer<A: DeserializeOwned>(
        &self,
        balancer: &Balancer,
        question: BalancerQuestion,
    ) -> Result<A, String> {
        let question = Question::Balancer(Box::new(balancer_of_own_part(balancer)), question);
        self.machines[balancer.host].ask(&question, ANSWER_WAIT)
    }

    /// Takes all hosts down, and keeps their logs. Returns what could not be undone.
    pub(crate) fn take_down(&self) -> Vec<String> {
        let down = |_: usize, machine: &HostMachine| {
            // A machine whose connection was lost may still have what its agent could not undo.
            let asked =
                machine.reconnect_to_undo().and_then(|()| machine.ask_to_undo(&Question::Down, DOWN_WAIT));
            Ok(asked.unwrap_or_else(|why| {
                let name = &machine.machine().name;
                let why = format!("{why}; `proofload clean --on` cleans up there");
                Farewell {
                    failures: vec![format!("{name} may not be as it was: {why}")],
                    ..Farewell::default()
                }
            }))
        };
        let farewells = self.each(down).unwrap_or_default();
        let mut failures = Vec::new();
        for Farewell { logs, failures: of_machine } in farewells {
            failures.extend(of_machine);
            if let Some(folder) = &self.logs
                && let Err(error) = keep(&logs, folder)
            {
                failures.push(format!("cannot keep the logs in {}: {error}", folder.display()));
            }
        }
        failures
    }

    fn ask_each<A: DeserializeOwned + Send>(
        &self,
        question: &Question,
        wait: Duration,
    ) -> Result<Vec<A>, String> {
        self.each(|_, machine| machine.ask(question, wait))
    }

    /// Calls `work` for all machines at the same time. Returns all errors as one.
    fn each<T: Send>(
        &self,
        work: impl Fn(usize, &HostMachine) -> Result<T, String> + Sync,
    ) -> Result<Vec<T>, String> {
        let all: Vec<Result<T, String>> = thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> = self
                .machines
                .iter()
                .enumerate()
                .map(|(host, machine)| scope.spawn(move || work(host, machine)))
                .collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        });
        let (mut done, mut mistakes) = (Vec::new(), Vec::new());
        for result in all {
            match result {
                Ok(value) => done.push(value),
                Err(why) => mistakes.push(why),
            }
        }
        if mistakes.is_empty() { Ok(done) } else { Err(mistakes.join("; ")) }
    }
}

fn keep(logs: &[(String, String)], folder: &Path) -> io::Result<()> {
    for (name, text) in logs {
        // The name comes from another machine.
        let Some(name) = Path::new(name).file_name() else { continue };
        fs::create_dir_all(folder)?;
        fs::write(folder.join(name), &*secrets::mask(text))?;
    }
    Ok(())
}

/// A word of a command as the machine of a host understands it: with addresses in place of names, and [`OWN_PROGRAM`] in
/// place of this program's path here.
fn of_machine(plan: &Plan, host: usize, word: &str) -> String {
    let address = |name: &str| {
        let of = if name == "self" { Some(host) } else { plan.host(name) };
        plan.address_of(of?).as_ref().map(IpAddr::to_string)
    };
    let word = placeholders::expand(word, &address);
    match std::env::current_exe() {
        Ok(program) => word.replace(&program.display().to_string(), OWN_PROGRAM),
        Err(_) => word,
    }
}

/// The part of a plan that concerns one host, which becomes its only host.
fn own_part(plan: &Plan, host: usize) -> Plan {
    let links = plan.links.iter().filter_map(|link| {
        let end = link.ends.iter().find(|end| end.host == host)?;
        Some(Link { ends: vec![End { host: 0, ..end.clone() }], ..link.clone() })
    });
    let processes = plan.processes.iter().filter(|process| process.host == host).map(|process| {
        let mut process = lab::plan::Process { host: 0, ..process.clone() };
        // The host does not know the others.
        if let Program::Command(words) = &mut process.program {
            words.iter_mut().for_each(|word| *word = of_machine(plan, host, word));
        }
        process
    });
    Plan {
        title: plan.title.clone(),
        hosts: vec![plan.hosts[host].clone()],
        links: links.collect(),
        processes: processes.collect(),
    }
}

/// The balancer as the plan of its own host knows it.
fn balancer_of_own_part(balancer: &Balancer) -> Balancer {
    Balancer { host: 0, servers: Vec::new(), ..balancer.clone() }
}

#[cfg(test)]
mod tests {
    use lab::plan::{Host, LinkKind};

    use super::*;

    #[test]
    fn a_machine_learns_its_own_part_of_the_plan() {
        let text = "[hosts]\na = {}\nb = { sysctls = { \"net.core.somaxconn\" = 7 } }\n[[links]]\nbetween = [\"a\", \"b\"]\n\
                    [[processes]]\nname = \"p\"\non = \"b\"\ncommand = [\"x\", \"{a}\", \"{self}\"]\n";
        let plan = lab::file::parse("f", text).unwrap();
        let own = own_part(&plan, 1);
        let names: Vec<&str> = own.hosts.iter().map(|Host { name, .. }| name.as_str()).collect();
        assert_eq!((names, own.hosts[0].sysctls["net.core.somaxconn"].as_str()), (vec!["b"], "7"));
        assert_eq!(own.address_of(0), plan.address_of(1));
        assert!(matches!(own.links[0].kind, LinkKind::Pair));
        let words = ["x", "10.1.0.1", "10.1.0.2"].map(str::to_owned).to_vec();
        assert_eq!((own.processes[0].host, &own.processes[0].program), (0, &Program::Command(words)));
        assert!(own_part(&plan, 0).processes.is_empty());
    }
}
