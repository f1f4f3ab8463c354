//! Parses the texts of a workload's fields, and collects all mistakes.

use std::{
    fmt::Display,
    io::Read,
    net::{IpAddr, Ipv4Addr},
    path::Path,
    str::FromStr,
    sync::OnceLock,
};

use record::{
    Text, TextPart,
    input::{self, MAX_BODY_BYTES},
    text::{self, Piece},
};
use secrets::reference;
use url::{Host, Url};

use super::{Count, Time, TimeLimit, Typed};
use crate::FieldMistake;

/// Collects mistakes while fields are read.
#[derive(Debug, Default)]
pub(super) struct Mistakes(Vec<FieldMistake>);

impl Mistakes {
    /// The value of a field; on an error, adds the mistake and returns the default.
    pub(super) fn read<T: Default, E: Display>(&mut self, field: &'static str, result: Result<T, E>) -> T {
        result.unwrap_or_else(|error| {
            self.add(field, error.to_string());
            T::default()
        })
    }

    /// The value of a field that may be missing; on an error, adds the mistake and returns `None`.
    pub(super) fn optional<T, E: Display>(
        &mut self,
        field: &'static str,
        text: Option<&str>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        parse(text?).map_err(|error| self.add(field, error.to_string())).ok()
    }

    /// The value of a text that a user gave; if the text is invalid, adds its mistake.
    pub(super) fn value<T: Clone + FromStr<Err: Display>>(
        &mut self,
        field: &'static str,
        given: &Typed<T>,
    ) -> Option<T> {
        given.value().cloned().map_err(|why| self.add(field, why)).ok()
    }

    /// The value of a field, if one was given; if its text is invalid, adds the mistake.
    pub(super) fn typed<T: Clone + FromStr<Err: Display>>(
        &mut self,
        field: &'static str,
        given: &Option<Typed<T>>,
    ) -> Option<T> {
        self.value(field, given.as_ref()?)
    }

    /// A number that was given.
    pub(super) fn count(&mut self, field: &'static str, given: &Option<Typed<Count>>) -> Option<u64> {
        self.typed(field, given).map(|Count(count)| count)
    }

    /// A time that was given, in nanoseconds.
    pub(super) fn time_ns(&mut self, field: &'static str, given: &Option<Typed<Time>>) -> Option<u64> {
        self.typed(field, given).map(|Time(time)| time.as_nanos() as u64)
    }

    /// A limit that was given, in nanoseconds.
    pub(super) fn limit_ns(&mut self, field: &'static str, given: &Option<Typed<TimeLimit>>) -> Option<u64> {
        self.typed(field, given).map(|TimeLimit(limit)| limit.as_nanos() as u64)
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

/// A URL: scheme, authority and request target. The target is kept as it was given.
pub(super) struct ParsedUrl {
    pub(super) url: Url,
    /// The host as it was given, even if the URL parser would rewrite it; in normal form if a header field cannot carry it as given.
    pub(super) host: String,
    pub(super) target: Text,
}

/// Reads a URL. Only the host is parsed by the URL standard; path and query are sent as given.
pub(super) fn parse_url(written: &str) -> Result<ParsedUrl, String> {
    let shown = secrets::mask_url(written);
    let quoting = |why: String| format!("'{shown}': {why}");
    let text = read_target(written).map_err(quoting)?;
    // The URL's secrets are learned before any message may quote a part of the URL.
    let (full, has_reference) = (text.shown(), reference::has_reference(written));
    secrets::mask::learn_url(&full);
    if has_reference {
        secrets::mask::learn_text(&full, &shown);
    } else {
        secrets::mask::learn_url(written);
    }
    let mut parts = text.parts().iter();
    let first = match parts.next() {
        Some(TextPart::Literal(first)) => String::from_utf8_lossy(first).into_owned(),
        _ => String::new(),
    };
    let start = secrets::mask::authority(&first);
    let scheme = if start == 0 { "http" } else { &first[..start - 3] };
    let end = start + authority_of(&first).len();
    if (end == first.len() && parts.len() > 0) || (first.is_empty() && text.is_template()) {
        return Err(quoting("all requests go to one host, so {{…}} may only come after it".to_owned()));
    }
    if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return Err(quoting(format!("proofload does not support {scheme}; give an http:// or https:// URL")));
    }
    let refuse = |why: &str| format!("'{shown}' is not a URL: {why}; such as http://127.0.0.1:8080/");
    let authority = authority_of(&first);
    // The URL parser would treat these characters as a slash, or drop them.
    if authority.contains(|c: char| c == '\\' || c.is_ascii_control()) {
        return Err(refuse("invalid domain character"));
    }
    let url = Url::parse(&format!("{scheme}://{authority}/")).map_err(|why| refuse(&why.to_string()))?;
    // Messages name the host in normal form (`%41` decoded, capitals made small), so this form is masked too. The `http` of
    // http://http://… is no host.
    let shown_host = authority_of(&shown).rsplit('@').next().filter(|host| reference::has_reference(host));
    if let (Some(Host::Domain(host)), Some(shown), 0) =
        (url.host(), shown_host, secrets::mask::authority(&first[start..]))
    {
        secrets::mask::learn_text(host, shown);
    }
    let (typed, _) = split_port(authority.rsplit('@').next().unwrap_or_default());
    let is_sendable = typed.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'%');
    let host = if is_sendable { typed } else { url.host_str().unwrap_or_default() }.to_owned();
    let mut target = Text::literal(if first[end..].starts_with('/') { "" } else { "/" });
    target.push_literal(&first[end..]);
    parts.for_each(|part| target.push(part.clone()));
    Ok(ParsedUrl { url, host, target: sendable(target) })
}

/// Splits a host from its port with the preceding colon. The colons of a bracketed IPv6 address do not count.
pub fn split_port(host_and_port: &str) -> (&str, &str) {
    let colon = host_and_port.rfind(':').filter(|colon| !host_and_port[*colon..].contains(']'));
    host_and_port.split_at(colon.unwrap_or(host_and_port.len()))
}

/// The authority of a URL, whose scheme may be missing.
fn authority_of(url: &str) -> &str {
    let behind = &url[secrets::mask::authority(url)..];
    &behind[..behind.find(['/', '?']).unwrap_or(behind.len())]
}

/// The text of a URL, or of its path and query, without the fragment, which is never sent. In the query and before the host,
/// values of variables are percent-encoded so that the service receives exactly these values. Elsewhere they stay unchanged; a
/// variable at the start of the URL may hold a whole URL.
pub(super) fn read_target(written: &str) -> Result<Text, String> {
    let fragment = text::pieces(written)?.into_iter().find_map(|(at, piece)| match piece {
        Piece::Plain(plain) => plain.find('#').map(|within| at + within),
        _ => None,
    });
    let written = &written[..fragment.unwrap_or(written.len())];
    let authority = secrets::mask::authority(written);
    let end = authority + authority_of(written).len();
    let user_info = written[authority..end].rfind('@').map_or(0..0, |at| authority..authority + at);
    let query = written.find('?').unwrap_or(written.len());
    read_with(written, |before, at, value| match at {
        at if user_info.contains(&at) || at > query => reference::percent_encoded(&value),
        at => {
            secrets::mask::learn_place(&before.shown(), &value);
            if at == 0 { value.split('#').next().unwrap_or_default().to_owned() } else { value }
        }
    })
}

/// Percent-encodes all characters of a target that a request line cannot carry: spaces, control characters, non-ASCII
/// characters.
pub(super) fn sendable(target: Text) -> Text {
    target.map_literals(|bytes| {
        let mut encoded = Vec::with_capacity(bytes.len());
        for byte in bytes {
            match byte {
                b'!'..=b'~' => encoded.push(byte),
                _ => encoded.extend(format!("%{byte:02X}").bytes()),
            }
        }
        encoded
    })
}

/// The body to send: the content of `@FILE` as it is, or the text.
pub(super) fn read_body(text: &str) -> Result<Text, String> {
    match text.strip_prefix('@') {
        None => read_text(text),
        Some(_) => read_bytes(text).map(Text::literal),
    }
}

/// A text as a user wrote it. From this call on, messages show this text instead of the values of its variables.
pub(super) fn read_text(written: &str) -> Result<Text, String> {
    let text = read_with(written, |_, _, value| value)?;
    if reference::has_reference(written) {
        secrets::mask::learn_text(&text.shown(), written);
    }
    Ok(text)
}

/// A text with the values of its variables. `value_at` encodes a value, given the text before it and its position in `written`.
fn read_with(written: &str, value_at: impl Fn(&Text, usize, String) -> String) -> Result<Text, String> {
    let mut read = Text::default();
    for (start, piece) in text::pieces(written)? {
        match piece {
            Piece::Template(expression) => read.push_template(expression),
            Piece::Quoted(literal) => read.push_literal(literal),
            Piece::Plain(plain) => {
                for (at, piece) in reference::pieces(plain)? {
                    match piece {
                        reference::Piece::Text(literal) => read.push_literal(literal),
                        reference::Piece::Name(name) => {
                            read.push_literal(value_at(&read, start + at, reference::variable(name)?));
                        }
                    }
                }
            }
        }
    }
    Ok(read)
}

/// The content of `@FILE`, or the text itself.
pub(super) fn read_bytes(text: &str) -> Result<Vec<u8>, String> {
    match text.strip_prefix('@') {
        None => Ok(text.as_bytes().to_vec()),
        Some("-") => {
            // A plan that is made twice has the same body.
            static INPUT: OnceLock<Vec<u8>> = OnceLock::new();
            if let Some(body) = INPUT.get() {
                return Ok(body.clone());
            }
            let mut body = Vec::new();
            files::reads(Path::new("/dev/stdin")).map_err(|e| format!("cannot read standard input: {e}"))?;
            let read = std::io::stdin().take(MAX_BODY_BYTES + 1).read_to_end(&mut body);
            read.map_err(|e| format!("cannot read standard input: {e}"))?;
            match body.len() as u64 {
                0..=MAX_BODY_BYTES => Ok(INPUT.get_or_init(|| body).clone()),
                _ => Err(format!("cannot read standard input: {}", input::too_large(MAX_BODY_BYTES))),
            }
        }
        Some(path) => input::read_body(Path::new(path)),
    }
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

pub(super) fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(http1::is_token)
}
