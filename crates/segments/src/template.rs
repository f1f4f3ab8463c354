//! Path templates with placeholders: `logs/${tag}_%Y-%m-%d`.

use std::{
    borrow::Cow,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use jiff::civil::DateTime;

use crate::{name, slice::Unit};

/// The path of files: a fixed folder, and below it a path with placeholders.
///
/// * `${tag}`: the tag; `${tag[1]}`: the second of its dot-separated parts, `${tag[-1]}`: the last;
/// * `${key}`: the member `key` of the event;
/// * `%Y %y %m %d %F %j %H %M %S`: the event's time as in strftime; `%%`: a percent sign.
///
/// A value never leaves its component of the path: `_` replaces slashes, control characters and a dot at the beginning
/// of a component. A missing value becomes `_missing`, an empty one `_empty`. A value longer than 100 bytes is
/// shortened and ends in `~` and a checksum of the whole value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    text: String,
    folder: PathBuf,
    components: Vec<Vec<Piece>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Tag,
    TagPart(i32),
    Field(String),
    Time(TimeField),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeField {
    Year,
    YearOfCentury,
    Month,
    Day,
    Date,
    DayOfYear,
    Hour,
    Minute,
    Second,
}

/// Why a text is not a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The path does not end in a file name.
    #[error("`{0}` does not name a file; give a path such as logs/${{tag}}_%Y-%m-%d")]
    NoName(String),
    /// `..` after a placeholder.
    #[error("`{0}` has a `..` after a placeholder; write the folder without it")]
    Parent(String),
    /// An unknown time placeholder.
    #[error("unknown `%{0}`; known are %Y %y %m %d %F %j %H %M %S and %%")]
    Time(String),
    /// A placeholder without an end or a name.
    #[error("`{0}` is not a placeholder such as ${{tag}}, ${{tag[N]}} or ${{member}}")]
    Placeholder(String),
    /// A character that is not allowed in a path, or that Fluentd reads as a placeholder.
    #[error("the character {0:?} is not allowed in a path template; leave it out")]
    Character(char),
    /// More than 16 components, counted from the first placeholder.
    #[error("`{0}` has more than 16 folders after its first placeholder")]
    Deep(String),
}

impl Template {
    /// The path up to the first component with a placeholder. Names in receipts are relative to this folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The event members in the template. If there are any, a key is valid for only one event.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.pieces().filter_map(|piece| match piece {
            Piece::Field(key) => Some(key.as_str()),
            _ => None,
        })
    }

    pub(crate) fn unit(&self) -> Option<Unit> {
        self.pieces()
            .filter_map(|piece| match piece {
                Piece::Time(field) => Some(field.unit()),
                _ => None,
            })
            .min()
    }

    /// The path below the fixed folder.
    pub(crate) fn resolve<'a>(
        &self,
        tag: &str,
        time: DateTime,
        fields: &dyn Fn(&str) -> Option<Cow<'a, str>>,
    ) -> String {
        let mut path = String::with_capacity(self.text.len() + tag.len());
        for component in &self.components {
            if !path.is_empty() {
                path.push('/');
            }
            let begin = path.len();
            for piece in component {
                let first = path.len() == begin;
                match piece {
                    Piece::Text(text) => path.push_str(text),
                    Piece::Tag => name::push_value(&mut path, first, Some(tag)),
                    Piece::TagPart(index) => name::push_value(&mut path, first, tag_part(tag, *index)),
                    Piece::Field(key) => name::push_value(&mut path, first, fields(key).as_deref()),
                    Piece::Time(field) => field.push(&mut path, time),
                }
            }
            name::bound_component(&mut path, begin);
        }
        path
    }

    fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.components.iter().flatten()
    }
}

fn tag_part(tag: &str, index: i32) -> Option<&str> {
    let distance = usize::try_from(index.unsigned_abs()).ok()?;
    if index >= 0 { tag.split('.').nth(distance) } else { tag.rsplit('.').nth(distance - 1) }
}

impl TimeField {
    fn of(letter: char) -> Option<Self> {
        Some(match letter {
            'Y' => Self::Year,
            'y' => Self::YearOfCentury,
            'm' => Self::Month,
            'd' => Self::Day,
            'F' => Self::Date,
            'j' => Self::DayOfYear,
            'H' => Self::Hour,
            'M' => Self::Minute,
            'S' => Self::Second,
            _ => return None,
        })
    }

    fn unit(self) -> Unit {
        match self {
            Self::Year | Self::YearOfCentury => Unit::Year,
            Self::Month => Unit::Month,
            Self::Day | Self::Date | Self::DayOfYear => Unit::Day,
            Self::Hour => Unit::Hour,
            Self::Minute => Unit::Minute,
            Self::Second => Unit::Second,
        }
    }

    fn push(self, path: &mut String, time: DateTime) {
        use fmt::Write;
        let written = match self {
            Self::Year => write!(path, "{:04}", time.year()),
            Self::YearOfCentury => write!(path, "{:02}", time.year() % 100),
            Self::Month => write!(path, "{:02}", time.month()),
            Self::Day => write!(path, "{:02}", time.day()),
            Self::Date => write!(path, "{:04}-{:02}-{:02}", time.year(), time.month(), time.day()),
            Self::DayOfYear => write!(path, "{:03}", time.day_of_year()),
            Self::Hour => write!(path, "{:02}", time.hour()),
            Self::Minute => write!(path, "{:02}", time.minute()),
            Self::Second => write!(path, "{:02}", time.second()),
        };
        written.expect("writing to a String cannot fail");
    }
}

impl FromStr for Template {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Self, TemplateError> {
        let no_name = || TemplateError::NoName(text.to_owned());
        let mut folder = PathBuf::from(if text.starts_with('/') { "/" } else { "" });
        let mut components: Vec<Vec<Piece>> = Vec::new();
        if text.ends_with('/') {
            return Err(no_name());
        }
        let mut last = None;
        for component in text.split('/').filter(|component| !matches!(*component, "" | ".")) {
            let pieces = pieces(component)?;
            let fixed = components.is_empty() && matches!(pieces[..], [Piece::Text(_)]);
            if let (true, [Piece::Text(text)]) = (fixed, &pieces[..]) {
                if let Some(before) = last.replace(text.clone()) {
                    folder.push(before);
                }
                continue;
            }
            if component == ".." {
                return Err(TemplateError::Parent(text.to_owned()));
            }
            if let Some(before) = last.take() {
                folder.push(before);
            }
            components.push(pieces);
        }
        if let Some(name) = last {
            // Without a placeholder, the last component is the file.
            components.push(vec![Piece::Text(name)]);
        }
        match &components[..] {
            [] => return Err(no_name()),
            [pieces] if matches!(&pieces[..], [Piece::Text(name)] if name == "..") => return Err(no_name()),
            _ if components.len() > 16 => return Err(TemplateError::Deep(text.to_owned())),
            _ => {}
        }
        if folder.as_os_str().is_empty() {
            folder.push(".");
        }
        Ok(Self { text: text.to_owned(), folder, components })
    }
}

/// Splits a component into its pieces. Consecutive text is one piece.
fn pieces(component: &str) -> Result<Vec<Piece>, TemplateError> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = component;
    while let Some(next) = rest.chars().next() {
        let piece;
        if let Some(inner) = rest.strip_prefix("${") {
            let (inner, after) =
                inner.split_once('}').ok_or_else(|| TemplateError::Placeholder(rest.to_owned()))?;
            piece = placeholder(inner)?;
            rest = after;
        } else if let Some(after) = rest.strip_prefix('%') {
            let letter = after.chars().next();
            rest = &after[letter.map_or(0, char::len_utf8)..];
            if letter == Some('%') {
                literal.push('%');
                continue;
            }
            let unknown = || TemplateError::Time(letter.map(String::from).unwrap_or_default());
            piece = Piece::Time(letter.and_then(TimeField::of).ok_or_else(unknown)?);
        } else if next == '*' || next.is_control() {
            return Err(TemplateError::Character(next));
        } else {
            literal.push(next);
            rest = &rest[next.len_utf8()..];
            continue;
        }
        if !literal.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut literal)));
        }
        pieces.push(piece);
    }
    if !literal.is_empty() {
        pieces.push(Piece::Text(literal));
    }
    Ok(pieces)
}

fn placeholder(inner: &str) -> Result<Piece, TemplateError> {
    let wrong = || TemplateError::Placeholder(format!("${{{inner}}}"));
    if inner == "tag" {
        return Ok(Piece::Tag);
    }
    if let Some(index) = inner.strip_prefix("tag[").and_then(|rest| rest.strip_suffix(']')) {
        return index.parse().map(Piece::TagPart).map_err(|_| wrong());
    }
    // In Fluentd, `$.` begins a path of nested members. As the name of a member, it would always be missing.
    if inner.is_empty() || inner.starts_with("$.") || inner.starts_with("$[") {
        return Err(wrong());
    }
    Ok(Piece::Field(inner.to_owned()))
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
