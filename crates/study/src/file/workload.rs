//! The table `[workload.http]`.

use std::{collections::BTreeMap, fs, ops::Range, path::Path};

use load::{HttpWorkload, OPTIONS};
use settings::{
    Reader, Table, Value,
    options::{Kind, Setting},
};
use toml::de::DeValue;

use super::places;

/// Keys that say where requests go.
const WAYS: [&str; 4] = ["target", "from", "url", "path"];

/// Whether a factor of this name sets the key.
pub(super) fn is_key(name: &str) -> bool {
    WAYS.contains(&name) || OPTIONS.iter().any(|option| option.setting.key == name)
}

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
    let (mut spans, mut workload) = (BTreeMap::new(), HttpWorkload::default());
    for option in OPTIONS {
        let setting = &option.setting;
        let Some(value) = table.take(setting.key) else { continue };
        spans.insert(setting.key, value.span());
        let texts = texts(reader, setting, value).into_iter();
        let texts = texts.map(|text| places::finished(&text, way.stands_for)).filter_map(|text| {
            if option.names_files { beside(reader, value, text, way.folder) } else { Some(text) }
        });
        let texts: Vec<String> = texts.collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        if !texts.is_empty() {
            reader.checked(value, (setting.apply)(&mut workload, &texts));
        }
    }
    workload.url = read_url(reader, &mut table, way, &mut spans).unwrap_or_default();
    table.finish(reader);
    WorkloadRead { workload, spans }
}

/// What is put into the workload: one text or number, several of a list, nothing of a flag that is as it is by default.
fn texts(reader: &mut Reader<'_>, setting: &Setting<HttpWorkload>, value: &Value<'_>) -> Vec<String> {
    match setting.kind {
        Kind::Flag | Kind::On => {
            let flag = reader.flag(value).filter(|flag| *flag == (setting.kind == Kind::Flag));
            flag.iter().map(bool::to_string).collect()
        }
        Kind::List => {
            let what = format!("a list of {} such as {:?}", setting.key, setting.examples());
            let values = reader.array(value, &what).iter();
            values.filter_map(|value| reader.text(value).map(str::to_owned)).collect()
        }
        _ => word(reader, value).into_iter().collect(),
    }
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
    way: &Way<'_>,
    spans: &mut BTreeMap<&'static str, Range<usize>>,
) -> Option<String> {
    let path = table.take("path");
    spans.extend(path.map(|path| ("path", path.span())));
    if let Some(value) = table.take("url") {
        spans.insert("url", value.span());
        if let Some(path) = path {
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
    let Some(value) = path else { return Some(root.clone()) };
    let path = places::finished(&word(reader, value)?, way.stands_for);
    if !path.starts_with('/') {
        reader.mistake(value.span(), format!("'{path}' is not a path such as /index.html"));
        return None;
    }
    let end = root.find("://").and_then(|at| Some(at + 3 + root[at + 3..].find('/')?));
    Some(format!("{}{path}", &root[..end.unwrap_or(root.len())]))
}

/// The text; a file by its whole path.
fn beside(reader: &mut Reader<'_>, value: &Value<'_>, text: String, folder: &Path) -> Option<String> {
    match text.strip_prefix('@') {
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
        None => Some(text),
    }
}
