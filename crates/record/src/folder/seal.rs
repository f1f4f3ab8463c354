//! Records that show whether they are as they were written: a JSON object whose first member is the checksum of all
//! that follows. CRC-32C finds every change of up to 32 bits in a row, thus every changed byte.

const PREFIX: &str = "{\"crc32c\":\"";
const SUFFIX: &str = "\",";
const DIGITS: usize = 8;

/// A JSON object with members of text put first, and its checksum before these.
pub(super) fn seal(object: &str, members: &[(&str, &str)]) -> String {
    let members: String = members.iter().map(|(name, value)| format!("\"{name}\":\"{value}\",")).collect();
    let rest = members + object.strip_prefix('{').expect("records are objects");
    format!("{PREFIX}{}{SUFFIX}{rest}", to_hex(crc32c::crc32c(rest.as_bytes())))
}

/// The checksum that a sealed text carries; none if the text is not as it was sealed.
pub(super) fn checksum(text: &[u8]) -> Option<String> {
    let (carried, rest) = text.strip_prefix(PREFIX.as_bytes())?.split_at_checked(DIGITS)?;
    let own = to_hex(crc32c::crc32c(rest.strip_prefix(SUFFIX.as_bytes())?));
    (own.as_bytes() == carried).then_some(own)
}

/// A checksum as it is written.
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
        for place in 0..text.len() {
            for bits in 1..=u8::MAX {
                let mut changed = text.clone().into_bytes();
                changed[place] ^= bits;
                assert_eq!(checksum(&changed), None, "byte {place} by {bits:#x}");
            }
            assert_eq!(checksum(&text.as_bytes()[..place]), None, "cut off after {place} bytes");
        }
    }
}
