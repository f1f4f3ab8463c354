//! Checks of an answer besides its status.

use memchr::memmem;
use record::units::parse_size;

use crate::{
    answer::{Answer, Needs},
    condition::{Relation, split_relation, wanted},
    take::Finder,
};

/// A check that an answer must pass.
#[derive(Debug)]
pub(crate) enum Check {
    /// A value that [`Finder`] finds, with its required relation; none if it must only be present.
    Value(Finder, Option<(Relation, String)>),
    /// A text of the body, by its place among the texts that are searched for; `false` if it must be absent.
    Text { place: usize, is_there: bool },
    /// Bytes of the body, as they came.
    Size(Relation, u64),
}

impl Check {
    /// Parses a check such as `json:$.ok = true`, and adds to `needs` the parts of the answer that must be kept.
    pub(crate) fn parse(text: &str, needs: &mut Needs) -> Result<Self, String> {
        let text = text.trim();
        let (kind, rest) = text.split_once(':').map_or((text, ""), |(kind, rest)| (kind.trim(), rest.trim()));
        match kind {
            "text" | "no-text" if !rest.is_empty() => {
                // Words may have any character; only quotes around all of them are left out.
                let words = if rest.starts_with(['"', '\'']) { wanted(rest)? } else { rest.to_owned() };
                needs.texts.push(memmem::Finder::new(words.as_bytes()).into_owned());
                Ok(Self::Text { place: needs.texts.len() - 1, is_there: kind == "text" })
            }
            "size" => {
                let (relation, bytes) = match split_relation(rest) {
                    Some(("", relation, bytes)) => (relation, bytes),
                    _ => (Relation::Equal, rest),
                };
                let bytes =
                    parse_size(bytes).map_err(|error| format!("{error}; write such as size:>= 1KiB"))?;
                Ok(Self::Size(relation, bytes))
            }
            // The expression may have any character.
            "regex" => Ok(Self::Value(Finder::parse(text, needs)?, None)),
            "json" | "header" | "cookie" | "body" => match split_relation(text) {
                Some((place, relation, value)) => {
                    Ok(Self::Value(Finder::parse(place, needs)?, Some((relation, wanted(value)?))))
                }
                None => Ok(Self::Value(Finder::parse(text, needs)?, None)),
            },
            _ => Err(format!(
                "'{text}' is nothing that an answer can be checked for: write statuses, text:WORDS, no-text:WORDS, \
                 json:$.path = VALUE, header:NAME = VALUE, regex:EXPRESSION, size:>= 1KiB, or the NAME of a cookie after 'cookie:'"
            )),
        }
    }

    pub(crate) fn holds(&self, answer: &Answer) -> bool {
        match self {
            Self::Value(finder, relation) => finder.is_as(answer, relation.as_ref()),
            Self::Text { place, is_there } => {
                !answer.is_undecodable && answer.found.get(*place) == Some(is_there)
            }
            Self::Size(relation, bytes) => {
                relation.holds(answer.body_bytes.to_string().as_bytes(), bytes.to_string().as_bytes())
            }
        }
    }
}
