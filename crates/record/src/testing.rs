//! Helpers for the tests of several modules.

use schemars::JsonSchema;

/// Compares the schema of a type with its file in docs/schema. Writes the file if `UPDATE_SCHEMA` is set.
pub(crate) fn assert_published<T: JsonSchema>(file: &str) {
    let schema = serde_json::to_string_pretty(&schemars::schema_for!(T)).unwrap() + "\n";
    let path = format!("{}/../../docs/schema/{file}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(&path, &schema).unwrap();
    }
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(published == schema, "run `UPDATE_SCHEMA=1 cargo test -p record` and commit docs/schema");
}
