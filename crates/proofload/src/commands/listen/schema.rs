//! The JSON Schema of the settings file, which editors use for completion and checks.

use serde_json::{Map, Value, json};

use super::settings::{self, Kind, OptionSpec};

/// The schema in draft 7, which the TOML plugins of editors support.
pub(super) fn schema() -> Value {
    let properties: Map<String, Value> =
        settings::all().map(|setting| (setting.key.to_owned(), property(setting))).collect();
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "proofload listen",
        "description": "Settings of the data listener; each is an option of the same name with hyphens.",
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    })
}

fn property(setting: &OptionSpec) -> Value {
    let mut property = match setting.kind {
        Kind::Flag | Kind::On => json!({ "type": "boolean", "default": setting.kind == Kind::On }),
        Kind::Count(least) => json!({ "type": ["integer", "string"], "minimum": least }),
        Kind::Rate | Kind::Share | Kind::Size => json!({ "type": ["integer", "string"], "minimum": 0 }),
        Kind::Time | Kind::Text | Kind::Numbers => json!({ "type": "string" }),
        Kind::Choice(words) => {
            let numbers = words.iter().filter_map(|word| word.parse::<u64>().ok().map(Value::from));
            let values: Vec<Value> = words.iter().copied().map(Value::from).chain(numbers).collect();
            json!({ "enum": values })
        }
        Kind::List => json!({ "type": ["string", "array"], "items": { "type": "string" } }),
    };
    if let Some(pattern) = setting.kind.pattern() {
        property["pattern"] = json!(format!("^{pattern}$"));
    }
    property["description"] = json!(format!("{}.", setting.help));
    if !setting.default.is_empty() {
        property["default"] = json!(setting.default);
    }
    if setting.kind == Kind::List {
        property["examples"] = json!([setting.examples()]);
    } else if setting.kind != Kind::Flag {
        property["examples"] = json!([setting.example]);
    }
    property
}

#[cfg(test)]
mod tests {
    use testing::{assert_part_published, assert_published};

    use super::*;

    #[test]
    fn the_published_schema_is_up_to_date() {
        assert_published("schema/listen.schema.json", |_| {
            serde_json::to_string_pretty(&schema()).unwrap() + "\n"
        });
    }

    #[test]
    fn the_documented_options_are_up_to_date() {
        assert_part_published("listen.md", "options", &options());
    }

    /// Markdown tables of all options, one per heading.
    fn options() -> String {
        let mut text = String::new();
        let mut heading = "";
        for setting in settings::all() {
            if setting.heading != heading {
                heading = setting.heading;
                text += &format!("\n**{heading}**\n\n| option | default | |\n|---|---|---|\n");
            }
            let value = if setting.value_name.is_empty() {
                String::new()
            } else {
                format!(" {}", setting.value_name)
            };
            let code = |text: &str| {
                if text.is_empty() { String::new() } else { format!("`{}`", text.replace('|', "\\|")) }
            };
            let option = code(&format!("--{}{value}", setting.flag()));
            text +=
                &format!("| {option} | {} | {} |\n", code(setting.default), setting.help.replace('|', "\\|"));
        }
        text + "\n"
    }
}
