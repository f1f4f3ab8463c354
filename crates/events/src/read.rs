//! A body to its records.

use memchr::{memchr, memchr2};
use serde::de::{DeserializeSeed, Error as _, SeqAccess, Visitor};
use serde_json::{Deserializer, value::RawValue};

use crate::{EventTime, Kind, Mistake, MistakeKind, Mode, Rules, form, members, multipart, ruby};

/// A record of a body. It has no line break in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// An object of JSON on one line, as it was sent wherever that was one line; or a line of [`Kind::Raw`].
    pub text: &'a str,
    /// Whether it is JSON. A line of [`Kind::Raw`] is not, whatever stands in it.
    pub is_json: bool,
    /// From the member of the record that the rules name, or from the field `time` of a form.
    pub time: Option<EventTime>,
}

/// Memory that is kept from one body to the next.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) line: String,
    pub(crate) field: Vec<u8>,
}

/// Nesting of arrays and objects in a record, at the most. `serde_json`, by which lines are read later, stops at 128.
const MAX_DEPTH: usize = 127;

/// Hands the records of `body` to `sink`, in order, and says how many there were.
///
/// On a mistake the body is refused as a whole, although `sink` may have been handed records before it: the caller
/// undoes what it did with them.
///
/// JSON is checked against RFC 8259, UTF-8 included, numbers of any size and lone surrogates in escapes allowed; a
/// record is an object, nested 127 deep at the most; members of one name are left as they are. Empty lines are
/// skipped, also between the lines of [`Kind::Raw`].
///
/// Fluentd's modes refuse what Fluentd refuses besides: blank lines between others, further objects behind the first where
/// the body is to be one text of JSON, numbers beyond the range of a double, lone surrogates. In [`Mode::Fluentd`] a body
/// may be empty.
///
/// # Errors
/// A [`Mistake`] with its place.
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
        Kind::Msgpack => return Err(unsupported("MessagePack is not read: send JSON, NDJSON or a form")),
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
        return Err(unsupported("MessagePack is not read: send the field json or ndjson"));
    }
    let field = std::mem::take(&mut scratch.field);
    let read =
        Reader { rules, line: &mut scratch.line, form_time, records: 0, sink }.read(&field, found.kind);
    scratch.field = field;
    read
}

/// What stays the same while the records of one body are handed out.
struct Reader<'r, S> {
    rules: &'r Rules,
    /// Where records are rewritten.
    line: &'r mut String,
    /// The time a form gives all records; 1970 itself stands for "now".
    form_time: Option<EventTime>,
    records: usize,
    sink: &'r mut S,
}

impl<S: FnMut(Record<'_>)> Reader<'_, S> {
    fn read(mut self, body: &[u8], kind: Kind) -> Result<usize, Mistake> {
        let text = std::str::from_utf8(body)
            .map_err(|error| Mistake::at(body, error.valid_up_to(), "expected UTF-8"))?;
        match kind {
            Kind::Ndjson => self.lines(text, 0)?,
            Kind::Raw => self.raw_lines(text)?,
            _ => self.json(text)?,
        }
        Ok(self.records)
    }

    /// One object and perhaps more on lines of their own, unless the reader is Fluentd's; or an array.
    fn json(&mut self, text: &str) -> Result<(), Mistake> {
        let start = text.len() - text.trim_start_matches(WHITESPACE).len();
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
                    "expected the end: several objects stand in an array, or in a body of x-ndjson";
                return Err(Mistake::at(text.as_bytes(), end + more, expected));
            }
            return Ok(());
        }
        if more < rest.len() && memchr(b'\n', &rest.as_bytes()[..more]).is_none() {
            let expected = "expected the end, or a new line before the next object";
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

    /// One object a line, from byte `from` of the text.
    fn lines(&mut self, text: &str, from: usize) -> Result<(), Mistake> {
        let mut start = from;
        let is_fluentd = self.rules.mode.is_fluentd();
        // Fluentd passes over empty lines at the end, and takes all others for records.
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

    fn raw_lines(&mut self, text: &str) -> Result<(), Mistake> {
        for line in text.split('\n') {
            let line = line.strip_suffix('\r').unwrap_or(line);
            if !line.is_empty() {
                self.count_record(line, text)?;
                let time = self.time_of_form();
                (self.sink)(Record { text: line, is_json: false, time });
            }
        }
        Ok(())
    }

    /// A valid value, which must be an object.
    fn object(&mut self, value: &str, text: &str) -> Result<(), Mistake> {
        if value.starts_with('{') {
            return self.record(value, text);
        }
        let expected = "expected an object: every record is one";
        Err(Mistake::at(text.as_bytes(), offset_in(value, text), expected))
    }

    /// A valid object.
    fn record(&mut self, object: &str, text: &str) -> Result<(), Mistake> {
        self.count_record(object, text)?;
        if members::deeper_than(object, MAX_DEPTH) {
            let expected = format!("expected {MAX_DEPTH} levels of arrays and objects at the most");
            return Err(Mistake::at(text.as_bytes(), offset_in(object, text), expected));
        }
        let (time, is_dropped) = self.time_of(object, text)?;
        // Control characters cannot stand in strings, so these are whitespace between tokens.
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

    /// Counts a record, as long as the body may have another.
    fn count_record(&mut self, record: &str, text: &str) -> Result<(), Mistake> {
        if self.records == self.rules.max_records {
            let expected = format!("expected {} records in a body at the most", self.rules.max_records);
            let at = Mistake::at(text.as_bytes(), offset_in(record, text), expected);
            return Err(at.of_kind(MistakeKind::TooManyRecords));
        }
        self.records += 1;
        Ok(())
    }

    /// The time of an object, and whether the member that holds it is to be taken out. A time given for all
    /// records leaves that member alone.
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

/// Hands each element of an array to a function, which has kept the reason when it fails.
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

/// What JSON calls whitespace.
const WHITESPACE: [char; 4] = [' ', '\t', '\r', '\n'];

/// Where `part`, which is a part of `whole`, begins in it.
fn offset_in(part: &str, whole: &str) -> usize {
    (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize)
}

/// What the parser found wrong with the part of `text` from `start`.
fn mistake(error: &serde_json::Error, text: &str, start: usize) -> Mistake {
    let part = &text[start..];
    let lines_before = error.line().saturating_sub(1);
    let line_start = match lines_before.checked_sub(1) {
        None => 0,
        Some(nth) => memchr::memchr_iter(b'\n', part.as_bytes()).nth(nth).map_or(part.len(), |at| at + 1),
    };
    let mut byte = line_start + error.column().saturating_sub(1);
    if error.is_eof() {
        // Of a line, the end is that of the line.
        byte = memchr(b'\n', &part.as_bytes()[byte.min(part.len())..]).map_or(part.len(), |at| byte + at);
    }
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or_default();
    if message.starts_with("control character") {
        // This one alone is placed before the byte it is about.
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
                "expected an escape: control characters cannot stand in strings".to_owned()
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
