//! Values taken from answers, by JSON path, header, cookie, regular expression, status or whole body.

use regex::bytes::Regex;
use serde_json::Value;
use serde_json_path::JsonPath;

use crate::{
    answer::{Answer, Needs},
    condition::Relation,
};

/// The position of a value in an answer.
#[derive(Debug)]
pub(crate) enum Finder {
    Status,
    /// The whole body.
    Body,
    /// A header field, by its index in `Needs::headers`.
    Header(usize),
    /// A cookie that the answer sets.
    Cookie(String),
    Json(JsonPath),
    /// The first group of an expression, or the whole match if it has no group.
    Regex(Regex),
}

const KINDS: &str =
    "json:$.path, header:NAME, regex:EXPRESSION, body, status, or the NAME of a cookie after 'cookie:'";

impl Finder {
    /// Parses an expression such as `json:$.token`, and adds to `needs` the parts of the answer that must be kept.
    pub(crate) fn parse(text: &str, needs: &mut Needs) -> Result<Self, String> {
        let text = text.trim();
        let (kind, rest) = text.split_once(':').map_or((text, ""), |(kind, rest)| (kind.trim(), rest.trim()));
        match (kind, rest) {
            ("status", "") => Ok(Self::Status),
            ("body", "") => {
                needs.body = true;
                Ok(Self::Body)
            }
            ("header" | "cookie", name) if !name.is_empty() && !name.bytes().all(http1::is_token) => {
                Err(format!(
                    "'{name}' is not the name of a {kind}: write {kind}:NAME, and after it the value that it must have, such as = VALUE"
                ))
            }
            ("header", name) if !name.is_empty() => Ok(Self::Header(needs.header(name))),
            ("cookie", name) if !name.is_empty() => {
                needs.cookies = true;
                Ok(Self::Cookie(name.to_owned()))
            }
            ("json", path) => {
                needs.body = true;
                let path = JsonPath::parse(path)
                    .map_err(|error| format!("'{path}' is not a JSON path such as $.items[0].id: {error}"))?;
                Ok(Self::Json(path))
            }
            ("regex", expression) if !expression.is_empty() => {
                needs.body = true;
                Regex::new(expression).map(Self::Regex).map_err(|error| {
                    let why = error.to_string();
                    let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
                    format!("'{expression}' is not a regular expression: {why}")
                })
            }
            _ => Err(format!("'{text}' does not name a part of an answer: write {KINDS}")),
        }
    }

    /// The value; `None` if the answer lacks it.
    pub(crate) fn find(&self, answer: &Answer) -> Option<Vec<u8>> {
        match self {
            Self::Status => Some(answer.status.to_string().into_bytes()),
            Self::Body => answer.body().map(<[u8]>::to_vec),
            Self::Header(place) => answer.headers.get(*place)?.clone(),
            Self::Cookie(name) => answer.cookies.iter().rev().find_map(|field| {
                let pair = field.split(|&byte| byte == b';').next()?;
                let at = pair.iter().position(|&byte| byte == b'=')?;
                (pair[..at].trim_ascii() == name.as_bytes()).then(|| pair[at + 1..].trim_ascii().to_vec())
            }),
            Self::Json(path) => {
                let value = json(answer)?;
                path.query(&value).first().filter(|value| !value.is_null()).map(text_of)
            }
            Self::Regex(expression) => {
                let captures = expression.captures(answer.body()?)?;
                let found = captures.get(1).or_else(|| captures.get(0))?;
                Some(found.as_bytes().to_vec())
            }
        }
    }

    /// Whether the answer has the value, and the value has the required relation.
    pub(crate) fn is_as(&self, answer: &Answer, relation: Option<&(Relation, String)>) -> bool {
        let Some((relation, wanted)) = relation else { return self.find(answer).is_some() };
        let found = match self {
            // A body that cannot be read proves nothing, not even that a value differs.
            Self::Json(path) => {
                let Some(value) = json(answer) else { return false };
                path.query(&value).first().map(text_of)
            }
            Self::Body | Self::Regex(_) if answer.body().is_none() => return false,
            _ => self.find(answer),
        };
        match found {
            Some(value) => relation.holds(&value, wanted.as_bytes()),
            // A missing value is unequal to everything.
            None => *relation == Relation::Unequal,
        }
    }
}

/// The body as JSON; `None` if it is not JSON.
fn json(answer: &Answer) -> Option<Value> {
    serde_json::from_slice(answer.body()?).ok()
}

/// A value as a text; a JSON string without its quotes.
fn text_of(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.clone().into_bytes(),
        other => other.to_string().into_bytes(),
    }
}
