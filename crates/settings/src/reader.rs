//! Reads TOML value by value, and collects mistakes instead of stopping at the first.

use std::{borrow::Cow, net::IpAddr, ops::Range, time::Duration};

use record::units::{parse_size, parse_time};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{Mistake, network::Network};

/// What the parser says of a key that is in its table already.
const TWICE: &str = "duplicate key";

/// The most mistakes that are told: who has more of them has another file in mind.
const MOST_TOLD: usize = 1_000;

/// A value, and where it stands in the file.
pub type Value<'i> = Spanned<DeValue<'i>>;

/// The file's text and the mistakes found in it so far.
#[derive(Debug, Clone)]
pub struct Reader<'t> {
    /// In the order of their first places.
    sources: Vec<Source<'t>>,
    mistakes: Vec<(usize, String)>,
}

/// A text that places lie in.
#[derive(Debug, Clone, Copy)]
struct Source<'t> {
    start: usize,
    file: &'t str,
    text: &'t str,
}

/// A table of which every key must be asked for.
#[derive(Debug)]
pub struct Table<'t, 'i> {
    table: Option<&'t DeTable<'i>>,
    span: Range<usize>,
    known: Vec<&'static str>,
}

impl<'t> Reader<'t> {
    /// Of a file; `file` is its name for the mistakes.
    pub fn new(file: &'t str, text: &'t str) -> Self {
        Self { sources: vec![Source { start: 0, file, text }], mistakes: Vec::new() }
    }

    /// Adds a text beside the file's, such as an option that changes one value: places from `start` on, up to the
    /// next text's, are told as places of this one. `start` lies behind all texts added before.
    pub fn add_source(&mut self, file: &'t str, start: usize, text: &'t str) {
        self.sources.push(Source { start, file, text });
    }

    /// The whole document, as far as it can be read.
    pub fn document(&mut self, text: &'t str) -> Spanned<DeTable<'t>> {
        let (document, errors) = DeTable::parse_recoverable(text);
        for error in errors {
            let span = error.span().unwrap_or_default();
            let mut message = error.message().trim().replace('\n', "; ");
            // The parser only shows which one, in a picture that has no place here.
            if message == TWICE
                && let Some(key) = text.get(span.clone()).filter(|key| !key.is_empty())
            {
                message = format!("{TWICE} '{}'", key.trim_matches(['"', '\'']));
            }
            self.mistakes.push((span.start, message));
        }
        document
    }

    /// The table that the document is.
    pub fn root<'d, 'i>(&self, document: &'d Spanned<DeTable<'i>>) -> Table<'d, 'i> {
        Table::of(document.get_ref(), document.span())
    }

    /// Notes a mistake at a place of the file.
    pub fn mistake(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.mistakes.push((span.start, message.into()));
    }

    /// Whether a place lies in the file itself, not in a text added to it.
    pub fn is_in_file(&self, span: &Range<usize>) -> bool {
        self.sources.get(1).is_none_or(|added| span.start < added.start)
    }

    /// How many there were so far, the repeated ones counted each time.
    pub fn mistakes(&self) -> usize {
        self.mistakes.len()
    }

    /// Whether there was one so far.
    pub fn has_mistakes(&self) -> bool {
        !self.mistakes.is_empty()
    }

    /// What was read, if there were no mistakes.
    ///
    /// # Errors
    /// Every mistake, in the order of the file; of thousands, the first.
    pub fn end<T>(mut self, plan: T) -> Result<T, Vec<Mistake>> {
        if self.mistakes.is_empty() {
            return Ok(plan);
        }
        self.mistakes.sort();
        self.mistakes.dedup();
        let untold = self.mistakes.len().saturating_sub(MOST_TOLD);
        if untold > 1 {
            self.mistakes.truncate(MOST_TOLD + 1);
            self.mistakes[MOST_TOLD].1 =
                format!("this and {} more mistakes behind it are not told", untold - 1);
        }
        let mut places = Places { sources: &self.sources, source: 0, counted: 0, line: 1, column: 1 };
        Err(self.mistakes.iter().map(|(at, message)| places.told(*at, message)).collect())
    }

    /// A value that must be a table; `what` says so to the user.
    pub fn table<'d, 'i>(&mut self, value: &'d Value<'i>, what: &str) -> Table<'d, 'i> {
        let table = match value.get_ref() {
            DeValue::Table(table) => Some(table),
            other => {
                self.expected(value.span(), what, other);
                None
            }
        };
        Table { table, span: value.span(), known: Vec::new() }
    }

    /// A value that must be a list; empty if it is none.
    pub fn array<'d, 'i>(&mut self, value: &'d Value<'i>, what: &str) -> &'d [Value<'i>] {
        match value.get_ref() {
            DeValue::Array(array) => array,
            other => {
                self.expected(value.span(), what, other);
                &[]
            }
        }
    }

    /// A value that must be text.
    pub fn text<'d>(&mut self, value: &'d Value<'_>) -> Option<&'d str> {
        self.text_such_as(value, "text in quotes")
    }

    /// A value that must be text; `what` says what kind.
    pub fn text_such_as<'d>(&mut self, value: &'d Value<'_>, what: &str) -> Option<&'d str> {
        match value.get_ref() {
            DeValue::String(text) => Some(text),
            other => {
                self.expected(value.span(), what, other);
                None
            }
        }
    }

    /// A number as it is written, or text; `what` says what kind.
    pub fn number_or_text<'d>(&mut self, value: &'d Value<'_>, what: &str) -> Option<Cow<'d, str>> {
        match value.get_ref() {
            DeValue::Integer(number) => Some(Cow::Owned(number.to_string())),
            DeValue::Float(number) => Some(Cow::Borrowed(number.as_str())),
            _ => self.text_such_as(value, what).map(Cow::Borrowed),
        }
    }

    /// A value that must be true or false.
    pub fn flag(&mut self, value: &Value<'_>) -> Option<bool> {
        match value.get_ref() {
            DeValue::Boolean(flag) => Some(*flag),
            other => {
                self.expected(value.span(), "true or false", other);
                None
            }
        }
    }

    /// A whole number within bounds.
    pub fn whole(&mut self, value: &Value<'_>, bounds: Range<u64>) -> Option<u64> {
        let what = format!("a whole number from {} to {}", bounds.start, bounds.end - 1);
        if let DeValue::Integer(number) = value.get_ref() {
            let read = u64::from_str_radix(&number.as_str().replace('_', ""), number.radix()).ok();
            if let Some(number) = read.filter(|number| bounds.contains(number)) {
                return Some(number);
            }
            self.mistake(value.span(), format!("{number} is not {what}"));
        } else {
            self.expected(value.span(), &what, value.get_ref());
        }
        None
    }

    /// A number above 0.
    pub fn positive(&mut self, value: &Value<'_>, what: &str) -> Option<f64> {
        let number = match value.get_ref() {
            DeValue::Integer(number) => number.as_str().replace('_', "").parse().ok(),
            DeValue::Float(number) => number.as_str().replace('_', "").parse().ok(),
            other => {
                self.expected(value.span(), what, other);
                return None;
            }
        };
        let fits = number.filter(|&number: &f64| number > 0.0 && number.is_finite());
        if fits.is_none() {
            self.mistake(value.span(), format!("expected {what}"));
        }
        fits
    }

    /// A time such as `"10s"`.
    pub fn time(&mut self, value: &Value<'_>) -> Option<Duration> {
        let text = self.text_such_as(value, "a time in quotes, such as \"10s\"")?;
        self.checked(value, parse_time(text))
    }

    /// A size in bytes: a whole number, or text such as `"5KiB"`.
    pub fn size(&mut self, value: &Value<'_>) -> Option<u64> {
        if let DeValue::Integer(_) = value.get_ref() {
            return self.whole(value, 0..1 << 50);
        }
        let text = self.text_such_as(value, "a size, such as \"5KiB\"")?;
        self.checked(value, parse_size(text))
    }

    /// An address.
    pub fn address(&mut self, value: &Value<'_>) -> Option<IpAddr> {
        let text = self.text_such_as(value, "an address in quotes")?;
        let read =
            text.parse().map_err(|_| format!("'{text}' is not an address such as 10.1.0.1 or fd00::1"));
        self.checked(value, read)
    }

    /// A network such as `10.1.0.0/16`.
    pub fn network(&mut self, value: &Value<'_>) -> Option<Network> {
        let text = self.text_such_as(value, "a network in quotes, such as \"10.1.0.0/16\"")?;
        self.checked(value, text.parse())
    }

    /// What was read of a value, or a mistake at its place.
    pub fn checked<T, E: ToString>(&mut self, value: &Value<'_>, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.mistake(value.span(), error.to_string())).ok()
    }

    /// Notes that something else was expected.
    pub fn expected(&mut self, span: Range<usize>, what: &str, found: &DeValue<'_>) {
        self.mistake(span, format!("expected {what}, found {}", kind(found)));
    }
}

/// Lines and columns of places that come in their order, so that each character is counted once, however many there are.
struct Places<'r, 't> {
    sources: &'r [Source<'t>],
    /// The source that `counted` lies in.
    source: usize,
    /// Its text is counted up to here.
    counted: usize,
    line: usize,
    column: usize,
}

impl Places<'_, '_> {
    fn told(&mut self, at: usize, message: &str) -> Mistake {
        while self.sources.get(self.source + 1).is_some_and(|next| next.start <= at) {
            *self = Self { source: self.source + 1, counted: 0, line: 1, column: 1, ..*self };
        }
        let Source { start, file, text } = self.sources[self.source];
        let mut end = text.len().min(at - start);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        for c in text[self.counted..end].chars() {
            (self.line, self.column) =
                if c == '\n' { (self.line + 1, 1) } else { (self.line, self.column + 1) };
        }
        self.counted = end;
        Mistake { file: file.to_owned(), line: self.line, column: self.column, message: message.to_owned() }
    }
}

impl<'t, 'i> Table<'t, 'i> {
    /// A table that stands at a place of the file.
    pub fn of(table: &'t DeTable<'i>, span: Range<usize>) -> Self {
        Self { table: Some(table), span, known: Vec::new() }
    }

    /// Where it stands in the file.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// The value of a key that this table may have.
    pub fn take(&mut self, key: &'static str) -> Option<&'t Value<'i>> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        self.table?.get(key)
    }

    /// The value of a key that this table must have.
    pub fn need(&mut self, reader: &mut Reader<'_>, key: &'static str, what: &str) -> Option<&'t Value<'i>> {
        let value = self.take(key);
        if value.is_none() && self.table.is_some() {
            reader.mistake(self.span(), format!("'{key}' is missing: {what}"));
        }
        value
    }

    /// All keys, whatever they are called.
    pub fn all(&self) -> impl Iterator<Item = (Range<usize>, &'t str, &'t Value<'i>)> + use<'t, 'i> {
        self.table.into_iter().flatten().map(|(key, value)| (key.span(), key.get_ref().as_ref(), value))
    }

    /// Refuses every key that was not asked for.
    pub fn finish(self, reader: &mut Reader<'_>) {
        for (span, key, _) in self.all() {
            if !self.known.contains(&key) {
                // Hints take time, and nobody reads so many.
                let hint = match reader.mistakes() {
                    0..MOST_TOLD => suggestion(key, self.known.iter().copied()),
                    _ => String::new(),
                };
                let known = self.known.join(", ");
                reader.mistake(span, format!("unknown key '{key}'{hint} (known here: {known})"));
            }
        }
    }
}

/// `; did you mean 'x'?` if one of those known is near.
pub fn suggestion<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    // Words of other lengths are no neighbours; to compare long ones takes long.
    let most = |name: &str| 1 + name.len() / 4;
    let near = known
        .into_iter()
        .filter(|name| name.len().abs_diff(given.len()) <= 4 * most(name))
        .map(|name| (strsim::damerau_levenshtein(given, name), name))
        .filter(|(distance, name)| *distance <= most(name))
        .min();
    near.map_or_else(String::new, |(_, name)| format!("; did you mean '{name}'?"))
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Vec<String> {
        let mut reader = Reader::new("f", text);
        reader.document(text);
        reader.end(()).unwrap_err().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_key_that_is_there_twice_is_named() {
        assert_eq!(told("a = 1\nb = 2\na = 3\n"), ["f:3:1: duplicate key 'a'"]);
        assert_eq!(told("[t]\nx = 1\n\"x\" = 2\n"), ["f:3:1: duplicate key 'x'"]);
        assert_eq!(told("[t.web]\n[t.web]\n"), ["f:2:4: duplicate key 'web'"]);
    }

    #[test]
    fn thousands_of_mistakes_are_placed_in_no_time_and_the_first_of_them_told() {
        let lines: String = (0..200_000).map(|number| format!("key{number:06} = 1\n")).collect();
        let begun = std::time::Instant::now();
        let mut reader = Reader::new("f", &lines);
        let document = reader.document(&lines);
        let mut table = reader.root(&document);
        table.take("key");
        table.finish(&mut reader);
        let told = reader.end(()).unwrap_err();
        // It was more than 15 s, of an optimised program.
        assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
        assert_eq!(told.len(), 1_001);
        assert_eq!((told[999].line, told[999].column), (1_000, 1));
        assert_eq!(told[1_000].to_string(), "f:1001:1: this and 198999 more mistakes behind it are not told");
    }

    #[test]
    fn places_are_counted_in_characters_and_in_the_text_they_stand_in() {
        let mut reader = Reader::new("f", "ä = 1\nbö = 2\n");
        reader.add_source("--set", 20, "x=1");
        for at in [22, 12, 3, 7, 5, 0, 40] {
            reader.mistake(at..at, "m");
        }
        let told: Vec<String> = reader.end(()).unwrap_err().iter().map(ToString::to_string).collect();
        let places = ["f:1:1", "f:1:3", "f:1:5", "f:2:1", "f:2:5", "--set:1:3", "--set:1:4"];
        assert_eq!(told, places.map(|place| format!("{place}: m")));
    }
}
