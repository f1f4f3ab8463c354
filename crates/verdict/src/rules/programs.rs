//! Which processes belong to the target.

use std::{collections::BTreeSet, net::SocketAddr};

use record::{HostCounters, ProgramUse};

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
        let has_none = |at: &String| host.listeners.get(at).is_some_and(|queue| queue.most_connections == 0);
        let is_known = !host.is_cut && !host.counters.missing.contains_key("connections");
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
            program.asked.keys().flat_map(move |address| programs_at(observed, address, &host.host))
        });
        last = behind.filter(|process| path.insert(id(process))).collect();
    }
    path
}

/// The processes that listen at an address that a program of this host asked. A socket that listens at all addresses is asked where
/// connections to that address were seen.
pub(crate) fn programs_at<'a>(observed: &'a Observed<'_>, address: &str, asking: &str) -> Vec<Process<'a>> {
    let Ok(asked) = address.parse::<SocketAddr>() else { return Vec::new() };
    let ip = asked.ip();
    let is_asked = |host: &HostCounters, at: &String| {
        let Ok(listens) = at.parse::<SocketAddr>() else { return false };
        let is_reached =
            host.listeners.get(at).is_some_and(|queue| queue.reached_at.contains(&ip.to_string()));
        let is_at = listens.ip().to_canonical() == ip || listens.ip().is_unspecified() && is_reached;
        is_at && listens.port() == asked.port() && (!ip.is_loopback() || host.host == asking)
    };
    let hosts = observed.counters.hosts.iter();
    let all = hosts.flat_map(|host| host.programs.iter().map(move |program| (host, program)));
    all.filter(|(host, program)| program.listens.iter().any(|at| is_asked(host, at))).collect()
}

/// What identifies a process.
pub(crate) fn id<'a>((host, program): &Process<'a>) -> (&'a str, u32) {
    (&host.host, program.pid)
}

/// All processes of the targets' hosts, with whether the host has other programs as well.
fn of_hosts<'a>(observed: &'a Observed<'_>) -> impl Iterator<Item = (bool, Process<'a>)> {
    target_hosts(observed)
        .flat_map(|(host, is_both)| host.programs.iter().map(move |program| (is_both, (host, program))))
}
