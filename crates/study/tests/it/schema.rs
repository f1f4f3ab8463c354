//! The published schema: current, met by what is sound, and not met by what is not.

use std::{fs, path::Path};

use serde_json::Value;

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

#[test]
fn the_published_schema_is_the_one_of_this_code() {
    let schema = serde_json::to_string_pretty(&study::file::schema()).unwrap() + "\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema/study.schema.json");
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        fs::write(path, &schema).unwrap();
    }
    let published = fs::read_to_string(path).unwrap_or_default();
    assert!(published == schema, "run `UPDATE_SCHEMA=1 cargo test -p study` and commit docs/schema");
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
