//! JSON Schemas of files, which editors use for completion and checks. Any text may contain a placeholder such as
//! `{factor}`.

use serde_json::{Map, Value, json};

use crate::options::{Kind, OptionSpec};

/// The properties of a table with these options as keys. Help and default describe each property.
pub fn properties<T>(rows: &[OptionSpec<T>]) -> Map<String, Value> {
    rows.iter().map(|spec| (spec.key.to_owned(), property(spec, &format!("{}.", spec.help())))).collect()
}

/// The schema of an option's value, with this description.
pub fn property<T>(spec: &OptionSpec<T>, what: &str) -> Value {
    let OptionSpec { kind, example, .. } = *spec;
    let number = |mut described: Value| {
        described["pattern"] = json!(pattern(kind.pattern().unwrap_or_default()));
        described["description"] = json!(what);
        described["examples"] = json!([example.parse::<u64>().map_or(json!(example), Value::from)]);
        described
    };
    match kind {
        Kind::Flag => flag(what, false),
        Kind::On => flag(what, true),
        Kind::Count(least) => number(json!({ "type": ["integer", "string"], "minimum": least })),
        Kind::Size => number(json!({ "type": ["integer", "string"], "minimum": 0 })),
        Kind::Rate => number(json!({ "type": ["number", "string"], "exclusiveMinimum": 0 })),
        Kind::Share => {
            let share = json!({ "type": ["number", "string"], "minimum": 0, "maximum": 1 });
            number(share)
        }
        Kind::Time => time(what, example),
        Kind::Text => text(what, example),
        Kind::Numbers => {
            json!({ "type": ["string", "integer"], "description": what, "examples": [example] })
        }
        Kind::Choice(words) => choice(what, words),
        Kind::List => {
            let items = json!({ "type": "string" });
            json!({ "type": ["string", "array"], "items": items, "description": what, "examples": [spec.examples()] })
        }
    }
}

/// The schema of a table with these keys and no others.
pub fn table(properties: Value, required: &[&str]) -> Value {
    let mut table = json!({ "type": "object", "additionalProperties": false, "properties": properties });
    if !required.is_empty() {
        table["required"] = json!(required);
    }
    table
}

/// The schema of a text.
pub fn text(what: &str, example: &str) -> Value {
    json!({ "type": "string", "description": what, "examples": [example] })
}

/// The schema of a list of texts.
pub fn texts(what: &str, example: &str) -> Value {
    json!({ "type": "array", "items": { "type": "string" }, "description": what, "examples": [[example]] })
}

/// The schema of a text or a list of texts.
pub fn one_or_more(what: &str, example: &str) -> Value {
    json!({
        "type": ["string", "array"], "items": { "type": "string" }, "description": what,
        "examples": [example]
    })
}

/// The schema of one of several texts, or a placeholder.
pub fn choice(what: &str, list: &[&str]) -> Value {
    let pattern = format!("^({}|.*\\{{.+\\}}.*)$", list.join("|"));
    json!({ "type": "string", "description": what, "pattern": pattern, "examples": list, "default": list[0] })
}

/// The schema of true or false, or a placeholder.
pub fn flag(what: &str, default: bool) -> Value {
    json!({ "type": ["boolean", "string"], "pattern": "^\\{.+\\}$", "description": what, "default": default })
}

/// The schema of a whole number, or a placeholder.
pub fn whole_number(min: u64, what: &str, example: u64) -> Value {
    json!({
        "type": ["integer", "string"], "pattern": "^\\{.+\\}$", "minimum": min, "description": what,
        "examples": [example]
    })
}

/// The schema of a time with its unit.
pub fn time(what: &str, example: &str) -> Value {
    json!({
        "type": "string", "pattern": pattern(Kind::Time.pattern().unwrap_or_default()),
        "description": what, "examples": [example]
    })
}

/// The schema of a size in bytes.
pub fn size(what: &str, example: &str) -> Value {
    json!({
        "type": ["string", "integer"], "pattern": pattern(Kind::Size.pattern().unwrap_or_default()),
        "description": what, "examples": [example]
    })
}

/// A pattern for a text that matches as a whole or contains a placeholder.
pub fn pattern(regex: &str) -> String {
    format!("^({regex}|.*\\{{.+\\}}.*)$")
}
