//! Which machine each host of a study is, and which hosts a machine cannot be.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    ops::Range,
    sync::Arc,
    time::Duration,
};

use fleet::{HostMachine, Machine, only_here};
use lab::{
    BalancerKind,
    plan::{LinkKind, Plan, Process, Program},
};
use load::MachineLimits;
use settings::Reader;

use super::questions::{Facts, Question};
use crate::{
    Workload,
    study::{ActionKind, Study},
};

/// Maximum wait for an answer that needs no work.
const ANSWER_WAIT: Duration = Duration::from_secs(20);

/// Which machine each host of a study is.
#[derive(Debug, Clone, Default)]
pub struct Placement {
    /// By the host's name; empty until the machines are known.
    hosts: BTreeMap<String, Placed>,
}

/// A host that is a machine.
#[derive(Debug, Clone)]
pub(crate) struct Placed {
    pub(crate) machine: Arc<HostMachine>,
    address: IpAddr,
    /// The interface that has the address.
    device: String,
    /// Equal for two hosts only if they are the same machine.
    identity: String,
}

/// A host of a study, and the machine that it is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// Name of the host.
    pub host: String,
    /// The machine.
    pub machine: Machine,
}

impl Wish {
    /// Finds the machine of each host: the one with its name, or else the one with its number in its group (`web2` is the
    /// second machine of the group `web`).
    ///
    /// # Errors
    /// Every host without a machine. A machine that no host needs is no mistake.
    pub fn all(hosts: &BTreeSet<String>, machines: &[Machine]) -> Result<Vec<Self>, Vec<String>> {
        let (mut wishes, mut mistakes) = (Vec::new(), Vec::new());
        for host in hosts {
            let named = machines.iter().find(|machine| machine.name == *host);
            let of_group = || {
                let group = host.trim_end_matches(|c: char| c.is_ascii_digit());
                let number: usize = host[group.len()..].parse().ok()?;
                let mut members = machines.iter().filter(|machine| is_in(machine, group));
                members.nth(number.checked_sub(1)?)
            };
            // A host that is alone in its group may have the name of the group.
            let only = || {
                let mut members = machines.iter().filter(|machine| is_in(machine, host));
                members.next().filter(|_| members.next().is_none())
            };
            match named.or_else(of_group).or_else(only) {
                Some(machine) => wishes.push(Self { host: host.clone(), machine: machine.clone() }),
                None => mistakes.push(format!(
                    "the inventory has no machine for the host '{host}': give one that name, or put enough machines into \
                     the host's group"
                )),
            }
        }
        if mistakes.is_empty() { Ok(wishes) } else { Err(mistakes) }
    }
}

fn is_in(machine: &Machine, group: &str) -> bool {
    machine.groups.iter().any(|of| of == group)
}

impl Placement {
    /// Logs in to the machines, and determines the address of each. With `shares`, several hosts may be one machine.
    ///
    /// # Errors
    /// The reason for each machine that cannot be a host.
    pub fn connect(
        wishes: Vec<Wish>,
        remote_path: Option<&str>,
        shares: bool,
        stop: &Arc<std::sync::atomic::AtomicBool>,
    ) -> Result<Self, Vec<String>> {
        let names: Vec<String> = wishes.iter().map(|wish| wish.host.clone()).collect();
        let machines = wishes.into_iter().map(|wish| wish.machine).collect();
        let connected = HostMachine::connect(machines, remote_path, stop)?;
        let (mut hosts, mut mistakes) = (BTreeMap::new(), Vec::new());
        let mut known: BTreeMap<String, String> = BTreeMap::new();
        for (host, machine) in names.into_iter().zip(connected) {
            let name = machine.machine().name.clone();
            let placed = machine.ask::<Facts>(&Question::Facts, ANSWER_WAIT).and_then(|facts| {
                if let Some(other) = known.insert(facts.identity.clone(), host.clone()).filter(|_| !shares) {
                    return Err(format!(
                        "{name}: the hosts '{other}' and '{host}' would be the same machine; give --share-machines if that is intended"
                    ));
                }
                placed(Arc::new(machine), &facts)
            });
            match placed {
                Ok(placed) => drop(hosts.insert(host, placed)),
                Err(why) => mistakes.push(why),
            }
        }
        if mistakes.is_empty() { Ok(Self { hosts }) } else { Err(mistakes) }
    }

    /// The machines of these hosts, which make the load.
    pub fn machines_of(&self, hosts: &BTreeSet<String>) -> Vec<Machine> {
        let mut machines: Vec<Machine> = Vec::new();
        for machine in hosts.iter().filter_map(|host| Some(self.hosts.get(host)?.machine.machine())) {
            if !machines.contains(machine) {
                machines.push(machine.clone());
            }
        }
        machines
    }

    /// Why hosts cannot share a machine: each would undo what the other has set.
    pub fn refusals(&self, study: &Study) -> Vec<String> {
        let is_shared = |name: &String| {
            let placed = self.hosts.get(name);
            let others = self.hosts.iter().filter(|(other, _)| *other != name);
            placed
                .is_some_and(|placed| others.into_iter().any(|(_, other)| other.identity == placed.identity))
        };
        let mut refused = BTreeSet::new();
        study.each_setup(settings(study), &mut |_, setup| {
            let plan = setup.as_ref().ok().and_then(|setup| setup.lab.as_ref());
            for host in plan.iter().flat_map(|plan| &plan.hosts).filter(|host| is_shared(&host.name)) {
                if !host.sysctls.is_empty() || !host.loopback.is_empty() || !host.routes.is_empty() {
                    refused.insert(host.name.clone());
                }
            }
            true
        });
        let words = |host| {
            format!(
                "--share-machines: the host '{host}' has settings, addresses or routes of its own (a balancer adds some), which \
                 two hosts on one machine cannot have"
            )
        };
        refused.into_iter().map(words).collect()
    }

    /// Each host with its machine and address, for the user.
    pub fn description(&self) -> Vec<String> {
        let line = |(host, placed): (&String, &Placed)| {
            let name = &placed.machine.machine().name;
            let is = if name == host { String::new() } else { format!(" is {name}") };
            format!("host {host}{is}: {} on {}", placed.address, placed.device)
        };
        self.hosts.iter().map(line).collect()
    }

    pub(crate) fn get(&self, host: &str) -> Option<&Placed> {
        self.hosts.get(host)
    }
}

/// Determines the address of a machine, and refuses a machine that cannot be a host.
fn placed(machine: Arc<HostMachine>, facts: &Facts) -> Result<Placed, String> {
    let name = &machine.machine().name;
    if !facts.is_root {
        return Err(format!(
            "{name}: only root can set up a host of a study; log in as root, or give --become"
        ));
    }
    let known =
        || facts.addresses.iter().map(|(_, address)| address.to_string()).collect::<Vec<_>>().join(", ");
    let wanted = match machine.machine().address.or(facts.reached) {
        Some(address) => Some(address),
        None => match &facts.addresses[..] {
            [(_, only)] => Some(*only),
            _ => None,
        },
    };
    let Some(wanted) = wanted else {
        return Err(format!(
            "{name}: it is not clear which of its addresses ({}) the study is to use; set proofload_address in the inventory",
            known()
        ));
    };
    match facts.addresses.iter().find(|(_, address)| *address == wanted) {
        Some((device, address)) => Ok(Placed {
            address: *address,
            device: device.clone(),
            identity: facts.identity.clone(),
            machine: Arc::clone(&machine),
        }),
        None => Err(format!(
            "{name}: it has no address {wanted} (it has {}); set proofload_address in the inventory to one of these",
            known()
        )),
    }
}

/// Gives the hosts of a plan the addresses of their machines, and reports the hosts that a machine cannot be. `links` and
/// `hosts`: the places of these tables in the file.
pub(crate) fn adapt(
    reader: &mut Reader<'_>,
    plan: &mut Plan,
    placement: &Placement,
    links: Range<usize>,
    hosts: Range<usize>,
) {
    for host in &plan.hosts {
        if !host.routes.is_empty() || host.forward {
            let message = format!(
                "the host '{}' is a machine, which keeps its own routes: leave 'routes' and 'forward' out",
                host.name
            );
            reader.mistake(hosts.clone(), message);
        }
        if !host.private.is_empty() {
            let message = format!(
                "the host '{}' is a machine, whose folders are its own: leave 'private' out",
                host.name
            );
            reader.mistake(hosts.clone(), message);
        }
    }
    for link in &mut plan.links {
        if matches!(link.kind, LinkKind::Emulated(_) | LinkKind::Segment { port_rate_bits_per_s: Some(_) }) {
            let message = format!(
                "the link '{}' has a shape, which only the links of a lab have: machines use the network that is there; leave out \
                 rate, delay, loss and the like",
                link.name
            );
            reader.mistake(links.clone(), message);
        }
        for end in &mut link.ends {
            let Some(placed) = placement.get(&plan.hosts[end.host].name) else { continue };
            (end.address, end.device) = (placed.address, placed.device.clone());
            // Machines reach each other as their own routes say.
            (link.network, link.prefix) = (unspecified_like(placed.address), 0);
        }
    }
}

fn unspecified_like(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
    }
}

/// The names of all hosts of a study, and of those that make the load.
pub fn hosts_of(study: &Study) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut all, mut from) = (BTreeSet::new(), BTreeSet::new());
    study.each_setup(settings(study), &mut |_, setup| {
        if let Some((setup, plan)) = setup.as_ref().ok().and_then(|setup| Some((setup, setup.lab.as_ref()?)))
        {
            all.extend(plan.hosts.iter().map(|host| host.name.clone()));
            from.extend(setup.from.iter().map(|host| plan.hosts[*host].name.clone()));
        }
        true
    });
    (all, from)
}

/// Why a study cannot run on machines. `limits`: those of any machine, because they do not matter for these checks.
pub fn refusals(study: &Study, limits: &MachineLimits) -> Vec<String> {
    let mut refusals: Vec<String> = Vec::new();
    let mut refuse = |why: &str| {
        if !refusals.iter().any(|refusal| refusal == why) {
            refusals.push(why.to_owned());
        }
    };
    let mut makers: Option<BTreeSet<String>> = None;
    study.each_setup(settings(study), &mut |_, setup| {
        // The planner reports mistakes in a setup.
        let Ok(setup) = setup else { return true };
        let Some(plan) = &setup.lab else {
            refuse("a setting has no host that could be a machine: give the study [hosts] and a target on them");
            return true;
        };
        let from: BTreeSet<String> = setup.from.iter().map(|host| plan.hosts[*host].name.clone()).collect();
        if makers.get_or_insert_with(|| from.clone()) != &from {
            refuse("all settings must make their load on the same hosts");
        }
        if setup.audit.is_some() {
            refuse("an audit reads the target's files, which stay on its machine: leave [audit] out");
        }
        if setup.balancer.as_ref().is_some_and(|balancer| balancer.kind == BalancerKind::Lvs) {
            refuse("the balancer lvs would stay in its machine's kernel: leave it out, such as by --set balancer=l2dsr,haproxy");
        }
        if setup.actions.iter().any(|action| matches!(action.what, ActionKind::Link(_))) {
            refuse("a machine whose link is switched off could not be reached again: leave the action out");
        }
        if plan.processes.iter().any(stores_files) {
            refuse("a listener's files would lie in memory there, where its acknowledgements mean less: run it in a lab");
        }
        match &setup.workload {
            Workload::Command(_) => {
                refuse("programs are started in labs only: use [workload.http], or leave --machines out");
            }
            Workload::Http(workload) => {
                for mistake in workload.plan(limits).iter().flat_map(only_here) {
                    refuse(&format!("{}: {}", mistake.field, mistake.message));
                }
            }
        }
        true
    });
    refusals
}

/// Whether a process keeps what it receives in a folder that the study gives it.
fn stores_files(process: &Process) -> bool {
    // The placeholder of the crate's testbed, which uses this module.
    const TARGET_FOLDER: &str = "{target_folder}";
    match &process.program {
        Program::Known(known) => known.kind.name() == "listen",
        Program::Command(words) => words.iter().any(|word| word.contains(TARGET_FOLDER)),
    }
}

fn settings(study: &Study) -> impl Iterator<Item = (usize, Option<f64>)> + '_ {
    let searched = |setting: usize| study.search_of(&study.settings[setting]).map(|search| search.min);
    (0..study.settings.len()).map(move |setting| (setting, searched(setting)))
}
