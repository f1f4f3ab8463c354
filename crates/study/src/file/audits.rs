//! The table `[audit]`: the files in which an audit looks for acknowledged events.

use std::{collections::BTreeMap, ops::Range, path::Path, time::Duration};

use load::HttpWorkload;
use settings::{Reader, Value};

use super::{
    levels::Levels,
    placeholders::{self, TARGET_FOLDER},
    targets::{ResolvedTarget, TargetLocation},
};
use crate::study::Audit;

/// Default pattern, for `run = "listen"` and for nginx with `log_bodies`.
const FILES: &str = "{target_folder}/**/*.log*";
/// Default of `flush`.
const FLUSH: Duration = Duration::from_secs(2);

/// Reads the table for one setting; relative paths start at `folder`.
pub(super) fn read<'d>(
    reader: &mut Reader<'_>,
    value: &Value<'d>,
    levels: &Levels<'d>,
    target: Option<&ResolvedTarget>,
    folder: &Path,
) -> Option<Audit> {
    let mistakes_before = reader.mistake_count();
    let value = levels.substitute(reader, value)?;
    let mut table = reader.table(&value, "a table [audit]");
    let is_started = target.is_some_and(|target| matches!(target.location, TargetLocation::Hosts { .. }));
    let mut files = Vec::new();
    match table.take("files") {
        Some(value) => {
            for value in reader.array(value, "a list of patterns such as [\"{target_folder}/**/*.log\"]") {
                let Some(text) = reader.text(value) else { continue };
                let names_folder = placeholders::names(text).contains(&TARGET_FOLDER);
                if names_folder && !is_started {
                    let message = "'{target_folder}' works only for a target that the study starts; this one already \
                                   runs: give the whole path of its files";
                    reader.mistake(value.span(), message);
                }
                files.push(if names_folder {
                    text.to_owned()
                } else {
                    folder.join(text).display().to_string()
                });
            }
            if files.is_empty() && reader.mistake_count() == mistakes_before {
                reader.mistake(value.span(), "'files' is empty: give the files that the target stores in");
            }
        }
        None if is_started => files.push(FILES.to_owned()),
        None => {
            let message = "'files' is missing: the target already runs, so name the files that it stores in";
            reader.mistake(table.span(), message);
        }
    }
    let flush = table.take("flush").and_then(|value| reader.time(value)).unwrap_or(FLUSH);
    table.finish(reader);
    (reader.mistake_count() == mistakes_before).then_some(Audit { files, flush })
}

/// Reports a workload without numbered events, because an audit needs them, and a folder for receipts, because the study sets it.
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
        let message = "receipts of an audited study are kept in its result folder: leave out this key";
        reader.mistake(at.clone(), message);
    }
}
