//! Tests that `tests/data/values.txt` lists every option of every command and every key of a study, and that it marks
//! those that become text of a request and expand `${NAME}`. An external test sends hostile values through each of
//! them.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Command, CommandFactory};
use serde_json::Value;

const TABLE: &str = include_str!("../../../tests/data/values.txt");
const STUDY: &str = include_str!("../../../docs/schema/study.schema.json");

type Rows = BTreeMap<String, BTreeSet<String>>;

/// Parses the table: the names by command, and the names marked as text.
fn table() -> (Rows, BTreeSet<String>) {
    let (mut rows, mut texts) = (Rows::new(), BTreeSet::new());
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        let (head, names) = line.split_once(": ").unwrap_or_else(|| panic!("no row: {line}"));
        let (command, kind) = head.rsplit_once(' ').unwrap_or_else(|| panic!("no kind: {line}"));
        assert!(["text", "other"].contains(&kind), "{line}");
        for name in names.split(' ') {
            if kind == "text" {
                texts.insert(format!("{command} {name}"));
            }
            assert!(
                rows.entry(command.to_owned()).or_default().insert(name.to_owned()),
                "{command} {name} twice"
            );
        }
    }
    (rows, texts)
}

fn options(command: &Command, name: &str, rows: &mut Rows) {
    for argument in
        command.get_arguments().filter(|argument| !argument.is_positional() || !argument.is_hide_set())
    {
        let short = || argument.get_short().map(String::from);
        let own = argument.get_long().map(str::to_owned).or_else(short);
        let own = own.unwrap_or_else(|| argument.get_id().to_string().to_uppercase());
        rows.entry(name.to_owned()).or_default().insert(own);
    }
    for part in command.get_subcommands().filter(|part| part.get_name() != "help" && !part.is_hide_set()) {
        let name =
            [name, part.get_name()].into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>().join("-");
        options(part, &name, rows);
    }
}

fn keys(node: &Value, path: &str, found: &mut BTreeSet<String>) {
    for (name, property) in node["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}{}{name}", if path.is_empty() { "" } else { "." });
        keys(property, &path, found);
        found.insert(path);
    }
    for (within, mark) in [("items", "[]"), ("additionalProperties", ".*")] {
        if node[within].is_object() {
            keys(&node[within], &format!("{path}{mark}"), found);
        }
    }
    for several in ["oneOf", "anyOf", "allOf"] {
        node[several].as_array().into_iter().flatten().for_each(|node| keys(node, path, found));
    }
}

#[test]
fn every_option_and_key_says_whether_it_is_a_text_of_a_request() {
    let mut program = Rows::new();
    options(&super::Cli::command(), "", &mut program);
    let schema: Value = serde_json::from_str(STUDY).unwrap();
    keys(&schema, "", program.entry("study".to_owned()).or_default());
    let (rows, texts) = table();
    let mut wrong = String::new();
    for command in program.keys().chain(rows.keys()).collect::<BTreeSet<_>>() {
        let (empty, of) = (BTreeSet::new(), |rows: &Rows| rows.get(command).cloned());
        let (own, told) = (of(&program).unwrap_or_default(), of(&rows).unwrap_or(empty));
        let missing: Vec<_> = own.difference(&told).map(String::as_str).collect();
        let gone: Vec<_> = told.difference(&own).map(String::as_str).collect();
        if !missing.is_empty() {
            wrong += &format!("{command} other: {}\n", missing.join(" "));
        }
        if !gone.is_empty() {
            wrong += &format!("no longer: {command} {}\n", gone.join(" "));
        }
    }
    assert!(wrong.is_empty(), "tests/data/values.txt lacks, if these are no texts of a request:\n{wrong}");
    // The option table and the file must agree on which options are text.
    for option in load::OPTIONS.iter().filter(|option| option.is_text) {
        for name in
            [format!("http {}", option.spec.flag()), format!("study workload.http.{}", option.spec.key)]
        {
            assert!(texts.contains(&name), "{name} is a text");
        }
    }
}
