//! Routes from the load to the target, and the addresses of hosts in commands.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use lab::plan::{Plan, Program};
use load::HttpWorkload;
use settings::{Network, Reader};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    placeholders,
    resolver::LOCAL,
    targets::{ResolvedTarget, TargetLocation, insert},
};

/// Spreads the connections over all hosts of the target, unless the URL names another authority.
pub(super) fn connect_to_all_hosts(
    workload: &mut HttpWorkload,
    target: Option<&ResolvedTarget>,
    authority: Option<&str>,
    address_of: &dyn Fn(usize) -> Option<IpAddr>,
) {
    let Some(TargetLocation::Hosts { hosts, port }) = target.map(|target| &target.location) else { return };
    let goes_there = authority.is_some_and(|authority| {
        let url = ["http://", "https://"].iter().find_map(|scheme| workload.url.strip_prefix(scheme));
        // User info may precede the host in the URL.
        url.and_then(|url| url.split('/').next()).and_then(|url| url.rsplit('@').next()) == Some(authority)
    });
    let has_way = workload.connect_to.is_some() || workload.proxy.is_some() || workload.unix_socket.is_some();
    if hosts.len() > 1 && goes_there && !has_way {
        let all =
            hosts.iter().filter_map(|host| Some(SocketAddr::new(address_of(*host)?, *port).to_string()));
        workload.connect_to = Some(all.collect::<Vec<_>>().join(","));
    }
}

/// Assigns all processes of a study without hosts to its only host.
pub(super) fn place_on_local_host(table: &mut DeTable<'_>) {
    let Some(DeValue::Array(processes)) = table.get_mut("processes").map(Spanned::get_mut) else { return };
    for process in processes.iter_mut() {
        let at = process.span();
        if let DeValue::Table(process) = process.get_mut()
            && !process.contains_key("on")
        {
            insert(process, "on", at, DeValue::String(Cow::Borrowed(LOCAL)));
        }
    }
}

/// Reports each host of the load that cannot reach the target; returns true if all can.
pub(super) fn check_routes(
    reader: &mut Reader<'_>,
    plan: &Plan,
    from: &[usize],
    target: &ResolvedTarget,
) -> bool {
    let TargetLocation::Hosts { hosts, .. } = &target.location else { return true };
    for &host in hosts {
        let unreachable = from.iter().find(|&&from| from != host && !reaches(plan, from, host));
        if let Some(&lost) = unreachable {
            let message = format!(
                "'{}' has no route to '{}' on '{}': join them by a link, or give routes",
                plan.hosts[lost].name, target.label.name, plan.hosts[host].name
            );
            reader.mistake(target.span.clone(), message);
            return false;
        }
    }
    true
}

fn reaches(plan: &Plan, from: usize, target: usize) -> bool {
    let Some(address) = plan.address_of(target) else { return false };
    let within = |network, prefix| Network { address: network, prefix }.contains(address);
    plan.ends_of(from).any(|(link, _)| within(link.network, link.prefix))
        || plan.hosts[from].routes.iter().any(|route| within(route.to, route.prefix))
}

/// Substitutes addresses for the placeholders that are left in commands. A host's name takes precedence over the target's, because the lab
/// already substitutes hosts in its own commands.
pub(super) fn fill_in_addresses(plan: &mut Plan, target: Option<&ResolvedTarget>, authority: Option<&str>) {
    let addresses: BTreeMap<String, String> = plan
        .hosts
        .iter()
        .enumerate()
        .map(|(number, host)| {
            let address = plan.address_of(number).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
            (host.name.clone(), address.to_string())
        })
        .collect();
    for process in &mut plan.processes {
        let address = plan.hosts.get(process.host).and_then(|host| addresses.get(&host.name));
        let lookup = |name: &str| {
            if name == "self" {
                return address.cloned();
            }
            let target = || authority.filter(|_| target.is_some_and(|target| target.label.name == name));
            addresses.get(name).cloned().or_else(|| target().map(str::to_owned))
        };
        let words = match &mut process.program {
            Program::Command(words) => words,
            Program::Known(known) => &mut known.args,
        };
        for word in words.iter_mut().chain(process.environment.values_mut()) {
            *word = placeholders::expand(word, &lookup);
        }
        // The mask knows the secrets as the file writes them; teach it the form that the process receives.
        for (name, value) in &process.environment {
            secrets::mask::learn_variable(name, value);
        }
    }
}
