//! The decoder of bodies, which finds their end and decodes chunks without storing any bytes.

use crate::framing::{Framing, is_token, is_value};
use crate::{Error, MAX_CHUNK_LINE};

/// The position of a reader in a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Before or within a head.
    Head,
    /// After the head; for answers, after the final head.
    Body,
    /// An error was reported.
    Failed,
}

/// The position in a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The body is complete.
    Done,
    /// In a body of known length.
    Length,
    /// In a body that ends when the peer closes.
    UntilClose,
    /// Before or within the digits of a chunk size.
    Size,
    /// In the white space between the size and the `;` of an extension.
    AfterSize,
    /// In the extensions of a chunk.
    Extension,
    /// After the CR of a chunk-size line.
    SizeLf,
    /// In the data of a chunk.
    Data,
    /// Before the CR after the data.
    DataCr,
    /// Before the LF after the data.
    DataLf,
    /// At the start of a line of the trailers.
    Trailer,
    /// In the name of a trailer.
    TrailerName,
    /// In the value of a trailer.
    TrailerValue,
    /// After the CR of a trailer.
    TrailerLf,
    /// After the CR of the empty line that ends the body.
    LastLf,
}

/// Decodes one body.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    /// Remaining bytes of the body or the chunk. While a chunk size is read: its value so far.
    left: u64,
    /// Payload bytes so far.
    payload: u64,
    /// Other bytes of the body so far: chunk-size lines, ends of chunks, trailers.
    framing: u64,
    /// Bytes so far of the chunk-size line, or of the trailers.
    line: u32,
    state: State,
}

impl Body {
    /// A decoder at the first byte of a body.
    #[inline]
    pub(crate) fn new(framing: Framing) -> Body {
        let (state, left) = match framing {
            Framing::None | Framing::Length(0) => (State::Done, 0),
            Framing::Length(length) => (State::Length, length),
            Framing::Chunked => (State::Size, 0),
            Framing::UntilClose => (State::UntilClose, 0),
        };
        Body { left, payload: 0, framing: 0, line: 0, state }
    }

    /// Whether the body is complete.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Bytes of payload so far.
    #[inline]
    pub(crate) fn payload_bytes(&self) -> u64 {
        self.payload
    }

    /// Bytes of the body so far that are not payload.
    #[inline]
    pub(crate) fn framing_bytes(&self) -> u64 {
        self.framing
    }

    /// Decodes up to the end of the body or of `bytes`, and returns the number of decoded bytes. `trailer_limit`: maximum
    /// size of the trailers, in bytes.
    #[inline]
    pub(crate) fn feed(
        &mut self,
        bytes: &[u8],
        trailer_limit: u32,
        mut payload: impl FnMut(&[u8]),
    ) -> Result<usize, Error> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            at += match self.state {
                State::Done => break,
                State::Length | State::Data => {
                    let n = usize::try_from(self.left).map_or(rest.len(), |left| left.min(rest.len()));
                    payload(&rest[..n]);
                    self.skip(n as u64);
                    n
                }
                State::UntilClose => {
                    payload(rest);
                    self.payload = self.payload.saturating_add(rest.len() as u64);
                    rest.len()
                }
                _ => {
                    self.step(rest[0], trailer_limit)?;
                    self.framing += 1;
                    1
                }
            };
        }
        Ok(at)
    }

    /// Number of payload bytes that certainly come next, before any framing byte; 0 if unknown.
    #[inline]
    pub(crate) fn skippable(&self) -> u64 {
        if matches!(self.state, State::Length | State::Data) { self.left } else { 0 }
    }

    /// Skips `n` bytes of payload, at most [`Body::skippable`].
    #[inline]
    pub(crate) fn skip(&mut self, n: u64) {
        self.left -= n;
        self.payload = self.payload.saturating_add(n);
        if self.left == 0 {
            match self.state {
                State::Length => self.state = State::Done,
                State::Data => self.state = State::DataCr,
                _ => {}
            }
        }
    }

    /// Handles the end of the connection: an error unless the body may end here.
    pub(crate) fn eof(&self) -> Result<(), Error> {
        match self.state {
            State::Done | State::UntilClose => Ok(()),
            State::Length => Err(Error::TruncatedBody { missing: self.left }),
            _ => Err(Error::TruncatedChunks { got: self.offset() }),
        }
    }

    /// Size of the body as sent, so far: payload and framing bytes.
    fn offset(&self) -> u64 {
        self.payload.saturating_add(self.framing)
    }

    /// Parses one framing byte of a chunked body (RFC 9112, 7.1). Only CRLF ends a line, because readers that disagree on
    /// line ends allow request smuggling.
    fn step(&mut self, byte: u8, trailer_limit: u32) -> Result<(), Error> {
        let at = self.offset();
        self.line = self.line.saturating_add(1);
        match self.state {
            State::Size | State::AfterSize | State::Extension | State::SizeLf
                if self.line as usize > MAX_CHUNK_LINE =>
            {
                return Err(Error::ChunkLineTooLarge);
            }
            State::Trailer | State::TrailerName | State::TrailerValue | State::TrailerLf | State::LastLf
                if self.line > trailer_limit =>
            {
                return Err(Error::TrailersTooLarge { limit: trailer_limit as usize });
            }
            _ => {}
        }
        self.state = match (self.state, byte) {
            (State::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                // Sixteen hexadecimal digits fill the 64 bits of `left`.
                if self.line > 16 {
                    return Err(Error::ChunkSizeOverflow { at });
                }
                let digit = match byte {
                    b'0'..=b'9' => byte - b'0',
                    _ => (byte | 0x20) - b'a' + 10,
                };
                self.left = (self.left << 4) | u64::from(digit);
                State::Size
            }
            (State::Size, _) if self.line == 1 => return Err(Error::BadChunkSize { at }),
            (State::Size | State::AfterSize, b' ' | b'\t') => State::AfterSize,
            (State::Size | State::AfterSize, b';') => State::Extension,
            // White space is allowed only before an extension, because readers that disagree on it allow request smuggling.
            (State::Size | State::Extension, b'\r') => State::SizeLf,
            (State::Size | State::AfterSize, _) => return Err(Error::BadChunkSize { at }),
            (State::Extension, _) if is_value(byte) => State::Extension,
            (State::SizeLf, b'\n') => {
                self.line = 0;
                if self.left == 0 { State::Trailer } else { State::Data }
            }
            (State::Extension | State::SizeLf, _) => return Err(Error::BadChunkExtension { at }),
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => {
                self.line = 0;
                State::Size
            }
            (State::DataCr | State::DataLf, _) => return Err(Error::BadChunkEnd { at }),
            (State::Trailer, b'\r') => State::LastLf,
            (State::Trailer | State::TrailerName, _) if is_token(byte) => State::TrailerName,
            (State::TrailerName, b':') => State::TrailerValue,
            (State::TrailerValue, _) if is_value(byte) => State::TrailerValue,
            (State::TrailerValue, b'\r') => State::TrailerLf,
            (State::TrailerLf, b'\n') => State::Trailer,
            (State::LastLf, b'\n') => State::Done,
            (
                State::Trailer | State::TrailerName | State::TrailerValue | State::TrailerLf | State::LastLf,
                _,
            ) => return Err(Error::BadTrailer { at }),
            // `feed` never calls `step` in these states: they have no framing bytes.
            (state @ (State::Done | State::Length | State::UntilClose | State::Data), _) => state,
        };
        Ok(())
    }
}
