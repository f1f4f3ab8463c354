//! Answers that equal those of Fluentd's `in_http` byte for byte, including the order of headers.

use events::{Mistake, MistakeKind};
use record::receipt::AnswerReceipt;

use super::{AnswerContext, AnswerWriter, Reply, WrittenAnswer, field, number_field};
use crate::{Compat, refusal::Refusal};

/// A GIF of one transparent pixel.
const PIXEL: &[u8] = b"GIF89a\x01\0\x01\0\x80\xff\0\xff\xff\xff\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";

impl AnswerWriter {
    pub(super) fn write_fluentd(
        &self,
        out: &mut Vec<u8>,
        reply: &Reply<'_>,
        context: &AnswerContext,
    ) -> WrittenAnswer {
        match reply {
            Reply::Stored { receipts, replayed, .. } => self.success(out, receipts, *replayed, context),
            Reply::Refused(refusal) => self.refusal(out, refusal, context),
            Reply::Preflight { headers: Some(headers) } => self.preflight(out, headers, context),
            Reply::Preflight { headers: None } => closing(out, 403, "Forbidden", b""),
            Reply::Page(_) | Reply::Nothing => closing(out, 200, "OK", b""),
        }
    }

    fn success(
        &self,
        out: &mut Vec<u8>,
        receipts: &[u8],
        replayed: bool,
        context: &AnswerContext,
    ) -> WrittenAnswer {
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
        // Only clients that name a level understand receipts. All others get exactly Fluentd's bytes.
        if context.names_level {
            field(out, "Proofload-Receipt", receipts);
            if replayed {
                field(out, "Proofload-Replayed", b"true");
            }
        }
        let body = if img { PIXEL } else { b"" };
        self.end(out, context, body);
        if no_content {
            // Fluentd writes this header last, after the length.
            out.truncate(out.len() - 2);
            out.extend_from_slice(b"Content-Type: text/plain\r\n\r\n");
        }
        WrittenAnswer { status, close: context.close }
    }

    fn refusal(&self, out: &mut Vec<u8>, refusal: &Refusal, context: &AnswerContext) -> WrittenAnswer {
        match refusal {
            // Fluentd has no such limit, so this is proofload's status in Fluentd's format.
            Refusal::Http(_) if refusal.status(self.overload_status) == 431 => {
                self.write_as_fluentd(out, refusal, context)
            }
            // Fluentd closes these connections without an answer.
            Refusal::Http(_) | Refusal::SlowHead | Refusal::SlowBody => {
                WrittenAnswer { status: 0, close: true }
            }
            Refusal::Malformed(Mistake { kind: MistakeKind::TooManyRecords, .. })
            | Refusal::TooLarge(_)
            | Refusal::InflatesTooLarge(_)
            | Refusal::ExceedsBudget(_)
            | Refusal::ManySegments(_) => closing(out, 413, "Request Entity Too Large", b"Too large"),
            Refusal::Corrupt(_) => closing(out, 400, "Bad Request", b""),
            Refusal::Expectation => closing(out, 417, "Expectation Failed", b""),
            Refusal::Origin => {
                out.extend_from_slice(b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\n");
                out.extend_from_slice(b"Content-Length: 0\r\nContent-Type: text/plain\r\n\r\n");
                WrittenAnswer { status: 403, close: true }
            }
            // Fluentd would answer all of these as if its buffer were full.
            Refusal::Budget
            | Refusal::Full
            | Refusal::ReadOnly
            | Refusal::Failing(_)
            | Refusal::InternalError
            | Refusal::NotReadInTime
            | Refusal::StoreTimeout
            | Refusal::PartlyStored(_)
            | Refusal::MaybeStored(_)
            | Refusal::Stopping => {
                let body = b"500 Internal Server Error\nbuffer space has too many data\n";
                // As with receipts, only clients that name a level understand this header.
                let include_maybe = context.names_level && refusal.may_be_stored();
                let maybe = [(AnswerReceipt::MAYBE_STORED_HEADER, "maybe")];
                let fields = if include_maybe { &maybe[..] } else { &[] };
                self.plain(out, 500, "500 Internal Server Error", fields, body, context)
            }
            Refusal::Unauthorized => {
                let challenge = [("WWW-Authenticate", self.challenge)];
                self.plain(out, 401, "401 Unauthorized", &challenge, b"401 Unauthorized\n", context)
            }
            Refusal::Connections => {
                let body = b"503 Service Unavailable\ntoo many connections\n";
                let retry_after = self.retry_after_s.to_string();
                let fields = [("Retry-After", retry_after.as_str())];
                self.plain(out, 503, "503 Service Unavailable", &fields, body, context)
            }
            // Fluentd has no such case, so this is proofload's status in Fluentd's format.
            Refusal::InFlight | Refusal::OtherBody | Refusal::TagNotStored | Refusal::LongTag(_) => {
                self.write_as_fluentd(out, refusal, context)
            }
            other => {
                let body = format!("400 Bad Request\n{}\n", other.message());
                self.plain(out, 400, "400 Bad Request", &[], body.as_bytes(), context)
            }
        }
    }

    fn write_as_fluentd(
        &self,
        out: &mut Vec<u8>,
        refusal: &Refusal,
        context: &AnswerContext,
    ) -> WrittenAnswer {
        let status = refusal.status(self.overload_status);
        let line = format!("{status} {}", super::reason(status));
        let body = format!("{line}\n{}\n", refusal.message());
        let retry_after = self.retry_after_s.to_string();
        let retry_after = [("Retry-After", retry_after.as_str())];
        let fields = if refusal.is_temporary() { &retry_after[..] } else { &[] };
        self.plain(out, status, &line, fields, body.as_bytes(), context)
    }

    fn plain(
        &self,
        out: &mut Vec<u8>,
        status: u16,
        line: &str,
        fields: &[(&str, &str)],
        body: &[u8],
        context: &AnswerContext,
    ) -> WrittenAnswer {
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(line.as_bytes());
        out.extend_from_slice(b"\r\n");
        field(out, "Content-Type", b"text/plain");
        fields.iter().for_each(|(name, value)| field(out, name, value.as_bytes()));
        self.end(out, context, body);
        WrittenAnswer { status, close: context.close }
    }

    /// Writes the last headers of an answer after which the connection may stay open, and the body.
    fn end(&self, out: &mut Vec<u8>, context: &AnswerContext, body: &[u8]) {
        self.origin(out, context);
        if !context.close {
            field(out, "Connection", b"Keep-Alive");
        }
        number_field(out, "Content-Length", body.len() as u64);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(body);
    }

    fn preflight(&self, out: &mut Vec<u8>, headers: &str, context: &AnswerContext) -> WrittenAnswer {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\nAccess-Control-Allow-Methods: POST\r\n");
        field(out, "Access-Control-Allow-Headers", headers.as_bytes());
        self.origin(out, context);
        out.extend_from_slice(b"Content-Length: 0\r\nContent-Type: text/plain\r\n\r\n");
        WrittenAnswer { status: 200, close: true }
    }

    fn origin(&self, out: &mut Vec<u8>, context: &AnswerContext) {
        let Some(origin) = &context.origin else { return };
        field(out, "Access-Control-Allow-Origin", origin.as_bytes());
        if matches!(self.compat, Compat::Fluentd { cors_allow_credentials: true, .. }) {
            field(out, "Access-Control-Allow-Credentials", b"true");
        }
    }
}

/// Writes an answer without `Connection: close` after which Fluentd nevertheless closes the connection.
fn closing(out: &mut Vec<u8>, status: u16, reason: &str, body: &[u8]) -> WrittenAnswer {
    out.extend_from_slice(format!("HTTP/1.1 {status} {reason}\r\n").as_bytes());
    number_field(out, "Content-Length", body.len() as u64);
    field(out, "Content-Type", b"text/plain");
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
    WrittenAnswer { status, close: true }
}

#[cfg(test)]
mod tests {
    use segments::Failure;

    use super::*;
    use crate::Config;

    fn told(refusal: Refusal, names_level: bool) -> String {
        let mut config = Config::new(segments::Config::new("x".parse().unwrap()));
        config.compat = Compat::fluentd();
        config.limits.retry_after_s = 7;
        let mut out = Vec::new();
        let context = AnswerContext { names_level, ..AnswerContext::default() };
        AnswerWriter::new(&config, "").write(&mut out, &Reply::Refused(refusal), &context, None);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_may_be_stored_include_maybe_to_those_who_know_receipts() {
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
    fn who_may_come_again_include_maybe_when() {
        for refusal in [Refusal::InFlight, Refusal::Connections] {
            let told = told(refusal, false);
            assert!(told.contains("\r\nRetry-After: 7\r\n"), "{told}");
        }
        let told = told(Refusal::OtherBody, false);
        assert!(told.starts_with("HTTP/1.1 422 ") && !told.contains("Retry-After"), "{told}");
    }
}
