//! Values of variables, as Ansible reads them from the formats of inventories.

use serde_json::Value as Json;

/// What Ansible makes of `!vault`.
pub(super) const ENCRYPTED: &str =
    "ansible-vault has encrypted it, and only playbooks decrypt it; write it unencrypted";
/// A list or a mapping.
pub(super) const COMPOUND: &str = "it is a list or a mapping; write a text";
const NUMBER: &str = "Ansible reads it as a number and writes that in another form; put it in quotes";
const LITERAL: &str = "Ansible reads it as a Python literal; write a plain text, without backslashes";

/// The value of a variable, as far as connections need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// As if the variable were not set, not even by a group.
    Null,
    /// A text, or what Ansible turns into this text: a number, true or false.
    Text(String),
    /// Anything else: why it cannot be obeyed, and what to write instead.
    Other(&'static str),
}

impl Value {
    /// A value of an INI file. Ansible tries to read a Python literal (`ast.literal_eval`); if there is none, the whole text
    /// is the value, including any comment. Shell quotes of a machine's line must have been removed.
    pub(super) fn python(text: &str) -> Self {
        let bare = text.trim_matches([' ', '\t']);
        if let Some(quote) = bare.chars().next().filter(|sign| ['"', '\''].contains(sign)) {
            let Some((inside, behind)) = bare[1..].split_once(quote) else {
                return Self::Text(text.to_owned());
            };
            let behind = behind.trim_start();
            return match behind.chars().next() {
                _ if inside.contains('\\') => Self::Other(LITERAL),
                None | Some('#') => Self::Text(inside.to_owned()),
                // Python joins texts that follow each other.
                Some('"' | '\'') => Self::Other(LITERAL),
                Some(_) => Self::Text(text.to_owned()),
            };
        }
        let literal = bare.split('#').next().unwrap_or_default().trim_end();
        match literal {
            "None" => Self::Null,
            "True" | "False" => Self::Text(literal.to_owned()),
            _ if is_whole(literal) => Self::Text(literal.to_owned()),
            _ if is_number(literal) => Self::Other(NUMBER),
            // A template is not a literal.
            _ if literal.starts_with(['[', '{', '(']) && !text.contains("{{") => Self::Other(COMPOUND),
            _ => Self::Text(text.to_owned()),
        }
    }

    /// A plain scalar of a YAML file, which Ansible reads as YAML 1.1.
    pub(super) fn yaml(text: &str) -> Self {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => Self::Null,
            _ if !is_whole(text) && is_number(text) => Self::Other(NUMBER),
            _ => Self::Text(text.to_owned()),
        }
    }

    /// A value that `ansible-inventory` has printed.
    pub(super) fn json(value: &Json) -> Self {
        match value {
            Json::Null => Self::Null,
            Json::Bool(_) | Json::Number(_) => Self::Text(value.to_string()),
            Json::String(text) => Self::Text(text.clone()),
            Json::Object(object) => match object.get("__ansible_unsafe") {
                Some(Json::String(text)) => Self::Text(text.clone()),
                _ if object.contains_key("__ansible_vault") => Self::Other(ENCRYPTED),
                _ => Self::Other(COMPOUND),
            },
            Json::Array(_) => Self::Other(COMPOUND),
        }
    }
}

/// Whether a text is a whole number that is written back as it is.
fn is_whole(text: &str) -> bool {
    text == "0" || !text.starts_with('0') && !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit())
}

/// Whether a text is a number in Python or in YAML.
fn is_number(text: &str) -> bool {
    let digits = text.trim_start_matches(['+', '-']).to_ascii_lowercase().replace('_', "");
    let is_based = |(prefix, base): (&str, u32)| {
        digits
            .strip_prefix(prefix)
            .is_some_and(|digits| !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(base)))
    };
    [("0x", 16), ("0o", 8), ("0b", 2)].into_iter().any(is_based)
        || digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') && digits.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_ini_files_are_python_literals_or_texts() {
        // The right answers are those of `str(ast.literal_eval(text))`, or the text if that fails.
        let text = |text: &str| Value::Text(text.to_owned());
        for (written, value) in [
            ("me", text("me")),
            ("2222", text("2222")),
            ("2222 # ours", text("2222")),
            ("me # ours", text("me # ours")),
            ("'me' # ours", text("me")),
            ("\"it's\"", text("it's")),
            ("'-o ProxyCommand=\"ssh -W %h:%p gw\"'", text("-o ProxyCommand=\"ssh -W %h:%p gw\"")),
            ("'a' + b", text("'a' + b")),
            ("'a", text("'a")),
            ("yes", text("yes")),
            ("True", text("True")),
            ("None", Value::Null),
            ("10.0.0.1", text("10.0.0.1")),
            ("::1", text("::1")),
            ("-o Port=1", text("-o Port=1")),
            ("{{ user }}", text("{{ user }}")),
            ("", text("")),
            ("'a' 'b'", Value::Other(LITERAL)),
            ("'a\\tb'", Value::Other(LITERAL)),
            ("1e3", Value::Other(NUMBER)),
            ("0x16", Value::Other(NUMBER)),
            ("2_222", Value::Other(NUMBER)),
            ("[22]", Value::Other(COMPOUND)),
            ("{'a': 1}", Value::Other(COMPOUND)),
        ] {
            assert_eq!(Value::python(written), value, "{written}");
        }
    }

    #[test]
    fn plain_scalars_are_those_of_yaml_1_1() {
        let text = |text: &str| Value::Text(text.to_owned());
        for (written, value) in [
            ("me", text("me")),
            ("22", text("22")),
            ("yes", text("yes")),
            ("10.0.0.1", text("10.0.0.1")),
            ("~", Value::Null),
            ("", Value::Null),
            ("null", Value::Null),
            ("022", Value::Other(NUMBER)),
            ("1.10", Value::Other(NUMBER)),
            ("1_000", Value::Other(NUMBER)),
        ] {
            assert_eq!(Value::yaml(written), value, "{written}");
        }
    }

    #[test]
    fn what_ansible_inventory_prints_is_read() {
        let read = |json: &str| Value::json(&serde_json::from_str(json).unwrap());
        let text = |text: &str| Value::Text(text.to_owned());
        for (json, value) in [
            ("\"me\"", text("me")),
            ("22", text("22")),
            ("true", text("true")),
            ("null", Value::Null),
            (r#"{"__ansible_unsafe": "me"}"#, text("me")),
            (r#"{"__ansible_vault": "$ANSIBLE_VAULT;1.1;AES256"}"#, Value::Other(ENCRYPTED)),
            ("[1]", Value::Other(COMPOUND)),
            ("{}", Value::Other(COMPOUND)),
        ] {
            assert_eq!(read(json), value, "{json}");
        }
    }
}
