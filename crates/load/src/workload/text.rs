//! Parses the texts of a workload's fields, and collects all mistakes.

use std::{
    fmt::Display,
    io::Read,
    net::{IpAddr, Ipv4Addr},
    path::Path,
};

use record::{
    input::{self, MAX_BODY_BYTES},
    units::{parse_count, parse_time},
};
use script::Part;
use url::Url;

use crate::FieldMistake;

/// Collects mistakes while fields are read.
#[derive(Debug, Default)]
pub(super) struct Mistakes(Vec<FieldMistake>);

impl Mistakes {
    /// The value of a field; on an error, its default, and the mistake is added.
    pub(super) fn read<T: Default, E: Display>(&mut self, field: &'static str, result: Result<T, E>) -> T {
        result.unwrap_or_else(|error| {
            self.add(field, error.to_string());
            T::default()
        })
    }

    /// The value of a field that may be missing; on an error, `None`, and the mistake is added.
    pub(super) fn optional<T, E: Display>(
        &mut self,
        field: &'static str,
        text: Option<&str>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        parse(text?).map_err(|error| self.add(field, error.to_string())).ok()
    }

    /// Adds a mistake.
    pub(super) fn add(&mut self, field: &'static str, message: impl Into<String>) {
        self.0.push(FieldMistake { field, message: message.into() });
    }

    /// `value`, or the mistakes if there are any.
    pub(super) fn into_result<T>(self, value: T) -> Result<T, Vec<FieldMistake>> {
        if self.0.is_empty() { Ok(value) } else { Err(self.0) }
    }
}

/// A text whose templates are replaced by words, so that it can be parsed as a URL.
pub(super) struct Shielded {
    pub(super) text: String,
    expressions: Vec<String>,
}

/// What stands for the template of this number.
fn shield(number: usize) -> String {
    format!("zq{number}template{number}qz")
}

impl Shielded {
    pub(super) fn new(text: &str) -> Result<Self, String> {
        let (mut shielded, mut expressions) = (String::new(), Vec::new());
        for part in script::split(text)? {
            match part {
                Part::Text(text) => shielded.push_str(text),
                Part::Expression(expression) => {
                    shielded.push_str(&shield(expressions.len()));
                    expressions.push(format!("{{{{{expression}}}}}"));
                }
            }
        }
        Ok(Self { text: shielded, expressions })
    }

    /// A part of the text, with its templates.
    pub(super) fn restore(&self, part: &str) -> String {
        let restored =
            |text: String, (number, expression): (usize, &String)| text.replace(&shield(number), expression);
        self.expressions.iter().enumerate().fold(part.to_owned(), restored)
    }

    fn has_expression(&self, part: &str) -> bool {
        (0..self.expressions.len()).any(|number| part.contains(&shield(number)))
    }
}

/// A URL, and the templates in it.
pub(super) struct ParsedUrl {
    pub(super) url: Url,
    pub(super) shielded: Shielded,
}

/// Parses a URL after substituting its environment variables.
pub(super) fn parse_url(written: &str) -> Result<ParsedUrl, String> {
    let text = secrets::mask_url(written);
    let sent = secrets::reference::expand_url(written).map_err(|why| format!("'{text}': {why}"))?;
    let full = if sent.contains("://") { sent } else { format!("http://{sent}") };
    // Before a message can quote a part of the URL.
    secrets::mask::learn_url(&full);
    if secrets::reference::has_reference(written) {
        secrets::mask::learn_text(&full, &text);
    } else {
        secrets::mask::learn_url(written);
    }
    let shielded = Shielded::new(&full)?;
    let url = Url::parse(&shielded.text)
        .map_err(|e| format!("'{text}' is not a URL: {e}; such as http://127.0.0.1:8080/"))?;
    match url.scheme() {
        "http" | "https" if shielded.has_expression(url.authority()) => {
            Err(format!("'{text}': all requests go to one host, so that {{{{…}}}} can only be behind it"))
        }
        "http" | "https" if url.host_str().is_some() => Ok(ParsedUrl { url, shielded }),
        other => {
            Err(format!("'{text}': proofload does not support {other}; give an http:// or https:// URL"))
        }
    }
}

/// The body to send: the content of `@FILE`, or the text with its environment variables substituted.
pub(super) fn read_body(text: &str) -> Result<Vec<u8>, String> {
    match text.strip_prefix('@') {
        None => expanded(text).map(String::into_bytes),
        Some(_) => read_bytes(text),
    }
}

/// The content of `@FILE`, or the text itself.
pub(super) fn read_bytes(text: &str) -> Result<Vec<u8>, String> {
    match text.strip_prefix('@') {
        None => Ok(text.as_bytes().to_vec()),
        Some("-") => {
            let mut body = Vec::new();
            let read = std::io::stdin().take(MAX_BODY_BYTES + 1).read_to_end(&mut body);
            read.map_err(|e| format!("cannot read standard input: {e}"))?;
            match body.len() as u64 {
                0..=MAX_BODY_BYTES => Ok(body),
                _ => Err(format!("cannot read standard input: {}", input::too_large(MAX_BODY_BYTES))),
            }
        }
        Some(path) => input::read(Path::new(path), MAX_BODY_BYTES),
    }
}

/// The text with its environment variables substituted. From now on, messages show the text as it was written instead.
pub(super) fn expanded(text: &str) -> Result<String, String> {
    let expanded = secrets::reference::expand(text)?;
    if secrets::reference::has_reference(text) {
        secrets::mask::learn_text(&expanded, text);
    }
    Ok(expanded)
}

pub(super) fn parse_addresses(text: &str) -> Result<Vec<IpAddr>, String> {
    let refuse = || format!("'{text}' is not a list of addresses such as 10.0.0.5 or 10.0.0.5-10.0.0.9");
    let mut addresses = Vec::new();
    for part in text.split(',').map(str::trim) {
        match part.split_once('-') {
            None => addresses.push(part.parse().map_err(|_| refuse())?),
            Some((first, last)) => {
                let first: Ipv4Addr = first.parse().map_err(|_| refuse())?;
                let last: Ipv4Addr = last.parse().map_err(|_| refuse())?;
                let (first, last) = (u32::from(first), u32::from(last));
                if first > last || last - first >= 65_536 {
                    return Err(refuse());
                }
                addresses.extend((first..=last).map(|ip| IpAddr::V4(ip.into())));
            }
        }
    }
    Ok(addresses)
}

pub(super) fn positive(text: &str) -> Result<u64, String> {
    match parse_count(text) {
        Ok(0) => Err("0 is too few; give at least 1".to_owned()),
        Ok(n) if n > 1_000_000_000_000 => Err(format!("'{text}' is too large; give at most 10^12")),
        Ok(n) => Ok(n),
        Err(error) => Err(error.to_string()),
    }
}

pub(super) fn time_ns(text: &str) -> Result<u64, String> {
    parse_time(text).map(|time| time.as_nanos() as u64).map_err(|e| e.to_string())
}

/// A time within which something must end.
pub(super) fn timeout_ns(text: &str) -> Result<u64, String> {
    match time_ns(text) {
        Ok(0) => Err("0 would fail every request; give a time such as 30s".to_owned()),
        read => read,
    }
}

pub(super) fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}
