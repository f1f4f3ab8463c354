//! Placeholders in texts: `{name}`. `{{name}}` stands for the text `{name}` itself. `${NAME}` is an environment
//! variable and stays as it is.

use std::{borrow::Cow, net::Ipv6Addr};

use toml::{Spanned, de::DeValue};

use crate::Value;

/// A part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Plain text.
    Text(&'a str),
    /// `{{name}}`, with the name.
    Escaped(&'a str),
    /// A placeholder `{name}`, with the name.
    Name(&'a str),
}

/// Splits a text into its pieces. Braces around anything but a name, as in JSON, are plain text.
pub fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let (mut rest, mut searched) = (text, 0);
    while let Some(open) = rest[searched..].find('{').map(|at| at + searched) {
        let after = &rest[open..];
        let found = match name_between(after, "{{", "}}") {
            None if rest[..open].ends_with('$') => None,
            Some(name) => Some((Piece::Escaped(name), name.len() + 4)),
            None => name_between(after, "{", "}").map(|name| (Piece::Name(name), name.len() + 2)),
        };
        match found {
            Some((piece, length)) => {
                if open > 0 {
                    pieces.push(Piece::Text(&rest[..open]));
                }
                pieces.push(piece);
                rest = &after[length..];
                searched = 0;
            }
            None => searched = open + 1,
        }
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    pieces
}

fn name_between<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let (name, _) = text.strip_prefix(open)?.split_once(close)?;
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    (begins && name.chars().all(fits)).then_some(name)
}

/// Names of the placeholders in a text.
pub fn names(text: &str) -> Vec<&str> {
    let name = |piece| if let Piece::Name(name) = piece { Some(name) } else { None };
    pieces(text).into_iter().filter_map(name).collect()
}

/// Replaces each placeholder with the result of `lookup`. Escaped and unknown placeholders stay as they are. An IPv6
/// address after `//` or before `:` gets brackets, as URLs require.
pub fn substitute(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> String {
    substitute_names(text, lookup, |name| format!("{{{{{name}}}}}"))
}

/// Replaces placeholders like [`substitute`], and escaped ones with plain text. This must be the last step.
pub fn expand(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> String {
    substitute_names(text, lookup, |name| format!("{{{name}}}"))
}

fn substitute_names(
    text: &str,
    lookup: &dyn Fn(&str) -> Option<String>,
    escaped: impl Fn(&str) -> String,
) -> String {
    let mut result = String::new();
    let pieces = pieces(text);
    for (number, piece) in pieces.iter().enumerate() {
        match piece {
            Piece::Text(text) => result += text,
            Piece::Escaped(name) => result += &escaped(name),
            Piece::Name(name) => match lookup(name) {
                Some(value) => push_value(&mut result, &value, pieces.get(number + 1)),
                None => result += &format!("{{{name}}}"),
            },
        }
    }
    result
}

fn push_value(text: &mut String, value: &str, next: Option<&Piece<'_>>) {
    let is_before_port = matches!(next, Some(Piece::Text(next)) if next.starts_with(':'));
    if (text.ends_with("//") || is_before_port) && value.parse::<Ipv6Addr>().is_ok() {
        *text += &format!("[{value}]");
    } else {
        *text += value;
    }
}

/// Applies [`substitute`] to all texts of a value.
pub fn substitute_in_value<'i>(value: &Value<'i>, lookup: &dyn Fn(&str) -> Option<String>) -> Value<'i> {
    let inner = match value.get_ref() {
        DeValue::String(text) => DeValue::String(Cow::Owned(substitute(text, lookup))),
        DeValue::Array(values) => {
            DeValue::Array(values.iter().map(|value| substitute_in_value(value, lookup)).collect())
        }
        DeValue::Table(table) => DeValue::Table(
            table.iter().map(|(key, value)| (key.clone(), substitute_in_value(value, lookup))).collect(),
        ),
        other => other.clone(),
    };
    Spanned::new(value.span(), inner)
}

/// Calls `visit` with every text in a value.
pub fn for_each_text<'v>(value: &'v Value<'_>, visit: &mut dyn FnMut(&'v Value<'_>, &'v str)) {
    match value.get_ref() {
        DeValue::String(text) => visit(value, text),
        DeValue::Array(values) => values.iter().for_each(|value| for_each_text(value, visit)),
        DeValue::Table(table) => table.iter().for_each(|(_, value)| for_each_text(value, visit)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_in_braces_are_placeholders() {
        use Piece::{Escaped, Name, Text};
        assert_eq!(
            pieces("http://{web}/{{x}}{y}"),
            [Text("http://"), Name("web"), Text("/"), Escaped("x"), Name("y")]
        );
        for text in ["${a}", "$${a}", "{\"a\":{\"b\":1}}", "{}", "{ x }", "{x", "x}", "{1}", "{{", "{{}}"] {
            assert_eq!(pieces(text), [Text(text)], "{text}");
        }
        assert_eq!(pieces("{{{a}}}"), [Text("{"), Escaped("a"), Text("}")]);
        assert_eq!(pieces(""), []);
    }

    #[test]
    fn escapes_last_until_the_last_step() {
        let level = |name: &str| (name == "a").then(|| "1".to_owned());
        assert_eq!(substitute("{a}{{a}}{b}", &level), "1{{a}}{b}");
        assert_eq!(expand("1{{a}}{b}{a}", &level), "1{a}{b}1");
    }

    #[test]
    fn addresses_before_ports_get_brackets() {
        let web = |name: &str| (name == "web").then(|| "fd00::2".to_owned());
        for (text, expected) in [
            ("{web}", "fd00::2"),
            ("http://{web}/x", "http://[fd00::2]/x"),
            ("root@{web}:/x", "root@[fd00::2]:/x"),
        ] {
            assert_eq!(expand(text, &web), expected);
            assert_eq!(substitute(text, &web), expected);
        }
        assert_eq!(expand("//{four}:80", &|_| Some("10.1.0.2".to_owned())), "//10.1.0.2:80");
    }
}
