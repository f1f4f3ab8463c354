//! Turns values from clients into valid parts of file names.

/// Maximum bytes of a placeholder's value.
const MAX_PLACEHOLDER_BYTES: usize = 100;
/// Maximum bytes of a component of a path. The kernel allows 255; an index, two suffixes and the affixes of a temporary
/// file's name need some of them.
const MAX_COMPONENT_BYTES: usize = 180;

/// Appends a placeholder's value. `first` means that the value is at the beginning of a component.
pub(crate) fn push_value(path: &mut String, first: bool, text: Option<&str>) {
    let begin = path.len();
    match text {
        None => path.push_str("_missing"),
        Some("") => path.push_str("_empty"),
        Some(text) if first && text.starts_with('.') => {
            path.push('_');
            push_sanitized(path, &text[1..]);
        }
        Some(text) => push_sanitized(path, text),
    }
    shorten(path, begin, MAX_PLACEHOLDER_BYTES, text.unwrap_or_default());
}

/// Replaces the component that begins at `begin` with underscores if it is empty or only dots (`.`, `..`), and shortens it if it is
/// too long.
pub(crate) fn bound_component(path: &mut String, begin: usize) {
    if path[begin..].bytes().all(|byte| byte == b'.') {
        let dots = path.len() - begin;
        path.truncate(begin);
        path.extend(std::iter::repeat_n('_', dots.max(1)));
    }
    let whole = path[begin..].to_owned();
    shorten(path, begin, MAX_COMPONENT_BYTES, &whole);
}

fn push_sanitized(path: &mut String, text: &str) {
    path.extend(text.chars().map(|c| if c == '/' || c.is_control() { '_' } else { c }));
}

/// Shortens a name. A checksum of the whole name keeps long names with the same beginning different.
fn shorten(path: &mut String, begin: usize, max_bytes: usize, whole: &str) {
    if path.len() - begin <= max_bytes {
        return;
    }
    let checksum = format!("~{:08x}", crc32fast::hash(whole.as_bytes()));
    let mut end = begin + max_bytes - checksum.len();
    while !path.is_char_boundary(end) {
        end -= 1;
    }
    path.truncate(end);
    path.push_str(&checksum);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(text: &str) -> String {
        let mut path = String::new();
        push_value(&mut path, true, Some(text));
        path
    }

    #[test]
    fn a_placeholder_stays_in_its_component() {
        assert_eq!(pushed("../../etc/passwd"), "_._.._etc_passwd");
        assert_eq!(pushed("a\0b\nc"), "a_b_c");
        assert_eq!(pushed(""), "_empty");
        assert_eq!(pushed("web.access"), "web.access");
    }

    #[test]
    fn long_names_with_the_same_beginning_stay_different() {
        let (one, other) = (pushed(&("é".repeat(80) + "1")), pushed(&("é".repeat(80) + "2")));
        assert!(one.len() <= MAX_PLACEHOLDER_BYTES && other.len() <= MAX_PLACEHOLDER_BYTES);
        assert_ne!(one, other);
    }

    #[test]
    fn a_component_of_dots_is_replaced() {
        for (component, expected) in [(".", "_"), ("..", "__"), ("", "_"), ("a..", "a..")] {
            let mut path = format!("folder/{component}");
            bound_component(&mut path, "folder/".len());
            assert_eq!(path, format!("folder/{expected}"));
        }
    }
}
