//! The steps of a session, `[[workload.http.steps]]`.

use load::StepText;
use serde_json::json;
use settings::{
    Reader, Value,
    schema::{one_or_more, table, text},
};
use toml::de::DeValue;

use super::{
    placeholders,
    workload::{Context, resolve_file, word},
};

/// Reads a list of steps.
pub(super) fn read(reader: &mut Reader<'_>, value: &Value<'_>, context: &Context<'_>) -> Vec<StepText> {
    let steps = reader.array(value, "a list of steps, each such as { request = \"GET /items\" }").iter();
    steps.map(|step| read_step(reader, step, context)).collect()
}

fn read_step(reader: &mut Reader<'_>, value: &Value<'_>, context: &Context<'_>) -> StepText {
    let mut table = reader.table(value, "a step such as { request = \"GET /items\" }");
    let mut step = StepText::default();
    let fields: [(&'static str, &mut Option<String>); 9] = [
        ("name", &mut step.name),
        ("request", &mut step.request),
        ("weight", &mut step.weight),
        ("if", &mut step.only_if),
        ("repeat", &mut step.repeat),
        ("repeat_while", &mut step.repeat_while),
        ("at_most", &mut step.at_most),
        ("pause", &mut step.pause),
        ("on_failure", &mut step.on_failure),
    ];
    for (key, field) in fields {
        let Some(value) = table.take(key) else { continue };
        // `{{name}}` stays for the templates.
        *field = word(reader, value).map(|text| placeholders::substitute(&text, context.lookup));
    }
    if let Some(value) = table.take("body")
        && let Some(text) = reader.text(value)
    {
        step.body =
            resolve_file(reader, value, placeholders::substitute(text, context.lookup), context.folder);
    }
    for (key, list) in [("headers", &mut step.headers), ("expect", &mut step.expect)] {
        let Some(value) = table.take(key) else { continue };
        let texts: Vec<String> = match value.get_ref() {
            DeValue::Array(values) => {
                values.iter().filter_map(|value| reader.text(value)).map(str::to_owned).collect()
            }
            _ => word(reader, value).into_iter().collect(),
        };
        list.extend(texts.iter().map(|text| placeholders::substitute(text, context.lookup)));
    }
    if let Some(value) = table.take("take") {
        match value.get_ref() {
            DeValue::Table(places) => {
                for (name, place) in places {
                    if let Some(place) = reader.text(place) {
                        step.take.push((name.get_ref().to_string(), place.to_owned()));
                    }
                }
            }
            _ => reader.expected(value, "a table such as { token = \"json:$.token\" }"),
        }
    }
    if let Some(value) = table.take("steps") {
        step.steps = read(reader, value, context);
    }
    table.finish(reader);
    step
}

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
