//! Before anything is sent: does the plan fit this machine?
//!
//! What the machine can give by itself (more worker processes, more source addresses on loopback) is
//! taken; for the rest the plan is refused with the numbers and the way out.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    thread,
};

use record::{HttpPlan, LoadModel};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::{FieldMistake, host::Host, pool, workload::Asked};

/// Descriptors a worker process needs beside its connections: standard streams, epoll instances, files.
const OTHER_DESCRIPTORS: u64 = 64;
/// Memory of one open connection, ours and the kernel's, without data in its buffers; measured 2 to 3 KiB.
const CONNECTION_MEMORY_BYTES: u64 = 4 * 1024;
/// Memory of a process with one worker thread, and of each further one: mostly histograms; measured 10 and 3 MiB.
const PROCESS_MEMORY_BYTES: u64 = 12 << 20;
const THREAD_MEMORY_BYTES: u64 = 4 << 20;
/// Worker processes and source addresses that are taken unasked at the most.
const MOST_PROCESSES: u64 = 4_096;
const MOST_SOURCES: u64 = 60_000;

/// Fits a plan to the machine, and gives what was changed, in words. A pool that is opened on demand gets what the load
/// can need of it as far as this machine has it, and more where that costs nothing; it is refused only where more
/// processes are asked for than can be started, or memory lacks for a single connection.
///
/// # Errors
/// Everything that does not fit, each with the numbers and the way out.
pub fn fit(plan: &mut HttpPlan, host: &Host, asked: Asked) -> Result<Vec<String>, Vec<String>> {
    let startable = most_processes(plan, host);
    if asked.processes && plan.processes > startable {
        return Err(vec![format!(
            "processes: {} are asked for, and {startable} can be started (ulimit -u, pids.max of the cgroup, memory, \
             descriptors of their parent); leave --processes out or give --processes {startable}",
            plan.processes
        )]);
    }
    let mut notes = Vec::new();
    let connections = match plan.is_on_demand() {
        true => pool::wanted(plan).min(plan.connections()),
        false => plan.connections(),
    };
    let mut refusals: Vec<String> =
        fit_processes(plan, connections, host, asked, &mut notes).err().into_iter().collect();
    notes.extend(without_idle_workers(plan));
    refusals.extend(fit_sources(plan, connections, host, asked, &mut notes).err());
    let memory_room = memory_room(plan, host);
    if connections > memory_room {
        let needed =
            connections.saturating_mul(CONNECTION_MEMORY_BYTES).saturating_add(base_memory_bytes(plan));
        refusals.push(format!(
            "memory: {connections} connections need about {} (4 KiB each, the kernel's part included, and the worker \
             processes' own), and {} are available (MemAvailable, the cgroup's limit, `ulimit -v`); raise the limit, or use \
             another machine",
            record::units::show_bytes(needed),
            record::units::show_bytes(host.available_memory_bytes),
        ));
    }
    let room = descriptor_room(plan, host).min(port_room(plan, host)).min(memory_room);
    // Where there is no memory for one, nothing can be run.
    let is_flexible = plan.is_on_demand() && memory_room > 0;
    if let (true, LoadModel::Open { connections, .. }) = (is_flexible, &mut plan.load) {
        // One is tried in any case: what refuses it is told by the kernel.
        connections.most = connections.most.min(room.max(1));
        plan.pool_limit = (!refusals.is_empty()).then(|| refusals.join("; "));
        refusals.clear();
    }

    // Workers without a processor of their own would only take it from each other by polling.
    if plan.threads.saturating_mul(plan.processes) > host.cpus {
        plan.spin_ns = 0;
    }

    if refusals.is_empty() { Ok(notes) } else { Err(refusals) }
}

/// The same; every refusal also says how much of `option`, which asks for the connections, fits this machine.
///
/// # Errors
/// As for [`fit`].
pub fn fit_or_advise(
    plan: &mut HttpPlan,
    host: &Host,
    asked: Asked,
    option: &str,
) -> Result<Vec<String>, Vec<String>> {
    // Of what was asked for, not of what is made of it.
    let most = most_connections(plan, host, asked);
    let advice = most.map(|most| format!("; or give {option} {most}, which fits")).unwrap_or_default();
    fit(plan, host, asked).map_err(|refusals| refusals.into_iter().map(|refusal| refusal + &advice).collect())
}

/// Connections that fit this machine at the most, with all the processes and addresses that [`fit`] would take; none if
/// that is no fewer than the plan has.
fn most_connections(plan: &HttpPlan, host: &Host, asked: Asked) -> Option<u64> {
    let processes =
        if asked.processes { plan.processes } else { plan.processes.max(most_processes(plan, host)) };
    let plan = HttpPlan { processes, ..plan.clone() };
    let ports = match loopback_sources(&plan.targets, 1) {
        Some(_) if !asked.sources => host.ports / 2 * MOST_SOURCES * plan.targets.len() as u64,
        _ => port_room(&plan, host),
    };
    // Memory comes and goes.
    let memory = memory_room(&plan, host);
    let most = descriptor_room(&plan, host).min(ports).min(memory - memory / 8);
    (1..plan.connections()).contains(&most).then_some(most)
}

/// Whether a trial that opened so many connections must end them by a reset: the next trial would lack the ports, which
/// the kernel keeps for a minute behind an orderly end. On loopback it gives them back within a second.
pub(crate) fn wants_ports_back(plan: &HttpPlan, opened: u64) -> bool {
    let is_far = plan.targets.iter().any(|target| !target.ip().is_loopback());
    is_far && Host::read().is_ok_and(|host| opened > port_room(plan, &host) / 4)
}

/// As many worker processes as the connections need, or as can be started.
fn fit_processes(
    plan: &mut HttpPlan,
    connections: u64,
    host: &Host,
    asked: Asked,
    notes: &mut Vec<String>,
) -> Result<(), String> {
    let hard = host.hard_descriptors;
    let needed = connections.div_ceil(descriptors_for_connections(host).max(1));
    let most = most_processes(plan, host);
    if connections <= descriptor_room(plan, host) {
        return Ok(());
    }
    let raised = connections.div_ceil(u64::from(plan.processes.max(1))) + OTHER_DESCRIPTORS;
    let raise = format!("raise the limit (as root: prlimit --nofile={raised}:{raised} --pid $$)");
    if asked.processes {
        return Err(format!(
            "descriptors: {connections} connections in {} worker process(es) need {raised} descriptors each, and the hard \
             limit (ulimit -Hn) is {hard}; leave --processes out or give --processes {}, or {raise}",
            plan.processes,
            needed.min(u64::from(most)),
        ));
    }
    plan.processes = plan.processes.max(needed.min(u64::from(most)) as u32);
    if needed > u64::from(most) {
        return Err(format!(
            "descriptors: {connections} connections need {needed} worker processes, because each may have {hard} descriptors \
             (ulimit -Hn), and {most} can be started (ulimit -u, pids.max of the cgroup, memory, descriptors of their parent); {raise}"
        ));
    }
    notes.push(format!(
        "{needed} worker processes: {connections} connections, and each process may have {hard} descriptors"
    ));
    Ok(())
}

/// As many source addresses as the connections need, on loopback.
fn fit_sources(
    plan: &mut HttpPlan,
    connections: u64,
    host: &Host,
    asked: Asked,
    notes: &mut Vec<String>,
) -> Result<(), String> {
    let pairs = port_room(plan, host);
    // connect() looks through half of the ports (one parity) before it takes one of the other: beyond half,
    // every connection costs tens of microseconds more.
    if connections <= pairs / 2 {
        return Ok(());
    }
    let half = (host.ports / 2 * plan.targets.len() as u64).max(1);
    let more = connections.div_ceil(half);
    match loopback_sources(&plan.targets, more) {
        Some(sources) if !asked.sources => {
            notes.push(format!(
                "{more} source addresses {} to {}: {connections} connections, and one address has {} local ports \
                 towards a target, of which half are found quickly",
                sources[0],
                sources[sources.len() - 1],
                host.ports
            ));
            plan.sources = sources;
            Ok(())
        }
        _ if connections <= pairs => Ok(()),
        _ => Err(format!(
            "ports: {connections} connections, and {} local ports × {} source address(es) × {} target address(es) \
             = {pairs}; widen them (as root: sysctl net.ipv4.ip_local_port_range=\"1024 65535\"), or give {more} addresses of \
             this machine with --source",
            host.ports,
            plan.sources.len().max(1),
            plan.targets.len(),
        )),
    }
}

/// What a worker process has left of its descriptors for connections.
fn descriptors_for_connections(host: &Host) -> u64 {
    host.hard_descriptors - OTHER_DESCRIPTORS.min(host.hard_descriptors / 2)
}

fn descriptor_room(plan: &HttpPlan, host: &Host) -> u64 {
    descriptors_for_connections(host).saturating_mul(u64::from(plan.processes.max(1)))
}

fn port_room(plan: &HttpPlan, host: &Host) -> u64 {
    host.ports.saturating_mul(plan.sources.len().max(1) as u64).saturating_mul(plan.targets.len() as u64)
}

fn memory_room(plan: &HttpPlan, host: &Host) -> u64 {
    host.available_memory_bytes.saturating_sub(base_memory_bytes(plan)) / CONNECTION_MEMORY_BYTES
}

fn base_memory_bytes(plan: &HttpPlan) -> u64 {
    u64::from(plan.processes.max(1)).saturating_mul(process_memory_bytes(plan))
}

fn process_memory_bytes(plan: &HttpPlan) -> u64 {
    PROCESS_MEMORY_BYTES + u64::from(plan.threads.max(1) - 1).saturating_mul(THREAD_MEMORY_BYTES)
}

/// Worker processes that can be started: each takes two descriptors and a thread of its parent, and has a thread beside
/// its workers and its main one.
fn most_processes(plan: &HttpPlan, host: &Host) -> u32 {
    let by_tasks = host.tasks / (u64::from(plan.threads) + 3);
    let by_memory = host.available_memory_bytes / process_memory_bytes(plan);
    let most = by_tasks.min(by_memory).min(descriptors_for_connections(host) / 2).min(MOST_PROCESSES);
    most.max(1) as u32
}

/// A worker without a connection would have nothing to do; gives what was changed, in words. All processes have as many
/// threads, so that fewer than there are processes may be left without one.
fn without_idle_workers(plan: &mut HttpPlan) -> Option<String> {
    let connections = plan.connections().max(1);
    let (processes, threads) = (u64::from(plan.processes.max(1)), u64::from(plan.threads.max(1)));
    if processes * threads <= connections {
        return None;
    }
    plan.processes = processes.min(connections) as u32;
    plan.threads = threads.min(connections.div_ceil(u64::from(plan.processes))) as u32;
    if (u64::from(plan.processes), u64::from(plan.threads)) == (processes, threads) {
        return None;
    }
    Some(format!(
        "{} worker process(es) of {} thread(s), not {processes} of {threads}: each works on connections of its own, and \
         there are {connections}",
        plan.processes, plan.threads
    ))
}

/// What a plan asks for that this machine has not: source addresses, and processors to pin to. Only for a load that
/// leaves from this machine itself: hosts of a lab have addresses of their own.
pub fn missing_here(plan: &HttpPlan) -> Vec<FieldMistake> {
    let addresses: Vec<IpAddr> = plan.sources.iter().copied().filter(|source| !is_local(*source)).collect();
    let processors = missing_processors(&plan.cpus);
    let mut mistakes = Vec::new();
    if let [first, more @ ..] = &addresses[..] {
        let message = match more.len() {
            0 => format!("{first} is no address of this machine; see `ip addr`"),
            more => format!("{first} and {more} more are no addresses of this machine; see `ip addr`"),
        };
        mistakes.push(FieldMistake { field: "source", message });
    }
    if !processors.is_empty() {
        let list: Vec<String> = processors.iter().map(ToString::to_string).collect();
        let message =
            format!("no thread can be pinned to {}; choose from those of `taskset -p $$`", list.join(", "));
        mistakes.push(FieldMistake { field: "cpus", message });
    }
    mistakes
}

/// Whether connections can leave from an address. Tried with UDP: the port is free again at once.
fn is_local(address: IpAddr) -> bool {
    let bound = UdpSocket::bind((address, 0));
    !bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
}

/// Processors that no worker thread could be pinned to.
fn missing_processors(cpus: &[u32]) -> Vec<u32> {
    if cpus.is_empty() {
        return Vec::new();
    }
    // By a thread of its own, which stays where it was pinned last.
    thread::scope(|scope| {
        let tries = || cpus.iter().copied().filter(|&cpu| !can_be_pinned_to(cpu)).collect::<Vec<u32>>();
        let thread = thread::Builder::new().spawn_scoped(scope, tries);
        thread.ok().and_then(|thread| thread.join().ok()).unwrap_or_default()
    })
}

fn can_be_pinned_to(cpu: u32) -> bool {
    if cpu as usize >= CpuSet::MAX_CPU {
        return false;
    }
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(None, &set).is_ok()
}

/// `count` loopback addresses, if all targets are on IPv4 loopback: all of 127/8 is this machine's.
fn loopback_sources(targets: &[SocketAddr], count: u64) -> Option<Vec<IpAddr>> {
    let all_loopback = targets.iter().all(|target| matches!(target.ip(), IpAddr::V4(ip) if ip.is_loopback()));
    let first = u32::from(Ipv4Addr::LOCALHOST);
    (all_loopback && count <= MOST_SOURCES)
        .then(|| (0..count as u32).map(|i| IpAddr::V4(Ipv4Addr::from(first + i))).collect())
}

#[cfg(test)]
mod tests;
