//! Reads the workload's kind and the names of placeholders from a study's tables before they are parsed.

use std::collections::BTreeSet;

use record::Kind;
use toml::de::DeTable;

use super::placeholders;

pub(super) fn kind_of(tree: &DeTable<'_>) -> Kind {
    let workload = tree.get("workload").and_then(|workload| workload.get_ref().as_table());
    if workload.is_some_and(|workload| workload.contains_key("command")) { Kind::Command } else { Kind::Http }
}

/// The table of the workload's kind: `http` or `command`.
pub(super) fn workload_table<'d>(tree: &'d DeTable<'_>) -> Option<&'d DeTable<'d>> {
    let workload = tree.get("workload")?.get_ref().as_table()?;
    workload.get("http").or_else(|| workload.get("command"))?.get_ref().as_table()
}

/// Names of all placeholders in these tables.
pub(super) fn placeholder_names<'d>(tree: &'d DeTable<'d>, tables: &[&str]) -> BTreeSet<&'d str> {
    let mut names = BTreeSet::new();
    for key in tables {
        let Some(value) = tree.get(*key) else { continue };
        placeholders::for_each_text(value, &mut |_, text| names.extend(placeholders::names(text)));
    }
    names
}
