//! Ansible inventories: which machines there are, in which groups, and how to log in to them.
//!
//! Files in the formats INI and YAML are read here, by the rules of Ansible's own plugins. `ansible-inventory`
//! is asked for what only Ansible itself can read: folders, programs, configurations of plugins, vaults, files of variables
//! beside the inventory. Variables that decide how to log in to a machine are obeyed or refused, all others are ignored.
//! `ansible.cfg` and the environment have no effect on what is read here.

mod ansible;
mod connection;
mod document;
mod ini;
mod ranges;
mod tree;
mod values;
mod variables;
mod words;
mod yaml;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ffi::OsStr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use record::input::read_text;

use self::{
    connection::Fault,
    tree::{MAX_MISTAKES, Merged, Mistake, Tree},
};
use crate::machine::Machine;

/// Reads an inventory: a file, a folder, or a program that prints one.
///
/// # Errors
/// All mistakes, each with the file and, where it is known, the line. Each is a message for the user.
pub fn read(path: &Path) -> Result<Vec<Machine>, Vec<String>> {
    read_with(ansible::PROGRAM, path)
}

/// The machines whose name, or one of whose groups, is `pattern`; all if there is no pattern, or it is `all`.
///
/// # Errors
/// If there are none. The error is a message for the user, which suggests a similar name.
pub fn select(machines: &[Machine], pattern: Option<&str>) -> Result<Vec<Machine>, String> {
    let Some(pattern) = pattern.filter(|pattern| *pattern != "all") else { return Ok(machines.to_vec()) };
    let is_meant =
        |machine: &&Machine| machine.name == pattern || machine.groups.iter().any(|group| group == pattern);
    let chosen: Vec<Machine> = machines.iter().filter(is_meant).cloned().collect();
    if !chosen.is_empty() {
        return Ok(chosen);
    }
    let groups: BTreeSet<&str> =
        machines.iter().flat_map(|machine| &machine.groups).map(String::as_str).collect();
    let names = machines.iter().map(|machine| machine.name.as_str());
    let hint = settings::suggestion(pattern, groups.iter().copied().chain(names));
    let more = (groups.len() > 20).then_some("…");
    let shown: Vec<&str> = ["all"].into_iter().chain(groups.into_iter().take(20)).chain(more).collect();
    Err(format!(
        "no group and no machine of the inventory is named '{pattern}'{hint}; write the name of one (groups: {})",
        shown.join(", ")
    ))
}

fn read_with(program: &str, path: &Path) -> Result<Vec<Machine>, Vec<String>> {
    let file = path.display().to_string();
    let ask = |why: &str| {
        let tree = ansible::list(program, path, why).map_err(|why| vec![why])?;
        machines(&file, &merged(&file, &tree)?)
    };
    if let Some(why) = dynamic_file(path) {
        return ask(why);
    }
    let text = read_text(path).map_err(|why| vec![why])?;
    if let Some(why) = dynamic_text(&text) {
        return ask(why);
    }
    let tree = if is_yaml(path, &text) {
        let document = document::read(&text).map_err(|mistakes| told(&file, mistakes))?;
        if yaml::names_plugin(document.as_deref()) {
            return ask("it configures an inventory plugin");
        }
        yaml::read(document.as_deref())
    } else {
        ini::read(&text)
    };
    let tree = tree.map_err(|mistakes| told(&file, mistakes))?;
    let merged = merged(&file, &tree)?;
    match variables_beside(path, &merged) {
        Some(beside) => ask(&format!("{} has variables for it", beside.display())),
        None => machines(&file, &merged),
    }
}

/// Why only Ansible can read a file, judged by the kind of the file; none if it may be readable here.
fn dynamic_file(path: &Path) -> Option<&'static str> {
    let about = path.metadata().ok()?;
    if about.is_dir() {
        return Some("it is a folder");
    }
    if about.is_file() && about.permissions().mode() & 0o111 != 0 {
        return Some(
            "it is executable, so it is taken for a program that prints an inventory (if it is none, run `chmod -x` on it)",
        );
    }
    (path.extension() == Some(OsStr::new("toml"))).then_some("it is a TOML file")
}

/// Why only Ansible can get an inventory from a text; none if it may be readable here.
fn dynamic_text(text: &str) -> Option<&'static str> {
    if text.starts_with("#!") {
        return Some("it begins with '#!' and is therefore a program that prints an inventory");
    }
    text.starts_with("$ANSIBLE_VAULT;").then_some("ansible-vault has encrypted it")
}

/// Whether a file is YAML: by its name, or else by its first line, which no INI file has.
fn is_yaml(path: &Path, text: &str) -> bool {
    match path.extension().and_then(OsStr::to_str) {
        Some("yml" | "yaml" | "json") => return true,
        Some("ini") => return false,
        _ => {}
    }
    let mut lines = text.lines().map(|line| line.split(" #").next().unwrap_or_default().trim());
    let first = lines.find(|line| !line.is_empty() && !line.starts_with(['#', ';']));
    first.is_some_and(|line| {
        line == "---" || line.starts_with('{') || line.ends_with(':') && !line.starts_with('[')
    })
}

fn merged<'t>(file: &str, tree: &'t Tree) -> Result<Vec<Merged<'t>>, Vec<String>> {
    tree.merged().map_err(|mistake| told(file, vec![mistake]))
}

/// A file or folder beside the inventory in which Ansible finds variables of its groups or machines.
fn variables_beside(path: &Path, merged: &[Merged<'_>]) -> Option<PathBuf> {
    let groups: HashSet<&str> =
        merged.iter().flat_map(|of| of.groups.iter().copied()).chain(["all"]).collect();
    let machines: HashSet<&str> = merged.iter().map(|of| of.name).collect();
    [("group_vars", groups), ("host_vars", machines)].into_iter().find_map(|(folder, names)| {
        let entries = path.parent()?.join(folder);
        let files = entries.read_dir().ok()?.filter_map(|entry| Some(entry.ok()?.path()));
        let is_read = |file: &PathBuf| {
            let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
            let stem = [".yml", ".yaml", ".json"].iter().find_map(|ending| name.strip_suffix(ending));
            names.contains(name) || stem.is_some_and(|stem| names.contains(stem))
        };
        files.filter(is_read).min()
    })
}

/// The machines, with the way to each.
fn machines(file: &str, merged: &[Merged<'_>]) -> Result<Vec<Machine>, Vec<String>> {
    let mut machines = Vec::with_capacity(merged.len());
    // A variable of a group is at fault for many machines, but reported once, with the first machine and their number.
    let mut faults: BTreeMap<Fault, (&str, usize)> = BTreeMap::new();
    for of in merged {
        match connection::machine(of) {
            Ok(machine) => machines.push(machine),
            Err(found) => {
                for fault in found {
                    faults.entry(fault).or_insert((of.name, 0)).1 += 1;
                }
            }
        }
    }
    if !faults.is_empty() {
        let faults = faults.iter().map(|(fault, (first, count))| (fault.line, fault.of(first, *count)));
        return Err(told(file, faults.collect()));
    }
    if machines.is_empty() {
        return Err(vec![format!(
            "{file}: it names no machine; write one per line, such as web1.example.org"
        )]);
    }
    Ok(machines)
}

/// Mistakes in the order of the file, but at most a hundred.
fn told(file: &str, mut mistakes: Vec<Mistake>) -> Vec<String> {
    mistakes.sort();
    let omitted = mistakes.len().saturating_sub(MAX_MISTAKES);
    mistakes.truncate(MAX_MISTAKES);
    let line = |(line, why): Mistake| match line {
        0 => format!("{file}: {why}"),
        _ => format!("{file}:{line}: {why}"),
    };
    let mut told: Vec<String> = mistakes.into_iter().map(line).collect();
    if omitted > 0 {
        told.push(format!("{file}: there are at least {omitted} more mistakes"));
    }
    told
}

#[cfg(test)]
mod tests;
