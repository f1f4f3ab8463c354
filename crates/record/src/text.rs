//! Texts of requests: the templates to fill in for each request, and the literal parts.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A piece of a text in the form in which a user wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Plain text.
    Plain(&'a str),
    /// `{{"…"}}`: a quoted text, which is literal.
    Quoted(&'a str),
    /// The expression between `{{` and `}}`.
    Template(&'a str),
}

/// The pieces of a text that a user wrote, each with its offset in bytes. A quoted text may contain braces.
///
/// # Errors
/// When a `{{` has no end.
pub fn pieces(text: &str) -> Result<Vec<(usize, Piece<'_>)>, String> {
    let (mut pieces, mut at) = (Vec::new(), 0);
    while let Some(open) = text[at..].find("{{").map(|open| at + open) {
        if open > at {
            pieces.push((at, Piece::Plain(&text[at..open])));
        }
        let inner = &text[open + 2..];
        let quoted = inner.trim_start().strip_prefix('"');
        // Braces within quotes do not end the template, so the search for `}}` begins after the closing quote.
        let skipped = quoted.map_or(0, |quoted| {
            quoted.find('"').map_or(inner.len(), |end| inner.len() - quoted.len() + end + 1)
        });
        let Some(close) = inner[skipped..].find("}}").map(|close| close + skipped) else {
            return Err(format!(
                "'{{{{' without '}}}}' in '{}': write {{{{name}}}}, or {{{{\"{{{{\"}}}} for the braces themselves",
                beginning(&text[open..])
            ));
        };
        let expression = inner[..close].trim();
        let quoted = expression.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        pieces.push((open, quoted.map_or(Piece::Template(expression), Piece::Quoted)));
        at = open + close + 4;
    }
    if at < text.len() {
        pieces.push((at, Piece::Plain(&text[at..])));
    }
    Ok(pieces)
}

/// Quotes a literal text so that no part of it is read as a template. `marks`: the characters with a special meaning in
/// this place, such as `#` in a URL.
pub fn written_literally(literal: &str, marks: &[char]) -> String {
    let (mut written, mut rest) = (String::new(), literal);
    let is_mark = |c: char| c == '{' || marks.contains(&c);
    while let Some(at) = rest.find(is_mark) {
        let (before, from) = rest.split_at(at);
        let run = from.len() - from.trim_start_matches(is_mark).len();
        written += before;
        match &from[..run] {
            "{" if before.ends_with('$') => written += "${",
            "{" => written += "{",
            run => written += &format!("{{{{\"{run}\"}}}}"),
        }
        rest = &from[run..];
    }
    written += rest;
    // After an unquoted `@`, the rest would be the name of a file.
    match written.strip_prefix('@') {
        Some(after) => format!("{{{{\"@\"}}}}{after}"),
        None => written,
    }
}

/// The beginning of a text, for messages.
fn beginning(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}

/// A text of a request. Its literal parts are never compiled as templates, whatever characters they contain: the value
/// of a variable, the content of a file, a word of another program's command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Text {
    parts: Vec<TextPart>,
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TextPart {
    /// It is sent as it is; base64.
    Literal(
        #[serde(with = "encoding")]
        #[schemars(with = "String")]
        Vec<u8>,
    ),
    /// What a user wrote between `{{` and `}}`, to be filled in for each request.
    Template(String),
}

impl Text {
    /// A text without templates.
    pub fn literal(bytes: impl Into<Vec<u8>>) -> Self {
        let mut text = Self::default();
        text.push_literal(bytes);
        text
    }

    /// A text that a user wrote, without variables.
    ///
    /// # Errors
    /// As for [`pieces`].
    pub fn written(written: &str) -> Result<Self, String> {
        let mut text = Self::default();
        for (_, piece) in pieces(written)? {
            match piece {
                Piece::Plain(literal) | Piece::Quoted(literal) => text.push_literal(literal),
                Piece::Template(expression) => text.push_template(expression),
            }
        }
        Ok(text)
    }

    /// Appends a literal part.
    pub fn push_literal(&mut self, bytes: impl Into<Vec<u8>>) {
        let bytes = bytes.into();
        match self.parts.last_mut() {
            Some(TextPart::Literal(last)) => last.extend(bytes),
            _ if bytes.is_empty() => {}
            _ => self.parts.push(TextPart::Literal(bytes)),
        }
    }

    /// Appends a template: the expression that a user wrote between `{{` and `}}`.
    pub fn push_template(&mut self, expression: &str) {
        self.parts.push(TextPart::Template(expression.to_owned()));
    }

    /// Appends a part.
    pub fn push(&mut self, part: TextPart) {
        match part {
            TextPart::Literal(bytes) => self.push_literal(bytes),
            template @ TextPart::Template(_) => self.parts.push(template),
        }
    }

    /// The parts of the text. No two literal parts follow each other.
    pub fn parts(&self) -> &[TextPart] {
        &self.parts
    }

    /// Whether the text contains a template.
    pub fn is_template(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, TextPart::Template(_)))
    }

    /// The text with each literal part changed.
    pub fn map_literals(self, change: impl Fn(Vec<u8>) -> Vec<u8>) -> Self {
        let change = |part| match part {
            TextPart::Literal(bytes) => TextPart::Literal(change(bytes)),
            template => template,
        };
        Self { parts: self.parts.into_iter().map(change).collect() }
    }

    /// The bytes of the text, with its templates in written form. For a text without templates, these are the bytes
    /// that are sent.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in &self.parts {
            match part {
                TextPart::Literal(literal) => bytes.extend_from_slice(literal),
                TextPart::Template(expression) => bytes.extend(format!("{{{{{expression}}}}}").bytes()),
            }
        }
        bytes
    }

    /// The text for a reader: [`bytes`](Self::bytes), decoded as UTF-8.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }
}

/// How a text stands in a plan: as it was written, if that says it, or by its parts.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
enum Kept {
    Written(String),
    Parts(Vec<TextPart>),
}

impl Text {
    fn kept(&self) -> Option<String> {
        String::from_utf8(self.bytes())
            .ok()
            .filter(|text| Self::written(text).is_ok_and(|read| read == *self))
    }

    /// The text of a record. If its templates cannot be read, it is literal, because only its words matter.
    pub fn of_record(words: &str) -> Self {
        Self::written(words).unwrap_or_else(|_| Self::literal(words))
    }
}

schemars::by_hand!(Text, |generator| Kept::json_schema(generator));

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        self.kept().map_or_else(|| Kept::Parts(self.parts.clone()), Kept::Written).serialize(s)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Ok(match Kept::deserialize(d)? {
            Kept::Written(words) => Self::of_record(&words),
            Kept::Parts(parts) => Self { parts },
        })
    }
}

/// Serializes a field of bytes as base64, for serde's attribute `with`.
pub mod encoding {
    use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    /// Writes bytes as base64 text.
    ///
    /// # Errors
    /// The errors of the serializer.
    pub fn serialize<S: Serializer>(bytes: &[u8], s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&BASE64.encode(bytes))
    }

    /// Reads bytes from base64 text.
    ///
    /// # Errors
    /// When the value is not a text, or the text is not base64.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u8>, D::Error> {
        BASE64.decode(String::deserialize(d)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_has_plain_quoted_and_template_pieces() {
        use Piece::{Plain, Quoted, Template};
        assert_eq!(
            pieces("a{{b|url}}c{{ \"{{x}}\" }}{").unwrap(),
            [
                (0, Plain("a")),
                (1, Template("b|url")),
                (10, Plain("c")),
                (11, Quoted("{{x}}")),
                (24, Plain("{"))
            ]
        );
        assert_eq!(Text::written("a{{\"{{\"}}b").unwrap(), Text::literal("a{{b"));
        assert!(pieces("a {{counter").unwrap_err().contains("'{{' without '}}' in '{{counter'"));
        let long = format!("{{{{{}", "x".repeat(60));
        assert!(pieces(&long).unwrap_err().contains(&format!("'{{{{{}…'", "x".repeat(38))));
    }

    #[test]
    fn a_plan_shows_a_text_as_it_was_written() {
        let text = Text::written("Bearer {{token}}").unwrap();
        assert_eq!(serde_json::to_string(&text).unwrap(), "\"Bearer {{token}}\"");
        assert_eq!(serde_json::to_string(&Text::literal("${T}")).unwrap(), "\"${T}\"");
        let of_earlier_versions: Text = serde_json::from_str("\"a {{\"").unwrap();
        assert_eq!(of_earlier_versions, Text::literal("a {{"));
    }

    proptest! {
        #[test]
        fn what_is_literal_stays_literal_in_a_plan(parts in prop::collection::vec(("[{}$a\"]{0,4}", any::<bool>(), any::<u8>()), 0..5)) {
            let mut text = Text::default();
            for (words, is_template, byte) in &parts {
                if *is_template { text.push_template(words) } else { text.push_literal(words.as_str()) }
                if *byte > 200 {
                    text.push_literal([*byte]);
                }
            }
            let written = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(serde_json::from_str::<Text>(&written).unwrap(), text);
        }
    }
}
