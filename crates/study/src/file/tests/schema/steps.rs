//! The steps of a session, `[[workload.http.steps]]`.

use serde_json::json;
use settings::schema::{one_or_more, table, text};

/// The schema of a list of steps.
pub(super) fn schema() -> serde_json::Value {
    let number = |what: &str, example: u64| json!({ "type": ["integer", "string"], "description": what, "examples": [example] });
    let properties = json!({
        "name": text("Name of the step in results.", "login"),
        "request": text("Method and path; the method may be left out.", "POST /login"),
        "headers": one_or_more("Header fields beside those of the workload, or instead of those of the same name.", "Authorization: Bearer {{token}}"),
        "body": text("The body: text, or @FILE, which is sent as it is.", "user={{name}}"),
        "expect": one_or_more("What the answer must have, as the workload's expect.", "json:$.ok = true"),
        "take": json!({
            "type": "object", "additionalProperties": { "type": "string" },
            "description": "Values to take from the answer, each with where it is: json:$.path, header:NAME, cookie:NAME, regex:EXPRESSION, body or status.",
            "examples": [{ "token": "json:$.token" }]
        }),
        "weight": number("How often the step is drawn, relative to the others: with weights, each iteration runs one step.", 3),
        "if": text("Run the step only if this holds.", "status == 401"),
        "repeat": number("Run the step so often: a number, or the name of a value.", 5),
        "repeat_while": text("Run the step again while this holds.", "status == 202"),
        "at_most": number("Most runs with repeat_while.", 100),
        "pause": text("The pause after the answer, instead of the think time.", "exp:1s"),
        "on_failure": text("What a failure means: end ends the iteration, go-on does not.", "go-on"),
        "steps": json!({
            "type": "array", "items": { "type": "object" },
            "description": "Steps that if, repeat and repeat_while hold for together, instead of a request."
        }),
    });
    json!({ "type": "array", "items": table(properties, &[]), "description": "The steps of each iteration of a user, in order." })
}
