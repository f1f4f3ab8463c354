//! Before anything is sent: does the plan fit this machine?
//!
//! What the machine can give by itself (more worker processes, more source addresses on loopback) is
//! taken; for the rest the plan is refused with the numbers and the way out.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    thread,
};

use record::HttpPlan;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::{FieldMistake, host::Host};

/// Descriptors a worker process needs beside its connections: standard streams, epoll instances, files.
const OTHER_DESCRIPTORS: u64 = 64;
/// Memory of one open connection, ours and the kernel's, without data in its buffers; measured 2 to 3 KiB.
const CONNECTION_MEMORY_BYTES: u64 = 4 * 1024;

/// What the user asked for, and may not be changed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asked {
    /// The number of worker processes was given.
    pub processes: bool,
    /// Source addresses were given.
    pub sources: bool,
}

/// Fits a plan to the machine, and gives what was changed, in words.
///
/// # Errors
/// Everything that does not fit, each with the numbers and the way out.
pub fn fit(plan: &mut HttpPlan, host: &Host, asked: Asked) -> Result<Vec<String>, Vec<String>> {
    let mut notes = Vec::new();
    let mut refusals = Vec::new();
    let connections = plan.connections();

    let per_process = host.hard_descriptors.saturating_sub(OTHER_DESCRIPTORS);
    let needed = connections.div_ceil(per_process.max(1));
    if needed > u64::from(plan.processes) {
        if asked.processes || per_process == 0 || needed > 4_096 {
            refusals.push(format!(
                "descriptors: {connections} connections in {} worker process(es) need {} descriptors each, and the hard \
                 limit (ulimit -Hn) is {}; let proofload choose the processes (leave --processes out), raise the limit \
                 (as root: prlimit --nofile=N --pid $$), or use fewer connections",
                plan.processes,
                connections.div_ceil(u64::from(plan.processes.max(1))) + OTHER_DESCRIPTORS,
                host.hard_descriptors,
            ));
        } else {
            plan.processes = needed as u32;
            notes.push(format!(
                "{needed} worker processes: {connections} connections, and each process may have {} descriptors",
                host.hard_descriptors
            ));
        }
    }

    notes.extend(without_idle_workers(plan));

    let pairs = host.ports * plan.sources.len().max(1) as u64 * plan.targets.len() as u64;
    // connect() looks through half of the ports (one parity) before it takes one of the other: beyond half,
    // every connection costs tens of microseconds more.
    if connections > pairs / 2 {
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
            }
            _ if connections <= pairs => {}
            _ => refusals.push(format!(
                "ports: {connections} connections, and {} local ports × {} source address(es) × {} target address(es) \
                 = {pairs}; widen net.ipv4.ip_local_port_range, or give {more} addresses of this machine with --source",
                host.ports,
                plan.sources.len().max(1),
                plan.targets.len(),
            )),
        }
    }

    let memory_bytes = connections.saturating_mul(CONNECTION_MEMORY_BYTES);
    if memory_bytes > host.available_memory_bytes {
        refusals.push(format!(
            "memory: {connections} connections need about {} (4 KiB each, the kernel's part included), and {} are \
             available; use fewer connections or another machine",
            record::units::show_bytes(memory_bytes),
            record::units::show_bytes(host.available_memory_bytes),
        ));
    }

    // Workers without a processor of their own would only take it from each other by polling.
    if plan.threads.saturating_mul(plan.processes) > host.cpus {
        plan.spin_ns = 0;
    }

    if refusals.is_empty() { Ok(notes) } else { Err(refusals) }
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
        scope.spawn(tries).join().unwrap_or_default()
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
    (all_loopback && count < 60_000)
        .then(|| (0..count as u32).map(|i| IpAddr::V4(Ipv4Addr::from(first + i))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    const HOST: Host =
        Host { hard_descriptors: 256, ports: 28_232, available_memory_bytes: 1 << 30, cpus: 2 };

    #[test]
    fn more_processes_are_chosen_when_one_has_too_few_descriptors() {
        let mut plan = testing::closed(400);
        let notes = fit(&mut plan, &HOST, Asked::default()).unwrap();
        assert_eq!(plan.processes, 3);
        assert!(notes[0].contains("256"), "{notes:?}");
    }

    #[test]
    fn a_fixed_number_of_processes_is_refused_with_the_numbers() {
        let mut plan = testing::closed(400);
        let refusals = fit(&mut plan, &HOST, Asked { processes: true, ..Asked::default() }).unwrap_err();
        assert!(refusals[0].contains("464") && refusals[0].contains("256"), "{refusals:?}");
    }

    #[test]
    fn no_worker_is_without_a_connection() {
        for (users, asked, fitted) in [
            (1, (1, 8), (1, 1)),
            (3, (1, 8), (1, 3)),
            (3, (2, 2), (2, 2)),
            (15, (8, 2), (8, 2)),
            (9, (4, 8), (4, 3)),
            (3, (4, 2), (3, 1)),
            (16, (2, 8), (2, 8)),
        ] {
            let (processes, threads) = asked;
            let mut plan = HttpPlan { processes, threads, ..testing::closed(users) };
            let notes = fit(&mut plan, &HOST, Asked::default()).unwrap();
            assert_eq!((plan.processes, plan.threads), fitted, "{users}");
            assert_eq!(notes.len(), usize::from(asked != fitted), "{notes:?}");
            let mut open = HttpPlan { processes, threads, ..testing::open(1e3, 1, users) };
            fit(&mut open, &HOST, Asked::default()).unwrap();
            assert_eq!((open.processes, open.threads), fitted, "{users}");
        }
    }

    #[test]
    fn loopback_gets_more_source_addresses_and_other_targets_a_refusal() {
        let host = Host { hard_descriptors: 20_000, available_memory_bytes: 1 << 34, ..HOST };
        let mut plan = testing::closed(200_000);
        fit(&mut plan, &host, Asked::default()).unwrap();
        assert_eq!((plan.processes, plan.sources.len()), (11, 15));

        let mut many = testing::closed(18_000);
        fit(&mut many, &host, Asked::default()).unwrap();
        assert_eq!((many.processes, many.sources.len()), (1, 2));

        let mut far = testing::closed(30_000);
        far.targets = vec!["192.0.2.1:80".parse().unwrap()];
        let refusals = fit(&mut far, &host, Asked::default()).unwrap_err();
        assert!(refusals[0].contains("--source"), "{refusals:?}");
    }

    #[test]
    fn what_this_machine_has_not_is_told_by_its_field() {
        let mut plan = testing::closed(1);
        plan.sources = vec!["127.0.0.9".parse().unwrap()];
        assert!(missing_here(&plan).is_empty());
        // Of a block that is kept for documentation (RFC 5737).
        plan.sources.push("192.0.2.9".parse().unwrap());
        plan.cpus = vec![4_095];
        let told: Vec<_> = missing_here(&plan).into_iter().map(|m| (m.field, m.message)).collect();
        assert_eq!(told[0].0, "source");
        assert_eq!(told[0].1, "192.0.2.9 is no address of this machine; see `ip addr`");
        assert!(told[1].0 == "cpus" && told[1].1.contains("pinned to 4095"), "{told:?}");
        plan.sources.push("192.0.2.10".parse().unwrap());
        assert!(missing_here(&plan)[0].message.starts_with("192.0.2.9 and 1 more are no addresses"));
    }

    #[test]
    fn everything_that_does_not_fit_is_said_at_once() {
        let host = Host { available_memory_bytes: 1 << 20, ..HOST };
        let mut plan = testing::closed(30_000);
        let asked = Asked { processes: true, sources: true };
        assert_eq!(fit(&mut plan, &host, asked).unwrap_err().len(), 3);
    }
}
