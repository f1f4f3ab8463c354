//! The table `[workload.command]`.

use serde_json::json;
use settings::schema::{choice, flag, one_or_more, size, table, text, time, whole_number};

use super::described_table;
use crate::file::command::UNITS;

pub(super) fn schema() -> serde_json::Value {
    let words = |what: &str, example: &str| json!({ "type": ["string", "array"], "items": { "type": "string" }, "description": what, "examples": [example] });
    let number = table(
        json!({
            "json": text("JSON pointer to the number in the JSON on standard output (RFC 6901).", "/end/sum_received/bits_per_second"),
            "name": text("Name of the quantity.", "goodput"),
            "unit": choice("Its unit.", &UNITS.map(|(unit, _)| unit)),
            "better": choice("Which way is better.", &["more", "less"]),
            "optional": flag("Whether the number may be missing without a warning.", false),
        }),
        &["json", "name"],
    );
    let moved = table(json!({ "path": text("The file or folder that grows.", "{scratch}/copy") }), &["path"]);
    let properties = json!({
        "target": text("The target, if there are several.", "web"),
        "from": one_or_more("The hosts that the programs run on, in turn.", "client"),
        "run": words("The program: a list of words, or a line for the shell.", "scp {scratch}/file web:"),
        "setup": words("Run once when hosts and target are new.", "head -c 100M /dev/urandom > {scratch}/file"),
        "prepare": words("Run before each trial.", "rm -f {scratch}/copy"),
        "conclude": words("Run after each trial.", "cmp {scratch}/file {scratch}/copy"),
        "cleanup": words("Run once before hosts and target are removed.", "true"),
        "env": { "type": "object", "additionalProperties": { "type": "string" }, "description": "Environment variables of the program and the hooks." },
        "directory": text("Working directory.", "{scratch}"),
        "copies": whole_number(1, "How many run at once; {copy} is the number of each, from 0.", 4),
        "timeout": time("A copy that takes longer has failed.", "60s"),
        "stop_after": time("The copies are ended after this time, which is no failure.", "15s"),
        "expect": { "type": ["integer", "array", "string"], "items": { "type": "integer" }, "default": 0, "description": "Exit statuses that count as success.", "examples": [0] },
        "bytes": { "anyOf": [size("Bytes that each copy moves, or \"link\": what arrived from the hosts or at them.", "100MB"), { "const": "link" }, moved] },
        "read": { "type": "array", "items": number, "description": "Numbers that are read from the program's output." },
    });
    described_table("Any program as the load, run on hosts of the study or here.", properties, &["run"])
}
