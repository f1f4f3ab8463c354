//! Places in texts that stand for something else: `{name}`. `{{name}}` is the text `{name}` itself, and `${NAME}` is a
//! variable of the environment, which is read where it is used.

use std::{borrow::Cow, net::Ipv6Addr};

use toml::{Spanned, de::DeValue};

use crate::Value;

/// A part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Stands for itself.
    Text(&'a str),
    /// `{{name}}`: the name.
    Escaped(&'a str),
    /// `{name}`: the name.
    Name(&'a str),
}

/// The parts of a text. Braces around anything but a name, as in JSON, are text.
pub fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let (mut rest, mut looked) = (text, 0);
    while let Some(open) = rest[looked..].find('{').map(|at| at + looked) {
        let after = &rest[open..];
        let found = match name_in(after, "{{", "}}") {
            None if rest[..open].ends_with('$') => None,
            Some(name) => Some((Piece::Escaped(name), name.len() + 4)),
            None => name_in(after, "{", "}").map(|name| (Piece::Name(name), name.len() + 2)),
        };
        match found {
            Some((piece, length)) => {
                if open > 0 {
                    pieces.push(Piece::Text(&rest[..open]));
                }
                pieces.push(piece);
                rest = &after[length..];
                looked = 0;
            }
            None => looked = open + 1,
        }
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    pieces
}

fn name_in<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let (name, _) = text.strip_prefix(open)?.split_once(close)?;
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    (begins && name.chars().all(fits)).then_some(name)
}

/// The names in a text.
pub fn names(text: &str) -> Vec<&str> {
    let name = |piece| if let Piece::Name(name) = piece { Some(name) } else { None };
    pieces(text).into_iter().filter_map(name).collect()
}

/// The text with what `stands_for` says in the places of names; escaped and unknown ones stay as they are. An IPv6 address
/// behind `//` or before `:`, as in URLs, gets brackets.
pub fn replaced(text: &str, stands_for: &dyn Fn(&str) -> Option<String>) -> String {
    filled(text, stands_for, |name| format!("{{{{{name}}}}}"))
}

/// The same as the last step: what is escaped becomes plain.
pub fn finished(text: &str, stands_for: &dyn Fn(&str) -> Option<String>) -> String {
    filled(text, stands_for, |name| format!("{{{name}}}"))
}

fn filled(
    text: &str,
    stands_for: &dyn Fn(&str) -> Option<String>,
    escaped: impl Fn(&str) -> String,
) -> String {
    let mut changed = String::new();
    let pieces = pieces(text);
    for (number, piece) in pieces.iter().enumerate() {
        match piece {
            Piece::Text(text) => changed += text,
            Piece::Escaped(name) => changed += &escaped(name),
            Piece::Name(name) => match stands_for(name) {
                Some(value) => put(&mut changed, &value, pieces.get(number + 1)),
                None => changed += &format!("{{{name}}}"),
            },
        }
    }
    changed
}

fn put(text: &mut String, value: &str, next: Option<&Piece<'_>>) {
    let is_before_port = matches!(next, Some(Piece::Text(next)) if next.starts_with(':'));
    match (text.ends_with("//") || is_before_port) && value.parse::<Ipv6Addr>().is_ok() {
        true => *text += &format!("[{value}]"),
        false => *text += value,
    }
}

/// A value with [`replaced`] done to all of its texts.
pub fn replaced_within<'i>(value: &Value<'i>, stands_for: &dyn Fn(&str) -> Option<String>) -> Value<'i> {
    let inner = match value.get_ref() {
        DeValue::String(text) => DeValue::String(Cow::Owned(replaced(text, stands_for))),
        DeValue::Array(values) => {
            DeValue::Array(values.iter().map(|value| replaced_within(value, stands_for)).collect())
        }
        DeValue::Table(table) => DeValue::Table(
            table.iter().map(|(key, value)| (key.clone(), replaced_within(value, stands_for))).collect(),
        ),
        other => other.clone(),
    };
    Spanned::new(value.span(), inner)
}

/// Tells every text within a value.
pub fn each_text<'v>(value: &'v Value<'_>, told: &mut dyn FnMut(&'v Value<'_>, &'v str)) {
    match value.get_ref() {
        DeValue::String(text) => told(value, text),
        DeValue::Array(values) => values.iter().for_each(|value| each_text(value, told)),
        DeValue::Table(table) => table.iter().for_each(|(_, value)| each_text(value, told)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_in_braces_are_places() {
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
        assert_eq!(replaced("{a}{{a}}{b}", &level), "1{{a}}{b}");
        assert_eq!(finished("1{{a}}{b}{a}", &level), "1{a}{b}1");
    }

    #[test]
    fn addresses_are_told_from_the_ports_behind_them() {
        let web = |name: &str| (name == "web").then(|| "fd00::2".to_owned());
        for (text, put) in [
            ("{web}", "fd00::2"),
            ("http://{web}/x", "http://[fd00::2]/x"),
            ("root@{web}:/x", "root@[fd00::2]:/x"),
        ] {
            assert_eq!(finished(text, &web), put);
            assert_eq!(replaced(text, &web), put);
        }
        assert_eq!(finished("//{four}:80", &|_| Some("10.1.0.2".to_owned())), "//10.1.0.2:80");
    }
}
