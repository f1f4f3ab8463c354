//! Resolves the targets of redirects.

/// Resolves a `Location` in an answer to `target`. `None` if the URL does not begin with `origin`, because it cannot be
/// requested on the same connection.
pub(crate) fn resolve(location: &[u8], target: &[u8], origin: &[u8]) -> Option<Vec<u8>> {
    let location = location.trim_ascii().split(|&byte| byte == b'#').next()?;
    let path = target.split(|&byte| byte == b'?').next()?;
    let scheme = &origin[..origin.iter().position(|&byte| byte == b':')?];
    let has_scheme = match location.iter().position(|byte| b":/?".contains(byte)) {
        Some(at) => location[at] == b':',
        None => false,
    };
    let absolute = match location {
        [] => return None,
        [b'/', b'/', ..] => [scheme, b":", location].concat(),
        _ if has_scheme => location.to_vec(),
        [b'/', ..] => return Some(without_dots(location)),
        [b'?', ..] => return Some([path, location].concat()),
        _ => {
            let folder = path.iter().rposition(|&byte| byte == b'/').map_or(&b"/"[..], |at| &path[..=at]);
            return Some(without_dots(&[folder, location].concat()));
        }
    };
    let (start, rest) = absolute.split_at_checked(origin.len())?;
    let default_port: &[u8] = if scheme == b"https" { b":443" } else { b":80" };
    let rest = rest.strip_prefix(default_port).unwrap_or(rest);
    match (start.eq_ignore_ascii_case(origin), rest) {
        (true, [b'/', ..]) => Some(without_dots(rest)),
        (true, [] | [b'?', ..]) => Some([b"/", rest].concat()),
        _ => None,
    }
}

/// Removes `.` and `..` from a target's path (RFC 3986, 5.2.4).
pub fn without_dots(target: &[u8]) -> Vec<u8> {
    let (path, query) = target.split_at(target.iter().position(|&byte| byte == b'?').unwrap_or(target.len()));
    let parts: Vec<&[u8]> = path.split(|&byte| byte == b'/').skip(1).collect();
    let mut kept: Vec<&[u8]> = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        match *part {
            b"." | b".." => {
                if *part == b".." {
                    kept.pop();
                }
                if number + 1 == parts.len() {
                    kept.push(b"");
                }
            }
            part => kept.push(part),
        }
    }
    [b"/", &kept.join(&b'/')[..], query].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_the_same_host_is_followed() {
        for (location, target) in [
            ("/b?c#d", Some("/b?c")),
            ("b", Some("/a/b")),
            ("../login", Some("/login")),
            ("./", Some("/a/")),
            ("/x/./y/../z/..", Some("/x/")),
            ("/../../q?../r", Some("/q?../r")),
            ("?c", Some("/a/page?c")),
            ("login?next=http://x/", Some("/a/login?next=http://x/")),
            ("http://H/x", Some("/x")),
            ("http://h:80/x", Some("/x")),
            ("http://h", Some("/")),
            ("//h/x", Some("/x")),
            ("http://h:8080/x", None),
            ("http://host/x", None),
            ("http://h@evil/x", None),
            ("https://h/x", None),
            ("//evil/x", None),
            ("mailto:x", None),
            ("", None),
        ] {
            let found = resolve(location.as_bytes(), b"/a/page?q", b"http://h");
            assert_eq!(found.as_deref(), target.map(str::as_bytes), "{location}");
        }
    }
}
