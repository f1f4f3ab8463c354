//! The answers of the target, built once for every kind of answer and every shape.

use std::fmt::Write as _;

use crate::{
    Config,
    wire::{BodyParts, Wire},
};

/// Sent after an answer with misbehaviour `unsolicited`; cannot be the start of an HTTP message.
const STRAY: &[u8] = b"stray bytes that answer no request\r\n";

/// What an answer contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The configured answer.
    Plain,
    /// An answer with the error status.
    Error,
    /// 503: the queue is full.
    Reject,
    /// 400: the received bytes are not a request.
    BadRequest,
    /// 100: the client may send the body.
    Continue,
    /// Bytes that are not HTTP.
    Malformed,
    /// A chunk size that is not a number.
    BadFraming,
    /// The configured answer with a head of more than 64 KiB.
    HugeHead,
    /// The configured answer, followed by stray bytes.
    Unsolicited,
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::Plain,
        Self::Error,
        Self::Reject,
        Self::BadRequest,
        Self::Continue,
        Self::Malformed,
        Self::BadFraming,
        Self::HugeHead,
        Self::Unsolicited,
    ];
}

/// Properties of the connection that change the bytes of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Whether the client uses HTTP/1.0, so that chunks are not allowed and keep-alive needs `Connection: keep-alive`.
    pub http10: bool,
    /// Whether the connection is closed after the answer.
    pub close: bool,
}

impl Shape {
    const ALL: [Self; 4] = [
        Self { http10: false, close: false },
        Self { http10: false, close: true },
        Self { http10: true, close: false },
        Self { http10: true, close: true },
    ];

    fn index(self) -> usize {
        usize::from(self.http10) * 2 + usize::from(self.close)
    }

    fn connection_header(self) -> &'static str {
        match self {
            Self { close: true, .. } => "Connection: close\r\n",
            Self { http10: true, .. } => "Connection: keep-alive\r\n",
            _ => "",
        }
    }
}

/// The bytes of all answers that the target may send.
#[derive(Debug)]
pub(crate) struct Answers {
    wires: Vec<Wire>,
}

impl Answers {
    pub(crate) fn new(config: &Config) -> Self {
        let body = BodyParts::new(config);
        let wires =
            Kind::ALL.iter().flat_map(|&kind| Shape::ALL.map(|shape| wire(config, &body, kind, shape)));
        Self { wires: wires.collect() }
    }

    /// The bytes of an answer for a kind and a shape.
    #[inline]
    pub(crate) fn wire(&self, kind: Kind, shape: Shape) -> &Wire {
        &self.wires[kind as usize * Shape::ALL.len() + shape.index()]
    }
}

fn wire(config: &Config, body: &BodyParts, kind: Kind, shape: Shape) -> Wire {
    match kind {
        Kind::Plain => with_body(config, body, shape, "", &[]),
        Kind::Unsolicited => with_body(config, body, shape, "", STRAY),
        Kind::HugeHead => with_body(config, body, shape, &padding(), &[]),
        Kind::Error => short(config.error_status, shape),
        Kind::Reject => short(503, shape),
        Kind::BadRequest => short(400, shape),
        Kind::Continue => Wire::new(b"HTTP/1.1 100 Continue\r\n\r\n", &[]),
        Kind::Malformed => Wire::new(b"NOT-HTTP banana\r\n\r\n", &[]),
        Kind::BadFraming => {
            let head = head(200, "Transfer-Encoding: chunked\r\n", Shape { http10: false, close: true }, "");
            Wire::new(head.as_bytes(), &[(b"no-number\r\nproofload\r\n0\r\n\r\n".as_slice().into(), 1)])
        }
    }
}

/// Builds the configured answer.
fn with_body(config: &Config, body: &BodyParts, shape: Shape, extra: &str, after: &[u8]) -> Wire {
    let mut framing = String::new();
    let mut parts = Vec::new();
    if has_body(config.status) {
        match &body.chunked {
            Some(chunked) if !shape.http10 => {
                framing.push_str("Transfer-Encoding: chunked\r\n");
                parts.clone_from(chunked);
            }
            _ => {
                let _ = write!(framing, "Content-Length: {}\r\n", body.bytes);
                parts.clone_from(&body.plain);
            }
        }
    }
    parts.push((after.into(), 1));
    Wire::new(head(config.status, &framing, shape, extra).as_bytes(), &parts)
}

/// Builds an answer whose body is the status and its reason phrase.
fn short(status: u16, shape: Shape) -> Wire {
    let body = if has_body(status) { format!("{status} {}\n", reason(status)) } else { String::new() };
    let framing =
        if has_body(status) { format!("Content-Length: {}\r\n", body.len()) } else { String::new() };
    Wire::new(head(status, &framing, shape, "").as_bytes(), &[(body.into_bytes().into(), 1)])
}

/// Builds the answer of a page from its header lines and body.
pub(crate) fn page(status: u16, headers: &str, body: Vec<u8>, shape: Shape) -> Wire {
    let (framing, body) = if has_body(status) {
        (format!("Content-Length: {}\r\n", body.len()), body)
    } else {
        (String::new(), Vec::new())
    };
    let (reason, connection) = (reason(status), shape.connection_header());
    let head =
        format!("HTTP/1.1 {status} {reason}\r\nServer: proofload\r\n{headers}{framing}{connection}\r\n");
    Wire::new(head.as_bytes(), &[(body.into(), 1)])
}

/// Whether an answer with this status may have a body and Content-Length (RFC 9112, 6.3).
fn has_body(status: u16) -> bool {
    !matches!(status, 204 | 304)
}

fn head(status: u16, framing: &str, shape: Shape, extra: &str) -> String {
    let (reason, connection) = (reason(status), shape.connection_header());
    format!(
        "HTTP/1.1 {status} {reason}\r\nServer: proofload\r\nContent-Type: application/octet-stream\r\n\
         {framing}{connection}{extra}\r\n"
    )
}

/// Headers with more than 64 KiB in total. Each has a size that is common among servers.
fn padding() -> String {
    let value = "p".repeat(1_000);
    (0..66).fold(String::new(), |mut headers, i| {
        let _ = write!(headers, "X-Padding-{i}: {value}\r\n");
        headers
    })
}

/// The reason phrase of a common status (RFC 9110, 15); otherwise empty, which is allowed.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        413 => "Content Too Large",
        418 => "I'm a teapot",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http1::{ErrorKind, Limits, ResponseReader};

    fn bytes(config: &Config, kind: Kind, shape: Shape) -> Vec<u8> {
        let answers = Answers::new(config);
        let wire = answers.wire(kind, shape);
        let (pieces, count) = wire.pieces(0, wire.total_bytes());
        pieces[..count].iter().flat_map(|piece| piece.to_vec()).collect()
    }

    #[test]
    fn every_sound_answer_is_read_back_with_its_status_and_persistence() {
        let config = Config { chunk_bytes: Some(5), error_status: 500, ..Config::default() };
        for shape in Shape::ALL {
            for (kind, status) in [
                (Kind::Plain, 200),
                (Kind::Error, 500),
                (Kind::Reject, 503),
                (Kind::BadRequest, 400),
                (Kind::Unsolicited, 200),
            ] {
                let wire = bytes(&config, kind, shape);
                let fed = ResponseReader::new(Limits::default()).feed(&wire, false, &mut ()).unwrap();
                let response = fed.done.unwrap();
                assert_eq!(
                    (response.status, response.keep_alive),
                    (status, !shape.close),
                    "{kind:?} {shape:?}"
                );
                let stray = if kind == Kind::Unsolicited { STRAY.len() } else { 0 };
                assert_eq!(wire.len() - fed.used, stray);
                let text = String::from_utf8(wire).unwrap();
                assert_eq!(text.contains("keep-alive"), shape == Shape { http10: true, close: false });
                if kind == Kind::Plain {
                    assert_eq!((response.body_bytes, text.contains("chunked")), (13, !shape.http10));
                }
            }
        }
    }

    #[test]
    fn wrong_answers_are_wrong_in_the_way_they_say() {
        let shape = Shape { http10: false, close: false };
        let fault = |kind| {
            let wire = bytes(&Config::default(), kind, shape);
            ResponseReader::new(Limits::default()).feed(&wire, false, &mut ()).map_err(|e| e.kind())
        };
        assert_eq!(fault(Kind::Malformed), Err(ErrorKind::Malformed));
        assert_eq!(fault(Kind::BadFraming), Err(ErrorKind::Framing));
        assert_eq!(fault(Kind::HugeHead), Err(ErrorKind::TooLarge));
        let huge = bytes(&Config::default(), Kind::HugeHead, shape);
        let generous = Limits { head_bytes: 1 << 20 };
        let fed = ResponseReader::new(generous).feed(&huge, false, &mut ()).unwrap();
        assert_eq!(fed.done.unwrap().body_bytes, 13);
    }

    #[test]
    fn statuses_without_a_body_have_none() {
        for status in [204, 304] {
            let config = Config { status, chunk_bytes: Some(5), ..Config::default() };
            let wire = bytes(&config, Kind::Plain, Shape { http10: false, close: false });
            assert!(wire.ends_with(b"\r\n\r\n"), "{status}");
            assert!(!String::from_utf8(wire).unwrap().contains("Length"), "{status}");
        }
    }
}
