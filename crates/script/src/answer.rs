//! The parts of an answer that are kept while it arrives, in bounded memory.

use std::io::Write as _;

use flate2::write::MultiGzDecoder;
use http1::{ResponseHead, ResponseSink};
use memchr::memmem;

/// Maximum size of a body that is kept for JSON paths, regular expressions and whole bodies, in bytes. Texts are searched
/// for in bodies of any length.
pub(crate) const MAX_KEPT_BYTES: usize = 1 << 20;
/// Number of compressed bytes decoded at a time, small because they may expand a thousandfold.
const DECODED_AT_A_TIME: usize = 1_024;

/// The parts of an answer that a step needs.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    pub(crate) headers: Vec<String>,
    pub(crate) body: bool,
    pub(crate) texts: Vec<memmem::Finder<'static>>,
    /// Whether the `Set-Cookie` fields are needed.
    pub(crate) cookies: bool,
    /// Whether the `Location` field is needed.
    pub(crate) location: bool,
}

impl Needs {
    /// Adds a header field to those needed, unless it is there already; returns its index.
    pub(crate) fn header(&mut self, name: &str) -> usize {
        match self.headers.iter().position(|known| known.eq_ignore_ascii_case(name)) {
            Some(place) => place,
            None => {
                self.headers.push(name.to_owned());
                self.headers.len() - 1
            }
        }
    }

    /// Whether the body's bytes must be read.
    pub(crate) fn reads_body(&self) -> bool {
        self.body || !self.texts.is_empty()
    }
}

/// The kept parts of an answer.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Values of the header fields that the step needs.
    pub(crate) headers: Vec<Option<Vec<u8>>>,
    pub(crate) cookies: Vec<Vec<u8>>,
    pub(crate) location: Option<Vec<u8>>,
    /// Whether each text has been found.
    pub(crate) found: Vec<bool>,
    /// Size of the body as sent, in bytes; set at the end of the answer.
    pub(crate) body_bytes: u64,
    kept: Vec<u8>,
    is_too_long: bool,
    /// The last searched bytes, because a text may continue in the next ones.
    tail: Vec<u8>,
    decoder: Option<Box<MultiGzDecoder<Vec<u8>>>>,
    /// The body could not be decoded by its content coding, so its content is unknown.
    pub(crate) is_undecodable: bool,
}

impl Answer {
    /// The whole body; `None` if it was too long to be kept, or could not be decoded.
    pub(crate) fn body(&self) -> Option<&[u8]> {
        (!self.is_too_long && !self.is_undecodable).then_some(&self.kept)
    }

    fn begin(&mut self, head: &ResponseHead<'_>, needs: &Needs) {
        *self = Self {
            kept: std::mem::take(&mut self.kept),
            tail: std::mem::take(&mut self.tail),
            ..Self::default()
        };
        self.kept.clear();
        self.tail.clear();
        self.status = head.status;
        self.headers.resize(needs.headers.len(), None);
        self.found.resize(needs.texts.len(), false);
        for field in head.headers {
            if let Some(place) = needs.headers.iter().position(|name| name.eq_ignore_ascii_case(field.name)) {
                // Several fields of the same name are joined into one list (RFC 9110, 5.3).
                match &mut self.headers[place] {
                    Some(value) => value.extend([b", ", field.value].concat()),
                    None => self.headers[place] = Some(field.value.to_vec()),
                }
            }
            if needs.cookies && field.name.eq_ignore_ascii_case("set-cookie") {
                self.cookies.push(field.value.to_vec());
            }
            if needs.location && field.name.eq_ignore_ascii_case("location") {
                self.location = Some(field.value.to_vec());
            }
            if needs.reads_body() && field.name.eq_ignore_ascii_case("content-encoding") {
                for coding in http1::list(field.value) {
                    let is = |name: &str| coding.eq_ignore_ascii_case(name.as_bytes());
                    match self.decoder {
                        None if is("gzip") || is("x-gzip") => {
                            self.decoder = Some(Box::new(MultiGzDecoder::new(Vec::new())));
                        }
                        _ => self.is_undecodable |= !is("identity"),
                    }
                }
            }
        }
    }

    fn add(&mut self, bytes: &[u8], needs: &Needs) {
        if !needs.reads_body() || self.is_undecodable {
            return;
        }
        let Some(mut decoder) = self.decoder.take() else { return self.add_decoded(bytes, needs) };
        for piece in bytes.chunks(DECODED_AT_A_TIME) {
            if decoder.write_all(piece).is_err() {
                self.is_undecodable = true;
                return;
            }
            let mut decoded = std::mem::take(decoder.get_mut());
            self.add_decoded(&decoded, needs);
            decoded.clear();
            *decoder.get_mut() = decoded;
        }
        self.decoder = Some(decoder);
    }

    /// Ends the body: takes the remaining bytes out of the decoder.
    pub(crate) fn end(&mut self, needs: &Needs) {
        let decoder = self.decoder.take();
        if self.body_bytes == 0 {
            // An answer without a body may still name a content coding, as answers to HEAD do.
            self.is_undecodable = false;
            return;
        }
        let Some(decoder) = decoder else { return };
        match decoder.finish() {
            Ok(decoded) => self.add_decoded(&decoded, needs),
            Err(_) => self.is_undecodable = true,
        }
    }

    fn add_decoded(&mut self, bytes: &[u8], needs: &Needs) {
        if needs.body && !self.is_too_long {
            if self.kept.len() + bytes.len() > MAX_KEPT_BYTES {
                self.is_too_long = true;
                self.kept = Vec::new();
            } else {
                self.kept.extend_from_slice(bytes);
            }
        }
        let Some(longest) = needs.texts.iter().map(|text| text.needle().len()).max() else { return };
        // A text may begin in the previous bytes and end in these.
        let begin = &bytes[..bytes.len().min(longest.saturating_sub(1))];
        self.tail.extend_from_slice(begin);
        for (found, text) in self.found.iter_mut().zip(&needs.texts) {
            *found = *found || text.find(&self.tail).is_some() || text.find(bytes).is_some();
        }
        if begin.len() < bytes.len() {
            self.tail.clear();
            self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(longest.saturating_sub(1))..]);
        } else {
            let surplus = self.tail.len().saturating_sub(longest.saturating_sub(1));
            self.tail.drain(..surplus);
        }
    }
}

/// Receives the answer to a user's request.
#[derive(Debug)]
pub(crate) struct AnswerSink<'a> {
    pub(crate) answer: &'a mut Answer,
    pub(crate) needs: &'a Needs,
}

impl ResponseSink for AnswerSink<'_> {
    fn head(&mut self, head: &ResponseHead<'_>) {
        self.answer.begin(head, self.needs);
    }

    fn body(&mut self, bytes: &[u8]) {
        self.answer.add(bytes, self.needs);
    }
}

#[cfg(test)]
mod tests;
