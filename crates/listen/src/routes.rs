//! Paths: the tag they mean and the level they ask for.

use segments::Level;

use crate::Route;

/// The levels of paths.
#[derive(Debug)]
pub(crate) struct Routes {
    /// Longest first, without slashes at the ends.
    routes: Vec<(String, Level)>,
    otherwise: Level,
}

impl Routes {
    /// Of these routes.
    pub fn new(routes: &[Route], otherwise: Level) -> Self {
        let mut routes: Vec<_> =
            routes.iter().map(|route| (route.path.trim_matches('/').to_owned(), route.level)).collect();
        routes.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        Self { routes, otherwise }
    }

    /// The level of a path.
    #[inline]
    pub fn level(&self, path: &str) -> Level {
        let path = path.trim_start_matches('/');
        let fits = |route: &str| {
            path.strip_prefix(route)
                .is_some_and(|rest| route.is_empty() || rest.is_empty() || rest.starts_with('/'))
        };
        self.routes.iter().find(|(route, _)| fits(route)).map_or(self.otherwise, |&(_, level)| level)
    }
}

/// Appends the tag of a path: its segments, percent-decoded, joined by dots, after `prefix`. False, if there is
/// none or it is no text.
pub(crate) fn tag_of(path: &str, prefix: Option<&str>, tag: &mut String) -> bool {
    let start = tag.len();
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        match prefix {
            _ if tag.len() > start => tag.push('.'),
            Some(prefix) => {
                tag.push_str(prefix);
                tag.push('.');
            }
            None => {}
        }
        if segment.contains('%') {
            let Some(decoded) = decode(segment) else { return false };
            tag.push_str(&decoded);
        } else {
            tag.push_str(segment);
        }
    }
    tag.len() > start
}

/// Appends the tag of a path as Fluentd makes it: what follows the first slash, with dots for slashes, not
/// decoded.
pub(crate) fn fluentd_tag_of(path: &str, prefix: Option<&str>, tag: &mut String) {
    if let Some(prefix) = prefix {
        tag.push_str(prefix);
        tag.push('.');
    }
    // Ruby's split drops empty segments at the end only.
    let path = path.strip_prefix('/').unwrap_or(path).trim_end_matches('/');
    tag.extend(path.chars().map(|c| if c == '/' { '.' } else { c }));
}

/// A percent-decoded segment; nothing if it is no UTF-8 or holds control characters.
fn decode(segment: &str) -> Option<String> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, tail @ ..] = tail else { return None };
        bytes.push(digit(*high)? << 4 | digit(*low)?);
        rest = tail;
    }
    String::from_utf8(bytes).ok().filter(|text| !text.chars().any(char::is_control))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_route_holds_and_only_for_whole_segments() {
        let route = |path: &str, level| Route { path: path.into(), level };
        let routes =
            Routes::new(&[route("/a", Level::Accepted), route("/a/b/", Level::Synced)], Level::Written);
        assert_eq!(routes.level("/a"), Level::Accepted);
        assert_eq!(routes.level("/a/b"), Level::Synced);
        assert_eq!(routes.level("/a/b/c"), Level::Synced);
        assert_eq!(routes.level("/ab"), Level::Written);
        assert_eq!(Routes::new(&[route("/", Level::Synced)], Level::Written).level("/x"), Level::Synced);
    }

    #[test]
    fn a_tag_is_the_segments_joined() {
        let tag = |path, prefix| {
            let mut tag = String::new();
            tag_of(path, prefix, &mut tag).then_some(tag)
        };
        assert_eq!(tag("/a/b", None).as_deref(), Some("a.b"));
        assert_eq!(tag("//a//b/", Some("x.y")).as_deref(), Some("x.y.a.b"));
        assert_eq!(tag("/%C3%A4/b%20c", None).as_deref(), Some("ä.b c"));
        for none in ["/", "", "//", "/%ff", "/%0a", "/%4"] {
            assert_eq!(tag(none, Some("x")), None, "{none}");
        }
    }

    #[test]
    fn fluentd_keeps_what_it_is_given() {
        let tag = |path, prefix| {
            let mut tag = String::new();
            fluentd_tag_of(path, prefix, &mut tag);
            tag
        };
        assert_eq!(tag("/a/b", None), "a.b");
        assert_eq!(tag("/a//b%20c/", Some("x")), "x.a..b%20c");
    }
}
