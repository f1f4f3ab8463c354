//! The encodings in which a secret may appear, and the position of the authority in a URL.

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD},
};
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use record::text::written_literally;

/// All characters that must be escaped somewhere in a URL (RFC 3986, 2.3).
pub(crate) const ESCAPED_CHARACTERS: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Characters that a request line cannot contain; non-ASCII characters are always encoded as well.
const UNSENDABLE: &AsciiSet = &CONTROLS.add(b' ');

/// The forms of a secret: unchanged, escaped as literal text of a request, percent-encoded fully and minimally,
/// percent-decoded, in base64, and escaped for JSON and HTML.
pub(crate) fn encodings(secret: &str) -> [String; 15] {
    let encoded = utf8_percent_encode(secret, ESCAPED_CHARACTERS).to_string();
    let quoted = serde_json::Value::from(secret).to_string();
    let escaped = &quoted[1..quoted.len() - 1];
    [
        secret.to_owned(),
        written_literally(secret, &[]),
        lowercase_escapes(&encoded),
        encoded.replace("%20", "+"),
        encoded,
        utf8_percent_encode(secret, UNSENDABLE).to_string(),
        percent_decode_str(secret).decode_utf8_lossy().into_owned(),
        percent_decode_str(&secret.replace('+', " ")).decode_utf8_lossy().into_owned(),
        STANDARD.encode(secret),
        STANDARD_NO_PAD.encode(secret),
        URL_SAFE.encode(secret),
        URL_SAFE_NO_PAD.encode(secret),
        // PHP and other encoders escape the slash as well.
        escaped.replace('/', "\\/"),
        escaped.to_owned(),
        secret.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;"),
    ]
}

/// The same text with lower-case letters in its percent escapes.
fn lowercase_escapes(encoded: &str) -> String {
    let mut parts = encoded.split('%');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + "%" + &part[..2].to_ascii_lowercase() + &part[2..])
}

/// The offset of the authority in a URL. The scheme may be missing: only the text before the first `:`, `/`, `?` or `#`
/// can be a scheme (RFC 3986, 3.1).
pub fn authority(url: &str) -> usize {
    match url.find([':', '/', '?', '#']) {
        Some(at) if url[at..].starts_with("://") => at + 3,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_escapes_all_that_it_must() {
        let encodings = encodings("a/b\n\u{1}\"\\");
        for form in ["a/b\\n\\u0001\\\"\\\\", "a\\/b\\n\\u0001\\\"\\\\"] {
            assert!(encodings.iter().any(|known| known == form), "{form} {encodings:?}");
        }
    }
}
