//! The record in a percent-encoded form.

use percent_encoding::percent_decode;

use crate::Kind;

/// The field of a form that holds records. Its decoded value is where the finder was told to write it.
pub(crate) struct Found {
    /// How the value is written.
    pub(crate) kind: Kind,
    /// The field `time`.
    pub(crate) time: Option<String>,
}

/// Fields that hold records, in the order in which Fluentd looks for them.
pub(crate) const FIELDS: [(&str, Kind); 3] =
    [("msgpack", Kind::Msgpack), ("json", Kind::Json), ("ndjson", Kind::Ndjson)];

/// The field with the records. Of fields of one name the first counts.
///
/// Not the crate `form_urlencoded`: it puts U+FFFD where a value is not UTF-8, which would store what nobody sent.
pub(crate) fn find(body: &[u8], value: &mut Vec<u8>) -> Option<Found> {
    let (kind, text) = FIELDS.iter().find_map(|(name, kind)| Some((*kind, field(body, name.as_bytes())?)))?;
    decode(text, value);
    let time = field(body, b"time").map(|text| {
        let mut time = Vec::new();
        decode(text, &mut time);
        String::from_utf8_lossy(&time).into_owned()
    });
    Some(Found { kind, time })
}

/// The value of the first field of that name, as it is encoded.
fn field<'a>(body: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    let mut decoded = Vec::new();
    body.split(|&byte| byte == b'&').find_map(|pair| {
        let (name, value) = match memchr::memchr(b'=', pair) {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, &[][..]),
        };
        decode(name, &mut decoded);
        (decoded == wanted).then_some(value)
    })
}

/// Spaces before bytes: a plus that is encoded is one that was meant.
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
        let found = find(body.as_bytes(), &mut value)?;
        Some((found.kind, String::from_utf8(value).expect("the tests decode to UTF-8"), found.time))
    }

    #[test]
    fn the_record_is_found_among_other_fields_and_decoded() {
        let body = "x=1&&json&y=%7b&json=%7B%22a%22:%22b+c%2Bd%26%22%7D";
        assert_eq!(found(body), Some((Kind::Json, String::new(), None)));
        let body = "x=1&j%73on=%7B%22a%22:%22b+c%2Bd%26=%22%7D&time=1.5&json={}";
        assert_eq!(found(body), Some((Kind::Json, "{\"a\":\"b c+d&=\"}".to_owned(), Some("1.5".to_owned()))));
        assert_eq!(found("ndjson=%7B%7D%0A%7B%7D"), Some((Kind::Ndjson, "{}\n{}".to_owned(), None)));
        assert_eq!(found("ndjson=1&json=2"), Some((Kind::Json, "2".to_owned(), None)));
        assert_eq!(found("{\"a\":1}"), None);
        assert_eq!(found(""), None);
    }
}
