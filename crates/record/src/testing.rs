//! Helpers for the tests of several modules.

use schemars::JsonSchema;
use serde_json::json;

use crate::{Measured, StudyPlan, Trial, TrialEntry, Validity, study::PLAN_SCHEMA, trial};

/// Compares the schema of a type with its file in docs/schema. If `UPDATE_DOCS` is set, writes the file.
pub(crate) fn assert_published<T: JsonSchema>(file: &str) {
    let schema = serde_json::to_string_pretty(&schemars::schema_for!(T)).unwrap() + "\n";
    let path = format!("{}/../../docs/schema/{file}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &schema).unwrap();
    }
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(published == schema, "run `make docs` and commit docs/schema");
}

/// The plan of a study without settings.
pub(crate) fn plan(title: &str) -> StudyPlan {
    let plan = json!({
        "schema": PLAN_SCHEMA, "proofload_version": "", "title": title, "command": [], "seed": 1, "factors": [],
        "settings": [], "blocks": [], "goals": [], "trial_duration_s": null, "search": null, "workload": "",
    });
    serde_json::from_value(plan).unwrap()
}

/// A valid trial with these measurements.
pub(crate) fn trial_of(measured: Measured) -> Trial {
    Trial {
        schema: trial::SCHEMA.to_owned(),
        proofload_version: String::new(),
        command: Vec::new(),
        started_unix_s: 0.0,
        elapsed_s: 2.0,
        interrupted: false,
        validity: Validity::from_reasons(Vec::new()),
        warnings: Vec::new(),
        verdict: None,
        quantities: Default::default(),
        measured,
    }
}

/// A repeat without requests.
pub(crate) fn entry(index: u64) -> TrialEntry {
    TrialEntry::alone(index, trial_of(Measured::Http(Box::default())))
}
