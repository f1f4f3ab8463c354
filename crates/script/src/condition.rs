//! Conditions of steps: `status == 401`, `count > 3 and next`, `not token`.

use crate::{
    names::{Names, Place},
    state::Values,
};

/// A condition: alternatives, each of which holds if all its comparisons do.
#[derive(Debug, Clone)]
pub(crate) struct Condition {
    any: Vec<Vec<Comparison>>,
}

#[derive(Debug, Clone)]
struct Comparison {
    left: Operand,
    test: Test,
}

#[derive(Debug, Clone, Copy)]
enum Operand {
    Status,
    User,
    Iteration,
    Named(Place),
}

#[derive(Debug, Clone)]
enum Test {
    /// There is a value, and it is neither empty nor `false`.
    Present,
    Absent,
    Compared(Relation, String),
}

/// How two values are compared: as numbers if both are, otherwise as texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relation {
    Equal,
    Unequal,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

/// Relations as they are written; of two that begin alike, the longer is first.
const RELATIONS: [(&str, Relation); 7] = [
    ("==", Relation::Equal),
    ("!=", Relation::Unequal),
    ("<=", Relation::AtMost),
    (">=", Relation::AtLeast),
    ("<", Relation::Less),
    (">", Relation::Greater),
    ("=", Relation::Equal),
];

impl Condition {
    pub(crate) fn parse(text: &str, names: &Names) -> Result<Self, String> {
        let comparisons = |text: &str| {
            text.split(" and ").map(|text| Comparison::parse(text.trim(), names)).collect::<Result<_, _>>()
        };
        Ok(Self { any: text.split(" or ").map(comparisons).collect::<Result<_, _>>()? })
    }

    pub(crate) fn holds(&self, values: &Values) -> bool {
        self.any.iter().any(|all| all.iter().all(|comparison| comparison.holds(values)))
    }
}

impl Comparison {
    fn parse(text: &str, names: &Names) -> Result<Self, String> {
        if let Some((left, relation, right)) = split_relation(text) {
            return Ok(Self { left: operand(left, names)?, test: Test::Compared(relation, unquoted(right)) });
        }
        match text.strip_prefix("not ") {
            Some(name) => Ok(Self { left: operand(name.trim(), names)?, test: Test::Absent }),
            None => Ok(Self { left: operand(text, names)?, test: Test::Present }),
        }
    }

    fn holds(&self, values: &Values) -> bool {
        let number;
        let left: &[u8] = match self.left {
            Operand::Named(place) => values.get(place),
            Operand::Status => {
                number = values.status.to_string();
                number.as_bytes()
            }
            Operand::User => {
                number = values.user.to_string();
                number.as_bytes()
            }
            Operand::Iteration => {
                number = values.iteration.to_string();
                number.as_bytes()
            }
        };
        match &self.test {
            Test::Present => !left.is_empty() && left != b"false",
            Test::Absent => left.is_empty() || left == b"false",
            Test::Compared(relation, right) => relation.holds(left, right),
        }
    }
}

impl Relation {
    /// Whether the relation holds between a value and what was written.
    pub(crate) fn holds(self, left: &[u8], right: &str) -> bool {
        let text = std::str::from_utf8(left).map(str::trim).unwrap_or_default();
        // Numbers of records have more digits than a floating-point number.
        let whole = (text.parse::<i128>().ok(), right.trim().parse::<i128>().ok());
        let order = match (whole, (number(text), number(right.trim()))) {
            ((Some(left), Some(right)), _) => Some(left.cmp(&right)),
            (_, (Some(left), Some(right))) => left.partial_cmp(&right),
            // What is no number is neither more nor less than one.
            (_, (None, Some(_))) if !matches!(self, Self::Equal | Self::Unequal) => return false,
            _ => Some(left.cmp(right.as_bytes())),
        };
        // Only a number that is none (NaN) has no order.
        let Some(order) = order else { return self == Self::Unequal };
        match self {
            Self::Equal => order.is_eq(),
            Self::Unequal => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::AtMost => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::AtLeast => order.is_ge(),
        }
    }
}

/// A number as JSON writes it; words that Rust takes for numbers, such as `inf`, are texts.
fn number(text: &str) -> Option<f64> {
    let is_digit = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
    text.chars().all(is_digit).then(|| text.parse().ok())?
}

/// Splits a text at its relation, which is outside of quotes and of brackets.
pub(crate) fn split_relation(text: &str) -> Option<(&str, Relation, &str)> {
    let (mut depth, mut quote) = (0_i32, None);
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(character),
            (None, '[' | '(') => depth += 1,
            (None, ']' | ')') => depth -= 1,
            (None, _) if depth == 0 => {
                let found = RELATIONS.iter().find(|(written, _)| text[at..].starts_with(written));
                if let Some((written, relation)) = found {
                    return Some((text[..at].trim(), *relation, text[at + written.len()..].trim()));
                }
            }
            _ => {}
        }
    }
    None
}

/// A text without the quotes around it.
pub(crate) fn unquoted(text: &str) -> String {
    let within = ['"', '\''].iter().find_map(|&quote| text.strip_prefix(quote)?.strip_suffix(quote));
    within.unwrap_or(text).to_owned()
}

fn operand(name: &str, names: &Names) -> Result<Operand, String> {
    match name {
        "status" => Ok(Operand::Status),
        "user" => Ok(Operand::User),
        "iteration" => Ok(Operand::Iteration),
        "" => Err("write a name, such as status == 401, token, or not token".to_owned()),
        _ => names.find(name).map(Operand::Named).ok_or_else(|| {
            format!("{}; a condition also has status, user and iteration", names.unknown(name))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_as_numbers_and_texts_as_texts() {
        for (left, relation, right, holds) in [
            ("10", Relation::Greater, "9", true),
            ("10", Relation::Greater, "9x", false),
            ("1.0", Relation::Equal, "1", true),
            ("ann", Relation::Unequal, "bob", true),
            ("ann", Relation::Less, "bob", true),
            ("", Relation::Equal, "", true),
            ("inf", Relation::Greater, "5", false),
            ("error", Relation::Greater, "3", false),
            ("", Relation::AtMost, "3", false),
            ("9007199254740993", Relation::Equal, "9007199254740992", false),
            ("1e3", Relation::Equal, "1000", true),
            ("null", Relation::Equal, "null", true),
            ("3", Relation::AtMost, "3", true),
            ("3", Relation::AtLeast, "4", false),
        ] {
            assert_eq!(relation.holds(left.as_bytes(), right), holds, "{left} {relation:?} {right}");
        }
    }

    #[test]
    fn a_relation_is_found_outside_of_brackets_and_quotes() {
        assert_eq!(split_relation("status == 401"), Some(("status", Relation::Equal, "401")));
        assert_eq!(split_relation("a<=3"), Some(("a", Relation::AtMost, "3")));
        assert_eq!(
            split_relation("$.a[?(@.b > 1)].c = 'x=y'"),
            Some(("$.a[?(@.b > 1)].c", Relation::Equal, "'x=y'"))
        );
        assert_eq!(split_relation("token"), None);
        assert_eq!(unquoted("'x=y'"), "x=y");
    }
}
