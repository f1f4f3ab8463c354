//! Overrides (`--set KEY=VALUE`): values that replace those of the file.

use std::{borrow::Cow, ops::Range};

use settings::{Reader, Value, suggestion};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// The name that mistakes give for the source of overrides.
const SOURCE: &str = "--set";
/// The list of goals. Its tables have no names, so an override cannot refer to one of them.
const GOALS: &str = "goals";
/// The keys that an override may start with if it does not name a factor.
const TOP_LEVEL_KEYS: [&str; 14] = [
    "title",
    "seed",
    "budget",
    "hosts",
    "targets",
    "workload",
    "factors",
    "trial",
    "search",
    "audit",
    "links",
    "processes",
    "balancer",
    "tuning",
];

pub(super) struct Overrides {
    list: Vec<Override>,
}

/// `KEY=VALUE`.
struct Override {
    /// Position of its first character. Positions continue after the file's text, one override after the other.
    start: usize,
    written: String,
    key_length: usize,
}

impl Overrides {
    pub(super) fn new(text: &str, overrides: &[(String, String)]) -> Self {
        let mut start = text.len() + 2;
        let list = overrides.iter().map(|(key, value)| {
            let one = Override { start, written: format!("{key}={value}"), key_length: key.len() };
            start += one.written.len() + 2;
            one
        });
        Self { list: list.collect() }
    }

    pub(super) fn written(&self) -> Vec<(&str, &str)> {
        self.list.iter().map(Override::parts).collect()
    }

    pub(super) fn apply<'d>(&'d self, reader: &mut Reader<'d>, mut tree: DeTable<'d>) -> DeTable<'d> {
        for one in &self.list {
            reader.add_source(SOURCE, one.start, &one.written);
            let (key, value) = one.parts();
            let path: Vec<&str> = key.split('.').map(str::trim).collect();
            let key = one.start..one.start + one.key_length;
            if path.iter().any(|part| part.is_empty()) {
                reader.mistake(
                    key,
                    "expected a factor or a key, such as connections=50,100 or trial.repeats=3",
                );
            } else if path[0] == GOALS && (path.len() > 1 || !has_factor(&tree, GOALS)) {
                reader.mistake(key, "[[goals]] is a list and cannot be set here; edit the file");
            } else if path.len() > 1 || TOP_LEVEL_KEYS[..3].contains(&path[0]) {
                set_key(reader, &mut tree, &path, key.clone(), parse_value(key.end + 1, value));
            } else {
                set_levels(reader, &mut tree, path[0], key, value);
            }
        }
        tree
    }
}

impl Override {
    fn parts(&self) -> (&str, &str) {
        (&self.written[..self.key_length], &self.written[self.key_length + 1..])
    }
}

/// Parses a value at a position: as TOML if possible, otherwise as plain text, so that quotes are not needed.
fn parse_value(at: usize, text: &str) -> Value<'_> {
    match DeValue::parse(text) {
        Ok(value) if !value.get_ref().is_datetime() => shift(value, at),
        _ => Spanned::new(at..at + text.len(), DeValue::String(Cow::Borrowed(text))),
    }
}

/// Shifts the spans of a value and of everything in it.
fn shift(value: Value<'_>, by: usize) -> Value<'_> {
    let shifted_span = |span: Range<usize>| span.start + by..span.end + by;
    let span = shifted_span(value.span());
    let inner = match value.into_inner() {
        DeValue::Array(values) => DeValue::Array(values.into_iter().map(|value| shift(value, by)).collect()),
        DeValue::Table(table) => {
            let key = |key: Spanned<_>| Spanned::new(shifted_span(key.span()), key.into_inner());
            DeValue::Table(table.into_iter().map(|(name, value)| (key(name), shift(value, by))).collect())
        }
        other => other,
    };
    Spanned::new(span, inner)
}

/// Splits at commas, except within quotes or brackets. Returns the offset of each part.
fn split_levels(value: &str) -> Vec<(usize, &str)> {
    let (mut parts, mut begin, mut depth, mut quote) = (Vec::new(), 0, 0_u32, None);
    let mut push = |from: usize, to: usize| {
        let part = &value[from..to];
        let space = part.len() - part.trim_start().len();
        parts.push((from + space, part.trim()));
    };
    for (at, c) in value.char_indices() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            (_, Some(_)) => {}
            ('"' | '\'', None) => quote = Some(c),
            ('[' | '{', None) => depth += 1,
            (']' | '}', None) => depth = depth.saturating_sub(1),
            (',', None) if depth == 0 => {
                push(begin, at);
                begin = at + 1;
            }
            _ => {}
        }
    }
    push(begin, value.len());
    parts
}

fn has_factor(tree: &DeTable<'_>, name: &str) -> bool {
    let factors = tree.get("factors").and_then(|factors| factors.get_ref().as_table());
    factors.is_some_and(|factors| factors.contains_key(name))
}

fn set_levels<'d>(
    reader: &mut Reader<'d>,
    tree: &mut DeTable<'d>,
    name: &'d str,
    key: Range<usize>,
    value: &'d str,
) {
    let factors = match tree.get_mut("factors").map(Spanned::get_mut) {
        Some(DeValue::Table(factors)) => factors,
        _ => {
            let message = format!(
                "this study has no factors, so there is no '{name}'; to set a key, give its path: trial.repeats=3"
            );
            return reader.mistake(key, message);
        }
    };
    let levels =
        split_levels(value).into_iter().map(|(offset, part)| parse_value(key.end + 1 + offset, part));
    let levels: Vec<Value<'d>> = levels.collect();
    let begin = levels.first().map_or(key.end, |level| level.span().start);
    let list = Spanned::new(begin..begin + 1, DeValue::Array(levels.into_iter().collect()));
    let known: Vec<String> = factors.keys().map(|name| name.get_ref().to_string()).collect();
    match factors.get_mut(name) {
        Some(factor) => match factor.get_mut() {
            // Keep the other keys of the factor, such as its condition.
            DeValue::Table(table) => {
                table.remove("search");
                table.insert(Spanned::new(key, Cow::Borrowed("values")), list);
            }
            _ => *factor = list,
        },
        None => {
            let hint = suggestion(name, known.iter().map(String::as_str));
            let message = format!("there is no factor '{name}'{hint} (factors: {})", known.join(", "));
            reader.mistake(key, message);
        }
    }
}

fn set_key<'d>(
    reader: &mut Reader<'d>,
    tree: &mut DeTable<'d>,
    path: &[&'d str],
    key: Range<usize>,
    value: Value<'d>,
) {
    let Some((last, parents)) = path.split_last() else { return };
    let first = path[0];
    if !TOP_LEVEL_KEYS.contains(&first) {
        let hint = suggestion(first, TOP_LEVEL_KEYS);
        return reader.mistake(
            key,
            format!("a study has no table '{first}'{hint} (tables: {})", TOP_LEVEL_KEYS.join(", ")),
        );
    }
    let mut table = tree;
    for parent in parents {
        let missing = !table.contains_key(*parent);
        if missing {
            let empty = Spanned::new(key.clone(), DeValue::Table(DeTable::new()));
            table.insert(Spanned::new(key.clone(), Cow::Borrowed(*parent)), empty);
        }
        match table.get_mut(*parent).map(Spanned::get_mut) {
            Some(DeValue::Table(inner)) => table = inner,
            _ => return reader.mistake(key, format!("'{parent}' is not a table, so it has no keys")),
        }
    }
    // Remove the old key first, because an insertion would keep its span.
    table.remove(*last);
    table.insert(Spanned::new(key, Cow::Borrowed(*last)), value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_edited_in_the_file() {
        let host = load::MachineLimits::EXAMPLE;
        let text = "[workload.http]\nurl = \"http://127.0.0.1/\"\n[[goals]]\np99 = \"10ms\"\n";
        for key in ["goals.p99", "goals"] {
            let mistakes =
                crate::file::read("f", text, &[(key.to_owned(), "5ms".to_owned())], &host).unwrap_err();
            assert_eq!(mistakes.len(), 1, "{mistakes:?}");
            assert!(mistakes[0].to_string().starts_with("--set:1:1: [[goals]] is a list"), "{mistakes:?}");
        }
    }

    #[test]
    fn commas_separate_levels_unless_they_are_within() {
        let parts = |text| split_levels(text).into_iter().map(|(_, part)| part).collect::<Vec<_>>();
        assert_eq!(parts("50, 100"), ["50", "100"]);
        assert_eq!(parts("\"a,b\",[1,2],c"), ["\"a,b\"", "[1,2]", "c"]);
        assert_eq!(parts(""), [""]);
        assert_eq!(split_levels("1, 22")[1], (3, "22"));
    }

    #[test]
    fn values_are_toml_or_plain_text() {
        let read = |text: &str| {
            let value = parse_value(10, text);
            (value.span(), format!("{:?}", value.get_ref()))
        };
        assert_eq!(read("50").0, 10..12);
        assert!(read("50").1.starts_with("Integer"));
        assert!(read("true").1.starts_with("Boolean"));
        let list = parse_value(10, "[1, { a = 22 }]");
        let within = &list.get_ref().as_array().unwrap()[1];
        assert_eq!((list.span(), within.span()), (10..25, 14..24));
        let (key, number) = within.get_ref().as_table().unwrap().iter().next().unwrap();
        assert_eq!((key.span(), number.span()), (16..17, 20..22));
        for text in ["5k", "2026-01-01", "a b", "", "1\ny=2", "\u{e4}", "[1"] {
            assert_eq!(read(text), (10..10 + text.len(), format!("String({text:?})")), "{text}");
        }
    }
}
