//! Finds JSON objects with an event number anywhere in a line: inside other objects, in JSON inside JSON, or escaped.

use memchr::{memchr, memmem};
use record::receipt::{EVENT_KEY, Marker};
use serde_json::{Map, Value};

/// Maximum number of times that a whole line may have been escaped.
const MAX_ESCAPE_DEPTH: usize = 3;
/// First character of a number that was read as text. It distinguishes numbers from strings, because no sent string
/// starts with it.
const NUMBER: char = '\0';

/// How numbers in JSON are represented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Numbers {
    /// As values, which are exact for integers of up to 64 bits.
    Values,
    /// As text, for numbers that values cannot represent exactly. [`number_text`] distinguishes them from strings.
    Texts,
}

impl Numbers {
    /// The representation that comparing numbers with this value exactly requires.
    pub(super) fn needed_for(value: &Value) -> Self {
        let is_exact = |value: &Value| Self::needed_for(value) == Self::Values;
        let all_exact = match value {
            Value::Number(number) => !number.is_f64(),
            Value::Array(values) => values.iter().all(is_exact),
            Value::Object(members) => members.values().all(is_exact),
            Value::Null | Value::Bool(_) | Value::String(_) => true,
        };
        if all_exact { Self::Values } else { Self::Texts }
    }

    /// Parses valid JSON.
    pub(super) fn read(self, json: &[u8]) -> Option<Value> {
        match self {
            Self::Values => serde_json::from_slice(json).ok(),
            Self::Texts => serde_json::from_slice(&numbers_as_texts(json)).ok(),
        }
    }
}

/// The text of a number that was read as [`Numbers::Texts`]; `None` for a string.
pub(super) fn number_text(text: &str) -> Option<&str> {
    text.strip_prefix(NUMBER)
}

/// The events in a line.
#[derive(Debug, Default)]
pub(super) struct ParsedLine {
    /// All JSON objects with an event number.
    pub events: Vec<(Marker, Map<String, Value>)>,
    /// Whether the line contains two JSON texts with events, which means that a line end is missing.
    pub is_joined: bool,
}

/// Parses the JSON in a line, which may be escaped.
pub(super) fn read_events(line: &[u8], numbers: Numbers) -> ParsedLine {
    let mut read = ParsedLine::default();
    let mut text = line.to_vec();
    for _ in 0..=MAX_ESCAPE_DEPTH {
        read.is_joined = collect_from_text(&text, numbers, 0, &mut read.events);
        let plain = unescaped(&text);
        if !read.events.is_empty() || plain.len() == text.len() {
            break;
        }
        text = plain;
    }
    read
}

/// Collects the events in a text. Returns whether it contains two JSON texts with events and no line end between them.
fn collect_from_text(
    text: &[u8],
    numbers: Numbers,
    depth: usize,
    events: &mut Vec<(Marker, Map<String, Value>)>,
) -> bool {
    let (mut from, mut is_joined, mut last_end) = (0, false, None);
    while let Some(at) = text[from..].iter().position(|byte| matches!(byte, b'{' | b'[')) {
        let start = from + at;
        let mut values = serde_json::Deserializer::from_slice(&text[start..]).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) => {
                from = start + values.byte_offset();
                let value = match numbers {
                    Numbers::Values => Some(value),
                    Numbers::Texts => numbers.read(&text[start..from]),
                };
                let before = events.len();
                value.into_iter().for_each(|value| collect(value, numbers, depth, events));
                if events.len() > before {
                    let between = last_end.map(|end| &text[end..start]);
                    is_joined |= between.is_some_and(|between| !has_line_end(between));
                    last_end = Some(from);
                }
            }
            _ => from = start + 1,
        }
        if memmem::find(&text[from..], EVENT_KEY.as_bytes()).is_none() {
            break;
        }
    }
    is_joined
}

/// Whether a text contains a line end, escaped or not.
fn has_line_end(text: &[u8]) -> bool {
    memchr(b'\n', text).is_some() || memmem::find(text, b"\\n").is_some()
}

fn collect(value: Value, numbers: Numbers, depth: usize, events: &mut Vec<(Marker, Map<String, Value>)>) {
    match value {
        Value::Array(values) => values.into_iter().for_each(|value| collect(value, numbers, depth, events)),
        Value::Object(members) => {
            let marker = members.get(EVENT_KEY).and_then(Value::as_str);
            let marker = marker.filter(|text| text.len() == Marker::BYTES);
            match marker.and_then(|text| Marker::parse(text.as_bytes())) {
                Some(marker) => events.push((marker, members)),
                None => members.into_iter().for_each(|(_, value)| collect(value, numbers, depth, events)),
            }
        }
        Value::String(text) if depth < MAX_ESCAPE_DEPTH && text.contains(EVENT_KEY) => {
            // A member's value is one text, so joined lines inside it do not count.
            let _ = collect_from_text(text.as_bytes(), numbers, depth + 1, events);
        }
        _ => {}
    }
}

/// Replaces every number in valid JSON by a string that starts with [`NUMBER`].
fn numbers_as_texts(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len() * 2);
    let mut at = 0;
    while let Some(&byte) = json.get(at) {
        let rest = &json[at..];
        let (is_number, length) = match byte {
            b'"' => (false, string_length(rest)),
            b'-' | b'0'..=b'9' => {
                let goes_on = |byte: &&u8| matches!(byte, b'-' | b'+' | b'.' | b'0'..=b'9' | b'e' | b'E');
                (true, rest.iter().take_while(goes_on).count())
            }
            _ => (false, 1),
        };
        if is_number {
            out.extend_from_slice(b"\"\\u0000");
            out.extend_from_slice(&rest[..length]);
            out.push(b'"');
        } else {
            out.extend_from_slice(&rest[..length]);
        }
        at += length;
    }
    out
}

/// Length of the JSON string at the start of the input, including its quotes.
fn string_length(json: &[u8]) -> usize {
    let mut escaped = false;
    let end = json.iter().skip(1).position(|&byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    end.map_or(json.len(), |end| end + 2)
}

/// Removes one layer of escapes: `\"`, `\\` and nginx's `\x22`.
fn unescaped(text: &[u8]) -> Vec<u8> {
    if memchr(b'\\', text).is_none() {
        return text.to_vec();
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let (byte, taken) = match (byte, text.get(at + 1)) {
            (b'\\', Some(&escaped @ (b'"' | b'\\' | b'/'))) => (escaped, 2),
            (b'\\', Some(b'x')) => {
                let digits = text.get(at + 2..at + 4).and_then(|digits| std::str::from_utf8(digits).ok());
                match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
                    Some(byte) => (byte, 4),
                    None => (byte, 1),
                }
            }
            _ => (byte, 1),
        };
        plain.push(byte);
        at += taken;
    }
    plain
}
