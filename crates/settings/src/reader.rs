//! Reads TOML value by value. Collects mistakes instead of stopping at the first one.

use std::{borrow::Cow, net::IpAddr, ops::Range, time::Duration};

use record::units::{parse_size, parse_time};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{
    Mistake,
    network::Network,
    options::{Kind, OptionSpec},
    suggestion::suggestion,
};

/// The parser's message for a repeated key.
const DUPLICATE_KEY: &str = "duplicate key";

/// Maximum number of reported mistakes. A file with more mistakes is probably of another format.
const MAX_MISTAKES: usize = 1_000;

/// A value with its span in the file.
pub type Value<'i> = Spanned<DeValue<'i>>;

/// The values of a list; any other value counts as a list of one.
pub fn values_of<'v, 'i>(value: &'v Value<'i>) -> &'v [Value<'i>] {
    match value.get_ref() {
        DeValue::Array(values) => values,
        _ => std::slice::from_ref(value),
    }
}

/// The text of a file, and the mistakes found in it.
#[derive(Debug, Clone)]
pub struct Reader<'t> {
    /// Texts of the file and of overrides, by start position.
    sources: Vec<Source<'t>>,
    mistakes: Vec<(usize, String)>,
    /// How many of the mistakes are unknown keys.
    pub unknown_keys: usize,
}

/// A text whose spans begin at `start`.
#[derive(Debug, Clone, Copy)]
struct Source<'t> {
    start: usize,
    file: &'t str,
    text: &'t str,
}

/// A table. When it is finished, keys that no caller has read are mistakes.
#[derive(Debug)]
pub struct Table<'t, 'i> {
    table: Option<&'t DeTable<'i>>,
    span: Range<usize>,
    known: Vec<&'static str>,
}

impl<'t> Reader<'t> {
    /// Reads a file; mistakes name it `file`.
    pub fn new(file: &'t str, text: &'t str) -> Self {
        Self { sources: vec![Source { start: 0, file, text }], mistakes: Vec::new(), unknown_keys: 0 }
    }

    /// Adds another text to that of the file, such as an override of a value. Positions from `start` up to the next
    /// source belong to this text. `start` must be greater than in earlier calls.
    pub fn add_source(&mut self, file: &'t str, start: usize, text: &'t str) {
        self.sources.push(Source { start, file, text });
    }

    /// Parses the document as far as possible despite mistakes.
    pub fn document(&mut self, text: &'t str) -> Spanned<DeTable<'t>> {
        let (document, errors) = DeTable::parse_recoverable(text);
        for error in errors {
            let span = error.span().unwrap_or_default();
            let mut message = error.message().trim().replace('\n', "; ");
            // The parser's message does not contain the key; only its multi-line excerpt does.
            if message == DUPLICATE_KEY
                && let Some(key) = text.get(span.clone()).filter(|key| !key.is_empty())
            {
                message = format!("{DUPLICATE_KEY} '{}'", key.trim_matches(['"', '\'']));
            }
            self.mistakes.push((span.start, message));
        }
        document
    }

    /// The document as a table.
    pub fn root<'d, 'i>(&self, document: &'d Spanned<DeTable<'i>>) -> Table<'d, 'i> {
        Table::new(document.get_ref(), document.span())
    }

    /// Adds a mistake.
    pub fn mistake(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.mistakes.push((span.start, message.into()));
    }

    /// Adds a mistake and returns `None` in place of the expected value.
    pub fn refuse<T>(&mut self, span: Range<usize>, message: impl Into<String>) -> Option<T> {
        self.mistake(span, message);
        None
    }

    /// Whether a span belongs to the file itself, not to an added text.
    pub fn is_in_file(&self, span: &Range<usize>) -> bool {
        self.sources.get(1).is_none_or(|added| span.start < added.start)
    }

    /// Number of mistakes, including repeated ones.
    pub fn mistake_count(&self) -> usize {
        self.mistakes.len()
    }

    /// Whether there are mistakes.
    pub fn has_mistakes(&self) -> bool {
        !self.mistakes.is_empty()
    }

    /// Returns `value` if there are no mistakes.
    ///
    /// # Errors
    /// All mistakes in the order of the file, but at most about a thousand.
    pub fn finish<T>(mut self, value: T) -> Result<T, Vec<Mistake>> {
        if self.mistakes.is_empty() {
            return Ok(value);
        }
        self.mistakes.sort();
        self.mistakes.dedup();
        let omitted = self.mistakes.len().saturating_sub(MAX_MISTAKES);
        if omitted > 1 {
            self.mistakes.truncate(MAX_MISTAKES + 1);
            self.mistakes[MAX_MISTAKES].1 = format!("this and {} more mistakes are not shown", omitted - 1);
        }
        let mut lines = LineCounter { sources: &self.sources, source: 0, counted: 0, line: 1, column: 1 };
        Err(self.mistakes.iter().map(|(at, message)| lines.locate(*at, message)).collect())
    }

    /// Reads a table; `what` describes it for the user.
    pub fn table<'d, 'i>(&mut self, value: &'d Value<'i>, what: &str) -> Table<'d, 'i> {
        let table = match value.get_ref() {
            DeValue::Table(table) => Some(table),
            _ => self.refuse_type(value, what),
        };
        Table { table, span: value.span(), known: Vec::new() }
    }

    /// Reads a list; returns an empty one if the value is not a list.
    pub fn array<'d, 'i>(&mut self, value: &'d Value<'i>, what: &str) -> &'d [Value<'i>] {
        match value.get_ref() {
            DeValue::Array(array) => array,
            _ => self.refuse_type(value, what).unwrap_or_default(),
        }
    }

    /// Reads a text.
    pub fn text<'d>(&mut self, value: &'d Value<'_>) -> Option<&'d str> {
        self.text_such_as(value, "text in quotes")
    }

    /// Reads a text; `what` describes it for the user.
    pub fn text_such_as<'d>(&mut self, value: &'d Value<'_>, what: &str) -> Option<&'d str> {
        match value.get_ref() {
            DeValue::String(text) => Some(text),
            _ => self.refuse_type(value, what),
        }
    }

    /// Reads a number as written, or a text; `what` describes it for the user.
    pub fn number_or_text<'d>(&mut self, value: &'d Value<'_>, what: &str) -> Option<Cow<'d, str>> {
        match value.get_ref() {
            DeValue::Integer(number) => Some(Cow::Owned(number.to_string())),
            DeValue::Float(number) => Some(Cow::Borrowed(number.as_str())),
            _ => self.text_such_as(value, what).map(Cow::Borrowed),
        }
    }

    /// Reads true or false.
    pub fn flag(&mut self, value: &Value<'_>) -> Option<bool> {
        match value.get_ref() {
            DeValue::Boolean(flag) => Some(*flag),
            _ => self.refuse_type(value, "true or false"),
        }
    }

    /// Reads a whole number within bounds.
    pub fn whole(&mut self, value: &Value<'_>, bounds: Range<u64>) -> Option<u64> {
        let what = format!("a whole number from {} to {}", bounds.start, bounds.end - 1);
        let DeValue::Integer(number) = value.get_ref() else { return self.refuse_type(value, &what) };
        let read = u64::from_str_radix(&number.as_str().replace('_', ""), number.radix()).ok();
        let fits = read.filter(|number| bounds.contains(number));
        self.checked(value, fits.ok_or_else(|| format!("{number} is not {what}")))
    }

    /// Reads a number above 0.
    pub fn positive(&mut self, value: &Value<'_>, what: &str) -> Option<f64> {
        let digits = match value.get_ref() {
            DeValue::Integer(number) => number.as_str(),
            DeValue::Float(number) => number.as_str(),
            _ => return self.refuse_type(value, what),
        };
        let number: Option<f64> = digits.replace('_', "").parse().ok();
        let valid = number.filter(|number| *number > 0.0 && number.is_finite());
        self.checked(value, valid.ok_or_else(|| format!("expected {what}")))
    }

    /// Reads a time such as `"10s"`.
    pub fn time(&mut self, value: &Value<'_>) -> Option<Duration> {
        let text = self.text_such_as(value, "a time in quotes, such as \"10s\"")?;
        self.checked(value, parse_time(text))
    }

    /// Reads a size in bytes: a whole number, or a text such as `"5KiB"`.
    pub fn size(&mut self, value: &Value<'_>) -> Option<u64> {
        if let DeValue::Integer(_) = value.get_ref() {
            return self.whole(value, 0..1 << 50);
        }
        let text = self.text_such_as(value, "a size, such as \"5KiB\"")?;
        self.checked(value, parse_size(text))
    }

    /// Reads an IP address.
    pub fn address(&mut self, value: &Value<'_>) -> Option<IpAddr> {
        let text = self.text_such_as(value, "an address in quotes")?;
        let read =
            text.parse().map_err(|_| format!("'{text}' is not an address such as 10.1.0.1 or fd00::1"));
        self.checked(value, read)
    }

    /// Reads a network such as `10.1.0.0/16`.
    pub fn network(&mut self, value: &Value<'_>) -> Option<Network> {
        let text = self.text_such_as(value, "a network in quotes, such as \"10.1.0.0/16\"")?;
        self.checked(value, text.parse())
    }

    /// Returns the value of `result`, or adds its error as a mistake.
    pub fn checked<T, E: ToString>(&mut self, value: &Value<'_>, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.mistake(value.span(), error.to_string())).ok()
    }

    /// Applies an option with this value. Adds a mistake if the value is invalid.
    pub fn apply<T>(&mut self, spec: &OptionSpec<T>, value: &Value<'_>, to: &mut T) {
        let Some(texts) = self.option_texts(spec, value) else { return };
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        if !texts.is_empty() {
            self.checked(value, (spec.apply)(to, &texts));
        }
    }

    /// The value of an option as texts of the command line: one text, several for a list, none for a flag at its
    /// default. If the type is wrong, adds a mistake and returns `None`.
    pub fn option_texts<T>(&mut self, spec: &OptionSpec<T>, value: &Value<'_>) -> Option<Vec<String>> {
        let OptionSpec { kind, example, .. } = *spec;
        let one = |text: Option<&str>| Some(vec![text?.to_owned()]);
        match (kind, value.get_ref()) {
            (Kind::Flag | Kind::On, _) => {
                let default = kind == Kind::On;
                self.flag(value).map(|flag| if flag == default { Vec::new() } else { vec![flag.to_string()] })
            }
            (
                Kind::Count(_) | Kind::Rate | Kind::Share | Kind::Size | Kind::Numbers | Kind::Choice(_),
                DeValue::Integer(number),
            ) => {
                let decimal = i64::from_str_radix(&number.as_str().replace('_', ""), number.radix());
                Some(vec![decimal.map_or_else(|_| number.to_string(), |decimal| decimal.to_string())])
            }
            (Kind::Rate | Kind::Share, DeValue::Float(number)) => one(Some(number.as_str())),
            (Kind::Count(_), _) => one(self.text_such_as(value, "a whole number")),
            (Kind::Rate, _) => one(self.text_such_as(value, "a number such as 100 or \"5k\"")),
            (Kind::Share, _) => one(self.text_such_as(value, "a share such as \"2%\" or 0.02")),
            (Kind::Size, _) => one(self.text_such_as(value, "a size, such as \"64KiB\"")),
            (Kind::Time, _) => one(self.text_such_as(value, "a time in quotes, such as \"10s\"")),
            (Kind::Choice(_), _) => one(self.text(value)),
            (Kind::Text | Kind::Numbers, _) => {
                one(self.text_such_as(value, &format!("text in quotes, such as {example:?}")))
            }
            (Kind::List, DeValue::String(text)) => one(Some(text)),
            (Kind::List, _) => {
                let items = self.array(value, "a list of texts");
                items.iter().map(|item| self.text(item).map(str::to_owned)).collect()
            }
        }
    }

    /// Adds the mistake that the value is not `what`.
    pub fn expected(&mut self, value: &Value<'_>, what: &str) {
        self.mistake(value.span(), format!("expected {what}, found {}", type_name(value.get_ref())));
    }

    /// Adds the mistake that the value is not `what`, and returns `None`.
    pub fn refuse_type<T>(&mut self, value: &Value<'_>, what: &str) -> Option<T> {
        self.expected(value, what);
        None
    }
}

/// Converts ascending positions into lines and columns. It counts each character only once.
struct LineCounter<'r, 't> {
    sources: &'r [Source<'t>],
    /// Index of the source that `counted` refers to.
    source: usize,
    /// Number of bytes of its text that have been counted.
    counted: usize,
    line: usize,
    column: usize,
}

impl LineCounter<'_, '_> {
    fn locate(&mut self, at: usize, message: &str) -> Mistake {
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
    /// A table with its span.
    pub fn new(table: &'t DeTable<'i>, span: Range<usize>) -> Self {
        Self { table: Some(table), span, known: Vec::new() }
    }

    /// The span of the table.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// The value of an optional key.
    pub fn take(&mut self, key: &'static str) -> Option<&'t Value<'i>> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        self.table?.get(key)
    }

    /// The value of a required key. A missing key is a mistake; `what` explains the key.
    pub fn require(
        &mut self,
        reader: &mut Reader<'_>,
        key: &'static str,
        what: &str,
    ) -> Option<&'t Value<'i>> {
        let value = self.take(key);
        if value.is_none() && self.table.is_some() {
            reader.mistake(self.span(), format!("'{key}' is missing: {what}"));
        }
        value
    }

    /// All entries: span of the key, key, value.
    pub fn entries(&self) -> impl Iterator<Item = (Range<usize>, &'t str, &'t Value<'i>)> + use<'t, 'i> {
        self.table.into_iter().flatten().map(|(key, value)| (key.span(), key.get_ref().as_ref(), value))
    }

    /// Adds a mistake for every key that no caller has read.
    pub fn finish(self, reader: &mut Reader<'_>) {
        for (span, key, _) in self.entries() {
            if !self.known.contains(&key) {
                // Finding a similar key takes time, and nobody reads so many hints.
                let hint = match reader.mistake_count() {
                    0..MAX_MISTAKES => suggestion(key, self.known.iter().copied()),
                    _ => String::new(),
                };
                let known = self.known.join(", ");
                reader.unknown_keys += 1;
                reader.mistake(span, format!("unknown key '{key}'{hint} (known here: {known})"));
            }
        }
    }
}

fn type_name(value: &DeValue<'_>) -> &'static str {
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
mod tests;
