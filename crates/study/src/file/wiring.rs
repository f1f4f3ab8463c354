//! How the load gets to its target, and addresses to those that need them.

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
    ground::LOCAL,
    places,
    targets::{Place, Standing, insert},
};

/// A target on several hosts gets connections on all of them, unless the workload goes somewhere else.
pub(super) fn spread(
    workload: &mut HttpWorkload,
    standing: Option<&Standing>,
    authority: Option<&str>,
    see: &dyn Fn(usize) -> Option<IpAddr>,
) {
    let Some(Place::Hosts { hosts, port }) = standing.map(|standing| &standing.place) else { return };
    let goes_there = authority.is_some_and(|authority| {
        let url = workload.url.strip_prefix("http://").and_then(|url| url.split('/').next());
        // Behind the user info, if there is one.
        url.and_then(|url| url.rsplit('@').next()) == Some(authority)
    });
    if hosts.len() > 1 && goes_there && workload.connect_to.is_none() {
        let all = hosts.iter().filter_map(|host| Some(SocketAddr::new(see(*host)?, *port).to_string()));
        workload.connect_to = Some(all.collect::<Vec<_>>().join(","));
    }
}

/// Processes of a study without hosts run on its only one.
pub(super) fn put_on_local(table: &mut DeTable<'_>) {
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

/// Whether the load can reach the target at all.
pub(super) fn check_ways(reader: &mut Reader<'_>, plan: &Plan, from: &[usize], standing: &Standing) -> bool {
    let Place::Hosts { hosts, .. } = &standing.place else { return true };
    for &target in hosts {
        let lost = from.iter().find(|&&from| from != target && !reaches(plan, from, target));
        if let Some(&lost) = lost {
            let message = format!(
                "'{}' has no way to '{}' on '{}': join them by a link, or give routes",
                plan.hosts[lost].name, standing.target.name, plan.hosts[target].name
            );
            reader.mistake(standing.span.clone(), message);
            return false;
        }
    }
    true
}

fn reaches(plan: &Plan, from: usize, target: usize) -> bool {
    let Some(address) = plan.address_of(target) else { return false };
    let within = |address_of, prefix| Network { address: address_of, prefix }.contains(address);
    plan.ends_of(from).any(|(link, _)| within(link.network, link.prefix))
        || plan.hosts[from].routes.iter().any(|route| within(route.to, route.prefix))
}

/// Puts addresses in the places that are still in the processes' words. In commands the lab itself knows the
/// names of its hosts, which come before a target's.
pub(super) fn finish_commands(plan: &mut Plan, standing: Option<&Standing>, authority: Option<&str>) {
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
        let own = plan.hosts.get(process.host).and_then(|host| addresses.get(&host.name));
        let stands_for = |name: &str| {
            if name == "self" {
                return own.cloned();
            }
            let target =
                || authority.filter(|_| standing.is_some_and(|standing| standing.target.name == name));
            addresses.get(name).cloned().or_else(|| target().map(str::to_owned))
        };
        let words = match &mut process.program {
            Program::Command(words) => words,
            Program::Known(known) => &mut known.args,
        };
        for word in words.iter_mut().chain(process.environment.values_mut()) {
            *word = places::finished(word, &stands_for);
        }
        // Again, as the process gets them.
        for (name, value) in &process.environment {
            secrets::mask::learn_variable(name, value);
        }
    }
}
