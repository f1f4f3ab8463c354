//! Finds the end of heads, buffers heads that arrive in pieces, and parses them.

use crate::framing::is_token;
use crate::{Error, Limits, MAX_EMPTY_LINE_BYTES, MAX_HEADERS};
use httparse::{Header, ParserConfig, Status};
use std::mem::MaybeUninit;

/// The kind of heads that a buffer reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A bare LF ends a line, as RFC 9112, 2.2 allows.
    Response,
    /// Only CRLF ends a line, because proxies that disagree on line ends allow request smuggling.
    Request,
}

/// Number of bytes at the start of a head that are checked before the head is complete.
const START_BYTES: usize = 16;

/// Collects heads that may arrive in pieces.
#[derive(Clone, Debug)]
pub(crate) struct HeadBuffer {
    /// The bytes so far of an incomplete head. Boxed to keep idle readers small, because most connections are idle.
    #[expect(clippy::box_collection, reason = "8 instead of 24 bytes in each reader")]
    carry: Option<Box<Vec<u8>>>,
    limit: u32,
    /// Bytes of empty lines before the current message.
    empty: u8,
    /// The last byte of the empty lines was a CR.
    after_cr: bool,
}

impl HeadBuffer {
    pub(crate) fn new(limits: Limits) -> HeadBuffer {
        let limit = u32::try_from(limits.head_bytes).unwrap_or(u32::MAX);
        HeadBuffer { carry: None, limit, empty: 0, after_cr: false }
    }

    /// Maximum size of a head, in bytes.
    #[inline]
    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    /// Number of buffered bytes of an incomplete head.
    #[inline]
    pub(crate) fn buffered_bytes(&self) -> usize {
        self.carry.as_ref().map_or(0, |carry| carry.len())
    }

    /// Whether nothing was consumed since the last message, not even an empty line.
    #[inline]
    pub(crate) fn is_fresh(&self) -> bool {
        self.carry.is_none() && self.empty == 0
    }

    /// Bytes of empty lines skipped since the last call.
    #[inline]
    pub(crate) fn take_empty_bytes(&mut self) -> u64 {
        u64::from(std::mem::take(&mut self.empty))
    }

    /// Consumes the bytes up to the end of a head and passes the head to `with`; consumes all bytes if the head is
    /// incomplete. Returns the number of consumed bytes and the result of `with`.
    #[inline]
    pub(crate) fn feed<R>(
        &mut self,
        bytes: &[u8],
        kind: Kind,
        with: impl FnOnce(&[u8]) -> Result<R, Error>,
    ) -> Result<(usize, Option<R>), Error> {
        let skipped = if self.carry.is_none() { self.skip_empty(bytes, kind)? } else { 0 };
        let bytes = &bytes[skipped..];
        if bytes.is_empty() {
            return Ok((skipped, None));
        }
        let limit = self.limit as usize;
        let before = self.carry.as_ref().map_or(&[][..], |carry| carry.as_slice());
        check_start(before, bytes, kind, limit)?;
        // The search stops at the limit, so that the result does not depend on how the bytes were split.
        let within = &bytes[..bytes.len().min(limit - before.len())];
        let Some(end) = find_end(before, within, kind)? else {
            if within.len() < bytes.len() {
                return Err(Error::HeadTooLarge { limit });
            }
            self.carry.get_or_insert_default().extend_from_slice(bytes);
            return Ok((skipped + bytes.len(), None));
        };
        let done = match self.carry.take() {
            None => with(&bytes[..end])?,
            Some(mut carry) => {
                carry.extend_from_slice(&bytes[..end]);
                with(&carry)?
            }
        };
        Ok((skipped + end, Some(done)))
    }

    /// Skips empty lines before a message (RFC 9112, 2.2); returns the number of skipped bytes.
    #[inline]
    fn skip_empty(&mut self, bytes: &[u8], kind: Kind) -> Result<usize, Error> {
        if !self.after_cr && !matches!(bytes.first(), Some(b'\r' | b'\n')) {
            return Ok(0);
        }
        for (at, &byte) in bytes.iter().enumerate() {
            match (self.after_cr, byte) {
                (true, b'\n') => self.after_cr = false,
                (true, _) => return Err(Error::BareCr { at: 1 }),
                (false, b'\r') => self.after_cr = true,
                (false, b'\n') if kind == Kind::Request => return Err(Error::BareLf { at: 0 }),
                (false, b'\n') => {}
                (false, _) => return Ok(at),
            }
            self.empty += 1;
            if usize::from(self.empty) > MAX_EMPTY_LINE_BYTES {
                return Err(Error::TooManyEmptyLines);
            }
        }
        Ok(bytes.len())
    }
}

/// Parses a complete answer head.
#[inline]
pub(crate) fn parse_response<R>(
    head: &[u8],
    with: impl FnOnce(&httparse::Response<'_, '_>) -> Result<R, Error>,
) -> Result<R, Error> {
    let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut []);
    match try_response(&mut response, head, &mut headers) {
        Ok(Status::Complete(used)) if used == head.len() => with(&response),
        other => Err(response_error(other, head)),
    }
}

/// Parses a complete request head.
#[inline]
pub(crate) fn parse_request<R>(
    head: &[u8],
    with: impl FnOnce(&httparse::Request<'_, '_>) -> Result<R, Error>,
) -> Result<R, Error> {
    let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut []);
    match try_request(&mut request, head, &mut headers) {
        Ok(Status::Complete(used)) if used == head.len() => with(&request),
        other => Err(request_error(other, head)),
    }
}

#[inline]
fn try_response<'h, 'b>(
    response: &mut httparse::Response<'h, 'b>,
    head: &'b [u8],
    headers: &'h mut [MaybeUninit<Header<'b>>],
) -> httparse::Result<usize> {
    let mut config = ParserConfig::default();
    config.allow_obsolete_multiline_headers_in_responses(true);
    config.parse_response_with_uninit_headers(response, head, headers)
}

#[inline]
fn try_request<'h, 'b>(
    request: &mut httparse::Request<'h, 'b>,
    head: &'b [u8],
    headers: &'h mut [MaybeUninit<Header<'b>>],
) -> httparse::Result<usize> {
    ParserConfig::default().parse_request_with_uninit_headers(request, head, headers)
}

#[cold]
fn response_error(result: httparse::Result<usize>, head: &[u8]) -> Error {
    let at = error_position(head, |part| {
        let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
        try_response(&mut httparse::Response::new(&mut []), part, &mut headers)
    });
    head_error(result, at, Error::BadStatusLine { at })
}

#[cold]
fn request_error(result: httparse::Result<usize>, head: &[u8]) -> Error {
    let at = error_position(head, |part| {
        let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
        try_request(&mut httparse::Request::new(&mut []), part, &mut headers)
    });
    // httparse reports `Token` for the method and for the target. After a space, the error is in the target.
    let in_target = head[..at].contains(&b' ');
    head_error(result, at, if in_target { Error::BadTarget { at } } else { Error::BadMethod { at } })
}

/// Converts the parser's error at position `at`. `first_line`: the result for an error in the first line.
fn head_error(result: httparse::Result<usize>, at: usize, first_line: Error) -> Error {
    match result {
        Err(httparse::Error::Version) => Error::BadVersion { at },
        Err(httparse::Error::HeaderName) => Error::BadHeaderName { at },
        Err(httparse::Error::HeaderValue) => Error::BadHeaderValue { at },
        Err(httparse::Error::NewLine) => Error::BareCr { at },
        Err(httparse::Error::TooManyHeaders) => Error::TooManyHeaders,
        // `Ok` means that the parser and `find_end` disagree on the end of the head. No such head is known.
        Err(httparse::Error::Status | httparse::Error::Token) | Ok(_) => first_line,
    }
}

/// Position of the byte at which the parser stopped: the last byte of the shortest rejected prefix of the head. Bisection
/// finds it, because the parser reads each byte once and in order.
fn error_position(head: &[u8], parse: impl Fn(&[u8]) -> httparse::Result<usize>) -> usize {
    let (mut good, mut bad) = (0, head.len());
    while good + 1 < bad {
        let middle = good + (bad - good) / 2;
        if parse(&head[..middle]).is_err() { bad = middle } else { good = middle }
    }
    bad.saturating_sub(1)
}

/// Checks the first bytes of a head, so that another protocol is recognised at once and not only at a limit or deadline.
#[inline]
fn check_start(before: &[u8], bytes: &[u8], kind: Kind, limit: usize) -> Result<(), Error> {
    if before.len() >= START_BYTES {
        return Ok(());
    }
    let start = before.iter().chain(bytes).copied().take(START_BYTES.min(limit)).enumerate();
    match kind {
        Kind::Response => {
            for ((at, byte), expected) in start.zip(*b"HTTP/1.") {
                if byte != expected {
                    return Err(Error::NotHttp { at });
                }
            }
        }
        Kind::Request => {
            for (at, byte) in start {
                if byte == b' ' && at > 0 {
                    break;
                }
                if !is_token(byte) {
                    return Err(Error::BadMethod { at });
                }
            }
        }
    }
    Ok(())
}

/// Finds the empty line that ends a head; returns the offset after it in `bytes`. `before`: earlier bytes of the head,
/// already searched.
#[inline]
fn find_end(before: &[u8], bytes: &[u8], kind: Kind) -> Result<Option<usize>, Error> {
    // The byte `back` positions before `bytes[at]`.
    let previous = |at: usize, back: usize| match at.checked_sub(back) {
        Some(at) => Some(bytes[at]),
        None => before.len().checked_sub(back - at).map(|at| before[at]),
    };
    let ends = |at: usize| match previous(at, 1) {
        Some(b'\r') => Ok(previous(at, 2) == Some(b'\n')),
        _ if kind == Kind::Request => Err(Error::BareLf { at: before.len() + at }),
        Some(b'\n') => Ok(true),
        _ => Ok(false),
    };
    let (words, rest) = bytes.as_chunks::<8>();
    for (i, word) in words.iter().enumerate() {
        let mut found = line_feeds(*word);
        while found != 0 {
            let at = i * 8 + found.trailing_zeros() as usize / 8;
            if ends(at)? {
                return Ok(Some(at + 1));
            }
            found &= found - 1;
        }
    }
    for (i, &byte) in rest.iter().enumerate() {
        let at = words.len() * 8 + i;
        if byte == b'\n' && ends(at)? {
            return Ok(Some(at + 1));
        }
    }
    Ok(None)
}

/// Sets the top bit of each byte that is an LF; the first byte is the lowest. The shorter test for a zero byte would also
/// mark other bytes.
/// Source: Warren, Hacker's Delight, 2nd edition, 6-1.
#[inline]
fn line_feeds(word: [u8; 8]) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let zero_where_lf = u64::from_le_bytes(word) ^ 0x0a0a_0a0a_0a0a_0a0a;
    !(((zero_where_lf & LOW) + LOW) | zero_where_lf | LOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_feeds_are_found_exactly() {
        assert_eq!(line_feeds(*b"\n\x0b\x0b\n\n\x8a\x09\x00"), 0x0000_0080_8000_0080);
        assert_eq!(line_feeds([b'\n'; 8]), 0x8080_8080_8080_8080);
        for byte in 0..=255u8 {
            let expected = if byte == b'\n' { 0x80 << 24 } else { 0 };
            assert_eq!(line_feeds([b'x', 0, 255, byte, 0x8a, 1, 128, 11]), expected, "{byte}");
        }
    }

    #[test]
    fn the_end_is_found_wherever_the_head_was_split() {
        for head in ["A\r\n\r\n", "A\n\n", "A\r\nB: c\r\n\n", "Abcdefgh: 1\n\r\n", "a\r\n \r\nb\n\r\n"] {
            let head = head.as_bytes();
            let mut body = head.to_vec();
            body.extend_from_slice(b"\r\n\r\n");
            for split in 0..head.len() {
                let (before, after) = body.split_at(split);
                assert_eq!(find_end(&[], before, Kind::Response), Ok(None));
                assert_eq!(find_end(before, after, Kind::Response), Ok(Some(head.len() - split)), "{split}");
            }
        }
        assert_eq!(find_end(b"A", b"\n", Kind::Request), Err(Error::BareLf { at: 1 }));
        assert_eq!(find_end(b"A\r", b"\n\r", Kind::Request), Ok(None));
    }

    #[test]
    fn an_error_has_the_position_of_its_byte() {
        let head = b"HTTP/1.1 200 OK\r\nFine: 1\r\nBad name: 2\r\n\r\n";
        let error = parse_response(head, |_| Ok(())).unwrap_err();
        assert_eq!(error, Error::BadHeaderName { at: 29 });
        assert_eq!(head[29], b' ');
        let head = b"GET / HTTP/1.1\r\nA: b\x00c\r\n\r\n";
        let error = parse_request(head, |_| Ok(())).unwrap_err();
        assert_eq!(error, Error::BadHeaderValue { at: 20 });
        assert_eq!(head[20], 0);
    }
}
