//! The steps of a session, `[[workload.http.steps]]`.

use load::StepText;
use settings::{Reader, Value};
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
        // Leave `{{name}}` for the templates, which are filled in for each request.
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
