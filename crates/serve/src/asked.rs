//! The content of a request: its head, and as much of its body as is needed.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use http1::{RequestHead, RequestSink};
use serde_json::{Map, Value};

/// The content of a request.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub method: String,
    /// The target as sent.
    pub target: String,
    /// Names and values in order; bytes that are not UTF-8 are replaced.
    pub headers: Vec<(String, String)>,
    /// The first bytes of the body, at most `limit`.
    pub body: Vec<u8>,
    /// Size of the whole body in bytes.
    pub body_bytes: u64,
    /// Maximum number of bytes of the body that are kept.
    pub limit: usize,
}

impl Asked {
    /// The values of a header, in their order.
    pub(crate) fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let headers = self.headers.iter().filter(move |(header, _)| header.eq_ignore_ascii_case(name));
        headers.map(|(_, value)| value.as_str())
    }

    /// Path and query of the target, which may have a scheme and a host before them.
    pub(crate) fn path_and_query(&self) -> (&str, &str) {
        let target = match self.target.split_once("://") {
            Some((scheme, rest)) if scheme.bytes().all(|b| b.is_ascii_alphanumeric()) => {
                rest.find('/').map_or("/", |at| &rest[at..])
            }
            _ => &self.target,
        };
        target.split_once('?').unwrap_or((target, ""))
    }

    /// Whether bytes of the body are missing.
    pub(crate) fn is_cut(&self) -> bool {
        self.body_bytes > self.body.len() as u64
    }

    fn head(&mut self, head: &RequestHead<'_>) {
        self.method.replace_range(.., head.method);
        self.target.replace_range(.., head.target);
        self.headers.clear();
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        self.headers.extend(head.headers.iter().map(|header| (header.name.to_owned(), text(header.value))));
        // The buffer of a large body is not kept for the next request.
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

/// Facts from the head of the current request.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RequestInfo {
    /// The request is HEAD: the answer has no body.
    pub is_head: bool,
    /// The client speaks HTTP/1.0.
    pub http10: bool,
    /// The client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// HTTP/1.1 without exactly one Host, which must be refused (RFC 9112, 3.2).
    pub wrong_host: bool,
}

impl RequestInfo {
    /// Takes the facts from a head.
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

/// Receives a request from the parser.
pub(crate) struct Intake<'i, L> {
    pub info: &'i mut RequestInfo,
    pub asked: Option<&'i mut Asked>,
    /// Computes from the request's head how many bytes of the body to keep.
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

/// Puts a body into JSON: as text in `body`, or as base64 in `body_base64` if it is not UTF-8.
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
