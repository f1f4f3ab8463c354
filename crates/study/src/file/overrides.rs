//! `--set KEY=VALUE`: values that take the place of the file's.

use std::borrow::Cow;

use settings::{Reader, Value, suggestion};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// The name that mistakes in overrides are told by.
const SOURCE: &str = "--set";
/// The list of goals: its tables have no names by which one could be chosen.
const GOALS: &str = "goals";
/// What an override may begin with, beside a factor.
const HEADS: [&str; 12] = [
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
];

/// The overrides as written, each with the values that may have to be read from it.
pub(super) struct Overrides {
    list: Vec<Override>,
}

struct Override {
    key: String,
    written: String,
    /// Where its text begins, behind the file's and those of the others.
    start: usize,
    /// Values, each at the place where it stands in a text of all sources.
    values: Vec<Written>,
    /// The whole value as one.
    whole: Written,
}

/// A value as TOML `x=VALUE`; or as plain text.
struct Written {
    start: usize,
    plain: String,
    /// With so much space before that it stands at its place, where values stand within: one alone is put there.
    toml: String,
}

impl Overrides {
    pub(super) fn new(text: &str, overrides: &[(String, String)]) -> Self {
        let mut start = text.len() + 2;
        let list = overrides.iter().map(|(key, value)| {
            let written = format!("{key}={value}");
            let at = start + key.len() + 1;
            let parts = split(value);
            let values = parts.into_iter().map(|(offset, part)| Written::new(at + offset, part)).collect();
            let one = Override { key: key.clone(), start, values, whole: Written::new(at, value), written };
            start += one.written.len() + 2;
            one
        });
        Self { list: list.collect() }
    }

    /// The document with all of them in their places.
    pub(super) fn put<'d>(&'d self, reader: &mut Reader<'d>, mut tree: DeTable<'d>) -> DeTable<'d> {
        for one in &self.list {
            reader.add_source(SOURCE, one.start, &one.written);
            let key = one.start..one.start + one.key.len();
            let path: Vec<&str> = one.key.split('.').map(str::trim).collect();
            if path.iter().any(|part| part.is_empty()) {
                reader.mistake(
                    key,
                    "expected a factor or a key, such as connections=50,100 or trial.repeats=3",
                );
            } else if path[0] == GOALS && (path.len() > 1 || !has_factor(&tree, GOALS)) {
                reader.mistake(key, "[[goals]] is a list, of which nothing can be set here; edit the file");
            } else if path.len() > 1 || HEADS[..3].contains(&path[0]) {
                put_at(reader, &mut tree, &path, key, one.whole.read());
            } else {
                put_levels(reader, &mut tree, path[0], key, one);
            }
        }
        tree
    }
}

impl Written {
    fn new(start: usize, plain: &str) -> Self {
        // A value stands behind a key, so that it has room for `x=` before it.
        let space = if plain.starts_with(['[', '{']) { start - 2 } else { 0 };
        Self { start, plain: plain.to_owned(), toml: format!("{}x={plain}", " ".repeat(space)) }
    }

    /// The value: what TOML reads of it, or else plain text, so that quotes are not needed.
    fn read(&self) -> Value<'_> {
        let span = self.start..self.start + self.plain.len();
        let text = DeValue::String(Cow::Borrowed(self.plain.as_str()));
        let table = DeTable::parse(&self.toml).ok().filter(|table| table.get_ref().len() == 1);
        match table.as_ref().and_then(|table| table.get_ref().get("x")) {
            Some(value) if value.get_ref().is_array() || value.get_ref().is_table() => value.clone(),
            Some(value) if !value.get_ref().is_datetime() => Spanned::new(span, value.get_ref().clone()),
            _ => Spanned::new(span, text),
        }
    }
}

/// The parts between commas, with their places; a comma in quotes or brackets separates nothing.
fn split(value: &str) -> Vec<(usize, &str)> {
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

fn put_levels<'d>(
    reader: &mut Reader<'d>,
    tree: &mut DeTable<'d>,
    name: &'d str,
    key: std::ops::Range<usize>,
    one: &'d Override,
) {
    let factors = match tree.get_mut("factors").map(Spanned::get_mut) {
        Some(DeValue::Table(factors)) => factors,
        _ => {
            let message =
                format!("this study has no factors, so no '{name}'; a key is set as trial.repeats=3");
            return reader.mistake(key, message);
        }
    };
    let levels: Vec<Value<'d>> = one.values.iter().map(Written::read).collect();
    let begin = levels.first().map_or(key.end, |level| level.span().start);
    let list = Spanned::new(begin..begin + 1, DeValue::Array(levels.into_iter().collect()));
    let known: Vec<String> = factors.keys().map(|name| name.get_ref().to_string()).collect();
    match factors.get_mut(name) {
        Some(factor) => match factor.get_mut() {
            // Where the factor applies stays as it is.
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

fn put_at<'d>(
    reader: &mut Reader<'d>,
    tree: &mut DeTable<'d>,
    path: &[&'d str],
    key: std::ops::Range<usize>,
    value: Value<'d>,
) {
    let Some((last, parents)) = path.split_last() else { return };
    let head = path[0];
    if !HEADS.contains(&head) {
        let hint = suggestion(head, HEADS);
        return reader
            .mistake(key, format!("a study has no table '{head}'{hint} (tables: {})", HEADS.join(", ")));
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
            _ => return reader.mistake(key, format!("'{parent}' is no table of which a key can be set")),
        }
    }
    // The place in the file is the old value's.
    table.remove(*last);
    table.insert(Spanned::new(key, Cow::Borrowed(*last)), value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_edited_in_the_file() {
        let host = load::Host::EXAMPLE;
        let text = "[workload.http]\nurl = \"http://127.0.0.1/\"\n[[goals]]\np99 = \"10ms\"\n";
        for key in ["goals.p99", "goals"] {
            let told =
                crate::file::read("f", text, &[(key.to_owned(), "5ms".to_owned())], &host).unwrap_err();
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(told[0].to_string().starts_with("--set:1:1: [[goals]] is a list"), "{told:?}");
        }
    }

    #[test]
    fn commas_separate_levels_unless_they_are_within() {
        let parts = |text| split(text).into_iter().map(|(_, part)| part).collect::<Vec<_>>();
        assert_eq!(parts("50, 100"), ["50", "100"]);
        assert_eq!(parts("\"a,b\",[1,2],c"), ["\"a,b\"", "[1,2]", "c"]);
        assert_eq!(parts(""), [""]);
        assert_eq!(split("1, 22")[1], (3, "22"));
    }

    #[test]
    fn values_are_toml_or_plain_text_at_their_places() {
        let read = |text: &str| {
            let written = Written::new(10, text);
            let value = written.read();
            (value.span(), format!("{:?}", value.get_ref()))
        };
        assert_eq!(read("50").0, 10..12);
        assert!(read("50").1.starts_with("Integer"));
        assert!(read("true").1.starts_with("Boolean"));
        for text in ["5k", "2026-01-01", "a b", "", "1\ny=2", "\u{e4}", "[1"] {
            assert_eq!(read(text), (10..10 + text.len(), format!("String({text:?})")), "{text}");
        }
    }
}
