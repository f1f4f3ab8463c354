//! The table `[workload.http]`.

use load::{HttpWorkload, OPTIONS};
use serde_json::{Value, json};
use settings::options::{Kind, OptionSpec};

use settings::schema::{one_or_more, property, text};

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
        properties[option.spec.key] = self::option(&option.spec);
    }
    described_table(
        "HTTP requests: a closed load of users, or an open one by rate or stages.",
        properties,
        &[],
    )
}

fn option(spec: &OptionSpec<HttpWorkload>) -> Value {
    let mut described = property(spec, &format!("{}.", help_in_file(spec)));
    if spec.kind == Kind::Time {
        // A bare number means seconds.
        described["type"] = json!(["string", "number"]);
    }
    described
}
