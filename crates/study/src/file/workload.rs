//! The table `[workload.http]`.

use std::{collections::BTreeMap, fs, ops::Range, path::Path};

use load::HttpWorkload;
use settings::{Reader, Table, Value};
use toml::de::DeValue;

use super::places;

/// Keys that one value in text or a number belongs to, and that a factor of the same name sets.
pub(super) const WORDS: [&str; 28] = [
    "users",
    "loops",
    "ramp_up",
    "think_time",
    "rate",
    "arrivals",
    "connections",
    "duration",
    "requests",
    "pipeline",
    "method",
    "body",
    "events",
    "events_per_request",
    "as",
    "retries",
    "ack",
    "receipts",
    "expect",
    "timeout",
    "drain",
    "threads",
    "processes",
    "cpus",
    "source",
    "connect_to",
    "spin",
    "path",
];
/// The other keys that a factor of the same name sets.
pub(super) const OTHERS: [&str; 7] =
    ["target", "from", "url", "keepalive", "idempotency", "headers", "stages"];

/// A workload, and where its fields stand.
pub(super) struct WorkloadRead {
    pub(super) workload: HttpWorkload,
    pub(super) spans: BTreeMap<&'static str, Range<usize>>,
}

/// Where a workload's requests go.
pub(super) struct Way<'a> {
    /// The URL of the target's root, unless there is no target.
    pub(super) root: Option<String>,
    /// What the names of targets and hosts stand for.
    pub(super) stands_for: &'a dyn Fn(&str) -> Option<String>,
    /// Where relative paths begin.
    pub(super) folder: &'a Path,
}

/// Reads it. `target` and `from` have been taken from the table.
pub(super) fn read(reader: &mut Reader<'_>, mut table: Table<'_, '_>, way: &Way<'_>) -> WorkloadRead {
    let mut spans = BTreeMap::new();
    let mut words = BTreeMap::new();
    let mut path = None;
    for key in WORDS {
        let Some(value) = table.take(key) else { continue };
        spans.insert(key, value.span());
        let Some(word) = word(reader, value).map(|word| places::finished(&word, way.stands_for)) else {
            continue;
        };
        match key {
            "body" | "events" => {
                drop(read_body(reader, value, word, way.folder).map(|body| words.insert(key, body)))
            }
            "path" => path = Some((value, word)),
            _ => drop(words.insert(key, word)),
        }
    }
    let url = read_url(reader, &mut table, path, way, &mut spans);
    let mut flag = |reader: &mut Reader<'_>, key| {
        let value = table.take(key)?;
        spans.insert(key, value.span());
        reader.flag(value)
    };
    let (keepalive, idempotency) = (flag(reader, "keepalive"), flag(reader, "idempotency"));
    let mut list = |reader: &mut Reader<'_>, key, what| {
        let Some(value) = table.take(key) else { return Vec::new() };
        spans.insert(key, value.span());
        let values = reader.array(value, what).iter();
        let texts = values.filter_map(|value| reader.text(value));
        texts.map(|text| places::finished(text, way.stands_for)).collect()
    };
    let headers: Vec<String> =
        list(reader, "headers", "a list of header fields such as [\"Accept: text/html\"]");
    let headers = headers.into_iter().map(|header| match header.strip_prefix('@') {
        Some(path) if !["", "-"].contains(&path) => format!("@{}", way.folder.join(path).display()),
        _ => header,
    });
    let headers = headers.collect();
    let stages = list(reader, "stages", "a list of stages such as [\"10s:500\", \"30s:0..5k\"]");
    table.finish(reader);
    let mut word = |key| words.remove(key);
    let workload = HttpWorkload {
        url: url.unwrap_or_default(),
        users: word("users"),
        loops: word("loops"),
        ramp_up: word("ramp_up"),
        think_time: word("think_time"),
        rate: word("rate"),
        arrivals: word("arrivals"),
        stages,
        connections: word("connections"),
        duration: word("duration"),
        requests: word("requests"),
        no_keepalive: keepalive == Some(false),
        pipeline: word("pipeline"),
        method: word("method"),
        headers,
        body: word("body"),
        events: word("events"),
        events_per_request: word("events_per_request"),
        events_as: word("as"),
        retries: word("retries"),
        ack: word("ack"),
        idempotency: idempotency == Some(true),
        receipts: word("receipts"),
        expect: word("expect"),
        timeout: word("timeout"),
        drain: word("drain"),
        threads: word("threads"),
        processes: word("processes"),
        cpus: word("cpus"),
        source: word("source"),
        connect_to: word("connect_to"),
        spin: word("spin"),
        ..HttpWorkload::default()
    };
    WorkloadRead { workload, spans }
}

/// Text as it is, or a number as text.
fn word(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<String> {
    match value.get_ref() {
        DeValue::String(text) => Some(text.as_ref().to_owned()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        other => {
            reader.expected(value.span(), "text in quotes or a number", other);
            None
        }
    }
}

fn read_url(
    reader: &mut Reader<'_>,
    table: &mut Table<'_, '_>,
    path: Option<(&Value<'_>, String)>,
    way: &Way<'_>,
    spans: &mut BTreeMap<&'static str, Range<usize>>,
) -> Option<String> {
    let url = table.take("url");
    if let Some(value) = url {
        spans.insert("url", value.span());
        if let Some((path, _)) = path {
            reader.mistake(path.span(), "'url' says the path too: leave out one of both");
        }
        return Some(places::finished(reader.text(value)?, way.stands_for));
    }
    let root = match &way.root {
        Some(root) => root,
        None => {
            reader.mistake(table.span(), "'url' is missing: there is no target that requests could go to");
            return None;
        }
    };
    match path {
        None => Some(root.clone()),
        Some((_, path)) if path.starts_with('/') => {
            let end = root.find("://").and_then(|at| Some(at + 3 + root[at + 3..].find('/')?));
            Some(format!("{}{path}", &root[..end.unwrap_or(root.len())]))
        }
        Some((value, path)) => {
            reader.mistake(value.span(), format!("'{path}' is not a path such as /index.html"));
            None
        }
    }
}

/// The body, a file's by its whole path.
fn read_body(reader: &mut Reader<'_>, value: &Value<'_>, body: String, folder: &Path) -> Option<String> {
    match body.strip_prefix('@') {
        Some("-") => {
            let message = "standard input can be read once only, and a study has many trials: give @FILE";
            reader.mistake(value.span(), message);
            None
        }
        Some(path) => {
            let path = folder.join(path);
            // One that is not there is told with the others of the workload.
            if fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file()) {
                let message = format!(
                    "{} is no regular file: a pipe can be read once only, and a study has many trials",
                    path.display()
                );
                reader.mistake(value.span(), message);
                return None;
            }
            Some(format!("@{}", path.display()))
        }
        None => Some(body),
    }
}
