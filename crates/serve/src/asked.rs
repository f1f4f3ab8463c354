//! The content of a request: its head, and as much of its body as pages or the record need.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use http1::{RequestHead, RequestSink};
use serde_json::{Map, Value};

/// The content of a request for pages and the record.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub method: String,
    /// The request target as sent.
    pub target: String,
    /// Names and values in order. Bytes that are not UTF-8 are replaced by U+FFFD.
    pub headers: Vec<(String, String)>,
    /// The beginning of the body: at most `limit` bytes.
    pub body: Vec<u8>,
    /// Size of the whole body in bytes.
    pub body_bytes: u64,
    /// Maximum number of bytes of the body that are kept.
    pub limit: usize,
}

impl Asked {
    /// The values of a header in order.
    pub(crate) fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let headers = self.headers.iter().filter(move |(header, _)| header.eq_ignore_ascii_case(name));
        headers.map(|(_, value)| value.as_str())
    }

    /// Path and query of the target, without its scheme and host if it has them.
    pub(crate) fn path_and_query(&self) -> (&str, &str) {
        let target = match self.target.split_once("://") {
            Some((scheme, rest)) if scheme.bytes().all(|b| b.is_ascii_alphanumeric()) => {
                rest.find('/').map_or("/", |at| &rest[at..])
            }
            _ => &self.target,
        };
        target.split_once('?').unwrap_or((target, ""))
    }

    /// Whether `body` is only the beginning of the body.
    pub(crate) fn is_cut(&self) -> bool {
        self.body_bytes > self.body.len() as u64
    }

    fn head(&mut self, head: &RequestHead<'_>) {
        self.method.replace_range(.., head.method);
        self.target.replace_range(.., head.target);
        self.headers.clear();
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        self.headers.extend(head.headers.iter().map(|header| (header.name.to_owned(), text(header.value))));
        // A large buffer is freed instead of being kept for the next request.
        self.body.clear();
        self.body.shrink_to(4096);
        self.body_bytes = 0;
    }

    fn body(&mut self, bytes: &[u8]) {
        self.body_bytes += bytes.len() as u64;
        let room = self.limit.saturating_sub(self.body.len());
        self.body.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

/// Facts from the head of the current request that the engine needs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RequestInfo {
    /// Whether the method is HEAD, so that the answer has no body.
    pub is_head: bool,
    /// Whether the client uses HTTP/1.0.
    pub http10: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// Whether an HTTP/1.1 request lacks a Host header or has several, so that it must be refused (RFC 9112, 3.2).
    pub wrong_host: bool,
}

impl RequestInfo {
    /// Extracts the facts from a head.
    #[inline]
    pub(crate) fn head(&mut self, head: &RequestHead<'_>) {
        let hosts = head.headers.iter().filter(|h| h.name.len() == 4 && h.name.eq_ignore_ascii_case("host"));
        let hosts = hosts.count();
        *self = Self {
            is_head: head.method == "HEAD",
            http10: head.minor_version == 0,
            expects_continue: head.expect_continue,
            wrong_host: hosts > 1 || (hosts == 0 && head.minor_version > 0),
        };
    }
}

/// Handles the parser's callbacks: the head and the body of a request.
pub(crate) struct Intake<'i, L> {
    pub info: &'i mut RequestInfo,
    pub asked: Option<&'i mut Asked>,
    /// Returns how many bytes of the body to keep, given the request's head.
    pub limit: L,
}

impl<L: Fn(&Asked) -> usize> RequestSink for Intake<'_, L> {
    #[inline]
    fn head(&mut self, head: &RequestHead<'_>) {
        self.info.head(head);
        if let Some(asked) = &mut self.asked {
            asked.head(head);
            asked.limit = (self.limit)(asked);
        }
    }

    #[inline]
    fn body(&mut self, bytes: &[u8]) {
        if let Some(asked) = &mut self.asked {
            asked.body(bytes);
        }
    }
}

/// Adds a body to a JSON object: as `body` if it is UTF-8, otherwise in base64 as `body_base64`.
pub(crate) fn put_body(map: &mut Map<String, Value>, body: &[u8]) {
    match String::from_utf8_lossy(body) {
        Cow::Borrowed(text) => map.insert("body".to_owned(), text.into()),
        Cow::Owned(_) => map.insert("body_base64".to_owned(), BASE64.encode(body).into()),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_a_path_and_a_query() {
        for (target, path, query) in [
            ("/a/b?c=d?e", "/a/b", "c=d?e"),
            ("/", "/", ""),
            ("http://host:80/a?b", "/a", "b"),
            ("http://host", "/", ""),
            ("/to?url=http://x/y", "/to", "url=http://x/y"),
            ("*", "*", ""),
        ] {
            let asked = Asked { target: target.to_owned(), ..Asked::default() };
            assert_eq!(asked.path_and_query(), (path, query), "{target}");
        }
    }

    #[test]
    fn bodies_are_kept_up_to_the_limit_and_counted_whole() {
        let mut asked = Asked { limit: 5, ..Asked::default() };
        for part in ["ab", "cde", "f"] {
            asked.body(part.as_bytes());
        }
        assert_eq!((&asked.body[..], asked.body_bytes, asked.is_cut()), (&b"abcde"[..], 6, true));
    }
}
