//! What a study's tables say before any of them is read.

use std::collections::BTreeSet;

use record::Kind;
use toml::de::DeTable;

use super::places;

/// The kind of a study's workload.
pub(super) fn kind_of(tree: &DeTable<'_>) -> Kind {
    let workload = tree.get("workload").and_then(|workload| workload.get_ref().as_table());
    match workload.is_some_and(|workload| workload.contains_key("command")) {
        true => Kind::Command,
        false => Kind::Http,
    }
}

/// The names that stand in places of texts in these tables.
pub(super) fn names_in_places<'d>(tree: &'d DeTable<'d>, tables: &[&str]) -> BTreeSet<&'d str> {
    let mut names = BTreeSet::new();
    for key in tables {
        let Some(value) = tree.get(*key) else { continue };
        places::each_text(value, &mut |_, text| names.extend(places::names(text)));
    }
    names
}
