//! One JSON document for other tools.

use std::io::{self, Write};

use record::{
    Environment, StudyPlan, StudyResult, TrialEntry,
    printable::{PrintableWriter, printable_json},
};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::{Results, answer};

/// Name and version of the document's schema.
const SCHEMA: &str = "proofload/report/1";

/// Plan, environment, trials and result in one JSON document; histograms are reduced to their summaries.
pub(crate) fn write(results: &Results, output: &mut dyn Write) -> io::Result<()> {
    let answers = answer::answers(results).into_iter().map(|answer| {
        json!({
            "setting": answer.setting,
            "goal": answer.goal,
            "block": answer.block,
            "status": answer.status.word().replace(' ', "_"),
            "sentence": answer.sentence,
        })
    });
    let document = Document {
        schema: SCHEMA,
        answers: answers.collect(),
        plan: &results.plan,
        environment: &results.environment,
        result: &results.result,
        trials: Trials(&results.trials),
    };
    serde_json::to_writer_pretty(PrintableWriter::new(&mut *output, printable_json), &document)?;
    output.write_all(b"\n")
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'a str,
    answers: Vec<Value>,
    plan: &'a StudyPlan,
    environment: &'a Option<Environment>,
    result: &'a Option<StudyResult>,
    trials: Trials<'a>,
}

/// The trials, converted one at a time to save memory.
struct Trials<'a>(&'a [TrialEntry]);

impl Serialize for Trials<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|entry| {
            let mut trial = value(entry);
            remove_histograms(&mut trial);
            trial
        }))
    }
}

fn value(record: &impl Serialize) -> Value {
    serde_json::to_value(record).expect("all map keys of records are strings")
}

/// Removes the encoded histograms, which are in `trials.jsonl`; their summaries stay.
fn remove_histograms(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("hdr_v2_deflate_base64");
            fields.values_mut().for_each(remove_histograms);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_histograms),
        _ => {}
    }
}
