//! Conditions of steps: `status == 401`, `count > 3 and next`, `not token`.

use std::borrow::Cow;

use crate::{
    names::{Names, Place},
    state::Values,
};

/// A condition: alternatives joined by `or`, each of them comparisons joined by `and`.
#[derive(Debug, Clone)]
pub(crate) struct Condition {
    any: Vec<Vec<Comparison>>,
}

#[derive(Debug, Clone)]
struct Comparison {
    left: Operand,
    test: Test,
}

#[derive(Debug, Clone)]
enum Operand {
    Status,
    User,
    Iteration,
    Named(Place),
    /// A constant, as written.
    Written(Vec<u8>),
}

#[derive(Debug, Clone)]
enum Test {
    /// The value exists and is neither empty nor `false`.
    Present,
    Absent,
    Compared(Relation, Operand),
    /// The status is in a class such as 4xx (`true`), or is not (`false`).
    OfClass(u16, bool),
}

/// How two values are compared: as numbers if both are numbers, otherwise as texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relation {
    Equal,
    Unequal,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

/// Relations as written. A longer one comes before its prefix, because the first match is used.
const RELATIONS: [(&str, Relation); 6] = [
    ("==", Relation::Equal),
    ("!=", Relation::Unequal),
    ("<=", Relation::AtMost),
    (">=", Relation::AtLeast),
    ("<", Relation::Less),
    (">", Relation::Greater),
];
/// Characters of relations and of misspelt ones. The longest sequence of them must be a relation.
const OF_RELATIONS: [char; 5] = ['=', '!', '<', '>', '~'];

/// A token of a condition.
#[derive(Debug, Clone, PartialEq)]
enum Token<'a> {
    Word(&'a str),
    Quoted(&'a str),
    Relation(Relation),
}

impl Condition {
    pub(crate) fn parse(text: &str, names: &Names) -> Result<Self, String> {
        let tokens = tokens(text)?;
        let is = |words: &'static [&'static str]| move |(_, token): &(usize, Token<'_>)| matches!(token, Token::Word(word) if words.contains(word));
        let comparison = |tokens: &[(usize, Token<'_>)]| match tokens {
            [words @ .., (end, _)] => Comparison::parse(words, *end, names),
            [] => unreachable!("a mark ends them"),
        };
        let all = |tokens: &[_]| tokens.split_inclusive(is(&["and", "or"])).map(comparison).collect();
        Ok(Self { any: tokens.split_inclusive(is(&["or"])).map(all).collect::<Result<_, _>>()? })
    }

    pub(crate) fn holds(&self, values: &Values) -> bool {
        self.any.iter().any(|all| all.iter().all(|comparison| comparison.holds(values)))
    }
}

/// The tokens of a condition, each with its column. A final `or` is added, so that every alternative ends with one.
fn tokens(text: &str) -> Result<Vec<(usize, Token<'_>)>, String> {
    let (mut tokens, mut at) = (Vec::new(), 0);
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        let wrong = |what: &str| Err(format!("column {}: {what}", text[..at].chars().count() + 1));
        let (token, length) = match c {
            c if c.is_whitespace() => {
                at += c.len_utf8();
                continue;
            }
            '"' | '\'' => match rest[1..].find(c) {
                Some(end) => (Token::Quoted(&rest[1..=end]), end + 2),
                None => return wrong(&format!("the quote {c} is not closed")),
            },
            '&' | '|' => return wrong("write 'and' or 'or' between two comparisons"),
            '(' | ')' => return wrong("conditions have no parentheses: 'and' binds more tightly than 'or'"),
            '{' | '}' => return wrong("write the name without braces in a condition"),
            c if OF_RELATIONS.contains(&c) => {
                let length = rest.find(|c| !OF_RELATIONS.contains(&c)).unwrap_or(rest.len());
                match RELATIONS.iter().find(|(written, _)| *written == &rest[..length]) {
                    Some((_, relation)) => (Token::Relation(*relation), length),
                    None => {
                        return wrong(&format!("'{}' is not a comparison: write {KNOWN}", &rest[..length]));
                    }
                }
            }
            _ => {
                let ends =
                    |c: char| c.is_whitespace() || OF_RELATIONS.contains(&c) || "\"'&|(){}".contains(c);
                let length = rest.find(ends).unwrap_or(rest.len());
                (Token::Word(&rest[..length]), length)
            }
        };
        tokens.push((at, token));
        at += length;
    }
    tokens.push((text.len(), Token::Word("or")));
    let column = |(at, token)| (text[..at].chars().count() + 1, token);
    Ok(tokens.into_iter().map(column).collect())
}

const KNOWN: &str = "==, !=, <, <=, > or >=";

impl Comparison {
    /// `end`: the column after the last token.
    fn parse(tokens: &[(usize, Token<'_>)], end: usize, names: &Names) -> Result<Self, String> {
        let is_relation = |(_, token): &(usize, Token<'_>)| matches!(token, Token::Relation(_));
        let Some(at) = tokens.iter().position(is_relation) else {
            return match tokens {
                [(_, Token::Word("not")), rest @ ..] => {
                    Ok(Self { left: operand(rest, end, names)?, test: Test::Absent })
                }
                _ => Ok(Self { left: operand(tokens, end, names)?, test: Test::Present }),
            };
        };
        let (column, Token::Relation(relation)) = &tokens[at] else { unreachable!("it was found there") };
        let left = operand(&tokens[..at], *column, names)?;
        let equality = match relation {
            Relation::Equal => Some(true),
            Relation::Unequal => Some(false),
            _ => None,
        };
        let is_status = matches!(left, Operand::Status);
        let is_json = |word: &str| serde_json::from_str::<serde_json::Number>(word).is_ok();
        // 600 is not a status, but may be a bound in a comparison.
        let statuses = 100..600 + u16::from(equality.is_none());
        let is_of_statuses = |word: &str| word.parse().is_ok_and(|n| n == 0 || statuses.contains(&n));
        let is_constant = |word: &str| ["true", "false", "null"].contains(&word);
        let right = &tokens[at + 1..];
        if let [(column, Token::Word(word))] = right
            && (is_status && is_json(word) && !is_of_statuses(word)
                || is_constant(word) && equality.is_none())
        {
            return Err(format!(
                "column {column}: {word} cannot be compared like this: a status is 100 to 599, or 0 without an answer; true, false and null allow only == and !="
            ));
        }
        let test = match (right, equality) {
            ([], _) => return Err(format!("column {column}: a value is missing after the comparison")),
            ([(_, Token::Word(class))], Some(is_of)) if is_status && hundreds(class).is_some() => {
                Test::OfClass(hundreds(class).unwrap_or_default(), is_of)
            }
            ([(_, Token::Quoted(text))], _) => Test::Compared(*relation, Operand::Written((*text).into())),
            ([(_, Token::Word(word))], _) if is_json(word) || is_constant(word) => {
                Test::Compared(*relation, Operand::Written((*word).into()))
            }
            _ => {
                let value = operand(right, end, names).map_err(|why| {
                    format!(
                        "{why}; write a text in quotes, and a class such as 5xx only after status == or !="
                    )
                })?;
                Test::Compared(*relation, value)
            }
        };
        Ok(Self { left, test })
    }

    fn holds(&self, values: &Values) -> bool {
        let left = self.left.value(values);
        match &self.test {
            Test::Present => !left.is_empty() && &*left != b"false",
            Test::Absent => left.is_empty() || &*left == b"false",
            Test::Compared(relation, right) => relation.holds(&left, &right.value(values)),
            Test::OfClass(hundreds, is_of) => (values.status / 100 == *hundreds) == *is_of,
        }
    }
}

/// The class of statuses that a word such as 4xx names.
fn hundreds(word: &str) -> Option<u16> {
    word.strip_suffix("xx")?.parse().ok().filter(|class| (1..=5).contains(class))
}

impl Operand {
    fn value<'a>(&'a self, values: &'a Values) -> Cow<'a, [u8]> {
        let number = |number: u64| Cow::Owned(number.to_string().into_bytes());
        match self {
            Self::Named(place) => Cow::Borrowed(values.get(*place)),
            Self::Written(text) => Cow::Borrowed(text),
            Self::Status => number(values.status.into()),
            Self::User => number(values.user),
            Self::Iteration => number(values.iteration),
        }
    }
}

impl Relation {
    /// Whether the relation holds between two values.
    pub(crate) fn holds(self, left: &[u8], right: &[u8]) -> bool {
        let text = |value| std::str::from_utf8(value).map(str::trim).unwrap_or_default();
        let (left_text, right_text) = (text(left), text(right));
        // Integers are compared exactly, because IDs may have more digits than a floating-point number keeps.
        let whole = (left_text.parse::<i128>().ok(), right_text.parse::<i128>().ok());
        let order = match (whole, (number(left_text), number(right_text))) {
            ((Some(left), Some(right)), _) => Some(left.cmp(&right)),
            (_, (Some(left), Some(right))) => left.partial_cmp(&right),
            // A text that is not a number is neither larger nor smaller than a number.
            (_, (None, Some(_)) | (Some(_), None)) if !matches!(self, Self::Equal | Self::Unequal) => {
                return false;
            }
            _ => Some(left.cmp(right)),
        };
        // Only NaN has no order.
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

/// Parses a number as in JSON; words that Rust parses as numbers, such as `inf`, are texts.
fn number(text: &str) -> Option<f64> {
    let is_digit = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
    text.chars().all(is_digit).then(|| text.parse().ok())?
}

/// Splits a text at its first relation outside of quotes and brackets.
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
                let mut known = RELATIONS.iter().chain([&("=", Relation::Equal)]);
                let found = known.find(|(written, _)| text[at..].starts_with(written));
                if let Some((written, relation)) = found {
                    return Some((text[..at].trim(), *relation, text[at + written.len()..].trim()));
                }
            }
            _ => {}
        }
    }
    None
}

/// The value that a check requires. Quotes may be omitted unless the text looks like a relation or a template.
pub(crate) fn wanted(text: &str) -> Result<String, String> {
    let quoted = text.chars().next().filter(|c| ['"', '\''].contains(c));
    match quoted {
        Some(quote) => match text[1..].strip_suffix(quote) {
            Some(inner) if !inner.contains(quote) => Ok(inner.to_owned()),
            _ => Err(format!("{text}: the quote {quote} is not closed, or something follows it")),
        },
        None if text.is_empty() => {
            Err("the value is missing: write one, or \"\" for an empty text".to_owned())
        }
        None if text.starts_with(OF_RELATIONS) => {
            Err(format!("'{text}' is not a value: write {KNOWN} once; put a text that begins so in quotes"))
        }
        None if ["&&", "||", "{{"].iter().any(|mark| text.contains(mark)) => Err(format!(
            "'{text}' is not a value: give each check separately and without templates, or put the text in quotes"
        )),
        None => Ok(text.to_owned()),
    }
}

/// The operand that the tokens name. `end`: the column after them.
fn operand(tokens: &[(usize, Token<'_>)], end: usize, names: &Names) -> Result<Operand, String> {
    let Some(&(column, _)) = tokens.first() else {
        return Err(format!(
            "column {end}: a name is missing: write, for example, status == 401, token, or not token"
        ));
    };
    let mut words = Vec::new();
    for (column, token) in tokens {
        match token {
            Token::Word(word) => words.push(*word),
            Token::Quoted(text) => {
                return Err(format!("column {column}: \"{text}\" is a text; a name is expected here"));
            }
            Token::Relation(_) => {
                return Err(format!(
                    "column {column}: a second comparison: write 'and' or 'or' before its name"
                ));
            }
        }
    }
    // Names of columns may contain spaces, as table headings do.
    match &*words.join(" ") {
        "status" => Ok(Operand::Status),
        "user" => Ok(Operand::User),
        "iteration" => Ok(Operand::Iteration),
        name => names.find(name).map(Operand::Named).ok_or_else(|| {
            format!(
                "column {column}: {}; a condition also has status, user and iteration",
                names.without_value(name)
            )
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
            assert_eq!(
                relation.holds(left.as_bytes(), right.as_bytes()),
                holds,
                "{left} {relation:?} {right}"
            );
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
    }

    #[test]
    fn a_wanted_value_is_one_value() {
        for (text, value) in
            [("'x=y'", "x=y"), ("text/html; a=b", "text/html; a=b"), ("5\" disk", "5\" disk"), ("''", "")]
        {
            assert_eq!(wanted(text).as_deref(), Ok(value));
        }
        for wrong in ["", "> 5", "= 5", "~ x", "5 && x", "5 || x", "{{x}}", "'x", "\"x\" y"] {
            assert!(wanted(wrong).is_err(), "{wrong}");
        }
    }
}
