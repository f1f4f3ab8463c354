//! Asks `ansible-inventory` for what only Ansible reads: folders, programs, plugins, vaults, files of variables.

use std::{
    io::{self, ErrorKind},
    path::{Path, absolute},
    process::{Command, Output, Stdio},
};

use serde_json::{Map, Value as Json};

use super::{
    tree::{ALL, Setting, Tree},
    values::Value,
};

/// The program that is asked.
pub(super) const PROGRAM: &str = "ansible-inventory";

/// Settings that keep it from printing something else, and from ignoring what it cannot read.
const SETTINGS: [(&str, &str); 4] = [
    ("ANSIBLE_NOCOLOR", "1"),
    ("ANSIBLE_INVENTORY_EXPORT", "0"),
    ("ANSIBLE_INVENTORY_UNPARSED_FAILED", "1"),
    ("ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED", "1"),
];

/// What Ansible reads from an inventory. `why` says why it must be asked; `program` is [`PROGRAM`].
///
/// # Errors
/// If Ansible is not installed or cannot read the inventory either. The error is a message for the user.
pub(super) fn list(program: &str, path: &Path, why: &str) -> Result<Tree, String> {
    let refuse = |rest: String| format!("cannot read {}: {why}, {rest}", path.display());
    let output = run(program, path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => refuse(format!(
            "which `{PROGRAM}` would read, but that is not installed; install Ansible, or give a plain INI or YAML file in a folder of its own"
        )),
        _ => refuse(format!("and so `{PROGRAM}` was asked, but it failed: {error}")),
    })?;
    tree(&output).map_err(|error| {
        refuse(format!("and so `{PROGRAM}` was asked, but what it printed cannot be used: {error}"))
    })
}

fn run(program: &str, path: &Path) -> io::Result<Vec<u8>> {
    let mut command = Command::new(program);
    // An absolute path does not begin with '-'.
    command.arg("-i").arg(absolute(path)?).arg("--list").envs(SETTINGS).stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output()?;
    if status.success() {
        return Ok(stdout);
    }
    let words = String::from_utf8_lossy(&stderr);
    let lines: Vec<&str> = words.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last: String = lines[lines.len().saturating_sub(3)..].join(" ").chars().take(500).collect();
    Err(io::Error::other(format!("{status}: {last}")))
}

/// Reads the format of inventory scripts: groups with their machines and groups, and for each machine its variables, those
/// of its groups included.
fn tree(output: &[u8]) -> Result<Tree, String> {
    let groups: Map<String, Json> = serde_json::from_slice(output).map_err(|error| error.to_string())?;
    let mut tree = Tree::new();
    for (name, content) in groups.iter().filter(|(name, _)| *name != "_meta") {
        let group = tree.group(name)?;
        let texts = |key: &str| content.get(key).and_then(Json::as_array).into_iter().flatten();
        for child in texts("children").filter_map(Json::as_str) {
            let child = tree.group(child)?;
            tree.contain(group, child, 0);
        }
        for machine in texts("hosts").filter_map(Json::as_str) {
            tree.machine(machine, group, 0)?;
        }
    }
    let own = groups.get("_meta").and_then(|meta| meta.get("hostvars")).and_then(Json::as_object);
    for (machine, variables) in own.into_iter().flatten() {
        let machine = tree.machine(machine, ALL, 0)?;
        for (name, value) in variables.as_object().into_iter().flatten() {
            tree.set_own(machine, name, Setting { value: Value::json(value), line: 0 });
        }
    }
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::tests::program;

    #[test]
    fn the_answer_of_ansible_is_read() {
        let json = r#"{
            "_meta": {"hostvars": {"web1": {"ansible_host": "10.0.0.1", "ansible_port": 2222, "other": [1]}}},
            "all": {"children": ["ungrouped", "site"]},
            "site": {"children": ["web"]},
            "ungrouped": {"hosts": ["alone"]},
            "web": {"hosts": ["web1", "web2"]}
        }"#;
        let tree = tree(json.as_bytes()).unwrap();
        let merged = tree.merged().unwrap();
        let shown: Vec<_> = merged.iter().map(|of| (of.name, of.groups.join(" "))).collect();
        let right = [("alone", "ungrouped"), ("web1", "site web"), ("web2", "site web")];
        assert_eq!(shown, right.map(|(name, groups)| (name, groups.to_owned())));
        let variables: Vec<_> = merged[1].variables.iter().map(|(name, of)| (*name, &of.value)).collect();
        let text = |text: &str| Value::Text(text.to_owned());
        assert_eq!(variables, [("ansible_host", &text("10.0.0.1")), ("ansible_port", &text("2222"))]);
    }

    #[test]
    fn the_program_gets_the_path_and_its_failure_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let ask = |script: &str| list(&program(folder.path(), script), Path::new("-x"), "it is a folder");
        let tree =
            ask("echo \"{\\\"web\\\": {\\\"hosts\\\": [\\\"$1$3$ANSIBLE_INVENTORY_EXPORT\\\"]}}\"").unwrap();
        assert_eq!(tree.merged().unwrap()[0].name, "-i--list0");
        let tree = ask("echo \"{\\\"web\\\": {\\\"hosts\\\": [\\\"${2##*/}\\\"]}}\"").unwrap();
        assert_eq!(tree.merged().unwrap()[0].name, "-x");
        for (script, words) in [
            ("echo one >&2; echo ERROR! two >&2; exit 4", "exit status: 4: one ERROR! two"),
            ("echo nothing", "cannot be used: expected"),
        ] {
            let why = ask(script).unwrap_err();
            assert!(why.starts_with("cannot read -x: it is a folder, and") && why.contains(words), "{why}");
        }
        let missing = folder.path().join("missing");
        let why = list(missing.to_str().unwrap(), Path::new("hosts"), "it is a folder").unwrap_err();
        assert!(why.contains("install Ansible"), "{why}");
    }
}
