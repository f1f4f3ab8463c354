//! The table `[workload.command]`: any program as the load.

use std::{collections::BTreeMap, ops::Range, path::Path, time::Duration};

use record::{
    ByteSource, OutputNumber,
    units::{parse_count, parse_size},
};
use settings::{Reader, Table, Value, values_of};
use toml::de::DeValue;

use super::{placeholders, programs, workload::Context};
use crate::workload::{CommandWorkload, RUNTIME_PLACEHOLDERS, Reading};

/// Keys of this table that a factor of the same name can set.
pub(super) const KEYS: [&str; 13] = [
    "target",
    "from",
    "run",
    "setup",
    "prepare",
    "conclude",
    "cleanup",
    "directory",
    "copies",
    "timeout",
    "stop_after",
    "expect",
    "bytes",
];
const MAX_COPIES: u64 = 10_000;

pub(super) struct ParsedCommand {
    pub(super) workload: CommandWorkload,
    pub(super) spans: BTreeMap<&'static str, Range<usize>>,
}

/// Reads the table. The caller has already removed `target` and `from`.
pub(super) fn read(
    reader: &mut Reader<'_>,
    mut table: Table<'_, '_>,
    context: &Context<'_>,
) -> ParsedCommand {
    let lookup = |name: &str| {
        let marker =
            RUNTIME_PLACEHOLDERS.iter().find(|(known, _)| *known == name).map(|(_, kept)| (*kept).to_owned());
        marker.or_else(|| (context.lookup)(name))
    };
    let context = &Context { root: context.root.clone(), lookup: &lookup, folder: context.folder };
    let mut spans = BTreeMap::new();
    let span = table.span();
    let mut take = |key: &'static str| {
        let value = table.take(key)?;
        spans.insert(key, value.span());
        Some(value)
    };
    let run = take("run");
    if run.is_none() {
        reader.mistake(span, "'run' is missing: give the program, as words or as a line for the shell");
    }
    let commands = [run, take("setup"), take("prepare"), take("conclude"), take("cleanup")];
    let [run, setup, prepare, conclude, cleanup] =
        commands.map(|value| value.and_then(|value| read_words(reader, value, context)));
    let times = [take("timeout"), take("stop_after")];
    let [timeout, stop_after] = times.map(|value| value.and_then(|value| read_time(reader, value)));
    let copies = take("copies").and_then(|value| read_copies(reader, value)).unwrap_or(1);
    let expect = take("expect").map_or_else(|| vec![0], |value| read_statuses(reader, value));
    let bytes = take("bytes").and_then(|value| read_bytes(reader, value, context));
    let environment =
        take("env").map_or_else(BTreeMap::new, |value| read_environment(reader, value, context));
    let directory = take("directory").and_then(|value| {
        Some(absolute_path(&placeholders::expand(reader.text(value)?, context.lookup), context.folder))
    });
    let read = take("read").map_or_else(Vec::new, |value| read_numbers(reader, value));
    if let (Some(timeout), Some(stop_after)) = (timeout, stop_after)
        && timeout <= stop_after
    {
        let message = "'timeout' is before 'stop_after', so every copy would fail; leave out one of them";
        reader.mistake(spans["timeout"].clone(), message);
    }
    table.finish(reader);
    ParsedCommand {
        workload: CommandWorkload {
            run: run.unwrap_or_default(),
            setup,
            prepare,
            conclude,
            cleanup,
            environment,
            directory,
            copies,
            timeout,
            stop_after,
            expect,
            bytes,
            read,
        },
        spans,
    }
}

/// Reads a command: either a list of words, whose program must be installed, or a line for the shell.
fn read_words(reader: &mut Reader<'_>, value: &Value<'_>, context: &Context<'_>) -> Option<Vec<String>> {
    let substituted = |text: &str| placeholders::expand(text, context.lookup);
    if let DeValue::String(line) = value.get_ref() {
        if line.trim().is_empty() {
            return reader.refuse(value.span(), "the command is empty");
        }
        let line = substituted(line);
        reader.checked(value, files::word_reads(&line));
        return Some(vec!["sh".to_owned(), "-c".to_owned(), line]);
    }
    let what = "a list of words such as [\"scp\", \"a\", \"b:c\"], or a line for the shell";
    let words: Option<Vec<String>> =
        reader.array(value, what).iter().map(|word| Some(substituted(reader.text(word)?))).collect();
    let words = words?;
    for word in &words {
        reader.checked(value, files::word_reads(word));
    }
    let Some(program) = words.first() else {
        return reader.refuse(value.span(), "the command is empty");
    };
    let is_known = placeholders::names(program).is_empty();
    if is_known && !programs::is_installed(program) {
        let mistake = match Path::new(program.as_str()).exists() {
            true => format!("'{program}' is not executable; run chmod +x on it, or name another program"),
            false => format!("there is no program '{program}' on this machine; install it"),
        };
        reader.mistake(value.span(), mistake);
    }
    Some(words)
}

fn read_time(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<Duration> {
    let time = reader.time(value)?;
    if time.is_zero() {
        reader.mistake(value.span(), "a time of 0 ends every program at once; give a time such as \"30s\"");
    }
    Some(time).filter(|time| !time.is_zero())
}

fn read_copies(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<u32> {
    let text = reader.number_or_text(value, "a count such as 4")?;
    let copies = reader.checked(value, parse_count(&text))?;
    if copies == 0 || copies > MAX_COPIES {
        return reader.refuse(value.span(), format!("{copies} copies: give a count from 1 to {MAX_COPIES}"));
    }
    Some(copies as u32)
}

fn read_statuses(reader: &mut Reader<'_>, value: &Value<'_>) -> Vec<i32> {
    let values = values_of(value);
    let statuses: Vec<i32> =
        values.iter().filter_map(|value| reader.whole(value, 0..256)).map(|status| status as i32).collect();
    if values.is_empty() {
        reader.mistake(value.span(), "without an exit status every copy fails; give one such as 0");
    }
    statuses
}

/// A size, `"link"`, or `{ path = "…" }`.
fn read_bytes(reader: &mut Reader<'_>, value: &Value<'_>, context: &Context<'_>) -> Option<ByteSource> {
    match value.get_ref() {
        DeValue::Table(_) => {
            let mut table = reader.table(value, "a table such as { path = \"{scratch}/copy\" }");
            let path = table.require(reader, "path", "the file or folder that grows");
            let path = path.and_then(|path| reader.text(path));
            table.finish(reader);
            let path = placeholders::expand(path?, context.lookup);
            if path.contains(::command::COPY_MARKER) {
                let message = "'{copy}' has no meaning here: give the folder that all copies write to";
                reader.mistake(value.span(), message);
            }
            Some(ByteSource::Path(absolute_path(&path, context.folder)))
        }
        DeValue::String(text) if text == "link" => Some(ByteSource::Link),
        DeValue::Integer(number) => {
            let size = number.to_string();
            reader.checked(value, parse_size(&size)).map(ByteSource::Declared)
        }
        _ => {
            let what = "a size such as \"100MB\", \"link\", or { path = \"…\" }";
            let text = reader.text_such_as(value, what)?;
            reader.checked(value, parse_size(text)).map(ByteSource::Declared)
        }
    }
}

fn read_environment(
    reader: &mut Reader<'_>,
    value: &Value<'_>,
    context: &Context<'_>,
) -> BTreeMap<String, String> {
    let table = reader.table(value, "a table of texts such as { LANG = \"C\" }");
    let mut environment = BTreeMap::new();
    for (_, name, value) in table.entries() {
        if let Some(text) = reader.text(value) {
            let value = placeholders::expand(text, context.lookup);
            for text in [text, value.as_str()] {
                secrets::mask::learn_variable(name, text);
            }
            environment.insert(name.to_owned(), value);
        }
    }
    environment
}

/// Reads `[{ json = "/end/sum/bits_per_second", name = "goodput", unit = "bit/s", better = "more" }]`.
fn read_numbers(reader: &mut Reader<'_>, value: &Value<'_>) -> Vec<Reading> {
    let what =
        "a list such as [{ json = \"/end/sum/bits_per_second\", name = \"goodput\", unit = \"bit/s\" }]";
    let mut numbers: Vec<Reading> = Vec::new();
    for value in reader.array(value, what) {
        let Some(number) = read_number(reader, value) else { continue };
        if numbers.iter().any(|other| other.number.quantity == number.number.quantity) {
            reader.mistake(value.span(), format!("'{}' is read twice: leave out one of them", number.words));
        }
        numbers.push(number);
    }
    numbers
}

fn read_number(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<Reading> {
    let mut table =
        reader.table(value, "a table such as { json = \"/end/seconds\", name = \"time\", unit = \"s\" }");
    let json = table.require(reader, "json", "where the number stands (RFC 6901), such as \"/end/seconds\"");
    let json = json.and_then(|value| Some((value.span(), reader.text(value)?.to_owned())));
    let name = table.require(reader, "name", "what it is called, such as \"goodput\"");
    let name = name.and_then(|value| Some((value.span(), reader.text(value)?.to_owned())));
    let unit = table.take("unit").and_then(|value| Some((value.span(), reader.text(value)?.to_owned())));
    let optional = table.take("optional").and_then(|value| reader.flag(value)).unwrap_or(false);
    let better = table.take("better").and_then(|value| {
        let text = reader.text(value)?;
        if !["more", "less"].contains(&text) {
            reader.mistake(value.span(), format!("'{text}' is neither \"more\" nor \"less\""));
        }
        Some(text == "more")
    });
    table.finish(reader);
    let ((json_at, json), (name_at, name)) = (json?, name?);
    if !json.is_empty() && !json.starts_with('/') {
        let message =
            format!("'{json}' is not a JSON pointer: a pointer begins with '/', as in /end/seconds");
        reader.mistake(json_at, message);
    }
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(plain) || name.len() > 40 {
        let message =
            format!("'{name}' is not a name: up to 40 lower-case letters, digits and '_', a letter first");
        return reader.refuse(name_at.clone(), message);
    }
    let words = name.replace('_', " ");
    let suffix = match unit {
        None => String::new(),
        Some((at, unit)) => {
            let Some((_, suffix)) = UNITS.iter().find(|(known, _)| *known == unit) else {
                let known: Vec<&str> = UNITS.iter().map(|(unit, _)| *unit).collect();
                let message = format!("'{unit}' is not a known unit (one of {})", known.join(", "));
                return reader.refuse(at, message);
            };
            format!("_{suffix}")
        }
    };
    let quantity = if name.ends_with(&suffix) { name } else { format!("{name}{suffix}") };
    if CommandWorkload::measured().any(|measured| measured == quantity) || quantity == "error_ratio" {
        let message = format!("'{quantity}' is always measured: give the program's number another name");
        reader.mistake(name_at.clone(), message);
    }
    Some(Reading {
        number: OutputNumber { json, quantity, more_is_better: better.unwrap_or(true), optional },
        words,
    })
}

/// Units, each with the suffix that it gives to a quantity's name.
pub(super) const UNITS: [(&str, &str); 10] = [
    ("bit/s", "bit_per_s"),
    ("B/s", "bytes_per_s"),
    ("B", "bytes"),
    ("1/s", "per_s"),
    ("s", "s"),
    ("us", "us"),
    ("ns", "ns"),
    ("ratio", "ratio"),
    ("packets", "packets"),
    ("count", "count"),
];

/// Makes a path absolute, relative to the study's folder. Leaves a path that starts with a placeholder, because its value may be absolute.
fn absolute_path(path: &str, folder: &Path) -> String {
    if path.starts_with(['{', '\u{e000}']) {
        path.to_owned()
    } else {
        folder.join(path).display().to_string()
    }
}
