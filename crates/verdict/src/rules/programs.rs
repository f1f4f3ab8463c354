//! Which processes belong to the target.

use std::{collections::BTreeSet, net::SocketAddr};

use record::{HostCounters, ListenerUse, ProgramUse};

use super::{is_asked, target_hosts};
use crate::Observed;

/// Programs that ask each other are followed this far.
pub(crate) const DEEPEST: usize = 4;

/// A process with its host.
pub(crate) type Process<'a> = (&'a HostCounters, &'a ProgramUse);

/// The processes that receive the requests; all processes of the targets that listen if a NAT hides them.
pub(crate) fn asked_programs<'a>(observed: &'a Observed<'_>) -> Vec<Process<'a>> {
    let (asked, others): (Vec<_>, Vec<_>) = of_hosts(observed)
        .filter(|(_, (_, program))| !program.listens.is_empty())
        .partition(|(_, (_, program))| program.listens.iter().any(|address| is_asked(observed, address)));
    if asked.is_empty() {
        return others.into_iter().filter(|(is_both, _)| !is_both).map(|(_, process)| process).collect();
    }
    asked.into_iter().map(|(_, process)| process).collect()
}

/// The processes of the targets: those that receive the requests, and those that were asked for them. On hosts that only belong to the
/// target, also those whose part in it cannot be seen; not those that listen and that nobody was connected to.
pub(crate) fn target_programs<'a>(observed: &'a Observed<'_>) -> Vec<Process<'a>> {
    let path = path(observed);
    let is_unused = |(host, program): &Process<'_>| {
        let has_none = |at: &String| {
            host.listeners.get(at).is_some_and(|queue| queue.most_connections + queue.most_waiting == 0)
        };
        let seen: u32 = host.listeners.values().map(|queue| queue.most_connections).sum();
        let is_known = seen < ListenerUse::MOST_SAMPLED && !host.counters.missing.contains_key("connections");
        is_known && !program.listens.is_empty() && program.listens.iter().all(has_none)
    };
    let is_of_target = |is_both: bool, process: &Process<'a>| {
        path.contains(&id(process)) || !is_both && (path.is_empty() || !is_unused(process))
    };
    let all = of_hosts(observed).filter(|(is_both, process)| is_of_target(*is_both, process));
    all.map(|(_, process)| process).collect()
}

/// The processes in which requests were seen: those that receive them, and those that were asked meanwhile.
pub(super) fn path<'a>(observed: &'a Observed<'_>) -> BTreeSet<(&'a str, u32)> {
    let mut last = asked_programs(observed);
    let mut path: BTreeSet<(&str, u32)> = last.iter().map(id).collect();
    for _ in 0..DEEPEST {
        let behind = last.iter().flat_map(|(host, program)| {
            let near = BTreeSet::from([host.host.as_str()]);
            program.asked.keys().flat_map(move |address| programs_at(observed, address, &near))
        });
        last = behind.filter(|process| path.insert(id(process))).collect();
    }
    path
}

/// The processes that listen at an address that programs of these hosts asked: those at exactly this address, or else at any address of
/// its port, on the asking host for an address of the loopback device, and on others for every other one.
pub(crate) fn programs_at<'a>(
    observed: &'a Observed<'_>,
    address: &str,
    asking: &BTreeSet<&str>,
) -> Vec<Process<'a>> {
    let Ok(asked) = address.parse::<SocketAddr>() else { return Vec::new() };
    let ip = asked.ip().to_canonical();
    let listens = |is_it: &dyn Fn(&HostCounters, SocketAddr) -> bool| -> Vec<_> {
        let all =
            observed.counters.hosts.iter().flat_map(|host| host.programs.iter().map(move |one| (host, one)));
        let at = |(host, program): &Process<'_>| {
            let addresses = program.listens.iter().filter_map(|at| at.parse::<SocketAddr>().ok());
            addresses.into_iter().any(|at| at.port() == asked.port() && is_it(host, at))
        };
        all.filter(at).collect()
    };
    let exact = listens(&|_, at| at.ip().to_canonical() == ip);
    if !exact.is_empty() && !ip.is_loopback() {
        return exact;
    }
    let is_alone = observed.counters.hosts.len() == 1;
    let is_near = |host: &HostCounters| asking.contains(host.host.as_str()) == (ip.is_loopback() || is_alone);
    listens(&|host, at| is_near(host) && (at.ip().is_unspecified() || at.ip().to_canonical() == ip))
}

/// What identifies a process.
pub(super) fn id<'a>((host, program): &Process<'a>) -> (&'a str, u32) {
    (&host.host, program.pid)
}

/// All processes of the targets' hosts, with whether the host has other programs as well.
fn of_hosts<'a>(observed: &'a Observed<'_>) -> impl Iterator<Item = (bool, Process<'a>)> {
    target_hosts(observed)
        .flat_map(|(host, is_both)| host.programs.iter().map(move |program| (is_both, (host, program))))
}
