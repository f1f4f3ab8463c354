//! The pieces of a text that may refer to secrets: literal texts, and names of variables.

/// A piece of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Literal text; for `$${`, it is `${`.
    Text(&'a str),
    /// The name of a variable.
    Name(&'a str),
}

/// The pieces of a text, each with its offset.
///
/// # Errors
/// When a reference is malformed.
pub fn pieces(text: &str) -> Result<Vec<(usize, Piece<'_>)>, String> {
    let mut pieces = Vec::new();
    let mut at = 0;
    while let Some(found) = text[at..].find("${").map(|found| at + found) {
        if text[at..found].ends_with('$') {
            pieces.push((at, Piece::Text(&text[at..found - 1])));
            pieces.push((found, Piece::Text(&text[found..found + 2])));
            at = found + 2;
            continue;
        }
        let is_name = |name: &&str| {
            name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let name = text[found + 2..].split_once('}').map(|(name, _)| name).filter(is_name).ok_or(
            "'${' begins the name of an environment variable, as in ${TOKEN}; write $${ for the text ${ itself",
        )?;
        pieces.push((at, Piece::Text(&text[at..found])));
        pieces.push((found, Piece::Name(name)));
        at = found + name.len() + 3;
    }
    pieces.push((at, Piece::Text(&text[at..])));
    Ok(pieces)
}

/// Whether a text contains only references to secrets, and no secret: `${TOKEN}`, `Bearer ${TOKEN}`,
/// `session=${SESSION}`, `ann:${PASSWORD}`. Such a text may be shown and repeated as typed.
pub(crate) fn is_reference_only(text: &str) -> bool {
    const VALUE: char = '\0';
    let Ok(pieces) = pieces(text) else { return false };
    let mut shape = String::new();
    for (_, piece) in pieces {
        match piece {
            Piece::Text("${") => return false,
            Piece::Text(text) => shape += text,
            Piece::Name(_) => shape.push(VALUE),
        }
    }
    let is_scheme = |word: &str| word.len() <= 10 && word.chars().all(|c| c.is_ascii_alphabetic());
    let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    shape.split("; ").all(|part| {
        part.strip_suffix(VALUE).is_some_and(|front| {
            front.is_empty()
                || front.strip_suffix(' ').is_some_and(is_scheme)
                || front.strip_suffix('=').is_some_and(is_name)
                || front.strip_suffix(':').is_some_and(|user| is_name(user) || user == VALUE.to_string())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_names_a_secret_is_told_from_what_holds_one() {
        for text in ["${A}", "Bearer ${A}", "session=${A}", "a=${A}; b=${B}", "ann:${A}", "${A}:${B}"] {
            assert!(is_reference_only(text), "{text}");
        }
        for text in
            ["abc", "abc${A}", "Bearer x1${A}", "a=1; b=${B}", "${A}x", "$${A}", "Bearer abc ${A}", "${"]
        {
            assert!(!is_reference_only(text), "{text}");
        }
    }
}
