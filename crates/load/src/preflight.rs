//! The pre-flight check: whether a plan fits this machine, before anything is sent.
//!
//! It adds worker processes and loopback source addresses where a plan needs them. Otherwise it refuses the plan, with the
//! numbers and a remedy.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    os::unix::fs::FileTypeExt,
    path::Path,
    thread,
};

use record::{HttpPlan, LoadModel};
use rustix::{
    fs::{Access, access},
    thread::{CpuSet, sched_setaffinity},
};

use crate::{FieldMistake, MachineLimits, pool, workload::FixedByUser};

/// Descriptors that a worker process needs besides its connections: standard streams, epoll instances, files.
const OTHER_DESCRIPTORS: u64 = 64;
/// Memory of one open connection in this process and in the kernel, without data in its buffers, in bytes; measured 2 to 3 KiB.
const CONNECTION_MEMORY_BYTES: u64 = 4 * 1024;
/// Same as [`CONNECTION_MEMORY_BYTES`], with TLS and its session tickets.
const TLS_CONNECTION_MEMORY_BYTES: u64 = 24 * 1024;
/// Memory of a process with one worker thread, and of each further thread, in bytes: mostly histograms; measured 10 and 3
/// MiB.
const PROCESS_MEMORY_BYTES: u64 = 12 << 20;
const THREAD_MEMORY_BYTES: u64 = 4 << 20;
/// Upper bound of the connections that one processor can open per second: each takes nine system calls, about 20 µs.
const OPENED_PER_S: u64 = 50_000;
/// Maximum number of worker processes and of source addresses that the check adds.
const MAX_PROCESSES: u64 = 4_096;
const MAX_SOURCES: u64 = 60_000;

/// Fits a plan to the machine, and returns a note for each change. A pool that is opened on demand is reduced to the size
/// that this machine can carry. Such a plan is refused only if the user sets too many processes, or memory is too small for
/// one connection.
///
/// # Errors
/// Everything that does not fit, each with the numbers and a remedy.
pub fn fit(
    plan: &mut HttpPlan,
    limits: &MachineLimits,
    fixed: FixedByUser,
) -> Result<Vec<String>, Vec<String>> {
    let startable = max_processes(plan, limits);
    if fixed.processes && plan.processes > startable {
        return Err(vec![format!(
            "processes: {} were requested, but at most {startable} can be started (limited by ulimit -u, pids.max of the cgroup, \
             memory, descriptors of the parent process, and {MAX_PROCESSES} in all); leave --processes out or give --processes \
             {startable}",
            plan.processes
        )]);
    }
    let mut notes = Vec::new();
    let connections =
        if plan.is_on_demand() { pool::wanted(plan).min(plan.connections()) } else { plan.connections() };
    let mut refusals: Vec<String> =
        fit_processes(plan, connections, limits, fixed, &mut notes).err().into_iter().collect();
    notes.extend(remove_idle_workers(plan));
    refusals.extend(fit_sources(plan, connections, limits, fixed, &mut notes).err());
    let memory_room = memory_room(plan, limits);
    if connections > memory_room {
        let needed =
            connections.saturating_mul(connection_memory_bytes(plan)).saturating_add(base_memory_bytes(plan));
        refusals.push(format!(
            "memory: {connections} connections need about {} ({} each including the kernel's share, and the worker \
             processes' own memory), and {} are available (MemAvailable, the cgroup's limit, `ulimit -v`); raise the limit, or \
             use another machine",
            record::units::show_bytes(needed),
            record::units::show_bytes(connection_memory_bytes(plan)),
            record::units::show_bytes(limits.available_memory_bytes),
        ));
    }
    let time_room = time_room(plan, limits);
    if connections > time_room {
        refusals.push(format!(
            "time: {connections} users cannot all connect within {}: a processor opens at most {OPENED_PER_S} connections a second, and {} \
             can be used; give a longer duration, or use another machine",
            record::units::show_nominal_time_ns(plan.sending_ns().unwrap_or(0)),
            limits.cpus,
        ));
    }
    let room = descriptor_room(plan, limits).min(port_room(plan, limits)).min(memory_room);
    let can_shrink = plan.is_on_demand() && memory_room > 0;
    if let (true, LoadModel::Open { connections, .. }) = (can_shrink, &mut plan.load) {
        // Even without room, one connection is attempted: the kernel's error then says what is missing.
        connections.most = connections.most.min(room.max(1));
        plan.pool_limit = (!refusals.is_empty()).then(|| refusals.join("; "));
        refusals.clear();
    }

    // A polling worker would take the processor from other workers that share it.
    if plan.threads.saturating_mul(plan.processes) > limits.cpus {
        plan.spin_ns = 0;
    }

    if refusals.is_empty() { Ok(notes) } else { Err(refusals) }
}

/// Same as [`fit`], but each refusal also names a value of `option` that fits. `option` sets the number of connections.
///
/// # Errors
/// As for [`fit`].
pub fn fit_or_advise(
    plan: &mut HttpPlan,
    limits: &MachineLimits,
    fixed: FixedByUser,
    option: &str,
) -> Result<Vec<String>, Vec<String>> {
    // Computed before `fit` changes the plan.
    let max = max_connections(plan, limits, fixed);
    let advice = max.map(|max| format!("; or give {option} {max}, which fits")).unwrap_or_default();
    fit(plan, limits, fixed)
        .map_err(|refusals| refusals.into_iter().map(|refusal| refusal + &advice).collect())
}

/// Maximum number of connections that fit this machine, with the processes and addresses that [`fit`] would add; `None` if
/// the plan does not exceed it, or no connection fits.
fn max_connections(plan: &HttpPlan, limits: &MachineLimits, fixed: FixedByUser) -> Option<u64> {
    let ports = match loopback_sources(&plan.targets, 1) {
        Some(_) if !fixed.sources => limits.ports / 2 * MAX_SOURCES * plan.targets.len() as u64,
        _ => port_room(plan, limits),
    };
    let mut plan = plan.clone();
    let least = plan.processes.max(1);
    let most = if fixed.processes { least } else { least.max(max_processes(&plan, limits)) };
    // More processes add descriptors but take memory, so every number of them is tried.
    let rooms = (least..=most).map(|processes| {
        plan.processes = processes;
        // Reduced by an eighth, because available memory varies.
        let memory = memory_room(&plan, limits);
        descriptor_room(&plan, limits).min(memory - memory / 8)
    });
    let room = rooms.max().unwrap_or(0);
    let max = room.min(ports).min(time_room(&plan, limits));
    (1..plan.connections()).contains(&max).then_some(max)
}

/// Whether a trial that opened `opened` connections must reset them. After an orderly close the kernel keeps local ports for a
/// minute, and the next trial might run out of ports; ports still kept from earlier trials count as well. On loopback the kernel
/// frees them within a second.
pub(crate) fn must_reset_connections(plan: &HttpPlan, opened: u64) -> bool {
    let is_far = plan.targets.iter().any(|target| !target.ip().is_loopback());
    let kept = || {
        let sockets = kernel::counters::read_own("net/sockstat").ok()?;
        kernel::number(sockets.split_once(" tw ")?.1, "")
    };
    is_far
        && MachineLimits::read()
            .is_ok_and(|limits| opened + kept().unwrap_or(0) > port_room(plan, &limits) / 4)
}

/// Sets the number of worker processes that the connections need, or that can be started.
fn fit_processes(
    plan: &mut HttpPlan,
    connections: u64,
    limits: &MachineLimits,
    fixed: FixedByUser,
    notes: &mut Vec<String>,
) -> Result<(), String> {
    let hard = limits.hard_descriptors;
    let needed = connections.div_ceil(descriptors_for_connections(limits).max(1));
    let max = max_processes(plan, limits);
    if connections <= descriptor_room(plan, limits) {
        return Ok(());
    }
    let raised = connections.div_ceil(u64::from(plan.processes.max(1))) + OTHER_DESCRIPTORS;
    let raise = format!("raise the limit (as root: prlimit --nofile={raised}:{raised} --pid $$)");
    if fixed.processes {
        return Err(format!(
            "descriptors: {connections} connections in {} worker process(es) need {raised} descriptors each, and the hard \
             limit (ulimit -Hn) is {hard}; leave --processes out or give --processes {}, or {raise}",
            plan.processes,
            needed.min(u64::from(max)),
        ));
    }
    plan.processes = plan.processes.max(needed.min(u64::from(max)) as u32);
    if needed > u64::from(max) {
        return Err(format!(
            "descriptors: {connections} connections need {needed} worker processes, because each may have {hard} descriptors \
             (ulimit -Hn), and {max} can be started (ulimit -u, pids.max of the cgroup, memory, descriptors of the parent \
             process); {raise}"
        ));
    }
    notes.push(format!(
        "{needed} worker processes for {connections} connections, because a process may have {hard} descriptors"
    ));
    Ok(())
}

/// Adds the source addresses that the connections need, if the targets are on loopback.
fn fit_sources(
    plan: &mut HttpPlan,
    connections: u64,
    limits: &MachineLimits,
    fixed: FixedByUser,
    notes: &mut Vec<String>,
) -> Result<(), String> {
    let pairs = port_room(plan, limits);
    // connect() searches the ports of one parity before the others: beyond half of the ports, each connection takes tens of
    // microseconds longer.
    if connections <= pairs / 2 {
        return Ok(());
    }
    let half = (limits.ports / 2 * plan.targets.len() as u64).max(1);
    let needed = connections.div_ceil(half);
    match loopback_sources(&plan.targets, needed) {
        Some(sources) if !fixed.sources => {
            notes.push(format!(
                "{needed} source addresses {} to {} for {connections} connections, because an address has {} local ports \
                 towards a target, and the kernel quickly finds only half of them",
                sources[0],
                sources[sources.len() - 1],
                limits.ports
            ));
            plan.sources = sources;
            Ok(())
        }
        _ if connections <= pairs => Ok(()),
        _ => Err(format!(
            "ports: {connections} connections, and {} local ports × {} source address(es) × {} target address(es) \
             = {pairs}; widen the range of ports (as root: sysctl net.ipv4.ip_local_port_range=\"1024 65535\"), or give \
             {needed} addresses of this machine with --source",
            limits.ports,
            plan.sources.len().max(1),
            plan.targets.len(),
        )),
    }
}

/// Number of descriptors that a worker process has left for connections.
fn descriptors_for_connections(limits: &MachineLimits) -> u64 {
    limits.hard_descriptors - OTHER_DESCRIPTORS.min(limits.hard_descriptors / 2)
}

fn descriptor_room(plan: &HttpPlan, limits: &MachineLimits) -> u64 {
    descriptors_for_connections(limits).saturating_mul(u64::from(plan.processes.max(1)))
}

fn port_room(plan: &HttpPlan, limits: &MachineLimits) -> u64 {
    if plan.connection.unix_socket.is_some() {
        return u64::MAX;
    }
    limits.ports.saturating_mul(plan.sources.len().max(1) as u64).saturating_mul(plan.targets.len() as u64)
}

fn memory_room(plan: &HttpPlan, limits: &MachineLimits) -> u64 {
    limits.available_memory_bytes.saturating_sub(base_memory_bytes(plan)) / connection_memory_bytes(plan)
}

/// Number of users that can have connected when the load ends, each with its own connection.
fn time_room(plan: &HttpPlan, limits: &MachineLimits) -> u64 {
    match (&plan.load, plan.sending_ns()) {
        (LoadModel::Closed { .. }, Some(sending_ns)) => {
            let opened =
                u128::from(limits.cpus) * u128::from(OPENED_PER_S) * u128::from(sending_ns) / 1_000_000_000;
            u64::try_from(opened).unwrap_or(u64::MAX).max(1)
        }
        _ => u64::MAX,
    }
}

fn connection_memory_bytes(plan: &HttpPlan) -> u64 {
    if plan.tls.is_some() { TLS_CONNECTION_MEMORY_BYTES } else { CONNECTION_MEMORY_BYTES }
}

fn base_memory_bytes(plan: &HttpPlan) -> u64 {
    u64::from(plan.processes.max(1)).saturating_mul(process_memory_bytes(plan))
}

fn process_memory_bytes(plan: &HttpPlan) -> u64 {
    PROCESS_MEMORY_BYTES + u64::from(plan.threads.max(1) - 1).saturating_mul(THREAD_MEMORY_BYTES)
}

/// Maximum number of worker processes that can be started. Each takes two descriptors and a thread of the parent, and runs a
/// main thread and one more thread besides its workers.
fn max_processes(plan: &HttpPlan, limits: &MachineLimits) -> u32 {
    let by_tasks = limits.tasks / (u64::from(plan.threads) + 3);
    let by_memory = limits.available_memory_bytes / process_memory_bytes(plan);
    let max = by_tasks.min(by_memory).min(descriptors_for_connections(limits) / 2).min(MAX_PROCESSES);
    max.max(1) as u32
}

/// Removes workers that would have no connection, and returns a note about it. All processes have the same number of
/// threads, so some workers, fewer than there are processes, may stay idle.
fn remove_idle_workers(plan: &mut HttpPlan) -> Option<String> {
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
        "{} worker process(es) of {} thread(s), not {processes} of {threads}: each thread needs its own connections, and \
         there are only {connections}",
        plan.processes, plan.threads
    ))
}

/// Checks that this machine has a plan's source addresses and processors. Only for a load from this machine: hosts of a lab
/// have other addresses.
pub fn missing_here(plan: &HttpPlan) -> Vec<FieldMistake> {
    let addresses: Vec<IpAddr> = plan.sources.iter().copied().filter(|source| !is_local(*source)).collect();
    let processors = missing_processors(&plan.cpus);
    let mut mistakes = Vec::new();
    mistakes.extend(plan.connection.unix_socket.as_deref().and_then(unreachable_socket));
    if let [first, more @ ..] = &addresses[..] {
        let message = match more.len() {
            0 => format!("{first} is not an address of this machine; see `ip addr`"),
            more => format!("{first} and {more} more are not addresses of this machine; see `ip addr`"),
        };
        mistakes.push(FieldMistake { field: "source", message });
    }
    if !processors.is_empty() {
        let list: Vec<String> = processors.iter().map(ToString::to_string).collect();
        let message = format!(
            "no thread can be pinned to {}; choose from the processors of `taskset -p $$`",
            list.join(", ")
        );
        mistakes.push(FieldMistake { field: "cpus", message });
    }
    mistakes
}

/// The mistake if no client can connect to the socket at a path.
fn unreachable_socket(path: &Path) -> Option<FieldMistake> {
    let shown = path.display();
    let message = match fs::metadata(path) {
        Ok(there) if !there.file_type().is_socket() => format!("{shown} is not a socket"),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            format!("{shown}: permission denied; run as a user who may enter its folder")
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            format!("{shown} does not exist; is the service up?")
        }
        Ok(_) if access(path, Access::WRITE_OK).is_err() => {
            format!("{shown}: permission denied; run as a user who may write to it")
        }
        _ => return None,
    };
    Some(FieldMistake { field: "unix_socket", message })
}

/// Whether this machine has an address. Binding a UDP socket shows it without occupying a TCP port.
fn is_local(address: IpAddr) -> bool {
    let bound = UdpSocket::bind((address, 0));
    !bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
}

/// The processors to which no worker thread could be pinned.
fn missing_processors(cpus: &[u32]) -> Vec<u32> {
    if cpus.is_empty() {
        return Vec::new();
    }
    // Uses a separate thread, because that thread stays pinned.
    thread::scope(|scope| {
        let find = || cpus.iter().copied().filter(|&cpu| !pin_to(cpu)).collect::<Vec<u32>>();
        let thread = thread::Builder::new().spawn_scoped(scope, find);
        thread.ok().and_then(|thread| thread.join().ok()).unwrap_or_default()
    })
}

/// Pins the calling thread to a processor; false if that is impossible.
fn pin_to(cpu: u32) -> bool {
    if cpu as usize >= CpuSet::MAX_CPU {
        return false;
    }
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(None, &set).is_ok()
}

/// `count` loopback addresses, if all targets are on IPv4 loopback. This machine has all of 127/8.
fn loopback_sources(targets: &[SocketAddr], count: u64) -> Option<Vec<IpAddr>> {
    let all_loopback = !targets.is_empty()
        && targets.iter().all(|target| matches!(target.ip(), IpAddr::V4(ip) if ip.is_loopback()));
    let first = u32::from(Ipv4Addr::LOCALHOST);
    (all_loopback && count <= MAX_SOURCES)
        .then(|| (0..count as u32).map(|i| IpAddr::V4(Ipv4Addr::from(first + i))).collect())
}

#[cfg(test)]
mod tests;
