//! Answers as Fluentd's `in_http` gives them, byte for byte, headers in its order.

use events::{Mistake, MistakeKind};
use record::receipt::AnswerReceipt;

use super::{Dress, Manner, Reply, Sent, field, number_field};
use crate::{Compat, refusal::Refusal};

/// A GIF of one transparent pixel.
const PIXEL: &[u8] = b"GIF89a\x01\0\x01\0\x80\xff\0\xff\xff\xff\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";

impl Dress {
    pub(super) fn write_fluentd(&self, out: &mut Vec<u8>, reply: &Reply<'_>, manner: &Manner) -> Sent {
        match reply {
            Reply::Stored { receipts, replayed, .. } => self.success(out, receipts, *replayed, manner),
            Reply::Refused(refusal) => self.refusal(out, refusal, manner),
            Reply::Preflight { headers: Some(headers) } => self.preflight(out, headers, manner),
            Reply::Preflight { headers: None } => closing(out, 403, "Forbidden", b""),
            Reply::Page(_) | Reply::Nothing => closing(out, 200, "OK", b""),
        }
    }

    fn success(&self, out: &mut Vec<u8>, receipts: &[u8], replayed: bool, manner: &Manner) -> Sent {
        let (img, no_content) = match self.compat {
            Compat::Fluentd { empty_img, use_204, .. } => (empty_img, use_204 && !empty_img),
            Compat::None => (false, false),
        };
        let status = if no_content { 204 } else { 200 };
        out.extend_from_slice(if no_content {
            b"HTTP/1.1 204 No Content\r\n"
        } else {
            b"HTTP/1.1 200 OK\r\n"
        });
        if img {
            field(out, "Content-Type", b"image/gif; charset=utf-8");
        } else if !no_content {
            field(out, "Content-Type", b"text/plain");
        }
        // Only clients that ask for a level know receipts; all others get Fluentd's bytes.
        if manner.asked {
            field(out, "Proofload-Receipt", receipts);
            if replayed {
                field(out, "Proofload-Replayed", b"true");
            }
        }
        let body = if img { PIXEL } else { b"" };
        self.end(out, manner, body);
        if no_content {
            // What follows the headers put before: Fluentd adds it last, behind the length.
            out.truncate(out.len() - 2);
            out.extend_from_slice(b"Content-Type: text/plain\r\n\r\n");
        }
        Sent { status, close: manner.close }
    }

    fn refusal(&self, out: &mut Vec<u8>, refusal: &Refusal, manner: &Manner) -> Sent {
        match refusal {
            // A limit of ours, which Fluentd has not.
            Refusal::Http(_) if refusal.status(self.overload_status) == 431 => {
                self.told(out, refusal, manner)
            }
            // Fluentd closes without a word.
            Refusal::Http(_) | Refusal::SlowHead | Refusal::SlowBody => Sent { status: 0, close: true },
            Refusal::Malformed(Mistake { kind: MistakeKind::TooManyRecords, .. })
            | Refusal::TooLarge(_)
            | Refusal::InflatesTooLarge(_)
            | Refusal::NeverFits(_)
            | Refusal::ManySegments(_) => closing(out, 413, "Request Entity Too Large", b"Too large"),
            Refusal::Corrupt(_) => closing(out, 400, "Bad Request", b""),
            Refusal::Expectation => closing(out, 417, "Expectation Failed", b""),
            Refusal::Origin => {
                out.extend_from_slice(b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\n");
                out.extend_from_slice(b"Content-Length: 0\r\nContent-Type: text/plain\r\n\r\n");
                Sent { status: 403, close: true }
            }
            // A full buffer is all that Fluentd knows of these.
            Refusal::Budget
            | Refusal::Full
            | Refusal::ReadOnly
            | Refusal::Failing(_)
            | Refusal::Fault
            | Refusal::NotRead
            | Refusal::StoreTimeout
            | Refusal::InPart(_)
            | Refusal::Unsure(_)
            | Refusal::Stopping => {
                let body = b"500 Internal Server Error\nbuffer space has too many data\n";
                // As receipts: only for those who know them.
                let is_told = manner.asked && refusal.may_be_stored();
                let maybe = [(AnswerReceipt::MAYBE_STORED_HEADER, "maybe")];
                let fields = if is_told { &maybe[..] } else { &[] };
                self.plain(out, 500, "500 Internal Server Error", fields, body, manner)
            }
            Refusal::Unauthorized => {
                let challenge = [("WWW-Authenticate", self.challenge)];
                self.plain(out, 401, "401 Unauthorized", &challenge, b"401 Unauthorized\n", manner)
            }
            Refusal::Connections => {
                let body = b"503 Service Unavailable\ntoo many connections\n";
                let retry_after = self.retry_after_s.to_string();
                let fields = [("Retry-After", retry_after.as_str())];
                self.plain(out, 503, "503 Service Unavailable", &fields, body, manner)
            }
            // What Fluentd has no case for is told with our status, in its manner.
            Refusal::InFlight | Refusal::OtherBody | Refusal::OtherTag | Refusal::LongTag(_) => {
                self.told(out, refusal, manner)
            }
            other => {
                let body = format!("400 Bad Request\n{}\n", other.message());
                self.plain(out, 400, "400 Bad Request", &[], body.as_bytes(), manner)
            }
        }
    }

    fn told(&self, out: &mut Vec<u8>, refusal: &Refusal, manner: &Manner) -> Sent {
        let status = refusal.status(self.overload_status);
        let line = format!("{status} {}", super::reason(status));
        let body = format!("{line}\n{}\n", refusal.message());
        let retry_after = self.retry_after_s.to_string();
        let retry_after = [("Retry-After", retry_after.as_str())];
        let fields = if refusal.is_passing() { &retry_after[..] } else { &[] };
        self.plain(out, status, &line, fields, body.as_bytes(), manner)
    }

    fn plain(
        &self,
        out: &mut Vec<u8>,
        status: u16,
        line: &str,
        fields: &[(&str, &str)],
        body: &[u8],
        manner: &Manner,
    ) -> Sent {
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(line.as_bytes());
        out.extend_from_slice(b"\r\n");
        field(out, "Content-Type", b"text/plain");
        fields.iter().for_each(|(name, value)| field(out, name, value.as_bytes()));
        self.end(out, manner, body);
        Sent { status, close: manner.close }
    }

    /// The headers that end an answer which may keep the connection, and the body.
    fn end(&self, out: &mut Vec<u8>, manner: &Manner, body: &[u8]) {
        self.origin(out, manner);
        if !manner.close {
            field(out, "Connection", b"Keep-Alive");
        }
        number_field(out, "Content-Length", body.len() as u64);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(body);
    }

    fn preflight(&self, out: &mut Vec<u8>, headers: &str, manner: &Manner) -> Sent {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\nAccess-Control-Allow-Methods: POST\r\n");
        field(out, "Access-Control-Allow-Headers", headers.as_bytes());
        self.origin(out, manner);
        out.extend_from_slice(b"Content-Length: 0\r\nContent-Type: text/plain\r\n\r\n");
        Sent { status: 200, close: true }
    }

    fn origin(&self, out: &mut Vec<u8>, manner: &Manner) {
        let Some(origin) = &manner.origin else { return };
        field(out, "Access-Control-Allow-Origin", origin.as_bytes());
        if matches!(self.compat, Compat::Fluentd { cors_allow_credentials: true, .. }) {
            field(out, "Access-Control-Allow-Credentials", b"true");
        }
    }
}

/// An answer behind which Fluentd always closes, without saying so.
fn closing(out: &mut Vec<u8>, status: u16, reason: &str, body: &[u8]) -> Sent {
    out.extend_from_slice(format!("HTTP/1.1 {status} {reason}\r\n").as_bytes());
    number_field(out, "Content-Length", body.len() as u64);
    field(out, "Content-Type", b"text/plain");
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
    Sent { status, close: true }
}

#[cfg(test)]
mod tests {
    use segments::Failure;

    use super::*;
    use crate::Config;

    fn told(refusal: Refusal, asked: bool) -> String {
        let mut config = Config::new(segments::Config::new("x".parse().unwrap()));
        config.compat = Compat::fluentd();
        config.limits.retry_after_s = 7;
        let mut out = Vec::new();
        let manner = Manner { asked, ..Manner::default() };
        Dress::new(&config, "").write(&mut out, &Reply::Refused(refusal), &manner, None);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_may_be_stored_is_told_to_those_who_know_receipts() {
        let failed = |some_stored| Refusal::of_request(Failure::Full, segments::Level::Written, some_stored);
        let maybe = "\r\nProofload-Stored: maybe\r\n";
        assert!(told(failed(true), true).contains(maybe));
        assert!(told(Refusal::StoreTimeout, true).contains(maybe));
        for (refusal, asked) in [(failed(true), false), (failed(false), true), (Refusal::StoreTimeout, false)]
        {
            assert!(!told(refusal.clone(), asked).contains("Proofload"), "{refusal:?}");
        }
    }

    #[test]
    fn who_may_come_again_is_told_when() {
        for refusal in [Refusal::InFlight, Refusal::Connections] {
            let told = told(refusal, false);
            assert!(told.contains("\r\nRetry-After: 7\r\n"), "{told}");
        }
        let told = told(Refusal::OtherBody, false);
        assert!(told.starts_with("HTTP/1.1 422 ") && !told.contains("Retry-After"), "{told}");
    }
}
