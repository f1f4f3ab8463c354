//! Answers and their encoding.

mod fluentd;

use std::{borrow::Cow, io::Write as _};

use record::receipt::AnswerReceipt;
use segments::{Level, Receipt};

use crate::{Compat, Config, refusal::Refusal};

/// Maximum number of receipts in one answer. A request with more segments gets the first ones.
const MAX_RECEIPTS: usize = 16;

/// The answer to a request.
#[derive(Debug)]
pub(crate) enum Reply<'a> {
    /// The events have reached a level.
    Stored {
        level: Level,
        /// The value of `Proofload-Receipt`.
        receipts: &'a [u8],
        /// Whether an earlier request with the same idempotency key was stored instead.
        replayed: bool,
    },
    Refused(Refusal),
    /// A page, such as `/health`.
    Page(Page),
    /// The answer to a CORS preflight; only with `--compat fluentd`.
    Preflight {
        /// The requested headers, if browsers may post from the origin.
        headers: Option<String>,
    },
    /// Fluentd's empty answer to a GET.
    Nothing,
}

/// The content of a page, such as `/health`.
#[derive(Debug)]
pub(crate) struct Page {
    pub status: u16,
    pub content_type: &'static str,
    pub body: String,
}

/// Properties of a request that its answer depends on.
#[derive(Debug, Default, Clone)]
pub(crate) struct AnswerContext {
    /// Whether the connection is closed after the answer.
    pub close: bool,
    /// Whether the client uses HTTP/1.0.
    pub http10: bool,
    /// Whether the request was HEAD, so that the answer has no body.
    pub is_head: bool,
    /// Whether the request named a level, which shows that its client understands receipts.
    pub names_level: bool,
    /// The value of `Access-Control-Allow-Origin`, if any.
    pub origin: Option<Box<str>>,
}

/// Writes answers in the dialect of the configuration.
#[derive(Debug)]
pub(crate) struct AnswerWriter {
    compat: Compat,
    challenge: &'static str,
    overload_status: u16,
    retry_after_s: u32,
}

impl AnswerWriter {
    pub(crate) fn new(config: &Config, challenge: &'static str) -> Self {
        let limits = &config.limits;
        Self {
            compat: config.compat.clone(),
            challenge,
            overload_status: limits.overload_status,
            retry_after_s: limits.retry_after_s,
        }
    }

    /// Appends an answer to `out`. If Fluentd would close without one, appends nothing and returns status 0.
    pub(crate) fn write(
        &self,
        out: &mut Vec<u8>,
        reply: &Reply<'_>,
        context: &AnswerContext,
        date: Option<&str>,
    ) -> WrittenAnswer {
        match (&self.compat, reply) {
            // Pages are equal in both dialects.
            (Compat::Fluentd { .. }, Reply::Stored { .. } | Reply::Refused(_))
            | (_, Reply::Preflight { .. } | Reply::Nothing) => self.write_fluentd(out, reply, context),
            _ => self.write_own(out, reply, context, date),
        }
    }

    fn write_own(
        &self,
        out: &mut Vec<u8>,
        reply: &Reply<'_>,
        context: &AnswerContext,
        date: Option<&str>,
    ) -> WrittenAnswer {
        let mut body = Cow::Borrowed("");
        let mut content_type = "application/json";
        let status = match reply {
            Reply::Stored { level: Level::Accepted, .. } => 202,
            Reply::Stored { .. } => 204,
            Reply::Refused(refusal) => {
                body = json(refusal).into();
                refusal.status(self.overload_status)
            }
            Reply::Page(page) => {
                (body, content_type) = (Cow::Borrowed(page.body.as_str()), page.content_type);
                page.status
            }
            Reply::Preflight { .. } | Reply::Nothing => 200,
        };
        start(out, status);
        if let Some(date) = date {
            field(out, "Date", date.as_bytes());
        }
        if let Reply::Stored { receipts, replayed, .. } = reply {
            field(out, AnswerReceipt::HEADER, receipts);
            if *replayed {
                field(out, "Proofload-Replayed", b"true");
            }
        }
        if let Reply::Refused(refusal) = reply {
            match status {
                401 => field(out, "WWW-Authenticate", self.challenge.as_bytes()),
                405 => field(out, "Allow", b"POST, PUT"),
                415 => field(out, "Accept-Encoding", b"gzip, deflate, zstd"),
                _ => {}
            }
            if refusal.may_be_stored() {
                field(out, AnswerReceipt::MAYBE_STORED_HEADER, b"maybe");
            }
            if refusal.is_temporary() {
                number_field(out, "Retry-After", u64::from(self.retry_after_s));
            }
        }
        if !body.is_empty() {
            field(out, "Content-Type", content_type.as_bytes());
        }
        if status != 204 {
            number_field(out, "Content-Length", body.len() as u64);
        }
        if context.close {
            field(out, "Connection", b"close");
        } else if context.http10 {
            field(out, "Connection", b"keep-alive");
        }
        out.extend_from_slice(b"\r\n");
        if !context.is_head {
            out.extend_from_slice(body.as_bytes());
        }
        WrittenAnswer { status, close: context.close }
    }
}

/// The status of a written answer, and whether the connection must then be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WrittenAnswer {
    pub status: u16,
    pub close: bool,
}

/// Writes the value of `Proofload-Receipt`: where the events are stored, and the level that they have reached.
pub(crate) fn write_receipts(out: &mut Vec<u8>, level: Level, receipts: &[Receipt]) {
    let level = level_name(level);
    if receipts.is_empty() {
        out.extend_from_slice(b"level=");
        out.extend_from_slice(level.as_bytes());
    }
    let mut rest = receipts;
    for number in 0..MAX_RECEIPTS {
        let Some((receipt, mut others)) = rest.split_first() else { break };
        let mut bytes = receipt.bytes;
        // Merges the receipts of adjacent parts.
        while let Some((next, behind)) = others.split_first()
            && next.offset == receipt.offset + bytes
            && next.segment == receipt.segment
        {
            (bytes, others) = (bytes + next.bytes, behind);
        }
        rest = others;
        if number > 0 {
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(b"segment=\"");
        for &byte in receipt.segment.as_bytes() {
            // A quoted string (RFC 9110, 5.6.4). Segment names contain no control characters, so only these two bytes
            // need escapes.
            if matches!(byte, b'"' | b'\\') {
                out.push(b'\\');
            }
            out.push(byte);
        }
        out.extend_from_slice(b"\"; offset=");
        write_number(out, receipt.offset);
        out.extend_from_slice(b"; bytes=");
        write_number(out, bytes);
        out.extend_from_slice(b"; level=");
        out.extend_from_slice(level.as_bytes());
    }
}

/// The name of a level in headers and counters.
pub(crate) fn level_name(level: Level) -> &'static str {
    match level {
        Level::Accepted => "accepted",
        Level::Written => "written",
        Level::Synced => "synced",
    }
}

/// Parses the name of a level.
pub(crate) fn level_by_name(name: &[u8]) -> Option<Level> {
    [Level::Accepted, Level::Written, Level::Synced]
        .into_iter()
        .find(|&level| level_name(level).as_bytes().eq_ignore_ascii_case(name))
}

fn json(refusal: &Refusal) -> String {
    let mut error = serde_json::json!({ "error": refusal.message(), "reason": refusal.name() });
    if let Refusal::Malformed(mistake) = refusal {
        error["line"] = mistake.line.into();
        error["column"] = mistake.column.into();
        error["byte"] = mistake.byte.into();
    }
    format!("{error}\n")
}

fn start(out: &mut Vec<u8>, status: u16) {
    out.extend_from_slice(b"HTTP/1.1 ");
    write_number(out, u64::from(status));
    out.push(b' ');
    out.extend_from_slice(reason(status).as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn number_field(out: &mut Vec<u8>, name: &str, value: u64) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    write_number(out, value);
    out.extend_from_slice(b"\r\n");
}

fn write_number(out: &mut Vec<u8>, number: u64) {
    write!(out, "{number}").expect("a vector takes everything");
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        202 => "Accepted",
        204 => "No Content",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        _ => "",
    }
}
