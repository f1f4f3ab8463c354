//! The table `[workload.http]`.

use std::{collections::BTreeMap, fs, ops::Range, path::Path};

use load::{HttpWorkload, OPTIONS};
use settings::{
    Reader, Table, Value,
    options::{Kind, OptionSpec},
};
use toml::de::DeValue;

use super::{placeholders, steps};

/// Keys that determine the destination of the requests.
const DESTINATION_KEYS: [&str; 4] = ["target", "from", "url", "path"];
/// The key of the steps of a session.
const STEPS_KEY: &str = "steps";

/// Whether a factor of this name can set a key of the table.
pub(super) fn is_key(name: &str) -> bool {
    DESTINATION_KEYS.contains(&name)
        || name == STEPS_KEY
        || OPTIONS.iter().any(|option| option.spec.key == name)
}

pub(super) struct ParsedWorkload {
    pub(super) workload: HttpWorkload,
    pub(super) spans: BTreeMap<&'static str, Range<usize>>,
}

/// What a workload needs to know about its setting.
pub(super) struct Context<'a> {
    /// The URL of the target's root, if there is a target.
    pub(super) root: Option<String>,
    /// Returns the value of a placeholder of a target or host.
    pub(super) lookup: &'a dyn Fn(&str) -> Option<String>,
    /// The folder at which relative paths start.
    pub(super) folder: &'a Path,
}

/// Reads the table. The caller has already removed `target` and `from`.
pub(super) fn read(
    reader: &mut Reader<'_>,
    mut table: Table<'_, '_>,
    context: &Context<'_>,
) -> ParsedWorkload {
    let (mut spans, mut workload) = (BTreeMap::new(), HttpWorkload::default());
    for option in OPTIONS {
        let spec = &option.spec;
        let Some(value) = table.take(spec.key) else { continue };
        spans.insert(spec.key, value.span());
        let texts = texts(reader, spec, value).into_iter();
        // Leave `{{name}}` for the templates, which are filled in for each request.
        let expand = if option.is_text { placeholders::substitute } else { placeholders::expand };
        let texts = texts.map(|text| expand(&text, context.lookup)).filter_map(|text| {
            if option.names_files {
                resolve_file(reader, value, text, context.folder)
            } else {
                Some(option.in_folder(&text, context.folder))
            }
        });
        let texts: Vec<String> = texts.collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        if !texts.is_empty() {
            reader.checked(value, (spec.apply)(&mut workload, &texts));
        }
    }
    if let Some(value) = table.take(STEPS_KEY) {
        spans.insert(STEPS_KEY, value.span());
        workload.steps = steps::read(reader, value, context);
    }
    workload.url = read_url(reader, &mut table, context, &mut spans).unwrap_or_default();
    table.finish(reader);
    ParsedWorkload { workload, spans }
}

/// The texts for an option: one, several for a list, none for a flag at its default.
fn texts(reader: &mut Reader<'_>, spec: &OptionSpec<HttpWorkload>, value: &Value<'_>) -> Vec<String> {
    match spec.kind {
        Kind::Flag | Kind::On => {
            let flag = reader.flag(value).filter(|flag| *flag == (spec.kind == Kind::Flag));
            flag.iter().map(bool::to_string).collect()
        }
        // The file may give a single element without a list.
        Kind::List if matches!(value.get_ref(), DeValue::String(_)) => {
            word(reader, value).into_iter().collect()
        }
        Kind::List => {
            let what = format!("a list of {} such as {:?}", spec.key, spec.examples());
            let values = reader.array(value, &what).iter();
            values.filter_map(|value| reader.text(value).map(str::to_owned)).collect()
        }
        _ => word(reader, value).into_iter().collect(),
    }
}

/// A string, or a number as text.
pub(super) fn word(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<String> {
    match value.get_ref() {
        DeValue::String(text) => Some(text.as_ref().to_owned()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        _ => reader.refuse_type(value, "text in quotes or a number"),
    }
}

fn read_url(
    reader: &mut Reader<'_>,
    table: &mut Table<'_, '_>,
    context: &Context<'_>,
    spans: &mut BTreeMap<&'static str, Range<usize>>,
) -> Option<String> {
    let path = table.take("path");
    spans.extend(path.map(|path| ("path", path.span())));
    if let Some(value) = table.take("url") {
        spans.insert("url", value.span());
        if let Some(path) = path {
            reader.mistake(path.span(), "'url' already has a path: leave out one of them");
        }
        return Some(placeholders::substitute(reader.text(value)?, context.lookup));
    }
    let root = match &context.root {
        Some(root) => root,
        None => {
            return reader
                .refuse(table.span(), "'url' is missing, and there is no target that requests could go to");
        }
    };
    let Some(value) = path else { return Some(root.clone()) };
    let path = placeholders::substitute(&word(reader, value)?, context.lookup);
    if !path.starts_with('/') {
        return reader.refuse(value.span(), format!("'{path}' is not a path such as /index.html"));
    }
    let Some(authority) = root.find("://").map(|at| at + 3) else {
        let message = "the target's URL is a variable, which may hold a path: leave out 'path', and write it after the variable";
        return reader.refuse(value.span(), message);
    };
    let end = root[authority..].find('/').map_or(root.len(), |end| authority + end);
    Some(format!("{}{path}", &root[..end]))
}

/// Makes the path of a file (`@FILE`) absolute; other texts are unchanged.
pub(super) fn resolve_file(
    reader: &mut Reader<'_>,
    value: &Value<'_>,
    text: String,
    folder: &Path,
) -> Option<String> {
    match text.strip_prefix('@') {
        Some("-") => {
            let message = "standard input can be read only once, but a study has many trials: give @FILE";
            reader.refuse(value.span(), message)
        }
        Some(path) => {
            let path = folder.join(path);
            // Another check reports a missing file together with the workload's other mistakes.
            if fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file()) {
                let message = format!(
                    "{} is not a regular file: a pipe can be read only once, but a study has many trials",
                    path.display()
                );
                return reader.refuse(value.span(), message);
            }
            Some(format!("@{}", path.display()))
        }
        None => Some(text),
    }
}
