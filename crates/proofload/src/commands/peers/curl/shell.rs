//! Splits a command line into words like bash: quotes, `$'…'`, line continuations, and variables.

use super::super::table;

/// Splits a simple command into its words.
///
/// # Errors
/// If a quote is not closed, or the line contains more than one command, a redirection to a file or the syntax of
/// another shell.
pub(super) fn split(line: &str) -> Result<Vec<String>, String> {
    words(line, &secrets::reference::variable)
}

/// Registers the secrets in a command line, so that output masks them however the user quoted them. A line without
/// secrets is shown as typed.
pub(in crate::commands) fn learn(line: &str) {
    let typed = words(line, &|name| Ok(format!("${{{name}}}"))).unwrap_or_default();
    let masked: Vec<_> = typed.iter().map(|word| secrets::mask(word)).collect();
    if masked.iter().zip(&typed).any(|(masked, typed)| masked != typed) {
        let quoted: Vec<String> = masked.iter().map(|word| table::quoted(word)).collect();
        secrets::mask::learn_text(line, &quoted.join(" "));
    }
}

/// Splits a line into words. `value_of` returns the values of variables.
fn words(line: &str, value_of: &dyn Fn(&str) -> Result<String, String>) -> Result<Vec<String>, String> {
    let line = line.trim();
    let line = line.strip_prefix("$ ").unwrap_or(line);
    if line.contains("^\"") || line.contains("^\n") || line.contains("^\r\n") {
        return Err(
            "it is quoted for the Windows cmd shell (^): choose `Copy as cURL (bash)` in the browser"
                .to_owned(),
        );
    }
    let plain = without_bash(&line.replace("\\\r\n", "\\\n"), value_of)?;
    shlex::split(&plain).ok_or_else(|| "a quote is not closed, or the line ends in a backslash".to_owned())
}

/// Replaces bash's own syntax by quoted text that every shell understands: `$'…'` and variables.
fn without_bash(line: &str, value_of: &dyn Fn(&str) -> Result<String, String>) -> Result<String, String> {
    let mut plain = String::new();
    let mut rest = line;
    let mut is_double = false;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        rest = match c {
            // A backslash at the end of a line continues it.
            '\\' if after.starts_with('\n') => &after[1..],
            '\\' => {
                plain.push(c);
                let next = after.chars().next();
                plain.extend(next);
                &after[next.map_or(0, char::len_utf8)..]
            }
            '"' => {
                is_double = !is_double;
                plain.push(c);
                after
            }
            '\'' if !is_double => {
                let end = after.find('\'').ok_or("a quote ' is not closed")?;
                plain.push_str(&rest[..end + 2]);
                &after[end + 1..]
            }
            '$' if !is_double && after.starts_with('\'') => {
                let (text, rest) = ansi(&after[1..])?;
                plain.push_str(&quoted(&text));
                rest
            }
            '$' if after.starts_with('(') => return Err(runs_no_shell("$(")),
            '`' => return Err(runs_no_shell("`")),
            '$' => {
                let (name, rest) = variable(after)?;
                // Inside double quotes, the value needs quotes that close and reopen the surrounding ones.
                let quote = if is_double { "\"" } else { "" };
                match name.map(value_of).transpose()? {
                    Some(value) => plain.push_str(&format!("{quote}{}{quote}", quoted(&value))),
                    None => plain.push('$'),
                }
                rest
            }
            '|' | ';' | '<' | '>' | '&' if !is_double => {
                return Err(format!(
                    "a shell would end curl's command at {c}: remove it and the rest, or quote the word that has it, such as a \
                     URL with &"
                ));
            }
            _ => {
                plain.push(c);
                after
            }
        };
    }
    if is_double { Err("a quote \" is not closed".to_owned()) } else { Ok(plain) }
}

fn runs_no_shell(what: &str) -> String {
    format!("{what} makes a shell run a command, but none is run: write the output itself")
}

/// Quotes a text so that every shell reads it as one word.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Splits the variable name at the beginning of a text, if there is one, from the rest.
fn variable(text: &str) -> Result<(Option<&str>, &str), String> {
    let braced = text.strip_prefix('{').and_then(|text| text.split_once('}'));
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = braced.unwrap_or((&text[..end], &text[end..]));
    if name.is_empty() || (braced.is_none() && name.starts_with(|c: char| c.is_ascii_digit())) {
        return Ok((None, text));
    }
    if braced.is_some() && !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Err(format!("${{{name}}} is not a plain variable: write the text itself"));
    }
    Ok((Some(name), rest))
}

/// Decodes `$'…'` up to its closing quote. Also returns the text after it.
fn ansi(text: &str) -> Result<(String, &str), String> {
    let mut bytes = Vec::new();
    let mut rest = text;
    loop {
        let Some(c) = rest.chars().next() else { return Err("a quote $' is not closed".to_owned()) };
        rest = &rest[c.len_utf8()..];
        match c {
            '\'' => break,
            '\\' => rest = escape(rest, &mut bytes)?,
            c => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| "$'…' has bytes that are not UTF-8: write --data-binary @FILE")?;
    if text.contains('\0') {
        Err("$'…' has a zero byte: write --data-binary @FILE".to_owned())
    } else {
        Ok((text, rest))
    }
}

/// Decodes an escape, given without its backslash, into `bytes`. Returns the text after it.
fn escape<'a>(rest: &'a str, bytes: &mut Vec<u8>) -> Result<&'a str, String> {
    let c = rest.chars().next().ok_or("a quote $' is not closed")?;
    let after = &rest[c.len_utf8()..];
    // Parses a number of at most `most` digits.
    let number = |text: &'a str, base: u32, most: usize| {
        let digits = text.chars().take(most).take_while(|c| c.is_digit(base)).count();
        (u32::from_str_radix(&text[..digits], base).ok(), &text[digits..])
    };
    let plain = match c {
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'a' => '\u{7}',
        'b' => '\u{8}',
        'e' | 'E' => '\u{1b}',
        'f' => '\u{c}',
        'v' => '\u{b}',
        '\\' | '\'' | '"' | '?' => c,
        'x' | '0'..='7' => {
            let (value, rest) = if c == 'x' { number(after, 16, 2) } else { number(rest, 8, 3) };
            // An octal escape can exceed a byte; bash keeps the low byte.
            bytes.push(value.ok_or("\\x needs hexadecimal digits after it")? as u8);
            return Ok(rest);
        }
        'u' | 'U' => {
            let (value, rest) = number(after, 16, if c == 'u' { 4 } else { 8 });
            let value = value.and_then(char::from_u32).ok_or("\\u needs the code point of a character")?;
            bytes.extend_from_slice(value.encode_utf8(&mut [0; 4]).as_bytes());
            return Ok(rest);
        }
        c => {
            bytes.push(b'\\');
            c
        }
    };
    bytes.extend_from_slice(plain.encode_utf8(&mut [0; 4]).as_bytes());
    Ok(after)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_are_split_as_bash_splits_them() {
        for (line, words) in [
            ("curl  'a b' \"c d\" e\\ f", &["curl", "a b", "c d", "e f"][..]),
            ("$ curl \\\n -H x \\\r\n y", &["curl", "-H", "x", "y"]),
            (r"curl $'it\'s\n\u0021\x41\101' 'a'$'\t'b", &["curl", "it's\n!AA", "a\tb"]),
            (r#"curl "$'x'" '$HOME' "\$HOME" 5$"#, &["curl", "$'x'", "$HOME", "$HOME", "5$"]),
            (r"curl '\n' $'\q'", &["curl", "\\n", "\\q"]),
        ] {
            assert_eq!(split(line).unwrap(), words, "{line}");
        }
    }

    #[test]
    fn variables_have_their_values() {
        let home = std::env::var("CARGO_MANIFEST_DIR").unwrap();
        let words = split("curl \"$CARGO_MANIFEST_DIR/x\" ${CARGO_MANIFEST_DIR}").unwrap();
        assert_eq!(words, ["curl".to_owned(), format!("{home}/x"), home]);
        assert!(split("curl $NO_SUCH_VARIABLE").unwrap_err().contains("NO_SUCH_VARIABLE"));
    }

    #[test]
    fn what_only_a_shell_can_do_is_refused() {
        for (line, word) in [
            ("curl a | jq .", "|"),
            ("curl http://a/?b=1&c=2", "&"),
            ("curl -H \"X: $(date)\" a", "$("),
            ("curl `a`", "`"),
            ("curl 'a", "not closed"),
            ("curl \"a", "not closed"),
            ("curl $'a", "not closed"),
            ("curl ^\"http://a^\" ^\n -H ^\"b: c^\"", "Copy as cURL (bash)"),
        ] {
            let why = split(line).unwrap_err();
            assert!(why.contains(word), "{line}: {why}");
        }
    }

    #[test]
    fn a_secret_is_masked_however_the_line_writes_it() {
        for secret in ["Shell'Needle\"1", "Shell!Needle2", "ShellNeedle3 $x"] {
            secrets::mask::learn(secret);
        }
        for (line, shown) in [
            (r#"curl -u 'u:Shell'\''Needle"1' "$HOME" ''"#, "curl -u 'u:***' '${HOME}' ''"),
            (r"curl -b $'a=Shell\u0021Needle2' Shell\!Needle2", "curl -b 'a=***' '***'"),
            (r#"curl 'ShellNee'"dle3 \$x" -H 'Cookie: '$'a\x41'"#, "curl '***' -H 'Cookie: ***'"),
            (r#"curl -H "Authorization: Bearer ${T}" 'x'y"#, r#"curl -H "Authorization: Bearer ${T}" 'x'y"#),
        ] {
            learn(line);
            assert_eq!(secrets::mask(&format!("--curl={line}")), format!("--curl={shown}"));
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_splitting(text in "\\PC*|[ \\\\'\"$a^\n&`x{}0-9u]*") {
            let _ = split(&text);
        }

        #[test]
        // No carriage returns, because the parser reads a Windows line end as a plain one.
        fn quoted_words_come_back(words in prop::collection::vec("[^\0\r^]*", 1..5)) {
            let line = shlex::try_join(words.iter().map(String::as_str)).unwrap();
            // The parser strips a prompt and the blanks around a line.
            prop_assume!(line.trim() == line && !line.starts_with("$ "));
            prop_assert_eq!(split(&line).unwrap(), words);
        }
    }
}
