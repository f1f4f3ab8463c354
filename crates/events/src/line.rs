//! Writes records as lines.

use std::{borrow::Cow, io::Write as _};

use jiff::tz::TimeZone;

use crate::{EventTime, Record, Zone, members};

/// The format of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineFormat {
    /// Time, tag and record, separated by tabs, as in Fluentd's `out_file`.
    OutFile {
        /// Whether the line contains the time.
        time: bool,
        /// Whether the line contains the tag.
        tag: bool,
    },
    /// The record as a JSON object.
    Json,
    /// Members of the record, separated by commas (RFC 4180).
    Csv {
        /// Names of the members in order. A missing or null member becomes an empty value.
        fields: Vec<String>,
    },
    /// The record as sent: JSON, or a line of text.
    Raw,
}

/// Writes records as lines. Use one per thread, because it caches the prefix of the last second and tag.
#[derive(Debug)]
pub struct LineWriter {
    format: LineFormat,
    zone: Zone,
    time_zone: TimeZone,
    /// Tag and second for which `prefix` is valid, in [`LineFormat::OutFile`].
    prefixed: Option<(String, i64)>,
    prefix: Vec<u8>,
}

/// Member that contains a line of text in JSON formats. Fluentd uses the same name.
const MESSAGE: &str = "message";

impl<'a> Record<'a> {
    /// The member `key` as text, as in [`crate::field`]. A line of text has a single member, `message`, with the line.
    pub fn field(&self, key: &str) -> Option<Cow<'a, str>> {
        if self.is_json {
            members::field(self.text, key)
        } else {
            (key == MESSAGE).then_some(Cow::Borrowed(self.text))
        }
    }
}

impl LineWriter {
    /// Creates a writer. Times look like `2020-01-13T17:52:09+09:00` in the local zone and `2020-01-13T08:52:09Z` in
    /// UTC.
    pub fn new(format: LineFormat, zone: Zone) -> LineWriter {
        let time_zone = zone.time_zone();
        LineWriter { format, zone, time_zone, prefixed: None, prefix: Vec::new() }
    }

    /// Appends the record to `out` as one line, including the newline.
    ///
    /// Control characters in the tag become `_`. In CSV, line breaks in values become `\n` and `\r`.
    pub fn write(&mut self, out: &mut Vec<u8>, time: EventTime, tag: &str, record: &Record<'_>) {
        match &self.format {
            LineFormat::OutFile { time: with_time, tag: with_tag } => {
                let (with_time, with_tag) = (*with_time, *with_tag);
                self.refresh(time, tag, with_time, with_tag);
                out.extend_from_slice(&self.prefix);
                json(out, record);
            }
            LineFormat::Json => json(out, record),
            LineFormat::Csv { fields } => {
                for (number, field) in fields.iter().enumerate() {
                    if number > 0 {
                        out.push(b',');
                    }
                    csv(out, &record.field(field).unwrap_or_default());
                }
            }
            LineFormat::Raw => out.extend_from_slice(record.text.as_bytes()),
        }
        out.push(b'\n');
    }

    /// Updates `prefix` if the second or the tag has changed.
    fn refresh(&mut self, time: EventTime, tag: &str, with_time: bool, with_tag: bool) {
        if self.prefixed.as_ref().is_some_and(|(last, second)| *second == time.seconds && last == tag) {
            return;
        }
        self.prefix.clear();
        if with_time {
            match time.timestamp() {
                Some(timestamp) => {
                    let zoned = timestamp.to_zoned(self.time_zone.clone());
                    let offset = if self.zone == Zone::Utc { "Z" } else { "%:z" };
                    let format = format!("%Y-%m-%dT%H:%M:%S{offset}");
                    write!(self.prefix, "{}", zoned.strftime(&format)).expect("a format without names");
                }
                // The time exceeds the range of the calendar, so it is written in seconds.
                None => write!(self.prefix, "{}", time.seconds).expect("writing to memory cannot fail"),
            }
            self.prefix.push(b'\t');
        }
        if with_tag {
            self.prefix.extend(tag.bytes().map(|byte| if byte.is_ascii_control() { b'_' } else { byte }));
            self.prefix.push(b'\t');
        }
        self.prefixed = Some((tag.to_owned(), time.seconds));
    }
}

fn json(out: &mut Vec<u8>, record: &Record<'_>) {
    if record.is_json {
        out.extend_from_slice(record.text.as_bytes());
        return;
    }
    let message = serde_json::to_string(record.text).expect("any text can be a string of JSON");
    write!(out, "{{\"{MESSAGE}\":{message}}}").expect("writing to memory cannot fail");
}

/// Writes a CSV value; quotes it if necessary and doubles its quotes (RFC 4180, 2.5 to 2.7). Escapes line breaks,
/// because each line is one event.
fn csv(out: &mut Vec<u8>, value: &str) {
    if !value.contains([',', '"', '\r', '\n']) {
        out.extend_from_slice(value.as_bytes());
        return;
    }
    out.push(b'"');
    for byte in value.bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\"\""),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            byte => out.push(byte),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: Record<'_> =
        Record { text: r#"{"a":"x","b":[1,"y"],"c":"p\"q\r\ns"}"#, is_json: true, time: None };
    const RAW: Record<'_> = Record { text: "a \"line\"", is_json: false, time: None };
    const TIME: EventTime = EventTime { seconds: 1_578_905_529, nanos: 5 };

    fn line(writer: &mut LineWriter, time: EventTime, tag: &str, record: &Record<'_>) -> String {
        let mut out = b"before".to_vec();
        writer.write(&mut out, time, tag, record);
        String::from_utf8(out[6..].to_vec()).expect("records and tags are text")
    }

    #[test]
    fn out_file_has_time_and_tag_before_the_record() {
        let mut writer = LineWriter::new(LineFormat::OutFile { time: true, tag: true }, Zone::Utc);
        let mut all = |seconds, tag| line(&mut writer, EventTime { seconds, nanos: 0 }, tag, &RAW);
        let record = r#"{"message":"a \"line\""}"#;
        assert_eq!(all(TIME.seconds, "a.b"), format!("2020-01-13T08:52:09Z\ta.b\t{record}\n"));
        assert_eq!(all(TIME.seconds, "a.b"), format!("2020-01-13T08:52:09Z\ta.b\t{record}\n"));
        assert_eq!(all(TIME.seconds + 1, "a.b"), format!("2020-01-13T08:52:10Z\ta.b\t{record}\n"));
        assert_eq!(all(TIME.seconds + 1, "a\tb\n"), format!("2020-01-13T08:52:10Z\ta_b_\t{record}\n"));
        assert_eq!(all(i64::MAX, "a"), format!("{}\ta\t{record}\n", i64::MAX));
        let mut bare = LineWriter::new(LineFormat::OutFile { time: false, tag: false }, Zone::Utc);
        assert_eq!(line(&mut bare, TIME, "a", &JSON), format!("{}\n", JSON.text));
    }

    #[test]
    fn a_local_time_has_a_numeric_offset() {
        for (time_zone, shown) in [
            (TimeZone::fixed(jiff::tz::offset(9)), "2020-01-13T17:52:09+09:00"),
            // Ruby writes `+00:00` for local time on a machine whose zone is UTC.
            (TimeZone::UTC, "2020-01-13T08:52:09+00:00"),
        ] {
            let mut writer = LineWriter::new(LineFormat::OutFile { time: true, tag: false }, Zone::Local);
            writer.time_zone = time_zone;
            assert_eq!(line(&mut writer, TIME, "", &JSON), format!("{shown}\t{}\n", JSON.text));
        }
    }

    #[test]
    fn csv_members_are_quoted_if_necessary() {
        let fields = ["a", "none", "b", "c", "message"].map(str::to_owned).to_vec();
        let mut writer = LineWriter::new(LineFormat::Csv { fields }, Zone::Utc);
        assert_eq!(line(&mut writer, TIME, "", &JSON), "x,,\"[1,\"\"y\"\"]\",\"p\"\"q\\r\\ns\",\n");
        assert_eq!(line(&mut writer, TIME, "", &RAW), ",,,,\"a \"\"line\"\"\"\n");
    }

    #[test]
    fn json_and_raw_are_the_record_alone() {
        let mut writer = LineWriter::new(LineFormat::Json, Zone::Utc);
        assert_eq!(line(&mut writer, TIME, "a", &JSON), format!("{}\n", JSON.text));
        assert_eq!(line(&mut writer, TIME, "a", &RAW), "{\"message\":\"a \\\"line\\\"\"}\n");
        let mut writer = LineWriter::new(LineFormat::Raw, Zone::Utc);
        assert_eq!(line(&mut writer, TIME, "a", &RAW), "a \"line\"\n");
    }
}
