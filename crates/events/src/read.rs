//! Reads the records in a body.

use memchr::{memchr, memchr2};
use serde::de::{DeserializeSeed, Error as _, SeqAccess, Visitor};
use serde_json::{Deserializer, value::RawValue};

use record::input;

use crate::{EventTime, Kind, Mistake, MistakeKind, Mode, Rules, form, members, multipart, ruby};

/// A record of a body; contains no line breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// A JSON object on one line, unchanged if it was sent on one line; or a text line of [`Kind::Raw`].
    pub text: &'a str,
    /// Whether the record is JSON. Lines of [`Kind::Raw`] never are, even if they look like JSON.
    pub is_json: bool,
    /// The record's time: from the member that the rules name, or from the field `time` of a form.
    pub time: Option<EventTime>,
}

/// Buffers that can be reused from body to body.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) line: String,
    pub(crate) field: Vec<u8>,
}

/// Maximum nesting of arrays and objects in a record. Less than 128, the limit of `serde_json`, which may read the lines
/// later.
const MAX_DEPTH: usize = 127;

/// Passes the records of `body` to `sink` in order. Returns their number.
///
/// Any mistake refuses the whole body, even if `sink` has already received records; the caller must then discard them.
///
/// Validates JSON according to RFC 8259, including UTF-8. Allows numbers of any size and escaped lone surrogates. A
/// record is an object with at most 127 levels of nesting; duplicate members are kept. Empty lines are skipped, even in
/// [`Kind::Raw`].
///
/// Fluentd's modes also refuse what Fluentd refuses: blank lines between others, further objects in a JSON text, numbers
/// beyond the range of a double, and lone surrogates. In [`Mode::Fluentd`] a body may be empty.
///
/// # Errors
/// A [`Mistake`] with its position.
pub fn read(
    body: &[u8],
    kind: Kind,
    rules: &Rules,
    scratch: &mut Scratch,
    sink: &mut impl FnMut(Record<'_>),
) -> Result<usize, Mistake> {
    let found = match kind {
        Kind::Json | Kind::Ndjson | Kind::Raw => {
            return Reader { rules, line: &mut scratch.line, form_time: None, records: 0, sink }
                .read(body, kind);
        }
        Kind::Form => form::find_records(body, &mut scratch.field)?,
        Kind::Multipart(boundary) => {
            multipart::find_records(body, &boundary, rules.mode, &mut scratch.field)?
        }
        Kind::Msgpack => {
            return Err(unsupported("MessagePack is not supported: send JSON, NDJSON or a form"));
        }
        Kind::Other if rules.mode.is_fluentd() => None,
        Kind::Other => {
            return Err(unsupported(
                "expected a Content-Type of application/json, application/x-ndjson, \
                 application/x-www-form-urlencoded, multipart/form-data or text/plain",
            ));
        }
    };
    let Some(found) = found else { return Err(missing_parameter()) };
    let form_time = found.time.map(|text| EventTime::of_parameter(&text, rules.mode, rules.zone)).transpose();
    let form_time = form_time.map_err(|error| Mistake::at(b"", 0, format!("the field time: {error}")))?;
    if found.kind == Kind::Msgpack {
        return Err(unsupported("MessagePack is not supported: send the field json or ndjson"));
    }
    let field = std::mem::take(&mut scratch.field);
    let read =
        Reader { rules, line: &mut scratch.line, form_time, records: 0, sink }.read(&field, found.kind);
    scratch.field = field;
    read
}

/// The state of reading one body.
struct Reader<'r, S> {
    rules: &'r Rules,
    /// Buffer for rewritten records.
    line: &'r mut String,
    /// The time that a form sets for all records; zero stands for now.
    form_time: Option<EventTime>,
    records: usize,
    sink: &'r mut S,
}

impl<S: FnMut(Record<'_>)> Reader<'_, S> {
    fn read(mut self, body: &[u8], kind: Kind) -> Result<usize, Mistake> {
        let text = input::utf8(body)
            .map_err(|error| Mistake::at(body, error.at, format!("expected UTF-8; {}", error.why)))?;
        // Fluentd treats a byte order mark as text.
        let begin = if text.starts_with(input::MARK) && !self.rules.mode.is_fluentd() {
            input::MARK.len_utf8()
        } else {
            0
        };
        match kind {
            Kind::Ndjson => self.lines(text, begin)?,
            Kind::Raw => self.raw_lines(text, begin)?,
            _ => self.json(text, begin)?,
        }
        Ok(self.records)
    }

    /// Reads an array or an object. Except in Fluentd's modes, further objects may follow the object on separate lines.
    fn json(&mut self, text: &str, begin: usize) -> Result<(), Mistake> {
        let start = text.len() - text[begin..].trim_start_matches(WHITESPACE).len();
        match text.as_bytes().get(start) {
            Some(b'[') => return self.array(text, start),
            Some(b'{') => {}
            None if self.rules.mode == Mode::Fluentd => return Ok(()),
            _ => {
                let expected = "expected an object, an array of objects, or objects line by line";
                return Err(Mistake::at(text.as_bytes(), start, expected));
            }
        }
        let mut values = Deserializer::from_str(&text[start..]).into_iter::<&RawValue>();
        match values.next() {
            Some(Ok(value)) => self.record(value.get(), text)?,
            Some(Err(error)) => return Err(mistake(&error, text, start)),
            None => return Ok(()),
        }
        let end = start + values.byte_offset();
        let rest = &text[end..];
        let more = rest.len() - rest.trim_start_matches(WHITESPACE).len();
        if self.rules.mode.is_fluentd() {
            if more < rest.len() {
                let expected =
                    "expected the end of the body: send several objects in an array, or as x-ndjson";
                return Err(Mistake::at(text.as_bytes(), end + more, expected));
            }
            return Ok(());
        }
        if more < rest.len() && memchr(b'\n', &rest.as_bytes()[..more]).is_none() {
            let expected = "expected the end of the body, or a new line before the next object";
            return Err(Mistake::at(text.as_bytes(), end + more, expected));
        }
        self.lines(text, end + more)
    }

    fn array(&mut self, text: &str, start: usize) -> Result<(), Mistake> {
        let mut refused = None;
        let mut array = Deserializer::from_str(&text[start..]);
        let element = |element: &str| self.object(element, text).map_err(|mistake| refused = Some(mistake));
        let outcome = Elements(element).deserialize(&mut array).and_then(|()| array.end());
        match refused {
            Some(mistake) => Err(mistake),
            None => outcome.map_err(|error| mistake(&error, text, start)),
        }
    }

    /// Reads lines from byte `from` on, each of which is an object.
    fn lines(&mut self, text: &str, from: usize) -> Result<(), Mistake> {
        let mut start = from;
        let is_fluentd = self.rules.mode.is_fluentd();
        // Fluentd skips empty lines only at the end of the body.
        let text = if is_fluentd { text.trim_end_matches(['\n', '\r']) } else { text };
        while start < text.len() {
            let end = memchr(b'\n', &text.as_bytes()[start..]).map_or(text.len(), |newline| start + newline);
            let line = &text[start..end];
            if is_fluentd || !line.trim_matches(WHITESPACE).is_empty() {
                let value: &RawValue =
                    serde_json::from_str(line).map_err(|error| mistake(&error, text, start))?;
                self.object(value.get(), text)?;
            }
            start = end + 1;
        }
        Ok(())
    }

    fn raw_lines(&mut self, text: &str, begin: usize) -> Result<(), Mistake> {
        for line in text[begin..].split('\n') {
            let line = line.strip_suffix('\r').unwrap_or(line);
            if !line.is_empty() {
                self.count_record(line, text)?;
                let time = self.time_of_form();
                (self.sink)(Record { text: line, is_json: false, time });
            }
        }
        Ok(())
    }

    /// Reads a valid JSON value, which must be an object.
    fn object(&mut self, value: &str, text: &str) -> Result<(), Mistake> {
        if value.starts_with('{') {
            return self.record(value, text);
        }
        let expected = "expected an object, because every record is an object";
        Err(Mistake::at(text.as_bytes(), offset_in(value, text), expected))
    }

    /// Passes a valid JSON object to the sink.
    fn record(&mut self, object: &str, text: &str) -> Result<(), Mistake> {
        self.count_record(object, text)?;
        if members::deeper_than(object, MAX_DEPTH) {
            let expected = format!("expected at most {MAX_DEPTH} levels of arrays and objects");
            return Err(Mistake::at(text.as_bytes(), offset_in(object, text), expected));
        }
        let (time, is_dropped) = self.time_of(object, text)?;
        // Line breaks are only between tokens, because JSON strings contain no control characters.
        let has_line_break = memchr2(b'\n', b'\r', object.as_bytes()).is_some();
        let line = match (is_dropped, &self.rules.time_key) {
            (_, key) if self.rules.mode.is_fluentd() => {
                let key = key.as_deref().filter(|_| is_dropped);
                ruby::generate(object, key, self.line).map_err(|(at, expected)| {
                    Mistake::at(text.as_bytes(), offset_in(object, text) + at, expected)
                })?
            }
            (true, Some(key)) => members::without(object, key, self.line),
            _ if has_line_break => members::compact(object, self.line),
            _ => object,
        };
        (self.sink)(Record { text: line, is_json: true, time });
        Ok(())
    }

    /// Counts a record; an error if the body has too many.
    fn count_record(&mut self, record: &str, text: &str) -> Result<(), Mistake> {
        if self.records == self.rules.max_records {
            let expected = format!("expected at most {} records in a body", self.rules.max_records);
            let at = Mistake::at(text.as_bytes(), offset_in(record, text), expected);
            return Err(at.of_kind(MistakeKind::TooManyRecords));
        }
        self.records += 1;
        Ok(())
    }

    /// The time of an object, and whether its time member must be removed. If a form sets the time, the member is kept.
    fn time_of(&self, object: &str, text: &str) -> Result<(Option<EventTime>, bool), Mistake> {
        let Some(key) = self.rules.time_key.as_deref().filter(|_| self.form_time.is_none()) else {
            return Ok((self.time_of_form(), false));
        };
        let Some(member) = members::last(object, key) else { return Ok((None, false)) };
        let time = EventTime::of_member(member, self.rules).map_err(|error| {
            let at = offset_in(member, text);
            Mistake::at(text.as_bytes(), at, format!("the member {key:?}: {error}"))
        })?;
        Ok((time, !self.rules.keep_time_key))
    }

    fn time_of_form(&self) -> Option<EventTime> {
        self.form_time.filter(|time| !time.is_zero())
    }
}

/// Passes each element of an array to a function. The function must store its own error, because `Err(())` carries none.
struct Elements<F>(F);

impl<'de, F: FnMut(&'de str) -> Result<(), ()>> DeserializeSeed<'de> for Elements<F> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, F: FnMut(&'de str) -> Result<(), ()>> Visitor<'de> for Elements<F> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut elements: A) -> Result<(), A::Error> {
        while let Some(element) = elements.next_element::<&'de RawValue>()? {
            (self.0)(element.get()).map_err(|()| A::Error::custom("refused"))?;
        }
        Ok(())
    }
}

/// The characters that JSON allows between tokens.
const WHITESPACE: [char; 4] = [' ', '\t', '\r', '\n'];

/// Offset of `part` in `whole`, which must contain it.
fn offset_in(part: &str, whole: &str) -> usize {
    (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize)
}

/// Converts a parser's error in `text` from `start` on to a mistake.
fn mistake(error: &serde_json::Error, text: &str, start: usize) -> Mistake {
    let part = &text[start..];
    let lines_before = error.line().saturating_sub(1);
    let line_start = match lines_before.checked_sub(1) {
        None => 0,
        Some(nth) => memchr::memchr_iter(b'\n', part.as_bytes()).nth(nth).map_or(part.len(), |at| at + 1),
    };
    let mut byte = line_start + error.column().saturating_sub(1);
    if error.is_eof() {
        // An incomplete value is reported at the end of its line.
        byte = memchr(b'\n', &part.as_bytes()[byte.min(part.len())..]).map_or(part.len(), |at| byte + at);
    }
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or_default();
    if message.starts_with("control character") {
        // The parser reports the position before the control character.
        byte += 1;
    }
    let message = match message.strip_prefix("EOF while parsing ") {
        Some(what) => format!("expected more: {what} has no end"),
        None => match message {
            "expected value" => "expected a JSON value".to_owned(),
            "trailing characters" => "expected nothing more after the value".to_owned(),
            "key must be a string" => "expected the name of a member, in quotes".to_owned(),
            "trailing comma" => "expected another element after the comma".to_owned(),
            other if other.starts_with("control character") => {
                "expected an escape: control characters are not allowed in strings".to_owned()
            }
            other => other.to_owned(),
        },
    };
    Mistake::at(text.as_bytes(), start + byte, message)
}

fn unsupported(message: &str) -> Mistake {
    Mistake::at(b"", 0, message).of_kind(MistakeKind::Unsupported)
}

fn missing_parameter() -> Mistake {
    Mistake::at(b"", 0, "'json' or 'ndjson' parameter is required").of_kind(MistakeKind::MissingParameter)
}
