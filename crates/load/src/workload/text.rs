//! The texts of a workload's fields: read one after the other, and all mistakes kept.

use std::{
    fmt::Display,
    io::Read,
    net::{IpAddr, Ipv4Addr},
    path::Path,
};

use record::{
    input::{self, MOST_BODY_BYTES},
    units::{parse_count, parse_time},
};
use url::Url;

use super::FieldMistake;

/// Collects mistakes while fields are read.
#[derive(Debug, Default)]
pub(super) struct Mistakes(Vec<FieldMistake>);

impl Mistakes {
    /// The value of a field, or its default and a mistake.
    pub(super) fn read<T: Default, E: Display>(&mut self, field: &'static str, result: Result<T, E>) -> T {
        result.unwrap_or_else(|error| {
            self.add(field, error.to_string());
            T::default()
        })
    }

    /// The value of a field that may be missing.
    pub(super) fn optional<T, E: Display>(
        &mut self,
        field: &'static str,
        text: Option<&str>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        parse(text?).map_err(|error| self.add(field, error.to_string())).ok()
    }

    /// One mistake more.
    pub(super) fn add(&mut self, field: &'static str, message: impl Into<String>) {
        self.0.push(FieldMistake { field, message: message.into() });
    }

    /// `value` if there were no mistakes.
    pub(super) fn none_or<T>(self, value: T) -> Result<T, Vec<FieldMistake>> {
        if self.0.is_empty() { Ok(value) } else { Err(self.0) }
    }
}

/// Reads a URL as it was written, with the values of its variables in their places.
pub(super) fn parse_url(written: &str) -> Result<Url, String> {
    let text = secrets::mask_url(written);
    let sent = secrets::reference::expand_url(written).map_err(|why| format!("'{text}': {why}"))?;
    let full = if sent.contains("://") { sent } else { format!("http://{sent}") };
    // Before any of it can stand in a message.
    secrets::mask::learn_url(&full);
    if secrets::reference::has_reference(written) {
        secrets::mask::learn_text(&full, &text);
    } else {
        secrets::mask::learn_url(written);
    }
    let url = Url::parse(&full)
        .map_err(|e| format!("'{text}' is not a URL: {e}; such as http://127.0.0.1:8080/"))?;
    match url.scheme() {
        "http" if url.host_str().is_some() => Ok(url),
        "https" => Err(format!(
            "'{text}': TLS is not spoken yet; put a terminating proxy on this machine in front (stunnel, HAProxy), or \
             test the service's plain port"
        )),
        other => Err(format!("'{text}': cannot speak {other}; give an http:// URL")),
    }
}

/// What is sent as a body: the text with the values of its variables in their places, or what `@FILE` names.
pub(super) fn read_body(text: &str) -> Result<Vec<u8>, String> {
    match text.strip_prefix('@') {
        None => expanded(text).map(String::into_bytes),
        Some(_) => read_bytes(text),
    }
}

/// The text as it is, or what `@FILE` names.
pub(super) fn read_bytes(text: &str) -> Result<Vec<u8>, String> {
    match text.strip_prefix('@') {
        None => Ok(text.as_bytes().to_vec()),
        Some("-") => {
            let mut body = Vec::new();
            let read = std::io::stdin().take(MOST_BODY_BYTES + 1).read_to_end(&mut body);
            read.map_err(|e| format!("cannot read standard input: {e}"))?;
            match body.len() as u64 {
                0..=MOST_BODY_BYTES => Ok(body),
                _ => Err(format!("cannot read standard input: {}", input::too_long(MOST_BODY_BYTES))),
            }
        }
        Some(path) => input::read(Path::new(path), MOST_BODY_BYTES),
    }
}

/// The text with the values of its variables in their places. The whole is shown as it was written from now on.
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
        Ok(n) if n > 1_000_000_000_000 => Err(format!("'{text}' is more than can be counted here")),
        Ok(n) => Ok(n),
        Err(error) => Err(error.to_string()),
    }
}

pub(super) fn time_ns(text: &str) -> Result<u64, String> {
    parse_time(text).map(|time| time.as_nanos() as u64).map_err(|e| e.to_string())
}

pub(super) fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}
