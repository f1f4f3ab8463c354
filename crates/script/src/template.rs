//! Texts with `{{…}}`, compiled once and rendered for each request.

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use jiff::{Timestamp, tz::TimeZone};
use rand::RngExt as _;
use record::{Text, TextPart};

use crate::{
    names::{Names, Place},
    state::{Values, WorkerState},
};

/// A compiled text.
#[derive(Debug, Clone, Default)]
pub(crate) struct Template {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone)]
enum Piece {
    Text(Box<[u8]>),
    Value(Source, Encoding),
}

/// The source of a value.
#[derive(Debug, Clone)]
enum Source {
    /// A column of a feeder, or a value taken from an answer.
    Named(Place),
    Counter,
    User,
    Iteration,
    Random(u64, u64),
    /// Random characters of an alphabet.
    Characters(&'static [u8], usize),
    Uuid,
    /// Time since 1970, in units of 1/`per_second` seconds.
    UnixTime {
        per_second: i64,
    },
    /// The time in RFC 3339, UTC, with milliseconds.
    Time,
    /// The time in a format of strftime(3), UTC.
    FormattedTime(Box<str>),
}

/// The encoding of a value in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Plain,
    /// Percent-encodes the characters that a request line must not contain (RFC 9112, 3.2.1).
    Target,
    /// Percent-encodes all but unreserved characters (RFC 3986).
    Url,
    /// Escapes for the inside of a JSON string.
    Json,
    Base64,
}

const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const HEX: &[u8] = b"0123456789abcdef";

/// The text that is shown instead of a secret.
pub(crate) const MASK: &[u8] = b"***";
/// Maximum length of a random text, in characters.
const MAX_CHARACTERS: usize = 1 << 20;

impl Template {
    /// Compiles a text.
    pub(crate) fn parse(text: &Text, names: &Names) -> Result<Self, String> {
        let pieces = text.parts().iter().map(|part| match part {
            TextPart::Literal(bytes) => Ok(Piece::Text(bytes.as_slice().into())),
            TextPart::Template(expression) => parse_expression(expression, names),
        });
        Ok(Self { pieces: pieces.collect::<Result<_, _>>()? })
    }

    /// Compiles a target: in values, the characters that a request line must not contain are percent-encoded.
    pub(crate) fn parse_target(text: &Text, names: &Names) -> Result<Self, String> {
        let mut target = Self::parse(text, names)?;
        for piece in &mut target.pieces {
            if let Piece::Value(_, encoding @ Encoding::Plain) = piece {
                *encoding = Encoding::Target;
            }
        }
        Ok(target)
    }

    /// The text, if it contains no values.
    pub(crate) fn constant(&self) -> Option<&[u8]> {
        match &self.pieces[..] {
            [] => Some(b""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// How often it uses `counter`.
    pub(crate) fn counters(&self) -> u64 {
        let is_counter = |piece: &&Piece| matches!(piece, Piece::Value(Source::Counter, _));
        self.pieces.iter().filter(is_counter).count() as u64
    }

    /// Appends the text with its values.
    pub(crate) fn render(&self, values: &Values, state: &mut WorkerState, out: &mut Vec<u8>) {
        self.pieces.iter().for_each(|piece| piece.render(values, state, out));
    }

    /// Same as [`render`](Self::render), and appends to `shown` the same text with each value of `secret` masked.
    pub(crate) fn render_twice(
        &self,
        values: &Values,
        state: &mut WorkerState,
        out: &mut Vec<u8>,
        (shown, secret): (&mut Vec<u8>, &[Place]),
    ) {
        for piece in &self.pieces {
            let start = out.len();
            piece.render(values, state, out);
            match piece {
                Piece::Value(Source::Named(place), _) if secret.contains(place) => {
                    shown.extend_from_slice(MASK)
                }
                _ => shown.extend_from_slice(&out[start..]),
            }
        }
    }
}

impl Piece {
    fn render(&self, values: &Values, state: &mut WorkerState, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => out.extend_from_slice(text),
            Self::Value(Source::Named(place), Encoding::Plain) => out.extend_from_slice(values.get(*place)),
            Self::Value(source, Encoding::Plain) => source.render(values, state, out),
            Self::Value(source, encoding) => {
                let mut plain = std::mem::take(&mut state.scratch);
                plain.clear();
                source.render(values, state, &mut plain);
                encoding.write(&plain, out);
                state.scratch = plain;
            }
        }
    }
}

impl Source {
    fn render(&self, values: &Values, state: &mut WorkerState, out: &mut Vec<u8>) {
        let number = |n: i64, out: &mut Vec<u8>| {
            out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
        };
        match self {
            Self::Named(place) => out.extend_from_slice(values.get(*place)),
            Self::Counter => number(state.next_count() as i64, out),
            Self::User => number(values.user as i64, out),
            Self::Iteration => number(values.iteration as i64, out),
            Self::Random(low, high) => {
                let n = state.rng.random_range(*low..=*high);
                out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
            }
            Self::Characters(alphabet, length) => {
                out.extend((0..*length).map(|_| alphabet[state.rng.random_range(0..alphabet.len())]));
            }
            Self::Uuid => push_uuid(state.rng.random(), out),
            Self::UnixTime { per_second } => {
                number((state.now().as_microsecond() / (1_000_000 / per_second)).max(0), out);
            }
            Self::Time => push_text(out, format_args!("{:.3}", state.now())),
            Self::FormattedTime(format) => {
                let now = state.now().to_zoned(TimeZone::UTC);
                push_text(out, format_args!("{}", now.strftime(format.as_bytes())));
            }
        }
    }
}

fn push_text(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    use std::io::Write as _;
    // Writing to memory cannot fail, and invalid time formats were refused at parsing.
    let _ = out.write_fmt(text);
}

/// Appends a number as `digits` hexadecimal digits.
pub(crate) fn push_hex(number: u128, digits: u32, out: &mut Vec<u8>) {
    out.extend((0..digits).rev().map(|place| HEX[(number >> (4 * place)) as usize & 15]));
}

/// A random UUID (version 4, RFC 9562).
fn push_uuid(random: u128, out: &mut Vec<u8>) {
    let bits = random & !(0xf << 76 | 0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    for (shift, digits) in [(96, 8), (80, 4), (64, 4), (48, 4), (0, 12)] {
        push_hex(bits >> shift, digits, out);
        if shift > 0 {
            out.push(b'-');
        }
    }
}

impl Encoding {
    fn write(self, plain: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Plain => out.extend_from_slice(plain),
            Self::Target => percent_encode(plain, is_sendable, out),
            Self::Url => percent_encode(plain, is_unreserved, out),
            Self::Json => {
                let text = serde_json::to_string(&String::from_utf8_lossy(plain)).unwrap_or_default();
                out.extend_from_slice(
                    text.get(1..text.len().saturating_sub(1)).unwrap_or_default().as_bytes(),
                );
            }
            Self::Base64 => out.extend_from_slice(BASE64.encode(plain).as_bytes()),
        }
    }
}

/// Whether a byte needs no encoding in any part of a URL (RFC 3986, 2.3).
pub(crate) fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// Whether a request line may contain a byte of a value unencoded.
pub(crate) fn is_sendable(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"\"#<>\\^`{|}".contains(&byte)
}

/// Appends bytes, and percent-encodes those for which `stays` is false (RFC 3986).
pub(crate) fn percent_encode(bytes: &[u8], stays: impl Fn(u8) -> bool, out: &mut Vec<u8>) {
    for &byte in bytes {
        if stays(byte) {
            out.push(byte);
        } else {
            let digits = b"0123456789ABCDEF";
            out.extend([b'%', digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]);
        }
    }
}

fn parse_expression(expression: &str, names: &Names) -> Result<Piece, String> {
    let (source, encoding) = match expression.rsplit_once('|') {
        Some((source, encoding)) => (source.trim(), encoding.trim()),
        None => (expression, "plain"),
    };
    let encoding = match encoding {
        "plain" => Encoding::Plain,
        "url" => Encoding::Url,
        "json" => Encoding::Json,
        "base64" => Encoding::Base64,
        other => {
            return Err(format!(
                "{{{{{expression}}}}}: '{other}' is not an encoding: write url, json or base64 after the '|'"
            ));
        }
    };
    parse_source(source, names)
        .map(|source| Piece::Value(source, encoding))
        .map_err(|why| format!("{{{{{expression}}}}}: {why}"))
}

fn parse_source(text: &str, names: &Names) -> Result<Source, String> {
    let (name, arguments) = match text.split_once(char::is_whitespace) {
        Some((name, arguments)) => (name, arguments.trim()),
        None => (text, ""),
    };
    // The whole text may be a name, because column names may contain spaces, as table headings do.
    if let Some(place) = names.find(text) {
        return Ok(Source::Named(place));
    }
    let without = |source: Source| match arguments {
        "" => Ok(source),
        _ => Err(format!("{name} takes no argument")),
    };
    let length = || match arguments.parse::<usize>() {
        Ok(n) if (1..=MAX_CHARACTERS).contains(&n) => Ok(n),
        _ => Err(format!("{name} needs a number of characters, such as {{{{{name} 8}}}}")),
    };
    match name {
        "counter" => without(Source::Counter),
        "user" => without(Source::User),
        "iteration" => without(Source::Iteration),
        "uuid" => without(Source::Uuid),
        "time_s" => without(Source::UnixTime { per_second: 1 }),
        "time_ms" => without(Source::UnixTime { per_second: 1_000 }),
        "time_us" => without(Source::UnixTime { per_second: 1_000_000 }),
        "time" if arguments.is_empty() => Ok(Source::Time),
        "time" => {
            let sample = Timestamp::UNIX_EPOCH.to_zoned(TimeZone::UTC);
            match jiff::fmt::strtime::format(arguments, &sample) {
                Ok(_) => Ok(Source::FormattedTime(arguments.into())),
                Err(error) => Err(format!("'{arguments}' is not a format of strftime: {error}")),
            }
        }
        "random" => {
            let bounds: Vec<_> = arguments.split_whitespace().map(str::parse).collect();
            match bounds[..] {
                [Ok(low), Ok(high)] if low <= high => Ok(Source::Random(low, high)),
                _ => Err("write two whole numbers, the smaller first, such as {{random 1 100}}".to_owned()),
            }
        }
        "string" => Ok(Source::Characters(LETTERS, length()?)),
        "hex" => Ok(Source::Characters(HEX, length()?)),
        _ => Err(names.unknown(text)),
    }
}

#[cfg(test)]
mod tests;
