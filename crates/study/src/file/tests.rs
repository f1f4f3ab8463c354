//! Tests of the published schema: it is current, accepts valid studies, and rejects some broken ones.

mod schema;

use std::{
    fs,
    path::{Path, PathBuf},
};

use load::{HttpOption, HttpWorkload, OPTIONS};
use serde_json::Value;
use settings::options::{Kind, OptionSpec};

use testing::{assert_part_published, assert_published};

use search::Preset;

use super::keys::{SEARCH_KEYS, SearchKeys, TRIAL_KEYS, TrialKeys};
use schema::{lab_schema, schema};

/// Broken studies whose mistakes a schema can express, so it must reject them.
const SEEN: [&str; 15] = [
    "balancer",
    "empty",
    "factors-broken",
    "goals-broken",
    "hosts-broken",
    "no-route",
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

#[test]
fn the_published_schemas_are_those_of_this_code() {
    for (path, schema) in [("schema/study.schema.json", schema()), ("schema/lab.schema.json", lab_schema())] {
        assert_published(path, |_| serde_json::to_string_pretty(&schema).unwrap() + "\n");
    }
}

#[test]
fn the_schema_of_labs_has_the_keys_that_labs_have() {
    let mistakes = lab::file::parse("f", "other = 1\n[hosts]\na = {}\n").unwrap_err();
    let known = mistakes[0].message.split("known here: ").nth(1).unwrap().trim_end_matches(')');
    let mut known: Vec<&str> = known.split(", ").collect();
    known.sort_unstable();
    let schema = lab_schema();
    assert_eq!(known, schema["properties"].as_object().unwrap().keys().collect::<Vec<_>>());
    for text in [
        include_str!("../../../../docs/lab.toml"),
        include_str!("../../../proofload/src/commands/init/lab.toml"),
    ] {
        let file: Value = toml::from_str(text).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        assert_eq!(validator.iter_errors(&file).map(|error| error.to_string()).collect::<Vec<_>>(), [""; 0]);
    }
}

#[test]
fn the_documented_keys_of_searches_and_trials_are_those_of_this_code() {
    assert_part_published("study.md", "trial", &documented(TRIAL_KEYS));
    assert_part_published("study.md", "search", &documented(SEARCH_KEYS));
}

fn documented<T>(rows: &[OptionSpec<T>]) -> String {
    let mut table = "| key | default | example | |\n|---|---|---|---|\n".to_owned();
    for OptionSpec { key, default, example, help, .. } in rows {
        let example = if example.is_empty() { "true" } else { example };
        table += &format!("| `{key}` | {default} | `{example}` | {help} |\n");
    }
    table
}

#[test]
fn examples_of_searches_and_trials_are_accepted() {
    for row in SEARCH_KEYS {
        (row.apply)(&mut SearchKeys::default(), &[row.example]).unwrap();
    }
    for row in TRIAL_KEYS {
        (row.apply)(&mut TrialKeys::default(), &[row.example]).unwrap();
    }
    let presets: Vec<&str> = Preset::ALL.into_iter().map(Preset::name).chain(["noise-aware"]).collect();
    let preset = SEARCH_KEYS.iter().find(|row| row.key == "preset").unwrap();
    assert_eq!(preset.kind, Kind::Choice(presets.leak()));
}

#[test]
fn the_documented_keys_of_a_workload_are_those_of_this_code() {
    assert_part_published("study.md", "options", &keys());
}

/// A table of all options that are keys.
fn keys() -> String {
    let rows = OPTIONS.iter().map(|HttpOption { spec, .. }| {
        let example = match spec.kind {
            Kind::List => format!("{:?}", spec.examples()),
            Kind::Flag | Kind::On => spec.example.to_owned(),
            _ if spec.example.parse::<u64>().is_ok() => spec.example.to_owned(),
            _ => format!("\"{}\"", spec.example),
        };
        format!("| `{0}` | {1} | `{0} = {example}` |\n", spec.key, help_in_file(spec))
    });
    format!("\n| key | | example |\n|---|---|---|\n{}\n", rows.collect::<String>())
}

/// Description of an option as a key of a file.
fn help_in_file(spec: &OptionSpec<HttpWorkload>) -> String {
    match spec.kind {
        Kind::On => format!("If false: {}{}", spec.help[..1].to_lowercase(), &spec.help[1..]),
        _ => spec.help(),
    }
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
        // `toml.toml` is not valid TOML, so it cannot be converted to JSON.
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

/// The TOML files of a folder, relative to this crate's manifest.
fn files(folder: &str) -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let paths = paths.filter(|path| path.extension().is_some_and(|end| end == "toml"));
    paths.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

fn problems(text: &str) -> Vec<String> {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let study: Value = toml::from_str(text).unwrap();
    validator.iter_errors(&study).map(|error| format!("{}: {error}", error.instance_path())).collect()
}
