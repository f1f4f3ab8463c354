//! Sealed records: JSON objects whose first member is a checksum of the rest. CRC-32C detects every change within 32
//! consecutive bits, and thus every changed byte.

const PREFIX: &str = "{\"crc32c\":\"";
const SUFFIX: &str = "\",";
const DIGITS: usize = 8;

/// Seals a JSON object: inserts the string members at its front, and the checksum before them.
pub(super) fn seal(object: &str, members: &[(&str, &str)]) -> String {
    let members: String = members.iter().map(|(name, value)| format!("\"{name}\":\"{value}\",")).collect();
    let rest = members + object.strip_prefix('{').expect("records are objects");
    format!("{PREFIX}{}{SUFFIX}{rest}", to_hex(crc32c::crc32c(rest.as_bytes())))
}

/// The checksum of a sealed record; `None` if the record is damaged.
pub(super) fn checksum(text: &[u8]) -> Option<String> {
    let (recorded, rest) = text.strip_prefix(PREFIX.as_bytes())?.split_at_checked(DIGITS)?;
    let computed = to_hex(crc32c::crc32c(rest.strip_prefix(SUFFIX.as_bytes())?));
    (computed.as_bytes() == recorded).then_some(computed)
}

/// A checksum as hexadecimal digits of fixed length.
pub(super) fn to_hex(checksum: u32) -> String {
    format!("{checksum:0DIGITS$x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_is_found() {
        let text = seal("{\"rate\":299.99}", &[("plan", "0badcafe")]);
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((read["plan"].as_str(), read["rate"].as_f64()), (Some("0badcafe"), Some(299.99)));
        assert_eq!(checksum(text.as_bytes()).as_deref(), read["crc32c"].as_str());
        for index in 0..text.len() {
            for bits in 1..=u8::MAX {
                let mut changed = text.clone().into_bytes();
                changed[index] ^= bits;
                assert_eq!(checksum(&changed), None, "byte {index} by {bits:#x}");
            }
            assert_eq!(checksum(&text.as_bytes()[..index]), None, "cut off after {index} bytes");
        }
    }
}
