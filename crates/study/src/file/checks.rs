//! Checks of a study as a whole.

use std::collections::BTreeSet;

use lab::plan::KnownKind;
use record::{Kind, Setting};
use settings::{Reader, suggestion};
use toml::{Spanned, de::DeTable};

use crate::workload::RUNTIME_PLACEHOLDERS;

use super::{
    actions, balancers,
    kind::{kind_of, placeholder_names, workload_table},
    outline::Outline,
    placeholders::{self, TARGET_FOLDER},
    resolver::{LEVEL_TABLES, Resolver},
    tuning,
};

/// Reports unknown placeholders.
pub(super) fn placeholders(reader: &mut Reader<'_>, resolver: &Resolver<'_>) {
    let (tree, outline) = (resolver.tree, resolver.outline);
    let hosts = tree.get("hosts").and_then(|hosts| hosts.get_ref().as_table());
    let hosts: Vec<(&str, bool)> = hosts
        .into_iter()
        .flatten()
        .map(|(name, host)| {
            let is_group = host.get_ref().as_table().is_some_and(|host| host.contains_key("count"));
            (name.get_ref().as_ref(), is_group)
        })
        .collect();
    for part in
        ["hosts", "links", "processes", "targets", balancers::NAME, actions::NAME, "workload", "audit"]
    {
        let Some(value) = tree.get(part) else { continue };
        let mut allowed = vec!["study_folder", "proofload"];
        match part {
            "targets" => allowed.extend(["self", "port", TARGET_FOLDER]),
            "audit" => allowed.push(TARGET_FOLDER),
            "processes" | actions::NAME => allowed.push("self"),
            "workload" if kind_of(tree) == Kind::Command => {
                allowed.extend(RUNTIME_PLACEHOLDERS.map(|(name, _)| name))
            }
            _ => {}
        }
        if ["processes", "targets", "workload"].contains(&part) {
            allowed.extend(KnownKind::all_written_files());
        }
        placeholders::for_each_text(value, &mut |value, text| {
            for name in placeholders::names(text) {
                let is_known = allowed.contains(&name)
                    || outline.factors.get(name).is_some()
                    || resolver.targets.get(name).is_some();
                if is_known {
                    continue;
                }
                let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
                let message = match hosts.iter().find(|(host, _)| *host == name || *host == stem) {
                    Some((host, false)) if *host == name => continue,
                    Some((_, true)) if stem != name => continue,
                    Some((host, true)) => {
                        format!("'{host}' is a group of hosts; name one of them, such as {{{host}1}}")
                    }
                    _ => {
                        let names = outline.factors.names().chain(resolver.targets.names());
                        let names =
                            names.chain(hosts.iter().map(|(host, _)| *host)).chain(allowed.iter().copied());
                        let hint = suggestion(name, names);
                        format!(
                            "'{{{name}}}' is not a factor, target or host{hint} (for a literal {{{name}}}, \
                             write {{{{{name}}}}})"
                        )
                    }
                };
                reader.mistake(value.span(), message);
            }
        });
    }
}

/// Reports factors that change nothing.
pub(super) fn factors(reader: &mut Reader<'_>, resolver: &Resolver<'_>) {
    let (tree, outline) = (resolver.tree, resolver.outline);
    let mut named = placeholder_names(tree, &LEVEL_TABLES);
    named.extend(placeholder_names(tree, &["audit"]));
    let conditions = outline.factors.list.iter().flat_map(|factor| &factor.when);
    let searched = outline.search.iter().flat_map(|search| &search.when);
    let in_conditions: BTreeSet<&str> =
        conditions.chain(searched).map(|condition| condition.factor.as_str()).collect();
    for factor in &outline.factors.list {
        let is_varied = || outline.search.as_ref().is_some_and(|search| search.factor == Some(factor.name));
        let is_reported = !factor.has_valid_name || (factor.searched && !is_varied());
        let is_tuning = factor.name == tuning::NAME && tree.contains_key(tuning::NAME);
        if is_reported || is_tuning || named.contains(factor.name) || resolver.sets_key(factor.name) {
            continue;
        }
        if !in_conditions.contains(factor.name) || factor.searched {
            let name = factor.name;
            let message = format!(
                "the factor '{name}' changes nothing: write {{{name}}} where its levels belong, or give it the name of a \
                 key of the workload's table"
            );
            reader.mistake(factor.span.clone(), message);
        }
    }
}

/// Reports overrides of keys that a factor or the search sets in every setting, because such an override changes nothing.
pub(super) fn overridden(reader: &mut Reader<'_>, resolver: &Resolver<'_>, settings: &[Setting]) {
    let searched_key = resolver.outline.search.as_ref().and_then(|search| search.search.unit.key());
    // A study can have thousands of settings, so check only the overridden keys against them.
    let keys = workload_table(resolver.tree)
        .into_iter()
        .flatten()
        .filter(|(_, value)| !reader.is_in_file(&value.span()));
    let overridden: Vec<_> = keys.collect();
    for (key, value) in overridden {
        let key = key.get_ref().as_ref();
        let by_factor = |setting: &Setting| resolver.sets_key(key) && setting.levels.contains_key(key);
        let by_search = |setting: &Setting| setting.searched && searched_key == Some(key);
        let is_replaced = settings.iter().all(|setting| by_factor(setting) || by_search(setting));
        if settings.is_empty() || !is_replaced {
            continue;
        }
        let levels = format!("give its levels with --set {key}=…");
        let ends = "give its ends with --set search.min=… and --set search.max=…";
        let message = match (settings.iter().any(by_factor), settings.iter().any(by_search)) {
            (true, false) => format!("the factor '{key}' replaces this value in every setting: {levels}"),
            (false, _) => format!("the search of '{key}' replaces this value in every setting: {ends}"),
            (true, true) => {
                format!(
                    "the factor '{key}' or the search replaces this value in every setting: {levels}, {ends}"
                )
            }
        };
        reader.mistake(value.span(), message);
    }
}

/// Reports a search whose condition holds in no setting.
pub(super) fn searched(reader: &mut Reader<'_>, outline: &Outline<'_>, settings: &[Setting]) {
    if let Some(search) = &outline.search
        && outline.has_valid_factors
        && !outline.factors.are_overridden()
        && search.when.iter().all(|condition| outline.factors.get(&condition.factor).is_some())
        && !settings.is_empty()
        && !settings.iter().any(|setting| setting.searched)
    {
        reader.mistake(search.span.clone(), "no setting is searched: 'when' holds in none; change it");
    }
}

/// Reports targets that no setting uses. `chosen` has the target of each setting, `None` if unknown.
pub(super) fn targets(reader: &mut Reader<'_>, resolver: &Resolver<'_>, chosen: &[Option<&str>]) {
    if resolver.outline.factors.are_overridden() || !chosen.iter().all(Option::is_some) {
        return;
    }
    for target in resolver.targets.list.iter().filter(|target| !target.is_optional) {
        if !chosen.is_empty() && !chosen.contains(&Some(target.name)) {
            let message = format!(
                "no setting has the target '{}': choose it by 'target', make it optional, or leave it out",
                target.name
            );
            reader.mistake(target.span.clone(), message);
        }
    }
}

/// Reports texts that name a target which is not part of their setting.
pub(super) fn named_targets(
    reader: &mut Reader<'_>,
    table: &DeTable<'_>,
    resolver: &Resolver<'_>,
    chosen: Option<&str>,
    is_host: &dyn Fn(&str) -> bool,
) {
    for (_, value) in table {
        let value: &Spanned<_> = value;
        placeholders::for_each_text(value, &mut |value, text| {
            for name in placeholders::names(text) {
                if chosen != Some(name) && resolver.targets.get(name).is_some() && !is_host(name) {
                    let runs =
                        chosen.map_or_else(String::new, |chosen| format!(" where '{chosen}' is the target"));
                    reader.mistake(value.span(), format!("the target '{name}' does not run{runs}"));
                }
            }
        });
    }
}
