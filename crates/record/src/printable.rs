//! Escaping of untrusted text for terminals and reports: control characters and invisible characters become visible.

use std::{
    borrow::Cow,
    io::{self, Write},
};

/// Escapes all control characters, and all characters that are invisible or reorder text. Otherwise a title could move
/// a terminal's cursor, reverse a sentence or begin a new line.
pub fn printable(text: &str) -> String {
    escaped(text, is_unprintable, |c, shown| shown.extend(c.escape_default())).into_owned()
}

/// Like [`printable`], but keeps line breaks and tabs.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    let must_escape = |c: char| is_unprintable(c) && !['\n', '\t'].contains(&c);
    escaped(text, must_escape, |c, shown| shown.extend(c.escape_default()))
}

/// Escapes the same characters in JSON, as `\u001b`. The JSON keeps its meaning. JSON itself requires escapes only for
/// some control characters.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    // In JSON, line breaks occur only between values, so they need no escape.
    escaped(
        json,
        |c| is_unprintable(c) && c != '\n',
        |c, shown| shown.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}"))),
    )
}

fn escaped(
    text: &str,
    must_escape: impl Fn(char) -> bool,
    escape: impl Fn(char, &mut String),
) -> Cow<'_, str> {
    if !text.chars().any(&must_escape) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if must_escape(c) { escape(c, &mut shown) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

/// A writer that escapes all text. Each write must end at a character boundary.
#[derive(Debug)]
pub struct PrintableWriter<W> {
    output: W,
    escape: fn(&str) -> Cow<'_, str>,
}

impl<W: Write> PrintableWriter<W> {
    /// Creates a writer that applies `escape` and writes to `output`.
    pub fn new(output: W, escape: fn(&str) -> Cow<'_, str>) -> Self {
        Self { output, escape }
    }
}

impl<W: Write> Write for PrintableWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(bytes) {
            Ok(text) => self.output.write_all((self.escape)(text).as_bytes())?,
            // Bytes that are not text, such as a compressed file, stay unchanged.
            Err(_) => self.output.write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

/// Whether a character is invisible, controls a terminal, or reorders the text around it.
fn is_unprintable(c: char) -> bool {
    let reorders =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let has_no_width = matches!(c, '\u{ad}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2064}' | '\u{feff}');
    let is_no_text =
        matches!(c, '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}' | '\u{e0000}'..='\u{e007f}');
    c.is_control() || reorders || has_no_width || is_no_text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn unprintable_characters_are_escaped() {
        assert_eq!(printable("a\u{1b}[2J\n\u{202e}b"), "a\\u{1b}[2J\\n\\u{202e}b");
    }

    proptest! {
        #[test]
        fn nothing_unprintable_is_left_and_json_means_the_same(text in any::<String>()) {
            prop_assert!(!printable(&text).chars().any(is_unprintable));
            let json = format!("{:#}", serde_json::json!({ "a": text, "b": ["\u{7f}\u{9b}\u{202e}\u{e0041}"] }));
            let shown = printable_json(&json);
            prop_assert!(!shown.chars().any(|c| is_unprintable(c) && c != '\n'));
            let read = |json: &str| serde_json::from_str::<serde_json::Value>(json).unwrap();
            prop_assert_eq!(read(&json), read(&shown));
        }
    }
}
