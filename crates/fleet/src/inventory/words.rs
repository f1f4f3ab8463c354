//! Splits texts into words as a shell does, without expanding anything: like Python's `shlex.split`, which Ansible uses.

/// The words of a text. Quotes join words, and a backslash makes the next character an ordinary one. With `comments`,
/// an unquoted `#` ends the text, even within a word.
///
/// # Errors
/// If a quote is not closed, or if the text ends in a backslash.
pub(super) fn split(text: &str, comments: bool) -> Result<Vec<String>, &'static str> {
    const BACKSLASH: &str = "a backslash has nothing after it";
    let (mut words, mut word): (Vec<String>, Option<String>) = (Vec::new(), None);
    let mut signs = text.chars();
    while let Some(sign) = signs.next() {
        match sign {
            ' ' | '\t' | '\r' | '\n' => words.extend(word.take()),
            '#' if comments => break,
            '\\' => word.get_or_insert_default().push(signs.next().ok_or(BACKSLASH)?),
            '"' | '\'' => {
                let quoted = word.get_or_insert_default();
                loop {
                    match signs.next().ok_or("a quote is not closed")? {
                        end if end == sign => break,
                        '\\' if sign == '"' => {
                            let next = signs.next().ok_or(BACKSLASH)?;
                            // Within double quotes, a backslash is special only before these two.
                            if !['"', '\\'].contains(&next) {
                                quoted.push('\\');
                            }
                            quoted.push(next);
                        }
                        other => quoted.push(other),
                    }
                }
            }
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_are_those_of_python() {
        // The right answers are those of `shlex.split(text, comments=…)`.
        for (text, comments, words) in [
            ("", false, &[] as &[&str]),
            (" a\t b ", false, &["a", "b"]),
            ("a # b", false, &["a", "#", "b"]),
            ("a # b", true, &["a"]),
            ("a#b c", true, &["a"]),
            ("a'#'b c", true, &["a#b", "c"]),
            ("# a", true, &[]),
            ("x='a b' y=\"c d\"", true, &["x=a b", "y=c d"]),
            ("x=\"'a b'\"", true, &["x='a b'"]),
            ("'' \"\"", false, &["", ""]),
            (r"a\ b \#", true, &["a b", "#"]),
            (r#""a\"b\\c\d""#, false, &[r#"a"b\c\d"#]),
            (r"'a\b'", false, &[r"a\b"]),
            ("-o ProxyCommand=\"ssh -W %h:%p gw\"", false, &["-o", "ProxyCommand=ssh -W %h:%p gw"]),
        ] {
            assert_eq!(split(text, comments).unwrap(), words, "{text}");
        }
        for text in ["'a", "\"a", "a\\", "\"a\\"] {
            assert!(split(text, false).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_splitting(text in "\\PC*|[ \\\\'\"#a\n]*", comments: bool) {
            let _ = split(&text, comments);
        }
    }
}
