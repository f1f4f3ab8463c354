//! Finds the field with the records in a percent-encoded form.

use percent_encoding::percent_decode;

use crate::{Kind, Mistake};

/// A form's field that contains the records. Its decoded value is in the caller's buffer.
pub(crate) struct RecordField {
    /// Format of the field's value.
    pub(crate) kind: Kind,
    /// Value of the form's field `time`.
    pub(crate) time: Option<String>,
}

/// Names of the fields that may contain records, with their formats.
const FIELDS: [(&str, Kind); 3] =
    [("msgpack", Kind::Msgpack), ("json", Kind::Json), ("ndjson", Kind::Ndjson)];

/// Finds the field with the records and decodes its value.
///
/// Does not use the crate `form_urlencoded`, which replaces invalid UTF-8 by U+FFFD and so would change records.
pub(crate) fn find_records(body: &[u8], value: &mut Vec<u8>) -> Result<Option<RecordField>, Mistake> {
    let (mut fields, mut decoded) = (Fields::default(), Vec::new());
    for pair in body.split(|&byte| byte == b'&') {
        let (name, value) = match memchr::memchr(b'=', pair) {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, &[][..]),
        };
        decode(name, &mut decoded);
        fields.add(&decoded, value)?;
    }
    let mut time = fields.time.map(|text| {
        decode(text, &mut decoded);
        String::from_utf8_lossy(&decoded).into_owned()
    });
    Ok(fields.records.map(|(kind, text)| {
        decode(text, value);
        RecordField { kind, time: time.take() }
    }))
}

/// The fields of a form that matter here.
#[derive(Default)]
pub(crate) struct Fields<'a> {
    /// Format and value of the field with the records.
    pub(crate) records: Option<(Kind, &'a [u8])>,
    /// Value of the first field `time`.
    pub(crate) time: Option<&'a [u8]>,
}

impl<'a> Fields<'a> {
    /// Adds a field if it matters.
    ///
    /// # Errors
    /// If a second field contains records, because the records of one of them would be lost.
    pub(crate) fn add(&mut self, name: &[u8], value: &'a [u8]) -> Result<(), Mistake> {
        if name == b"time" {
            self.time.get_or_insert(value);
        }
        let Some((_, kind)) = FIELDS.iter().find(|(field, _)| field.as_bytes() == name) else {
            return Ok(());
        };
        if self.records.replace((*kind, value)).is_some() {
            return Err(Mistake::at(
                b"",
                0,
                "expected one field with records, found several: send one form for each",
            ));
        }
        Ok(())
    }
}

/// Decodes a value. Replaces plus signs by spaces before the escapes, so that an escaped plus sign remains.
fn decode(text: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend(text.iter().map(|&byte| if byte == b'+' { b' ' } else { byte }));
    if memchr::memchr(b'%', out).is_some() {
        *out = percent_decode(out).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(body: &str) -> Option<(Kind, String, Option<String>)> {
        let mut value = b"old".to_vec();
        let found = find_records(body.as_bytes(), &mut value).ok().flatten()?;
        Some((found.kind, String::from_utf8(value).expect("the tests decode to UTF-8"), found.time))
    }

    #[test]
    fn the_records_are_found_among_other_fields_and_decoded() {
        let body = "x=1&&json&y=%7b";
        assert_eq!(found(body), Some((Kind::Json, String::new(), None)));
        let body = "x=1&j%73on=%7B%22a%22:%22b+c%2Bd%26=%22%7D&time=1.5";
        assert_eq!(found(body), Some((Kind::Json, "{\"a\":\"b c+d&=\"}".to_owned(), Some("1.5".to_owned()))));
        assert_eq!(found("ndjson=%7B%7D%0A%7B%7D"), Some((Kind::Ndjson, "{}\n{}".to_owned(), None)));
        assert_eq!(found("{\"a\":1}"), None);
        assert_eq!(found(""), None);
        for several in ["json={}&json={}", "ndjson=1&x=&json=2"] {
            assert!(find_records(several.as_bytes(), &mut Vec::new()).is_err(), "{several}");
        }
    }
}
