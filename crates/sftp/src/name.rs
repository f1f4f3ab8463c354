//! What a name that a server lists may be.

/// Most bytes in a name, on Linux and on nearly all others.
const MAX_NAME: usize = 255;

/// Whether a name that a server lists can be appended to a path of this machine, and names something right below it.
/// Not so: an empty name, `.`, `..`, a name with a `/` or a NUL, and a name of more than 255 bytes. Any other bytes are
/// a name, also control characters and what is not UTF-8: mask them before they are shown.
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
