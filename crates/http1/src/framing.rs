//! Determines from a message's headers where its body ends and whether the connection stays open.

use crate::Error;
use httparse::Header;

/// How a body ends (RFC 9112, 6.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// There is no body.
    None,
    /// After this many bytes.
    Length(u64),
    /// After the last chunk and the trailers.
    Chunked,
    /// When the peer closes the connection; only in answers.
    UntilClose,
}

/// The headers that concern the connection, read in one pass.
#[derive(Default)]
pub(crate) struct Fields {
    length: Option<u64>,
    coding: Option<Coding>,
    close: bool,
    keep_alive: bool,
    expect_continue: bool,
    /// Transfer-Encoding has an empty element. Answers may have one (RFC 9110, 5.6.1.2). Requests may not, because readers
    /// that interpret it differently would disagree on the end of the request.
    has_gap: bool,
    /// The first error in Content-Length or Transfer-Encoding. It is ignored in answers that have no body by definition.
    error: Option<Error>,
}

/// The codings in Transfer-Encoding.
#[derive(Clone, Copy, Default)]
struct Coding {
    /// The list contains `chunked`, and so far no coding after it.
    chunked: bool,
    /// The list contains a coding other than `chunked`.
    other: bool,
}

impl Fields {
    /// Reads the headers in one pass.
    #[inline]
    pub(crate) fn read(headers: &[Header<'_>]) -> Fields {
        let mut fields = Fields::default();
        for header in headers {
            // Comparing lengths first skips most headers quickly.
            match header.name.len() {
                6 if header.name.eq_ignore_ascii_case("expect") => {
                    fields.expect_continue |=
                        list(header.value).any(|e| e.eq_ignore_ascii_case(b"100-continue"));
                }
                10 if header.name.eq_ignore_ascii_case("connection") => {
                    for option in list(header.value) {
                        fields.close |= option.eq_ignore_ascii_case(b"close");
                        fields.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                    }
                }
                14 if header.name.eq_ignore_ascii_case("content-length") => {
                    if let Err(error) = fields.content_length(header.value) {
                        fields.error.get_or_insert(error);
                    }
                }
                17 if header.name.eq_ignore_ascii_case("transfer-encoding") => {
                    if let Err(error) = fields.transfer_encoding(header.value) {
                        fields.error.get_or_insert(error);
                    }
                }
                _ => {}
            }
        }
        fields
    }

    /// Whether the sender keeps the connection open after this message (RFC 9112, 9.3).
    #[inline]
    pub(crate) fn keep_alive(&self, minor_version: u8) -> bool {
        !self.close && (minor_version >= 1 || self.keep_alive)
    }

    /// Whether the client waits for `100 Continue`. In HTTP/1.0 the header is ignored (RFC 9110, 10.1.1).
    #[inline]
    pub(crate) fn expect_continue(&self, minor_version: u8) -> bool {
        self.expect_continue && minor_version >= 1
    }

    /// How the body of an answer ends (RFC 9112, 6.3, rules 1 and 3 to 8).
    #[inline]
    pub(crate) fn of_response(
        self,
        status: u16,
        is_head_request: bool,
        minor_version: u8,
    ) -> Result<Framing, Error> {
        if is_head_request || matches!(status, 100..=199 | 204 | 304) {
            return Ok(Framing::None);
        }
        match self.checked(minor_version)? {
            (Some(Coding { chunked: true, .. }), _) => Ok(Framing::Chunked),
            (Some(_), _) | (None, None) => Ok(Framing::UntilClose),
            (None, Some(length)) => Ok(Framing::Length(length)),
        }
    }

    /// How the body of a request ends (RFC 9112, 6.3, rules 3 to 7).
    #[inline]
    pub(crate) fn of_request(self, minor_version: u8) -> Result<Framing, Error> {
        if self.has_gap {
            return Err(Error::BadTransferEncoding);
        }
        match self.checked(minor_version)? {
            (Some(Coding { chunked: false, .. }), _) => Err(Error::RequestNotChunked),
            (Some(Coding { other: true, .. }), _) => Err(Error::UnsupportedCoding),
            (Some(_), _) => Ok(Framing::Chunked),
            (None, Some(length)) => Ok(Framing::Length(length)),
            (None, None) => Ok(Framing::None),
        }
    }

    /// Transfer-Encoding and Content-Length, if they are well-formed and consistent.
    #[inline]
    fn checked(self, minor_version: u8) -> Result<(Option<Coding>, Option<u64>), Error> {
        let is_empty = self.has_gap && self.coding.is_none();
        if let Some(error) = self.error.or(is_empty.then_some(Error::BadTransferEncoding)) {
            return Err(error);
        }
        if self.coding.is_some() {
            if minor_version == 0 {
                return Err(Error::TransferEncodingInHttp10);
            }
            if self.length.is_some() {
                return Err(Error::LengthAndTransferEncoding);
            }
        }
        Ok((self.coding, self.length))
    }

    /// Reads a Content-Length header: a number, or the same number several times (RFC 9110, 8.6).
    fn content_length(&mut self, value: &[u8]) -> Result<(), Error> {
        for element in elements(value) {
            let second = decimal(element)?;
            match self.length {
                Some(first) if first != second => {
                    return Err(Error::ConflictingContentLength { first, second });
                }
                _ => self.length = Some(second),
            }
        }
        Ok(())
    }

    /// Reads a Transfer-Encoding header. Several such headers form one list, in their order (RFC 9112, 6.1).
    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Error> {
        self.has_gap |= elements(value).any(<[u8]>::is_empty);
        for element in list(value) {
            let (name, parameters) = match element.iter().position(|&b| b == b';') {
                Some(at) => (trim(&element[..at]), true),
                None => (element, false),
            };
            // Rejects a missing name, a quoted name, and bytes that another reader may trim, because readers might disagree
            // on the coding.
            if name.is_empty() || !name.iter().all(|&b| is_token(b)) {
                return Err(Error::BadTransferEncoding);
            }
            let coding = self.coding.get_or_insert_default();
            if coding.chunked {
                return Err(Error::ChunkedNotLast);
            }
            if name.eq_ignore_ascii_case(b"chunked") {
                if parameters {
                    return Err(Error::BadTransferEncoding);
                }
                coding.chunked = true;
            } else {
                coding.other = true;
            }
        }
        Ok(())
    }
}

/// Whether a token may contain the byte (RFC 9110, 5.6.2).
#[inline]
pub fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether a header's value may contain the byte (RFC 9110, 5.5).
#[inline]
pub(crate) fn is_value(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// The elements of a comma-separated list without quoted elements. Empty elements are skipped (RFC 9110, 5.6.1.2).
#[inline]
pub fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    elements(value).filter(|element| !element.is_empty())
}

/// Same as [`list`], but keeps empty elements, for headers that determine the end of a message.
#[inline]
fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(trim)
}

/// Removes white space at both ends. CR and LF can only belong to a folded line, which counts as a space (RFC 9112, 5.2).
#[inline]
fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t' | b'\r' | b'\n', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t' | b'\r' | b'\n'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Parses digits only; `u64::from_str` would accept a plus sign.
#[inline]
fn decimal(digits: &[u8]) -> Result<u64, Error> {
    if digits.is_empty() {
        return Err(Error::BadContentLength);
    }
    let mut number = 0u64;
    let mut overflow = false;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return Err(Error::BadContentLength);
        }
        match number.checked_mul(10).and_then(|n| n.checked_add(u64::from(digit - b'0'))) {
            Some(next) => number = next,
            None => overflow = true,
        }
    }
    if overflow { Err(Error::ContentLengthOverflow) } else { Ok(number) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields<'a>(headers: &[(&'a str, &'a str)]) -> Fields {
        let headers: Vec<Header<'a>> =
            headers.iter().map(|&(name, value)| Header { name, value: value.as_bytes() }).collect();
        Fields::read(&headers)
    }

    fn response(headers: &[(&str, &str)]) -> Result<Framing, Error> {
        fields(headers).of_response(200, false, 1)
    }

    fn request(headers: &[(&str, &str)]) -> Result<Framing, Error> {
        fields(headers).of_request(1)
    }

    #[test]
    fn decimal_takes_digits_only() {
        assert_eq!(decimal(b"0"), Ok(0));
        assert_eq!(decimal(b"0042"), Ok(42));
        assert_eq!(decimal(b"18446744073709551615"), Ok(u64::MAX));
        assert_eq!(decimal(b"18446744073709551616"), Err(Error::ContentLengthOverflow));
        for bad in ["", "+1", "-1", "1 1", "0x1", "1.", "\u{661}", "99999999999999999999999x"] {
            assert_eq!(decimal(bad.as_bytes()), Err(Error::BadContentLength), "{bad:?}");
        }
    }

    #[test]
    fn repeated_lengths_must_agree() {
        assert_eq!(response(&[("Content-Length", "5"), ("CONTENT-LENGTH", "5")]), Ok(Framing::Length(5)));
        assert_eq!(request(&[("Content-Length", "5 ,\t5")]), Ok(Framing::Length(5)));
        let conflict = Err(Error::ConflictingContentLength { first: 5, second: 6 });
        assert_eq!(response(&[("Content-Length", "5, 6")]), conflict);
        assert_eq!(request(&[("Content-Length", "5"), ("content-length", "6")]), conflict);
        assert_eq!(request(&[("Content-Length", "5,")]), Err(Error::BadContentLength));
    }

    #[test]
    fn codings_are_one_list_over_all_headers() {
        let te = "Transfer-Encoding";
        assert_eq!(response(&[(te, "gzip"), (te, "CHUNKED")]), Ok(Framing::Chunked));
        assert_eq!(response(&[(te, "chunked"), (te, "gzip")]), Err(Error::ChunkedNotLast));
        assert_eq!(response(&[(te, "chunked, chunked")]), Err(Error::ChunkedNotLast));
        assert_eq!(response(&[(te, "gzip;q=\"1\"")]), Ok(Framing::UntilClose));
        assert_eq!(request(&[(te, "chunked")]), Ok(Framing::Chunked));
        assert_eq!(request(&[(te, "gzip, chunked")]), Err(Error::UnsupportedCoding));
        assert_eq!(request(&[(te, "gzip")]), Err(Error::RequestNotChunked));
        for bad in ["", ",", ";q=1", "chunked;q=1", "\"chunked\"", "chun ked", "\u{e9}chunked"] {
            assert!(response(&[(te, bad)]).is_err(), "{bad:?}");
            assert!(request(&[(te, bad)]).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn empty_elements_are_ignored_in_answers_only() {
        let te = "Transfer-Encoding";
        for gaps in [",chunked", "chunked,", ", ,\tchunked ,", "gzip,,chunked"] {
            assert_eq!(response(&[(te, gaps)]), Ok(Framing::Chunked), "{gaps:?}");
            assert_eq!(request(&[(te, gaps)]), Err(Error::BadTransferEncoding), "{gaps:?}");
        }
        assert_eq!(response(&[(te, ", gzip,")]), Ok(Framing::UntilClose));
        assert_eq!(response(&[(te, "chunked,"), (te, ",gzip")]), Err(Error::ChunkedNotLast));
        assert_eq!(response(&[(te, "chunked"), (te, ",")]), Ok(Framing::Chunked));
        for empty in ["", " ", ","] {
            assert_eq!(response(&[(te, empty), (te, "chunked")]), Ok(Framing::Chunked), "{empty:?}");
            assert_eq!(
                request(&[(te, empty), (te, "chunked")]),
                Err(Error::BadTransferEncoding),
                "{empty:?}"
            );
            assert_eq!(response(&[(te, empty), (te, empty)]), Err(Error::BadTransferEncoding), "{empty:?}");
        }
    }

    #[test]
    fn empty_elements_of_a_list_are_ignored() {
        let of = |value| list(value).collect::<Vec<_>>();
        assert_eq!(of(b", gzip ,\t, zstd,"), [&b"gzip"[..], b"zstd"]);
        assert_eq!(of(b" ,,"), [b""; 0]);
        assert!(fields(&[("Expect", "100-Continue,")]).expect_continue(1));
        assert!(!fields(&[("Connection", ",close,")]).keep_alive(1));
    }

    #[test]
    fn connection_is_a_list_and_close_wins() {
        let both = fields(&[("Connection", "foo, Keep-Alive"), ("connection", "CLOSE")]);
        assert!(!both.keep_alive(1) && !both.keep_alive(0));
        let keep = fields(&[("Connection", "upgrade,keep-alive")]);
        assert!(keep.keep_alive(1) && keep.keep_alive(0));
        let none = fields(&[("Connection", "closed")]);
        assert!(none.keep_alive(1) && !none.keep_alive(0));
    }
}
