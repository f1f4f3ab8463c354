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
    /// A value that [`Finder`] finds, and its required relation; `None` if the value must only be present.
    Value(Finder, Option<(Relation, String)>),
    /// A text in the body: its index in `Needs::texts`, and whether it must be present or absent.
    Text { place: usize, is_there: bool },
    /// Size of the body as sent, in bytes.
    Size(Relation, u64),
}

impl Check {
    /// Parses a check such as `json:$.ok = true`, and adds to `needs` the parts of the answer that must be kept.
    pub(crate) fn parse(text: &str, needs: &mut Needs) -> Result<Self, String> {
        let text = text.trim();
        let (kind, rest) = text.split_once(':').map_or((text, ""), |(kind, rest)| (kind.trim(), rest.trim()));
        match kind {
            "text" | "no-text" if !rest.is_empty() => {
                // The text may contain any characters; only quotes around the whole text are removed.
                let words = if rest.starts_with(['"', '\'']) { wanted(rest)? } else { rest.to_owned() };
                needs.texts.push(memmem::Finder::new(words.as_bytes()).into_owned());
                Ok(Self::Text { place: needs.texts.len() - 1, is_there: kind == "text" })
            }
            "size" => {
                let (relation, bytes) = match split_relation(rest) {
                    Some(("", relation, bytes)) => (relation, bytes),
                    _ => (Relation::Equal, rest),
                };
                let bytes = parse_size(bytes)
                    .map_err(|error| format!("{error}; write, for example, size:>= 1KiB"))?;
                Ok(Self::Size(relation, bytes))
            }
            // An expression may contain any characters, so it is not split at a relation.
            "regex" => Ok(Self::Value(Finder::parse(text, needs)?, None)),
            "json" | "header" | "cookie" | "body" => match split_relation(text) {
                Some((place, relation, value)) => {
                    Ok(Self::Value(Finder::parse(place, needs)?, Some((relation, wanted(value)?))))
                }
                None => Ok(Self::Value(Finder::parse(text, needs)?, None)),
            },
            _ => Err(format!(
                "'{text}' is not a check of an answer: write statuses, text:WORDS, no-text:WORDS, \
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
