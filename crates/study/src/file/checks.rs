//! What must hold of a study as a whole.

use std::collections::BTreeSet;

use lab::plan::KnownKind;
use record::{Kind, Setting};
use settings::{Reader, suggestion};
use toml::{Spanned, de::DeTable};

use crate::workload::LATE_PLACES;

use super::{
    ground::{Ground, WITH_PLACES},
    kind::{kind_of, names_in_places},
    outline::Outline,
    places::{self, TARGET_FOLDER},
};

/// Balancers that a factor of that name is to put between clients and targets.
const BALANCERS: [&str; 3] = ["haproxy", "l2dsr", "lvs"];

/// Names in texts that stand for nothing.
pub(super) fn places(
    reader: &mut Reader<'_>,
    tree: &DeTable<'_>,
    outline: &Outline<'_>,
    ground: &Ground<'_>,
) {
    let hosts = tree.get("hosts").and_then(|hosts| hosts.get_ref().as_table());
    let hosts: Vec<(&str, bool)> = hosts
        .into_iter()
        .flatten()
        .map(|(name, host)| {
            let is_group = host.get_ref().as_table().is_some_and(|host| host.contains_key("count"));
            (name.get_ref().as_ref(), is_group)
        })
        .collect();
    for part in ["hosts", "links", "processes", "targets", "workload", "audit"] {
        let Some(value) = tree.get(part) else { continue };
        let mut own = vec!["study_folder"];
        match part {
            "targets" => own.extend(["self", "port", TARGET_FOLDER]),
            "audit" => own.push(TARGET_FOLDER),
            "processes" => own.push("self"),
            "workload" if kind_of(tree) == Kind::Command => own.extend(LATE_PLACES.map(|(name, _)| name)),
            _ => {}
        }
        if ["processes", "targets", "workload"].contains(&part) {
            own.extend(KnownKind::all_written_files());
        }
        places::each_text(value, &mut |value, text| {
            for name in places::names(text) {
                let is_known = own.contains(&name)
                    || outline.factors.get(name).is_some()
                    || ground.targets.get(name).is_some();
                if is_known {
                    continue;
                }
                let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
                let message = match hosts.iter().find(|(host, _)| *host == name || *host == stem) {
                    Some((host, false)) if *host == name => continue,
                    Some((_, true)) if stem != name => continue,
                    Some((host, true)) => {
                        format!("'{host}' is several hosts; name one of them, such as {{{host}1}}")
                    }
                    _ => {
                        let names = outline.factors.names().chain(ground.targets.names());
                        let names =
                            names.chain(hosts.iter().map(|(host, _)| *host)).chain(own.iter().copied());
                        let hint = suggestion(name, names);
                        format!(
                            "'{{{name}}}' stands for no factor, target or host{hint} (for these characters themselves, \
                             write {{{{{name}}}}})"
                        )
                    }
                };
                reader.mistake(value.span(), message);
            }
        });
    }
}

/// Factors that change nothing.
pub(super) fn factors(
    reader: &mut Reader<'_>,
    tree: &DeTable<'_>,
    outline: &Outline<'_>,
    ground: &Ground<'_>,
) {
    let mut named = names_in_places(tree, &WITH_PLACES);
    named.extend(names_in_places(tree, &["audit"]));
    let conditions = outline.factors.list.iter().flat_map(|factor| &factor.when);
    let searched = outline.search.iter().flat_map(|search| &search.when);
    let asked: BTreeSet<&str> = conditions.chain(searched).map(|condition| condition.factor()).collect();
    for factor in &outline.factors.list {
        let is_varied = || outline.search.as_ref().is_some_and(|search| search.factor == Some(factor.name));
        let is_told = !factor.has_sound_name || (factor.searched && !is_varied());
        if is_told || named.contains(factor.name) || ground.sets_a_key(factor.name) {
            continue;
        }
        let is_balancer = |level: &str| BALANCERS.contains(&level);
        let levels = || factor.levels.iter().map(|(level, value)| (level.to_string(), value.span()));
        if factor.name == "balancer" && levels().any(|(level, _)| is_balancer(&level)) {
            for (level, span) in levels() {
                let way = if level == "haproxy" {
                    "; make HAProxy a target or a process of its own, with the web hosts as its backends"
                } else {
                    "; leave this level out"
                };
                let message =
                    format!("a balancer '{level}' between clients and target is not built yet{way}");
                reader.mistake(span, message);
            }
        } else if !asked.contains(factor.name) || factor.searched {
            let name = factor.name;
            let message = format!(
                "the factor '{name}' changes nothing: write {{{name}}} where its levels belong, or give it the name of a \
                 key of the workload's table"
            );
            reader.mistake(factor.span.clone(), message);
        }
    }
}

/// Values given beside the file for keys whose values every setting has from a factor or from the search: they would
/// change nothing.
pub(super) fn overridden(
    reader: &mut Reader<'_>,
    tree: &DeTable<'_>,
    outline: &Outline<'_>,
    ground: &Ground<'_>,
) {
    let workload = tree.get("workload").and_then(|workload| workload.get_ref().as_table());
    let http = workload
        .and_then(|workload| workload.get("http").or_else(|| workload.get("command"))?.get_ref().as_table());
    for (key, value) in http.into_iter().flatten() {
        let key = key.get_ref().as_ref();
        let factor = outline.factors.get(key).filter(|factor| factor.when.is_empty());
        let search = outline.search.as_ref().filter(|search| search.when.is_empty());
        let message = match (factor, search) {
            _ if reader.is_in_file(&value.span()) => continue,
            (Some(factor), _) if ground.sets_a_key(factor.name) => {
                format!(
                    "the factor '{key}' has this value in every setting: give its levels with --set {key}=…"
                )
            }
            (_, Some(search)) if search.search.unit.key() == Some(key) => format!(
                "the search varies '{key}' in every setting: give its ends with --set search.min=… and --set search.max=…"
            ),
            _ => continue,
        };
        reader.mistake(value.span(), message);
    }
}

/// A search that none of the settings has.
pub(super) fn searched(reader: &mut Reader<'_>, outline: &Outline<'_>, settings: &[Setting]) {
    if let Some(search) = &outline.search
        && outline.has_sound_factors
        && !outline.factors.are_overridden()
        && search.when.iter().all(|condition| outline.factors.get(condition.factor()).is_some())
        && !settings.is_empty()
        && !settings.iter().any(|setting| setting.searched)
    {
        reader.mistake(search.span.clone(), "no setting is searched: its 'when' holds in none");
    }
}

/// Targets that no setting has; `chosen` are the settings' own, none where they are not known.
pub(super) fn targets(
    reader: &mut Reader<'_>,
    outline: &Outline<'_>,
    ground: &Ground<'_>,
    chosen: &[Option<&str>],
) {
    if outline.factors.are_overridden() || !chosen.iter().all(Option::is_some) {
        return;
    }
    for target in ground.targets.list.iter().filter(|target| !target.is_optional) {
        if !chosen.is_empty() && !chosen.contains(&Some(target.name)) {
            let message = format!(
                "no setting has the target '{}': choose it by 'target', make it optional, or leave it out",
                target.name
            );
            reader.mistake(target.span.clone(), message);
        }
    }
}

/// Texts with the name of a target that does not run in their setting.
pub(super) fn named_targets(
    reader: &mut Reader<'_>,
    table: &DeTable<'_>,
    ground: &Ground<'_>,
    chosen: Option<&str>,
    is_host: &dyn Fn(&str) -> bool,
) {
    for (_, value) in table {
        let value: &Spanned<_> = value;
        places::each_text(value, &mut |value, text| {
            for name in places::names(text) {
                if chosen != Some(name) && ground.targets.get(name).is_some() && !is_host(name) {
                    let runs =
                        chosen.map_or_else(String::new, |chosen| format!(" where '{chosen}' is the target"));
                    reader.mistake(value.span(), format!("the target '{name}' does not run{runs}"));
                }
            }
        });
    }
}
