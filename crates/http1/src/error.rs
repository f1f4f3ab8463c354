//! Errors in the bytes that a peer sent.

/// Why a message could not be read. After an error the connection cannot be read any further, because the start of the next
/// message is unknown.
///
/// Positions (`at`) are byte offsets from the start of the head; in a chunked body, from the start of the body as sent.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The peer's first bytes are not an HTTP/1 status line: another protocol, or the rest of a wrongly framed message.
    #[error("not an HTTP/1 answer: byte {at} does not match the status line `HTTP/1.`")]
    NotHttp {
        /// Offset of the byte in the head.
        at: usize,
    },
    /// The method of a request is not a token (RFC 9110, 9.1).
    #[error("not an HTTP request: byte {at} is not allowed in a method")]
    BadMethod {
        /// Offset of the byte in the head.
        at: usize,
    },
    /// The target of a request is empty or holds a byte that is not allowed.
    #[error("malformed request target: byte {at} of the head")]
    BadTarget {
        /// Offset of the byte in the head.
        at: usize,
    },
    /// The version is neither HTTP/1.0 nor HTTP/1.1.
    #[error("unknown protocol version: byte {at} of the head, expected HTTP/1.0 or HTTP/1.1")]
    BadVersion {
        /// Offset of the byte in the head.
        at: usize,
    },
    /// The status code is not three digits, or the reason holds a control character.
    #[error("malformed status line: byte {at} of the head")]
    BadStatusLine {
        /// Offset of the byte in the head.
        at: usize,
    },
    /// A status code below 100 (RFC 9110, 15).
    #[error("status code {status:03} is below 100")]
    BadStatus {
        /// The code as sent.
        status: u16,
    },
    /// A header's name is empty, holds a byte that is not allowed in a token, or is followed by a space (RFC 9112, 5.1). A
    /// folded line in a request is also reported as this (RFC 9112, 5.2).
    #[error("malformed header name: byte {at} of the head")]
    BadHeaderName {
        /// Offset of the byte in the head.
        at: usize,
    },
    /// A header's value holds a control character, or a CR without its LF.
    #[error("malformed header value: byte {at} of the head")]
    BadHeaderValue {
        /// Offset of the byte in the head.
        at: usize,
    },
    /// A CR without an LF at the end of a line.
    #[error("CR without LF: byte {at} of the head")]
    BareCr {
        /// Offset of the byte after the CR.
        at: usize,
    },
    /// An LF without a CR, which is tolerated in answers but not in requests.
    #[error("LF without CR: byte {at} of the head")]
    BareLf {
        /// Offset of the LF.
        at: usize,
    },
    /// More bytes of empty lines before a message than [`crate::MAX_EMPTY_LINE_BYTES`].
    #[error("more than {} bytes of empty lines before a message", crate::MAX_EMPTY_LINE_BYTES)]
    TooManyEmptyLines,
    /// The head does not end within [`crate::Limits::head_bytes`].
    #[error("head longer than the limit of {limit} bytes")]
    HeadTooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// More headers than [`crate::MAX_HEADERS`].
    #[error("more than the limit of {} headers", crate::MAX_HEADERS)]
    TooManyHeaders,
    /// The 1xx answers before a final answer are together longer than [`crate::Limits::head_bytes`].
    #[error("informational (1xx) answers longer than the limit of {limit} bytes together")]
    InformationalTooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// Status 101 without a requested upgrade: the following bytes are not HTTP/1.
    #[error("status 101: the peer switched to another protocol, which the request did not ask for")]
    UnexpectedUpgrade,
    /// A Content-Length that is not a decimal number (RFC 9110, 8.6).
    #[error("Content-Length is not a decimal number")]
    BadContentLength,
    /// A Content-Length of 2^64 or more.
    #[error("Content-Length is too large: it must be below 2^64")]
    ContentLengthOverflow,
    /// Several Content-Length values that differ.
    #[error("two different values of Content-Length: {first} and {second}")]
    ConflictingContentLength {
        /// The first value.
        first: u64,
        /// The value that differs.
        second: u64,
    },
    /// Content-Length and Transfer-Encoding in one message, a sign of request smuggling (RFC 9112, 6.1).
    #[error("both Content-Length and Transfer-Encoding")]
    LengthAndTransferEncoding,
    /// Transfer-Encoding in an HTTP/1.0 message (RFC 9112, 6.1).
    #[error("Transfer-Encoding in an HTTP/1.0 message")]
    TransferEncodingInHttp10,
    /// Transfer-Encoding is not a list of transfer codings.
    #[error("malformed Transfer-Encoding")]
    BadTransferEncoding,
    /// Transfer-Encoding has `chunked` twice, or another coding after it (RFC 9112, 7.1).
    #[error("Transfer-Encoding names `chunked` twice or not as the last coding")]
    ChunkedNotLast,
    /// A request whose last transfer coding is not `chunked`, so that its length is unknown (RFC 9112, 6.3).
    #[error("Transfer-Encoding of a request does not end in `chunked`")]
    RequestNotChunked,
    /// A request with a transfer coding besides `chunked`. A server answers it with 501 (RFC 9112, 6.1).
    #[error("Transfer-Encoding of a request names a coding besides `chunked`")]
    UnsupportedCoding,
    /// A chunk size is empty or holds a byte that is not a hexadecimal digit.
    #[error("malformed chunk size: byte {at} of the body")]
    BadChunkSize {
        /// Offset of the byte in the body as sent.
        at: u64,
    },
    /// A chunk size of more than 16 hexadecimal digits.
    #[error("chunk size of more than 16 digits: byte {at} of the body")]
    ChunkSizeOverflow {
        /// Offset of the seventeenth digit in the body as sent.
        at: u64,
    },
    /// A chunk extension holds a control character, or the line does not end in CRLF.
    #[error("malformed chunk extension: byte {at} of the body")]
    BadChunkExtension {
        /// Offset of the byte in the body as sent.
        at: u64,
    },
    /// A chunk-size line is longer than [`crate::MAX_CHUNK_LINE`].
    #[error("chunk-size line longer than the limit of {} bytes", crate::MAX_CHUNK_LINE)]
    ChunkLineTooLarge,
    /// A chunk's data is not followed by CRLF.
    #[error("no CRLF after the data of a chunk: byte {at} of the body")]
    BadChunkEnd {
        /// Offset of the byte in the body as sent.
        at: u64,
    },
    /// A trailer field is malformed, or its line does not end in CRLF.
    #[error("malformed trailer: byte {at} of the body")]
    BadTrailer {
        /// Offset of the byte in the body as sent.
        at: u64,
    },
    /// The trailers do not end within [`crate::Limits::head_bytes`].
    #[error("trailers longer than the limit of {limit} bytes")]
    TrailersTooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The peer closed within a head, or between an informational and the final answer.
    #[error("the connection was closed after {got} bytes of an incomplete head")]
    TruncatedHead {
        /// Size of the incomplete head in bytes; 0 if only informational answers arrived.
        got: usize,
    },
    /// The peer closed before the end of a body with Content-Length.
    #[error("the connection was closed {missing} bytes before the end of the body")]
    TruncatedBody {
        /// Number of missing bytes.
        missing: u64,
    },
    /// The peer closed before the end of a chunked body.
    #[error("the connection was closed after {got} bytes of an incomplete chunked body")]
    TruncatedChunks {
        /// Size of the received part of the body, as sent.
        got: u64,
    },
    /// The reader was used again after an error.
    #[error("nothing can be read after an error")]
    AfterError,
}

/// The kind of an [`Error`], for counters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ErrorKind {
    /// The bytes are not HTTP/1.
    Malformed,
    /// The headers or chunks do not define a unique end of the body.
    Framing,
    /// A limit was exceeded.
    TooLarge,
    /// The peer closed within a message.
    Truncated,
}

impl Error {
    /// The kind of this error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::NotHttp { .. }
            | Error::BadMethod { .. }
            | Error::BadTarget { .. }
            | Error::BadVersion { .. }
            | Error::BadStatusLine { .. }
            | Error::BadStatus { .. }
            | Error::BadHeaderName { .. }
            | Error::BadHeaderValue { .. }
            | Error::BareCr { .. }
            | Error::BareLf { .. }
            | Error::AfterError => ErrorKind::Malformed,
            Error::UnexpectedUpgrade
            | Error::BadContentLength
            | Error::ContentLengthOverflow
            | Error::ConflictingContentLength { .. }
            | Error::LengthAndTransferEncoding
            | Error::TransferEncodingInHttp10
            | Error::BadTransferEncoding
            | Error::ChunkedNotLast
            | Error::RequestNotChunked
            | Error::UnsupportedCoding
            | Error::BadChunkSize { .. }
            | Error::ChunkSizeOverflow { .. }
            | Error::BadChunkExtension { .. }
            | Error::BadChunkEnd { .. }
            | Error::BadTrailer { .. } => ErrorKind::Framing,
            Error::TooManyEmptyLines
            | Error::HeadTooLarge { .. }
            | Error::TooManyHeaders
            | Error::InformationalTooLarge { .. }
            | Error::ChunkLineTooLarge
            | Error::TrailersTooLarge { .. } => ErrorKind::TooLarge,
            Error::TruncatedHead { .. } | Error::TruncatedBody { .. } | Error::TruncatedChunks { .. } => {
                ErrorKind::Truncated
            }
        }
    }
}
