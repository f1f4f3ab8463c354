//! Checks the names in a server's listing.

/// Maximum length of a name, in bytes, on Linux and on nearly all other systems.
const MAX_NAME: usize = 255;

/// Whether a name from a server's listing can be appended to a path of this machine and the result is directly below
/// that path. False for an empty name, `.`, `..`, a name with a `/` or a NUL, and a name of more than 255 bytes. All
/// other bytes are allowed, including control characters and invalid UTF-8: mask them before they are shown.
pub fn is_safe_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..")
        && name.len() <= MAX_NAME
        && !name.iter().any(|&byte| byte == b'/' || byte == 0)
}

#[cfg(test)]
mod tests {
    use super::is_safe_name;

    #[test]
    fn ordinary_and_odd_names_are_safe() {
        for name in
            [&b"a"[..], b" ", b"...", b"..a", b"-rf", b"a\nb", b"\xff\xfe", b"\x1b[2J", b"a\\b", &[b'x'; 255]]
        {
            assert!(is_safe_name(name), "{}", name.escape_ascii());
        }
    }

    #[test]
    fn names_that_lead_elsewhere_are_not() {
        for name in
            [&b""[..], b".", b"..", b"/", b"a/b", b"../a", b"/etc", b"a/", b"a\0", b"\0", &[b'x'; 256]]
        {
            assert!(!is_safe_name(name), "{}", name.escape_ascii());
        }
    }
}
