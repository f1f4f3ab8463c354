//! The JSON Schema of a study file: what editors complete and underline.
//!
//! It is written by hand beside the readers of the tables: they take values at their places and tell mistakes better
//! than a schema can, so there are no types that one could be derived from. What a text may hold is said by
//! patterns, all of which let `{factor}` stand anywhere.

mod workload;

use record::units::show_number;
use search::Preset;
use serde_json::{Value, json};
use settings::schema::{choice, flag, join, one_or_more, table, table_for, text, texts, time, whole};

use super::{
    command,
    goals::{FINDINGS, PERCENTILES},
};

/// The schema, draft 7, which the TOML plugins of editors know.
pub fn schema() -> Value {
    let mut properties = json!({
        "title": { "type": "string", "description": "What the study is called." },
        "seed": {
            "type": "integer", "minimum": 0, "default": 1,
            "description": "Seed of everything random: the order of settings, arrivals, think times."
        },
        "budget": time("Wall-clock time after which no further trial begins.", "80s"),
        "hosts": hosts(),
        "links": links(),
        "processes": processes(),
        "targets": {
            "type": "object",
            "description": "What is tested, by name. Only the target of a setting is started in it.",
            "additionalProperties": target()
        },
        "workload": {
            "type": "object", "additionalProperties": false, "minProperties": 1, "maxProperties": 1,
            "description": "What makes the load.",
            "properties": { "http": workload::workload(), "command": command::schema() }
        },
        "factors": factors(),
        "trial": trial(),
        "search": search(),
    });
    properties["audit"] = audit();
    properties["goals"] = goals();
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "proofload study",
        "description": "Hosts, targets, a workload, what varies, and what must hold.",
        "type": "object",
        "additionalProperties": false,
        "required": ["workload"],
        "properties": properties,
    })
}

fn hosts() -> Value {
    json!({
        "type": "object", "minProperties": 1,
        "description": "Hosts by name: network namespaces of this machine. Without them there is one, called local.",
        "additionalProperties": table(lab::file::host_schema().into(), &[])
    })
}

fn links() -> Value {
    let shape = |more: Value| {
        let mut keys = json!({
            "rate": text("Rate: bits per second, decimal.", "1gbit"),
            "layer": choice("What the rate counts.", &["wire", "frame", "ip"]),
            "delay": time("Delay in each direction.", "114ms"),
            "jitter": text("Distribution of a delay that is added.", "exp:1ms"),
            "jitter_order": { "type": "string", "enum": ["keep", "free"], "description": "Whether packets keep their order under jitter, or overtake each other as with netem." },
            "loss": text("Share of packets lost.", "0.1%"),
            "queue": text("Largest queue.", "1bdp"),
            "reorder": text("Share, and by how much they come late.", "1%,2ms"),
            "duplicate": text("Share of packets sent twice.", "0.1%"),
        });
        join(&mut keys, more);
        keys
    };
    let one = table(shape(json!({})), &[]);
    let properties = shape(json!({
        "between": texts("The hosts that it joins.", "client"),
        "name": text("Its name.", "wan"),
        "segment": flag("An Ethernet segment even between two hosts.", false),
        "mtu": whole(576, "Largest packet, in bytes.", 1500),
        "network": text("Its network; automatic unless given.", "10.2.0.0/16"),
        "addresses": {
            "type": "object", "description": "Addresses of hosts on it; of a group, the first one's.",
            "additionalProperties": text("An address.", "10.2.0.10")
        },
        "driver": choice("Who delays and loses.", &["emulator", "netem"]),
        "seed": whole(0, "Seed of what is random on it.", 1),
        "a_to_b": one, "b_to_a": one,
    }));
    json!({ "type": "array", "description": "What joins hosts.", "items": table(properties, &["between"]) })
}

/// The keys that processes and targets have.
fn process_keys() -> Value {
    let mut keys = json!({
        "on": one_or_more("The host or hosts that it runs on.", "web"),
        "command": texts("Words of a command line; {port}, {self}, {HOST}, {ssh_config}, {study_folder} and {target_folder} stand for what they say.", "./server"),
    });
    join(&mut keys, lab::file::process_schema().into());
    keys
}

fn processes() -> Value {
    let mut keys = process_keys();
    join(&mut keys, json!({ "name": text("Its name; the process is called HOST-NAME.", "backend") }));
    json!({ "type": "array", "description": "What runs in every setting, beside the target.", "items": table(keys, &[]) })
}

fn target() -> Value {
    let mut keys = process_keys();
    join(
        &mut keys,
        json!({
            "url": text("It runs already, here: nothing is started.", "http://10.0.0.7/"),
            "optional": flag("It is there for those who ask for it by --set target=NAME.", false),
            "needs": one_or_more("Programs without which its settings are left out.", "go"),
        }),
    );
    table(keys, &[])
}

fn factors() -> Value {
    let levels = json!({
        "type": "array", "minItems": 1, "uniqueItems": true, "description": "Its levels.",
        "items": { "type": ["number", "string", "boolean"] }
    });
    let varying = table(
        json!({
            "values": levels,
            "search": flag("The table [search] varies it.", false),
            "when": when("It applies only where these factors have these levels."),
        }),
        &[],
    );
    json!({
        "type": "object",
        "description": "What varies: all combinations are run. {NAME} stands for a level in any text; a factor that is called like a key of the workload sets that key.",
        "propertyNames": { "pattern": "^[A-Za-z][A-Za-z0-9_-]{0,39}$" },
        "additionalProperties": { "anyOf": [levels, varying] }
    })
}

fn trial() -> Value {
    let properties = json!({
        "repeats": whole(1, "How often every setting is run, each time in a new order; six give a 95 % interval of the median.", 6),
        "duration": time("How long a trial lasts.", "10s"),
        "warm_up": time("A trial of so long before those that count, whenever the target is new.", "2s"),
        "pause": time("Pause before every trial.", "1s"),
        "settle": time("How long connections of the trial before may take to be gone; 10s, and 0s does not look.", "10s"),
        "fresh": choice("When hosts and targets are made anew.", &["setting", "trial", "hosts"]),
        "void_attempts": whole(0, "How often a void trial is tried again.", 3),
    });
    table_for("How trials are run.", properties, &[])
}

fn search() -> Value {
    let load = |what: &str, example: Value| {
        json!({
            "type": ["number", "string"], "exclusiveMinimum": 0, "pattern": "^[0-9][0-9_.]*[kKM]?(/s)?$",
            "description": what, "examples": [example]
        })
    };
    let properties = json!({
        "vary": text("users, rate, connections, copies, or a factor with search = true.", "rate"),
        "min": load("Least load.", json!(100)),
        "max": load("Largest load.", json!("100k")),
        "width": {
            "type": ["number", "string"], "exclusiveMinimum": 0, "exclusiveMaximum": 1, "pattern": "^[0-9][0-9.]*%?$",
            "description": "How near the bounds get to each other, as a share of the load.", "examples": ["2%"]
        },
        "preset": choice("How loads are chosen and judged; noise-aware is mlrsearch.", &presets()),
        "trial": time("Duration of a trial that counts in full; the preset's unless given.", "2s"),
        "repeats": whole(1, "How many such trials decide about a load; the preset's unless given.", 3),
        "confirm": whole(0, "Trials at the lower bound once it is found; six give a 95 % interval of the median.", 6),
        "when": when("Only these settings are searched; the others run the workload's own load."),
    });
    let what = "A search for the largest load that meets the goals.";
    table_for(what, properties, &["vary", "min", "max"])
}

fn presets() -> Vec<&'static str> {
    Preset::ALL.into_iter().map(Preset::name).chain(["noise-aware"]).collect()
}

fn audit() -> Value {
    let properties = json!({
        "files": texts("Files that the target stores in; {target_folder} is that of each of its processes.", "{target_folder}/**/*.log"),
        "flush": time("How long it may take to write what it has acknowledged; 2s.", "12s"),
    });
    let what = "After each trial, what the target stored is held against what it acknowledged.";
    table_for(what, properties, &[])
}

fn goals() -> Value {
    let ratio = json!({
        "type": ["number", "string"], "minimum": 0, "exclusiveMaximum": 1, "pattern": "^[0-9][0-9.]*%?$",
        "description": "Largest share of requests that may fail or stay unsent.", "examples": [0.0, "0.1%"]
    });
    let mut properties =
        json!({ "name": text("What the goal is called.", "fast"), "errors": ratio, "error_ratio": ratio });
    for (is_response, what) in [(true, "response time"), (false, "time to connect")] {
        for (response_key, connect_key, quantile) in PERCENTILES {
            let key = if is_response { response_key } else { connect_key };
            let percent = show_number(quantile * 100.0);
            properties[key] = time(&format!("{percent} % of {what} at the most."), "10ms");
        }
    }
    for (key, _, noun, _) in FINDINGS {
        properties[key] = ratio.clone();
        properties[key]["description"] =
            json!(format!("Largest share of events that an audit may find {noun}."));
    }
    join(
        &mut properties,
        json!({
            "quantity": text("A quantity of the trials, which at_most and at_least bound.", "wall_s"),
            "at_most": bound("The largest value that meets the goal, in the quantity's unit or with one.", "12s"),
            "at_least": bound("The least value that meets the goal, in the quantity's unit or with one.", "900mbit"),
        }),
    );
    json!({
        "type": "array", "minItems": 1, "description": "What a load must satisfy; a table may state several.",
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
