//! One document for other tools.

use std::io::{self, Write};

use record::{
    Environment, StudyPlan, StudyResult, TrialEntry,
    printable::{PrintableWriter, printable_json},
};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::{Options, Results, answer, export::Export};

/// Plan, environment, trials and result in one JSON document; of each histogram, what people read.
pub(crate) struct Json;

/// The form of the document.
const SCHEMA: &str = "proofload/report/1";

impl Export for Json {
    fn name(&self) -> &'static str {
        "json"
    }

    fn file_name(&self) -> Option<&'static str> {
        Some("report.json")
    }

    fn render(&self, results: &Results, options: &Options) -> String {
        let mut text = Vec::new();
        self.write(results, options, &mut text).expect("memory takes it");
        String::from_utf8(text).expect("JSON is text")
    }

    fn write(&self, results: &Results, _: &Options, output: &mut dyn Write) -> io::Result<()> {
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

/// One is put together at a time.
struct Trials<'a>(&'a [TrialEntry]);

impl Serialize for Trials<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|entry| {
            let mut trial = value(entry);
            drop_whole_histograms(&mut trial);
            trial
        }))
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
