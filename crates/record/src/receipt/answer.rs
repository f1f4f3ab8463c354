//! The receipt in the header of a response.

use super::AckLevel;

/// A receipt in the header `Proofload-Receipt`: `segment="x.log"; offset=123; bytes=146; level=written`. A receiver
/// that does not disclose the location sends only the level. If a request's events are stored in several files, its
/// answer has one receipt per file, separated by commas.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AnswerReceipt {
    /// The file that holds the events.
    pub segment: Option<String>,
    /// Offset of the request's first line in the file, in bytes.
    pub offset: Option<u64>,
    /// Bytes of all lines of the request in the file.
    pub bytes: Option<u64>,
    /// The level of acknowledgement.
    pub level: Option<AckLevel>,
}

impl AnswerReceipt {
    /// The name of the header.
    pub const HEADER: &str = "Proofload-Receipt";
    /// The header of a refusal whose events may be stored nevertheless.
    pub const MAYBE_STORED_HEADER: &str = "Proofload-Stored";

    /// Parses the value of the header. Ignores unknown and malformed parameters, because an unreadable receipt promises
    /// nothing.
    pub fn parse_all(value: &[u8]) -> Vec<Self> {
        let mut receipts = Vec::new();
        let mut receipt = Self::default();
        let mut rest = value;
        while !rest.is_empty() {
            let parameter = Parameter::parse(rest);
            rest = parameter.rest;
            let text = parameter.value;
            match parameter.name {
                b"segment" => receipt.segment = unquoted(text),
                b"offset" => receipt.offset = number(text),
                b"bytes" => receipt.bytes = number(text),
                b"level" => receipt.level = level(text),
                _ => {}
            }
            if parameter.ends_receipt {
                receipts.push(std::mem::take(&mut receipt));
            }
        }
        receipts
    }

    /// The weakest level of all receipts in a header value. Allocates no memory, because the measuring loop calls it
    /// for each answer. The loop's crate is optimised more than this one.
    #[inline]
    pub fn weakest_level(value: &[u8]) -> Option<AckLevel> {
        let mut weakest: Option<AckLevel> = None;
        let mut rest = value;
        while !rest.is_empty() {
            let parameter = Parameter::parse(rest);
            rest = parameter.rest;
            if parameter.name == b"level" {
                let level = level(parameter.value)?;
                weakest = Some(weakest.map_or(level, |weakest| weakest.min(level)));
            }
        }
        weakest
    }
}

/// One parameter of a receipt.
struct Parameter<'a> {
    name: &'a [u8],
    value: &'a [u8],
    /// The bytes after the parameter and its separator.
    rest: &'a [u8],
    /// Whether the parameter is the last of its receipt.
    ends_receipt: bool,
}

impl<'a> Parameter<'a> {
    /// Reads the parameter at the front of `bytes`.
    #[inline]
    fn parse(bytes: &'a [u8]) -> Self {
        let mut quoted = false;
        let mut escaped = false;
        let end = bytes.iter().position(|&byte| {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if quoted => escaped = true,
                b'"' => quoted = !quoted,
                b';' | b',' => return !quoted,
                _ => {}
            }
            false
        });
        let (parameter, rest) = match end {
            Some(at) => (&bytes[..at], &bytes[at + 1..]),
            None => (bytes, &[][..]),
        };
        let equals = parameter.iter().position(|&byte| byte == b'=');
        let (name, value) =
            equals.map_or((parameter, &[][..]), |at| (&parameter[..at], &parameter[at + 1..]));
        let ends_receipt = rest.is_empty() || end.is_some_and(|at| bytes[at] == b',');
        Self { name: name.trim_ascii(), value: value.trim_ascii(), rest, ends_receipt }
    }
}

fn level(text: &[u8]) -> Option<AckLevel> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn unquoted(text: &[u8]) -> Option<String> {
    let inner = text.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let mut plain = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(&byte) = bytes.next() {
        plain.push(if byte == b'\\' { *bytes.next()? } else { byte });
    }
    String::from_utf8(plain).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn unknown_parameters_of_a_receipt_are_ignored() {
        let value = br#"segment="a \"b\",;c.log"; offset=123;bytes=146 ; new=1; level=written"#;
        let [receipt] = &AnswerReceipt::parse_all(value)[..] else { panic!("one receipt") };
        assert_eq!(receipt.segment.as_deref(), Some("a \"b\",;c.log"));
        assert_eq!((receipt.offset, receipt.bytes), (Some(123), Some(146)));
        assert_eq!(receipt.level, Some(AckLevel::Written));
        assert_eq!(AnswerReceipt::weakest_level(value), Some(AckLevel::Written));
        assert_eq!(AnswerReceipt::parse_all(b"level=accepted")[0].level, Some(AckLevel::Accepted));
        assert_eq!(AnswerReceipt::parse_all(b"level=eternal; offset=-1"), [AnswerReceipt::default()]);
    }

    #[test]
    fn several_receipts_promise_the_weakest_level() {
        let value =
            br#"segment="a"; offset=1; bytes=2; level=synced, segment="b"; offset=3; bytes=4; level=written"#;
        let places: Vec<_> =
            AnswerReceipt::parse_all(value).into_iter().map(|r| (r.segment, r.offset)).collect();
        assert_eq!(places, [(Some("a".to_owned()), Some(1)), (Some("b".to_owned()), Some(3))]);
        assert_eq!(AnswerReceipt::weakest_level(value), Some(AckLevel::Written));
    }

    proptest! {
        #[test]
        fn no_value_panics(value in prop::collection::vec(any::<u8>(), 0..60)) {
            let receipts = AnswerReceipt::parse_all(&value);
            prop_assert_eq!(receipts.is_empty(), value.is_empty());
            if AnswerReceipt::weakest_level(&value).is_some() {
                prop_assert!(receipts.iter().any(|receipt| receipt.level.is_some()));
            }
        }

        #[test]
        fn receipts_survive_formatting_and_parsing(segment in "[ -~]{0,20}", offset: u64, bytes: u64) {
            let escaped = segment.replace('\\', "\\\\").replace('"', "\\\"");
            let value = format!("segment=\"{escaped}\"; offset={offset}; bytes={bytes}; level=synced");
            let receipts = AnswerReceipt::parse_all(value.as_bytes());
            let expected = AnswerReceipt {
                segment: Some(segment), offset: Some(offset), bytes: Some(bytes), level: Some(AckLevel::Synced),
            };
            prop_assert_eq!(receipts, [expected]);
        }
    }
}
