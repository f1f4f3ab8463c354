//! One document for other tools.

use record::visible::visible_json;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{Options, Results, answer, export::Export};

/// Plan, environment, trials and result in one JSON document; of each histogram, what people read.
pub struct Json;

/// The form of the document.
const SCHEMA: &str = "proofload/report/1";

impl Export for Json {
    fn name(&self) -> &'static str {
        "json"
    }

    fn file_name(&self) -> Option<&'static str> {
        Some("report.json")
    }

    fn render(&self, results: &Results, _: &Options) -> String {
        let mut trials = value(&results.trials);
        drop_whole_histograms(&mut trials);
        let answers = answer::answers(results).into_iter().map(|answer| {
            json!({
                "setting": answer.setting,
                "goal": answer.goal,
                "block": answer.block,
                "status": answer.status.word().replace(' ', "_"),
                "sentence": answer.sentence,
            })
        });
        let document = json!({
            "schema": SCHEMA,
            "answers": answers.collect::<Vec<_>>(),
            "plan": value(&results.plan),
            "environment": value(&results.environment),
            "result": value(&results.result),
            "trials": trials,
        });
        visible_json(&format!("{document:#}\n")).into_owned()
    }
}

fn value(record: &impl Serialize) -> Value {
    serde_json::to_value(record).expect("records have no maps with keys that are no text")
}

/// The histograms' summaries stay; the whole of them stands in `trials.jsonl`.
fn drop_whole_histograms(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("hdr_v2_deflate_base64");
            fields.values_mut().for_each(drop_whole_histograms);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_whole_histograms),
        _ => {}
    }
}
