//! Maps paths to tags and levels.

use segments::Level;

use crate::Route;

/// Maps paths to levels.
#[derive(Debug)]
pub(crate) struct Routes {
    /// The percent-decoded segments and the level of each route, longest route first.
    routes: Vec<(Vec<String>, Level)>,
    otherwise: Level,
}

impl Routes {
    /// Creates the table. `otherwise` is the level of all other paths.
    pub(crate) fn new(routes: &[Route], otherwise: Level) -> Self {
        // A segment that cannot be decoded is compared undecoded.
        let segment = |raw: &str| decode(raw).unwrap_or_else(|| raw.to_owned());
        let path = |route: &Route| segments(&route.path).map(segment).collect::<Vec<_>>();
        let mut routes: Vec<_> = routes.iter().map(|route| (path(route), route.level)).collect();
        routes.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        Self { routes, otherwise }
    }

    /// The level of a path. As in tags, segments are compared after percent-decoding.
    #[inline]
    pub(crate) fn level(&self, path: &str) -> Level {
        let fits = |route: &[String]| {
            let mut segments = segments(path);
            route.iter().all(|wanted| segments.next().is_some_and(|raw| means(raw, wanted)))
        };
        self.routes.iter().find(|(route, _)| fits(route)).map_or(self.otherwise, |&(_, level)| level)
    }
}

/// Appends the tag of a path: `prefix`, then the percent-decoded segments, joined by dots. Returns false if the path has
/// no segment.
///
/// # Errors
/// The segment that is not valid text.
pub(crate) fn tag_of<'a>(path: &'a str, prefix: Option<&str>, tag: &mut String) -> Result<bool, &'a str> {
    let start = tag.len();
    for segment in segments(path) {
        match prefix {
            _ if tag.len() > start => tag.push('.'),
            Some(prefix) => {
                tag.push_str(prefix);
                tag.push('.');
            }
            None => {}
        }
        if segment.contains('%') {
            tag.push_str(&decode(segment).ok_or(segment)?);
        } else {
            tag.push_str(segment);
        }
    }
    Ok(tag.len() > start)
}

/// Appends the tag that Fluentd would use: the path after its first slash, undecoded, with dots instead of slashes.
pub(crate) fn fluentd_tag_of(path: &str, prefix: Option<&str>, tag: &mut String) {
    if let Some(prefix) = prefix {
        tag.push_str(prefix);
        tag.push('.');
    }
    // Ruby's `split` drops empty segments only at the end.
    let path = path.strip_prefix('/').unwrap_or(path).trim_end_matches('/');
    tag.extend(path.chars().map(|c| if c == '/' { '.' } else { c }));
}

/// The non-empty segments of a path.
fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|segment| !segment.is_empty())
}

/// Whether a segment equals `text` after percent-decoding.
#[inline]
fn means(segment: &str, text: &str) -> bool {
    segment == text || (segment.contains('%') && bytes(segment).eq(text.bytes().map(Some)))
}

/// Percent-decodes a segment; `None` if the result is not UTF-8 or contains control characters.
fn decode(segment: &str) -> Option<String> {
    let bytes = bytes(segment).collect::<Option<Vec<u8>>>()?;
    String::from_utf8(bytes).ok().filter(|text| !text.chars().any(char::is_control))
}

/// Percent-decodes a segment to bytes; yields `None` for an invalid escape.
fn bytes(segment: &str) -> impl Iterator<Item = Option<u8>> {
    let mut rest = segment.bytes();
    std::iter::from_fn(move || match rest.next()? {
        b'%' => {
            let mut digit = || rest.next().and_then(|byte| (byte as char).to_digit(16));
            Some(digit().zip(digit()).map(|(high, low)| (high << 4 | low) as u8))
        }
        byte => Some(Some(byte)),
    })
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
    fn a_path_has_the_level_of_its_tag_however_it_is_written() {
        let routes =
            |path: &str| Routes::new(&[Route { path: path.into(), level: Level::Synced }], Level::Written);
        for path in ["/audit/a", "//audit//a", "/%61udit/a", "/%61%75%64%69%74", "audit"] {
            assert_eq!(routes("/audit").level(path), Level::Synced, "{path}");
        }
        for path in ["/audit%2Fa", "/%61udi", "/%61udit%", "/%6", "/audit%zz", "/", ""] {
            assert_eq!(routes("/audit").level(path), Level::Written, "{path}");
        }
        // A segment that cannot be decoded is compared undecoded.
        assert_eq!(routes("/100%").level("/100%"), Level::Synced);
        for route in ["/a b//c", "/a%20b/c/", "/%61 b/c"] {
            assert_eq!(routes(route).level("/a%20b/c/d"), Level::Synced, "{route}");
            assert_eq!(routes(route).level("/a%20b"), Level::Written, "{route}");
        }
    }

    #[test]
    fn a_tag_is_the_segments_joined() {
        let tag = |path, prefix| {
            let mut tag = String::new();
            tag_of(path, prefix, &mut tag).map(|has_tag| has_tag.then_some(tag))
        };
        assert_eq!(tag("/a/b", None), Ok(Some("a.b".to_owned())));
        assert_eq!(tag("//a//b/", Some("x.y")), Ok(Some("x.y.a.b".to_owned())));
        assert_eq!(tag("/%C3%A4/b%20c", None), Ok(Some("ä.b c".to_owned())));
        for none in ["/", "", "//"] {
            assert_eq!(tag(none, Some("x")), Ok(None), "{none}");
        }
        for (path, segment) in [("/a%ff/b", "a%ff"), ("/x%00y", "x%00y"), ("/%0a", "%0a"), ("/a/%4", "%4")] {
            assert_eq!(tag(path, None), Err(segment), "{path}");
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
