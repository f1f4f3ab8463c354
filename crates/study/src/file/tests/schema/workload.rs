//! The table `[workload.http]`.

use load::{HttpWorkload, OPTIONS};
use serde_json::{Value, json};
use settings::options::{Kind, OptionSpec};

use settings::schema::{choice, flag, one_or_more, pattern, text, time};

use super::{super::help_in_file, described_table, steps};

pub(super) fn workload() -> Value {
    let mut properties = json!({
        "target": text("The target, if there are several.", "web"),
        "from": one_or_more("The hosts that the load comes from.", "client"),
        "url": text("Where requests go; {TARGET} is a target's address and port, {HOST} a host's address.", "http://{web}/5k"),
        "path": text("The path at the target, instead of a URL.", "/5k"),
    });
    properties["steps"] = steps::schema();
    for option in OPTIONS {
        properties[option.spec.key] = property(&option.spec);
    }
    described_table(
        "HTTP requests: a closed load of users, or an open one by rate or stages.",
        properties,
        &[],
    )
}

fn property(spec: &OptionSpec<HttpWorkload>) -> Value {
    let what = format!("{}.", help_in_file(spec));
    let OptionSpec { kind, example, .. } = *spec;
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
        Kind::Time => {
            // A bare number means seconds.
            let mut time = time(&what, example);
            time["type"] = json!(["string", "number"]);
            time
        }
        Kind::Text => text(&what, example),
        Kind::Numbers => json!({ "type": ["string", "integer"], "description": what, "examples": [example] }),
        Kind::Choice(words) => choice(&what, words),
        Kind::List => {
            let items = json!({ "type": "string" });
            json!({ "type": ["string", "array"], "items": items, "description": what, "examples": [spec.examples()] })
        }
    }
}
