//! The table `[workload.http]`.

use load::{HttpWorkload, OPTIONS};
use serde_json::{Value, json};
use settings::options::{Kind, Setting};

use settings::schema::{choice, flag, one_or_more, pattern, table_for, text, workload_time};

/// The table.
pub(super) fn workload() -> Value {
    let mut properties = json!({
        "target": text("The target, where there are several.", "web"),
        "from": one_or_more("The hosts that the load comes from.", "client"),
        "url": text("Where requests go; {TARGET} is a target's address and port, {HOST} a host's address.", "http://{web}/5k"),
        "path": text("The path at the target, instead of a URL.", "/5k"),
    });
    for option in OPTIONS {
        properties[option.setting.key] = property(&option.setting);
    }
    table_for("HTTP requests: a closed load of users, or an open one by rate or stages.", properties, &[])
}

fn property(setting: &Setting<HttpWorkload>) -> Value {
    let what = format!("{}.", setting.help_in_file());
    let Setting { kind, example, .. } = *setting;
    let number = |mut described: Value| {
        described["pattern"] = json!(pattern(kind.pattern().unwrap_or_default()));
        described["description"] = json!(what);
        described["examples"] = json!([example.parse::<u64>().map_or(json!(example), Value::from)]);
        described
    };
    match kind {
        Kind::Flag => flag(&what, false),
        Kind::On => flag(&what, true),
        Kind::Count(least) => number(json!({ "type": ["integer", "string"], "minimum": least })),
        Kind::Size => number(json!({ "type": ["integer", "string"], "minimum": 0 })),
        Kind::Rate => number(json!({ "type": ["number", "string"], "exclusiveMinimum": 0 })),
        Kind::Time => workload_time(&what, example),
        Kind::Text => text(&what, example),
        Kind::Numbers => json!({ "type": ["string", "integer"], "description": what, "examples": [example] }),
        Kind::Choice(words) => choice(&what, words),
        Kind::List => {
            let items = json!({ "type": "string" });
            json!({ "type": "array", "items": items, "description": what, "examples": [setting.examples()] })
        }
    }
}
