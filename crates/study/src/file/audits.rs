//! The table `[audit]`: the files that are held against what their target acknowledged.

use std::{collections::BTreeMap, ops::Range, path::Path, time::Duration};

use load::HttpWorkload;
use settings::{Reader, Value};

use super::{
    levels::Levels,
    places::{self, TARGET_FOLDER},
    targets::{Place, Standing},
};
use crate::study::Audit;

/// Where data listeners store unless told otherwise: `run = "listen"`, and nginx with `log_bodies`.
const FILES: &str = "{target_folder}/**/*.log*";
/// Time to write what was acknowledged, unless the study says another.
const FLUSH: Duration = Duration::from_secs(2);

/// Reads it for one setting; `folder` is where relative paths begin.
pub(super) fn read<'d>(
    reader: &mut Reader<'_>,
    value: &Value<'d>,
    levels: &Levels<'d>,
    standing: Option<&Standing>,
    folder: &Path,
) -> Option<Audit> {
    let begun = reader.mistakes();
    let value = levels.put(reader, value)?;
    let mut table = reader.table(&value, "a table [audit]");
    let stands = standing.is_some_and(|standing| matches!(standing.place, Place::Hosts { .. }));
    let mut files = Vec::new();
    match table.take("files") {
        Some(value) => {
            for value in reader.array(value, "a list of patterns such as [\"{target_folder}/**/*.log\"]") {
                let Some(text) = reader.text(value) else { continue };
                let names_folder = places::names(text).contains(&TARGET_FOLDER);
                if names_folder && !stands {
                    let message = "'{target_folder}' is the folder of a target that the study starts: give the \
                                   whole path of one that runs already";
                    reader.mistake(value.span(), message);
                }
                files.push(if names_folder {
                    text.to_owned()
                } else {
                    folder.join(text).display().to_string()
                });
            }
            if files.is_empty() && reader.mistakes() == begun {
                reader.mistake(value.span(), "no file is named: what the target stores could not be found");
            }
        }
        None if stands => files.push(FILES.to_owned()),
        None => {
            let message = "'files' is missing: where the target, which runs already, stores what it is sent";
            reader.mistake(table.span(), message);
        }
    }
    let flush = table.take("flush").and_then(|value| reader.time(value)).unwrap_or(FLUSH);
    table.finish(reader);
    (reader.mistakes() == begun).then_some(Audit { files, flush })
}

/// Only numbered events can be found again, and where their receipts go is the study's own business.
pub(super) fn check_events(
    reader: &mut Reader<'_>,
    audit: &Value<'_>,
    workload: &HttpWorkload,
    spans: &BTreeMap<&'static str, Range<usize>>,
) {
    if workload.events.is_none() {
        let message = "an audit needs numbered events: events = \"default\" in [workload.http], or one as a JSON object";
        reader.mistake(audit.span(), message);
    }
    if let (Some(_), Some(at)) = (&workload.receipts, spans.get("receipts")) {
        let message = "receipts of an audited study are kept in its result folder: leave this out";
        reader.mistake(at.clone(), message);
    }
}
