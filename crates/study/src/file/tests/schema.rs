//! The JSON Schemas of study and lab files, which editors use for completion and checks. The program does not contain them; `docs/schema`
//! publishes them.
//!
//! The schemas are written by hand beside the code that reads the tables. That code reports mistakes better than a schema can, so there are
//! no types from which a schema could be derived. Patterns describe the allowed texts; all patterns allow `{factor}` anywhere.

mod command;
mod steps;
mod workload;

use lab::link::text::KEYS;
use record::{percentile::PERCENTILES, units::show_number};
use serde_json::{Map, Value, json};
use settings::schema::{choice, flag, one_or_more, properties, table, text, texts, time, whole_number};

use crate::file::{
    goals::FINDINGS,
    keys::{SEARCH_KEYS, TRIAL_KEYS},
};

/// The schema, in draft 7, which the TOML plugins of editors support.
pub(super) fn schema() -> Value {
    let mut properties = json!({
        "title": { "type": "string", "description": "Title of the study." },
        "seed": {
            "type": "integer", "minimum": 0, "default": 1,
            "description": "Seed of all random numbers: order of settings, arrivals, think times."
        },
        "budget": time("Wall-clock time after which no further trial begins.", "80s"),
        "observe": texts("Remote machines whose kernels are read over ssh around each trial: [NAME=]USER@HOST[:PORT].", "admin@web1"),
        "hosts": hosts(),
        "tuning": {
            "type": "object", "description": "Settings of hosts that the levels of a factor named tuning change.",
            "additionalProperties": {
                "type": "object", "description": "Settings by host.",
                "additionalProperties": {
                    "type": "object", "description": "Settings of the host's network, by their whole names.",
                    "additionalProperties": { "type": ["string", "integer", "boolean"] }
                }
            }
        },
        "links": links(),
        "processes": processes(),
        "targets": {
            "type": "object",
            "description": "The systems under test, by name. Only the target of a setting is started in it.",
            "additionalProperties": target()
        },
        "balancer": described_table(
            "A host between the load and the servers; in place of the target's address, the load goes to its own.",
            lab::file::balancer_schema().into(), &["on", "run", "vip"]
        ),
        "actions": actions(),
        "workload": {
            "type": "object", "additionalProperties": false, "minProperties": 1, "maxProperties": 1,
            "description": "What makes the load.",
            "properties": { "http": workload::workload(), "command": command::schema() }
        },
        "factors": factors(),
        "except": {
            "type": "array", "description": "Combinations of levels that are not run.",
            "items": when("All combinations in which these factors have these levels.")
        },
        "trial": trial(),
        "search": search(),
    });
    properties["audit"] = audit();
    properties["goals"] = goals();
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "proofload study",
        "description": "Hosts, targets, a workload, factors, and goals.",
        "type": "object",
        "additionalProperties": false,
        "required": ["workload"],
        "properties": properties,
    })
}

/// The schema of lab files, which share some tables with study files.
pub(super) fn lab_schema() -> Value {
    let properties = json!({
        "title": { "type": "string", "description": "Title of the lab." },
        "hosts": hosts(),
        "links": links(),
        "processes": processes(),
    });
    let mut schema = described_table("Hosts, links and processes on this machine.", properties, &[]);
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    schema["title"] = json!("proofload lab");
    schema
}

/// A table with a description.
fn described_table(what: &str, properties: Value, required: &[&str]) -> Value {
    let mut table = table(properties, required);
    table["description"] = json!(what);
    table
}

/// Adds keys to a table.
fn add_keys(keys: &mut Value, more: Value) {
    let more = more.as_object().cloned().unwrap_or_else(Map::new);
    keys.as_object_mut().into_iter().for_each(|keys| keys.extend(more.clone()));
}

fn hosts() -> Value {
    json!({
        "type": "object", "minProperties": 1,
        "description": "Hosts by name: network namespaces of this machine. Without this table there is one host, called local.",
        "additionalProperties": table(lab::file::host_schema().into(), &[])
    })
}

fn links() -> Value {
    let shape = |more: Value| {
        let mut keys = properties(KEYS);
        keys.extend(more.as_object().cloned().unwrap_or_default());
        Value::from(keys)
    };
    let one = table(shape(json!({})), &[]);
    let properties = shape(json!({
        "between": texts("The hosts that the link joins.", "client"),
        "name": text("Name of the link.", "wan"),
        "segment": flag("Whether it is an Ethernet segment even between two hosts.", false),
        "mtu": whole_number(576, "Largest packet, in bytes.", 1500),
        "network": text("Its network; assigned automatically by default.", "10.2.0.0/16"),
        "addresses": {
            "type": "object", "description": "Addresses of hosts on the link; for a group, the address of its first host.",
            "additionalProperties": text("An address.", "10.2.0.10")
        },
        "driver": choice("What emulates the link.", &["emulator", "netem"]),
        "seed": whole_number(0, "Seed of the link's random numbers.", 1),
        "a_to_b": one, "b_to_a": one,
    }));
    json!({ "type": "array", "description": "What joins hosts.", "items": table(properties, &["between"]) })
}

fn process_keys() -> Value {
    let mut keys = json!({
        "on": one_or_more("The host or hosts that run it.", "web"),
        "command": texts("Words of a command line. Placeholders: {port}, {self}, {HOST}, {ssh_config}, {study_folder}, {target_folder}.", "./server"),
    });
    add_keys(&mut keys, lab::file::process_schema().into());
    keys
}

fn processes() -> Value {
    let mut keys = process_keys();
    add_keys(&mut keys, json!({ "name": text("Its name; the process is called HOST-NAME.", "backend") }));
    json!({ "type": "array", "description": "What runs in every setting, in addition to the target.", "items": table(keys, &[]) })
}

fn target() -> Value {
    let mut keys = process_keys();
    add_keys(
        &mut keys,
        json!({
            "url": text("URL of a target that runs already: nothing is started.", "http://10.0.0.7/"),
            "optional": flag("Whether only --set target=NAME selects it.", false),
            "needs": one_or_more("Programs without which the target's settings are left out.", "go"),
        }),
    );
    table(keys, &[])
}

fn actions() -> Value {
    let properties = json!({
        "at": time("When, after the load began.", "10s"),
        "on": one_or_more("The host or hosts; of do, that of the balancer.", "web3"),
        "do": text("l2dsr: a command of proofload balance with a server and options: add, set, drain, remove.", "drain web3"),
        "command": texts("A command on the host.", "ip"),
        "kill": text("Programs of this name on the host get SIGKILL.", "nginx"),
        "link": choice("The host's ports of its segments are switched.", &["down", "up"]),
    });
    json!({ "type": "array", "description": "What is done to hosts during each trial.", "items": table(properties, &["at"]) })
}

fn factors() -> Value {
    let levels = json!({
        "type": "array", "minItems": 1, "uniqueItems": true, "description": "Its levels.",
        "items": { "type": ["number", "string", "boolean"] }
    });
    let varying = table(
        json!({
            "values": levels,
            "search": flag("Whether the table [search] varies it.", false),
            "when": when("The factor applies only where these factors have these levels."),
            "needs": {
                "type": "object", "description": "Programs without which the settings with a level are left out.",
                "additionalProperties": one_or_more("The level's programs.", "rclone")
            },
        }),
        &[],
    );
    json!({
        "type": "object",
        "description": "What varies: all combinations are run. {NAME} in a text stands for a level; a factor with the name of a key of the workload sets that key.",
        "propertyNames": { "pattern": "^[A-Za-z][A-Za-z0-9_-]{0,39}$" },
        "additionalProperties": { "anyOf": [levels, varying] }
    })
}

fn trial() -> Value {
    described_table("How trials are run.", properties(TRIAL_KEYS).into(), &[])
}

fn search() -> Value {
    let mut keys = properties(SEARCH_KEYS);
    (keys["width"]["exclusiveMinimum"], keys["width"]["exclusiveMaximum"]) = (json!(0), json!(1));
    let vary =
        text("The load unit: users, rate, connections, copies, or a factor with search = true.", "rate");
    let when = when("Only settings with these levels are searched; the others run the workload's own load.");
    keys.extend([("vary".to_owned(), vary), ("when".to_owned(), when)]);
    let what = "A search for the largest load that meets the goals.";
    described_table(what, keys.into(), &["vary", "min", "max"])
}

fn audit() -> Value {
    let properties = json!({
        "files": texts("Files that the target stores in; {target_folder} is the folder of each of its processes.", "{target_folder}/**/*.log"),
        "flush": time("Time that the target has to write what it has acknowledged; 2s by default.", "12s"),
    });
    let what = "After each trial, what the target stored is held against what it acknowledged.";
    described_table(what, properties, &[])
}

fn goals() -> Value {
    let ratio = json!({
        "type": ["number", "string"], "minimum": 0, "exclusiveMaximum": 1, "pattern": "^[0-9][0-9.]*%?$",
        "description": "Largest share of requests that may fail or stay unsent.", "examples": [0.0, "0.1%"]
    });
    let mut properties =
        json!({ "name": text("What the goal is called.", "fast"), "errors": ratio, "error_ratio": ratio });
    for (is_response, what) in [(true, "response time"), (false, "time to connect")] {
        for percentile in PERCENTILES {
            let key = if is_response { percentile.key } else { percentile.connect_key };
            let percent = show_number(percentile.quantile * 100.0);
            properties[key] = time(&format!("Largest {percent}th percentile of the {what}."), "10ms");
        }
    }
    for (key, _, noun, _) in FINDINGS {
        properties[key] = ratio.clone();
        properties[key]["description"] =
            json!(format!("Largest share of events that an audit may find {noun}."));
    }
    add_keys(
        &mut properties,
        json!({
            "quantity": text("A quantity of the trials that at_most and at_least bound.", "wall_s"),
            "at_most": bound("Largest value that meets the goal, in the quantity's unit or with a unit.", "12s"),
            "at_least": bound("Smallest value that meets the goal, in the quantity's unit or with a unit.", "900mbit"),
        }),
    );
    json!({
        "type": "array", "minItems": 1, "description": "What a load must satisfy; a table may hold several bounds.",
        "items": table(properties, &[])
    })
}

fn bound(what: &str, example: &str) -> Value {
    json!({ "type": ["number", "string"], "description": what, "examples": [example] })
}

fn when(what: &str) -> Value {
    json!({
        "type": "object", "description": what, "examples": [{ "mode": "limit" }],
        "additionalProperties": { "type": ["number", "string", "boolean", "array"] }
    })
}
