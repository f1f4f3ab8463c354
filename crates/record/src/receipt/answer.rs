//! The receipt in an answer's head.

use super::AckLevel;

/// What the header `Proofload-Receipt` says: `segment="x.log"; offset=123; bytes=146; level=written`. An answer that
/// does not tell a place names its level only. A request whose events went to several files has a receipt for each,
/// with commas between them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AnswerReceipt {
    /// The file.
    pub segment: Option<String>,
    /// Where the first of its lines begins in it, in bytes.
    pub offset: Option<u64>,
    /// Bytes of all its lines in it.
    pub bytes: Option<u64>,
    /// How far the events had come.
    pub level: Option<AckLevel>,
}

impl AnswerReceipt {
    /// The name of the header.
    pub const FIELD: &str = "Proofload-Receipt";
    /// The field of a refusal whose events may be stored all the same.
    pub const MAYBE_STORED_FIELD: &str = "Proofload-Stored";

    /// Reads the header's value. Parameters that are not known, or not sound, are passed over: a receipt that
    /// cannot be read promises nothing.
    pub fn parse_all(value: &[u8]) -> Vec<Self> {
        let mut receipts = Vec::new();
        let mut receipt = Self::default();
        let mut rest = value;
        while !rest.is_empty() {
            let Parameter { name, text, behind, ends_receipt } = parameter(rest);
            rest = behind;
            match name {
                b"segment" => receipt.segment = unquoted(text),
                b"offset" => receipt.offset = whole(text),
                b"bytes" => receipt.bytes = whole(text),
                b"level" => receipt.level = level(text),
                _ => {}
            }
            if ends_receipt {
                receipts.push(std::mem::take(&mut receipt));
            }
        }
        receipts
    }

    /// The level that all receipts of a value come to: the least of them. Costs no memory.
    pub fn level_of(value: &[u8]) -> Option<AckLevel> {
        let mut least: Option<AckLevel> = None;
        let mut rest = value;
        while !rest.is_empty() {
            let Parameter { name, text, behind, .. } = parameter(rest);
            rest = behind;
            if name == b"level" {
                let level = level(text)?;
                least = Some(least.map_or(level, |least| least.min(level)));
            }
        }
        least
    }
}

/// One parameter of a receipt.
struct Parameter<'a> {
    name: &'a [u8],
    text: &'a [u8],
    /// What stands behind it.
    behind: &'a [u8],
    /// Whether what stands behind it belongs to another receipt.
    ends_receipt: bool,
}

fn parameter(bytes: &[u8]) -> Parameter<'_> {
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
    let (own, behind) = match end {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &[][..]),
    };
    let equals = own.iter().position(|&byte| byte == b'=');
    let (name, text) = equals.map_or((own, &[][..]), |at| (&own[..at], &own[at + 1..]));
    let ends_receipt = behind.is_empty() || end.is_some_and(|at| bytes[at] == b',');
    Parameter { name: name.trim_ascii(), text: text.trim_ascii(), behind, ends_receipt }
}

fn level(text: &[u8]) -> Option<AckLevel> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn whole(text: &[u8]) -> Option<u64> {
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
    fn a_receipt_is_read_whatever_is_new_in_it() {
        let value = br#"segment="a \"b\",;c.log"; offset=123;bytes=146 ; new=1; level=written"#;
        let [receipt] = &AnswerReceipt::parse_all(value)[..] else { panic!("one receipt") };
        assert_eq!(receipt.segment.as_deref(), Some("a \"b\",;c.log"));
        assert_eq!((receipt.offset, receipt.bytes), (Some(123), Some(146)));
        assert_eq!(receipt.level, Some(AckLevel::Written));
        assert_eq!(AnswerReceipt::level_of(value), Some(AckLevel::Written));
        assert_eq!(AnswerReceipt::parse_all(b"level=accepted")[0].level, Some(AckLevel::Accepted));
        assert_eq!(AnswerReceipt::parse_all(b"level=eternal; offset=-1"), [AnswerReceipt::default()]);
    }

    #[test]
    fn several_receipts_promise_the_least_of_them() {
        let value =
            br#"segment="a"; offset=1; bytes=2; level=synced, segment="b"; offset=3; bytes=4; level=written"#;
        let places: Vec<_> =
            AnswerReceipt::parse_all(value).into_iter().map(|r| (r.segment, r.offset)).collect();
        assert_eq!(places, [(Some("a".to_owned()), Some(1)), (Some("b".to_owned()), Some(3))]);
        assert_eq!(AnswerReceipt::level_of(value), Some(AckLevel::Written));
    }

    proptest! {
        #[test]
        fn no_value_panics(value in prop::collection::vec(any::<u8>(), 0..60)) {
            let receipts = AnswerReceipt::parse_all(&value);
            prop_assert_eq!(receipts.is_empty(), value.is_empty());
            if AnswerReceipt::level_of(&value).is_some() {
                prop_assert!(receipts.iter().any(|receipt| receipt.level.is_some()));
            }
        }

        #[test]
        fn what_was_written_is_read(segment in "[ -~]{0,20}", offset: u64, bytes: u64) {
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
