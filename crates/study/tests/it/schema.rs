//! The published schema: current, met by what is sound, and not met by what is not.

use std::{fs, path::Path};

use load::{HttpOption, OPTIONS};
use serde_json::Value;
use settings::options::Kind;

use crate::files;

/// Broken studies whose mistakes are of the kind that a schema can see.
const SEEN: [&str; 15] = [
    "balancer",
    "empty",
    "factors-broken",
    "goals-broken",
    "hosts-broken",
    "no-way",
    "nothing-here",
    "search-bounds",
    "search-broken",
    "search-of-users",
    "targets-broken",
    "unknown-keys",
    "unused",
    "workload-mistakes",
    "wrong-kinds",
];

/// What is written at a place of the documentation is what the code says; `UPDATE_SCHEMA` writes it.
fn published(path: &str, wanted: impl FnOnce(&str) -> String) {
    let path = format!("{}/../../docs/{path}", env!("CARGO_MANIFEST_DIR"));
    let present = fs::read_to_string(&path).unwrap_or_default();
    let wanted = wanted(&present);
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        fs::write(&path, &wanted).unwrap();
        return;
    }
    assert!(present == wanted, "{path}: run `UPDATE_SCHEMA=1 cargo test -p study` and commit docs");
}

#[test]
fn the_published_schema_is_the_one_of_this_code() {
    let schema = serde_json::to_string_pretty(&study::file::schema()).unwrap() + "\n";
    published("schema/study.schema.json", |_| schema);
}

#[test]
fn the_documented_keys_of_a_workload_are_those_of_this_code() {
    const BEGIN: &str = "<!-- options: written by `UPDATE_SCHEMA=1 cargo test -p study` -->\n";
    const END: &str = "<!-- end of options -->";
    published("study.md", |text| {
        let (before, rest) = text.split_once(BEGIN).expect("docs/study.md has the options' beginning");
        let (_, after) = rest.split_once(END).expect("docs/study.md has the options' end");
        format!("{before}{BEGIN}{}{END}{after}", keys())
    });
}

/// A table of all options that are keys.
fn keys() -> String {
    let rows = OPTIONS.iter().map(|HttpOption { setting, .. }| {
        let example = match setting.kind {
            Kind::List => format!("{:?}", setting.examples()),
            Kind::Flag | Kind::On => setting.example.to_owned(),
            _ if setting.example.parse::<u64>().is_ok() => setting.example.to_owned(),
            _ => format!("\"{}\"", setting.example),
        };
        format!("| `{0}` | {1} | `{0} = {example}` |\n", setting.key, setting.help_in_file())
    });
    format!("\n| key | | example |\n|---|---|---|\n{}\n", rows.collect::<String>())
}

#[test]
fn sound_studies_meet_the_schema() {
    let sound = [files("../../studies"), files("tests/sound")].concat();
    assert!(sound.len() >= 3);
    for (path, text) in sound {
        assert_eq!(problems(&text), Vec::<String>::new(), "{}", path.display());
    }
}

#[test]
fn broken_studies_do_not() {
    let name = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let broken: Vec<String> = files("tests/broken")
        .into_iter()
        // What is no TOML is no JSON either.
        .filter(|(path, text)| name(path) != "toml" && !problems(text).is_empty())
        .map(|(path, _)| name(&path))
        .collect();
    for seen in SEEN {
        assert!(
            broken.iter().any(|name| name == seen),
            "{seen} meets the schema; those that do not: {broken:?}"
        );
    }
}

fn problems(text: &str) -> Vec<String> {
    let validator = jsonschema::validator_for(&study::file::schema()).unwrap();
    let study: Value = toml::from_str(text).unwrap();
    validator.iter_errors(&study).map(|error| format!("{}: {error}", error.instance_path())).collect()
}
