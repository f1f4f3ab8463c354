//! Tag patterns of `<match>`: `*` matches one part of a tag, `**` any number of parts, and `{a,b}` either alternative.
//!
//! Reference: <https://docs.fluentd.org/configuration/config-file#how-match-patterns-work>.

use std::fmt;

/// Maximum number of alternatives after all braces are expanded.
const MAX_ALTERNATIVES: usize = 256;

/// Patterns separated by blanks. A tag matches if any of them does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagPattern {
    text: String,
    /// The alternatives after all braces are expanded.
    alternatives: Vec<Vec<Piece>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    Character(char),
    /// `*`: any text without a dot.
    Part,
    /// `**`: any text.
    Parts,
    /// `.**`: nothing, or a dot and any text.
    MoreParts,
    /// `**.`: nothing, or any text and a dot.
    EarlierParts,
}

impl TagPattern {
    /// Parses patterns separated by blanks.
    ///
    /// # Errors
    /// Names the unsupported syntax and what is supported.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut alternatives = Vec::new();
        for pattern in text.split_whitespace() {
            if pattern.starts_with('/') {
                return Err(format!(
                    "'{pattern}': regular expressions are not known here; write *, ** and {{a,b}}"
                ));
            }
            for alternative in without_braces(pattern)? {
                alternatives.push(pieces(&alternative));
            }
            if alternatives.len() > MAX_ALTERNATIVES {
                return Err(format!("'{text}': more than {MAX_ALTERNATIVES} alternatives"));
            }
        }
        if alternatives.is_empty() {
            return Err("a pattern of tags is missing, such as <match app.**>".to_owned());
        }
        Ok(Self { text: text.to_owned(), alternatives })
    }

    /// Whether any of the patterns matches the whole tag.
    pub fn matches(&self, tag: &str) -> bool {
        let tag: Vec<char> = tag.chars().collect();
        self.alternatives.iter().any(|pieces| is_match(pieces, &tag))
    }
}

impl fmt::Display for TagPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Expands braces, which may be nested, to all alternatives.
fn without_braces(pattern: &str) -> Result<Vec<String>, String> {
    let mut done = Vec::new();
    let mut open = vec![pattern.to_owned()];
    while let Some(pattern) = open.pop() {
        // Expands innermost braces first: from the last `{` to the next `}`.
        let Some(start) = pattern.rfind('{') else {
            if pattern.contains('}') {
                return Err(format!("'{pattern}': '}}' without '{{'"));
            }
            done.push(pattern);
            continue;
        };
        let end = pattern[start..].find('}').map(|end| start + end);
        let end = end.ok_or_else(|| format!("'{pattern}': '{{' is not closed"))?;
        for choice in pattern[start + 1..end].split(',') {
            open.push(format!("{}{choice}{}", &pattern[..start], &pattern[end + 1..]));
        }
        if open.len() + done.len() > MAX_ALTERNATIVES {
            return Err(format!("'{pattern}': more than {MAX_ALTERNATIVES} alternatives"));
        }
    }
    Ok(done)
}

fn pieces(pattern: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        // The first dot of ".**." is an ordinary character, because "**." matches any number of parts, including none.
        let (piece, length) = if rest.starts_with(".**") && !rest.starts_with(".**.") {
            (Piece::MoreParts, 3)
        } else if rest.starts_with("**.") {
            (Piece::EarlierParts, 3)
        } else if rest.starts_with("**") {
            (Piece::Parts, 2)
        } else if first == '*' {
            (Piece::Part, 1)
        } else {
            (Piece::Character(first), first.len_utf8())
        };
        pieces.push(piece);
        rest = &rest[length..];
    }
    pieces
}

/// Tracks the positions in the tag that each piece can reach, so the time is proportional to pattern length × tag
/// length.
fn is_match(pieces: &[Piece], tag: &[char]) -> bool {
    let mut reached = vec![false; tag.len() + 1];
    reached[0] = true;
    for piece in pieces {
        let mut next = vec![false; tag.len() + 1];
        for from in (0..=tag.len()).filter(|&from| reached[from]) {
            match piece {
                Piece::Character(c) => {
                    if tag.get(from) == Some(c) {
                        next[from + 1] = true;
                    }
                }
                Piece::Part => {
                    let end = tag[from..].iter().position(|&c| c == '.').map_or(tag.len(), |end| from + end);
                    next[from..=end].fill(true);
                }
                Piece::Parts => next[from..].fill(true),
                Piece::MoreParts => {
                    next[from] = true;
                    if tag.get(from) == Some(&'.') {
                        next[from + 1..].fill(true);
                    }
                }
                Piece::EarlierParts => {
                    next[from] |= from == 0 || tag[from - 1] == '.';
                    for (at, _) in tag.iter().enumerate().skip(from).filter(|(_, c)| **c == '.') {
                        next[at + 1] = true;
                    }
                }
            }
        }
        reached = next;
    }
    reached[tag.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(pattern: &str, tag: &str) -> bool {
        TagPattern::parse(pattern).unwrap().matches(tag)
    }

    #[test]
    fn patterns_match_as_fluentd_documents_them() {
        for (pattern, yes, no) in [
            (
                "http_listener*",
                &["http_listener", "http_listener_test"][..],
                &["http", "http_listener.a"][..],
            ),
            ("a.*", &["a.b"], &["a", "a.b.c", "b.a"]),
            ("a.**", &["a", "a.b", "a.b.c"], &["ab", "b.a"]),
            ("**.a", &["a", "b.a", "c.b.a"], &["ba", "a.b"]),
            ("a.**.b", &["a.b", "a.x.b", "a.x.y.b"], &["a", "ab", "a.xb"]),
            ("**", &["", "a", "a.b"], &[]),
            ("a**", &["a", "ab", "a.b.c"], &["b"]),
            ("{a,b}", &["a", "b"], &["a,b", "c", "ab"]),
            ("{a,b}.c.*", &["a.c.x", "b.c.y"], &["c.x"]),
            ("a.{b,c.**}", &["a.b", "a.c", "a.c.d"], &["a.b.d"]),
            ("{a,{b,c}d}", &["a", "bd", "cd"], &["b", "ad"]),
            ("a b.*", &["a", "b.c"], &["a b.*", "b"]),
        ] {
            for tag in yes {
                assert!(matches(pattern, tag), "{pattern} {tag}");
            }
            for tag in no {
                assert!(!matches(pattern, tag), "{pattern} {tag}");
            }
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for (pattern, why) in [
            ("", "missing"),
            ("/^a/", "regular expressions"),
            ("{a", "not closed"),
            ("a}", "without"),
            ("{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}", "alternatives"),
        ] {
            let error = TagPattern::parse(pattern).unwrap_err();
            assert!(error.contains(why), "{pattern}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(pattern in "[a.*{},/ ]{0,24}", tag in "[a.]{0,12}") {
            if let Ok(pattern) = TagPattern::parse(&pattern) {
                pattern.matches(&tag);
            }
        }

        #[test]
        fn a_tag_matches_itself_and_what_is_wider(tag in "[a-z]{1,4}(\\.[a-z]{1,4}){0,4}") {
            prop_assert!(matches(&tag, &tag));
            prop_assert!(matches("**", &tag));
            let stars: Vec<&str> = tag.split('.').map(|_| "*").collect();
            prop_assert!(matches(&stars.join("."), &tag));
            let extended = format!("{tag}.**");
            prop_assert!(matches(&extended, &tag));
        }
    }
}
