//! Finds the hosts that make the load of a setting.

use std::ops::Range;

use settings::{Reader, Value};

use super::{
    balancers,
    resolver::{ResolvedHosts, Resolver},
    targets::TargetTable,
};

impl Resolver<'_> {
    /// Indices of the hosts that make the load.
    pub(super) fn from(
        &self,
        reader: &mut Reader<'_>,
        hosts: &ResolvedHosts,
        given: Option<&Value<'_>>,
        workload: &Range<usize>,
    ) -> Option<Vec<usize>> {
        if let Some(value) = given {
            let from = hosts.groups.read_hosts(reader, value);
            return (!from.is_empty()).then_some(from);
        }
        if let [_] = hosts.plan.hosts[..] {
            return Some(vec![0]);
        }
        let written = self.tree.get("hosts").and_then(|hosts| hosts.get_ref().as_table());
        let names = written.into_iter().flatten().map(|(name, _)| name.get_ref().as_ref());
        let targets: Vec<usize> = self
            .targets
            .list
            .iter()
            .flat_map(TargetTable::on)
            .chain(balancers::on(self.tree))
            .flat_map(|name| hosts.groups.members_of(name).unwrap_or_default())
            .collect();
        let free = names.filter_map(|name| {
            let members = hosts.groups.members_of(name)?;
            (!members.iter().any(|host| targets.contains(host))).then_some((name, members))
        });
        let mut free: Vec<(&str, Vec<usize>)> = free.collect();
        if let [_] = free[..] {
            return free.pop().map(|(_, members)| members);
        }
        let names: Vec<&str> = free.iter().map(|(name, _)| *name).collect();
        let which =
            if names.is_empty() { String::new() } else { format!(", such as {}", names.join(" or ")) };
        reader.refuse(
            workload.clone(),
            format!("'from' is missing: the host or hosts that the load comes from{which}"),
        )
    }
}
