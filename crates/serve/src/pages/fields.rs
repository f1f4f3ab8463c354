//! Parses the parts of requests that only pages use.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use serde_json::Value;

/// Whether the value of Accept-Encoding accepts gzip (RFC 9110, 12.5.3).
pub(super) fn accepts_gzip(value: &str) -> bool {
    let (mut gzip, mut any) = (None, None);
    for coding in http1::list(value.as_bytes()) {
        let coding = String::from_utf8_lossy(coding);
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        let is_accepted = weight.is_none_or(|weight| weight.parse::<f64>().is_ok_and(|weight| weight > 0.0));
        if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") {
            gzip = Some(is_accepted);
        } else if name == "*" {
            any = Some(is_accepted);
        }
    }
    gzip.or(any).unwrap_or(false)
}

/// The cookies in the value of a Cookie header. Skips cookies without a name.
pub(super) fn cookies(value: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = value.split(';').filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(name, _)| !name.is_empty())
}

/// Whether a cookie may have this name and value (RFC 6265, 4.1.1).
pub(super) fn is_cookie(name: &str, value: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(&byte);
    let is_octet = |byte: u8| byte.is_ascii_graphic() && !b"\",;\\".contains(&byte);
    !name.is_empty() && name.bytes().all(is_token) && value.bytes().all(is_octet)
}

/// The bearer token in the value of an Authorization header.
pub(super) fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// User and password in the body of a login, which is a JSON object or a form. A missing password is empty.
pub(super) fn credentials(body: &[u8]) -> Option<(String, String)> {
    if body.trim_ascii_start().starts_with(b"{") {
        let body: Value = serde_json::from_slice(body).ok()?;
        let text = |key: &str| body.get(key).and_then(Value::as_str).map(str::to_owned);
        return Some((text("user").or_else(|| text("username"))?, text("password").unwrap_or_default()));
    }
    let field =
        |key: &str| form_urlencoded::parse(body).find(|(name, _)| name == key).map(|(_, value)| value);
    let user = field("user").or_else(|| field("username"))?;
    Some((user.into_owned(), field("password").map(Cow::into_owned).unwrap_or_default()))
}

/// Decodes a part of a path. Bytes that are not UTF-8 are replaced by U+FFFD.
pub(super) fn percent_decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn gzip_is_used_where_it_is_accepted() {
        for (value, accepted) in [
            ("gzip", true),
            ("deflate, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("*", true),
            ("*;q=0", false),
            ("gzip; q=0, *", false),
            ("identity", false),
            ("", false),
            ("gzip;q=x", false),
        ] {
            assert_eq!(accepts_gzip(value), accepted, "{value}");
        }
    }

    #[test]
    fn logins_are_read_as_json_and_as_forms() {
        let pair = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        for (body, read) in [
            (r#"{"user": "ann", "password": "p"}"#, pair("ann", "p")),
            (r#" {"username": "ann"}"#, pair("ann", "")),
            ("user=ann+b%C3%A9&password=p", pair("ann bé", "p")),
            ("username=ann", pair("ann", "")),
            ("{\"user\": 7}", None),
            ("{", None),
            ("", None),
        ] {
            assert_eq!(credentials(body.as_bytes()), read, "{body}");
        }
    }

    #[test]
    fn bearer_tokens_are_found() {
        assert_eq!(bearer("Bearer abc"), Some("abc"));
        assert_eq!(bearer(" bearer  abc "), Some("abc"));
        assert_eq!((bearer("Basic abc"), bearer("Bearer")), (None, None));
    }

    proptest! {
        #[test]
        fn cookies_that_are_set_are_read_back(
            pairs in prop::collection::vec(("[!#-'*+.0-9A-Z^-z|~-]{1,9}", "[!#-+.-:<-~-]{0,9}"), 0..6)
        ) {
            let pairs: Vec<_> =
                pairs.into_iter().filter(|(name, value)| is_cookie(name, value)).collect();
            let header = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ");
            let read: Vec<_> = cookies(&header).map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
            prop_assert_eq!(read, pairs);
        }

        #[test]
        fn no_cookie_ends_its_line(name in ".*", value in ".*") {
            if is_cookie(&name, &value) {
                let line = format!("{name}={value}");
                prop_assert!(!line.contains(|c: char| c.is_control() || c == ';' || c == ' '), "{line}");
            }
        }

        #[test]
        fn text_that_was_encoded_is_decoded(text in ".*") {
            let encoded: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
            prop_assert_eq!(percent_decoded(&encoded), text);
        }

        #[test]
        fn no_text_makes_a_panic(text in ".*", bytes in prop::collection::vec(any::<u8>(), 0..99)) {
            accepts_gzip(&text);
            bearer(&text);
            percent_decoded(&text);
            credentials(&bytes);
            prop_assert!(cookies(&text).all(|(name, _)| !name.is_empty()));
        }
    }
}
