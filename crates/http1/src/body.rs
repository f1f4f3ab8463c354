//! The decoder of bodies: counts or un-chunks them, without holding any of their bytes.

use crate::framing::{Framing, is_token, is_value};
use crate::{Error, MAX_CHUNK_LINE};

/// Where in a body the next byte stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The body is complete.
    Done,
    /// In a body of known length.
    Length,
    /// In a body which ends when the peer closes.
    UntilClose,
    /// Before or among the digits of a chunk's size.
    Size,
    /// In the white space between the size and the `;` of an extension.
    AfterSize,
    /// In the extensions of a chunk.
    Extension,
    /// After the CR of the line of a chunk's size.
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
    /// After the CR of the empty line which ends the body.
    LastLf,
}

/// Decodes one body.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    /// Bytes still to come of the body or the chunk. While the size of a chunk is read: what is read of it.
    left: u64,
    /// Payload so far.
    payload: u64,
    /// Everything else of the body so far: lines of chunk sizes, ends of chunks, trailers.
    framing: u64,
    /// Bytes so far of the line of a chunk's size, or of the trailers.
    line: u32,
    state: State,
}

impl Body {
    /// Before the first byte of a body.
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

    /// The body is complete.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Bytes of payload so far.
    #[inline]
    pub(crate) fn payload_bytes(&self) -> u64 {
        self.payload
    }

    /// Bytes of the body so far which are not payload.
    #[inline]
    pub(crate) fn framing_bytes(&self) -> u64 {
        self.framing
    }

    /// Decodes up to the end of the body or of `bytes` and returns how many of them it took. `trailer_limit`
    /// bounds the trailers.
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
                    self.pass(n as u64);
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

    /// Payload bytes that come next without any framing among them, as far as that is known.
    #[inline]
    pub(crate) fn run(&self) -> u64 {
        if matches!(self.state, State::Length | State::Data) { self.left } else { 0 }
    }

    /// Passes over `n` bytes of payload, at most [`Body::run`].
    #[inline]
    pub(crate) fn pass(&mut self, n: u64) {
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

    /// What the end of the connection means here: the end of the body too, or a fault.
    pub(crate) fn eof(&self) -> Result<(), Error> {
        match self.state {
            State::Done | State::UntilClose => Ok(()),
            State::Length => Err(Error::TruncatedBody { missing: self.left }),
            _ => Err(Error::TruncatedChunks { got: self.offset() }),
        }
    }

    /// Bytes of the body so far, as sent.
    fn offset(&self) -> u64 {
        self.payload.saturating_add(self.framing)
    }

    /// Takes one byte of the framing of a chunked body (RFC 9112, 7.1). Stricter than the grammar asks of a
    /// recipient in one thing, that nothing but CRLF ends a line: where readers differ on that, requests can
    /// be smuggled.
    fn step(&mut self, byte: u8, trailer_limit: u32) -> Result<(), Error> {
        let at = self.offset();
        self.line = self.line.saturating_add(1);
        match self.state {
            State::Size | State::AfterSize | State::Extension | State::SizeLf
                if self.line as usize > MAX_CHUNK_LINE =>
            {
                return Err(Error::ChunkLineTooLarge { limit: MAX_CHUNK_LINE });
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
                // Sixteen digits fill 64 bits, so that bounding the digits bounds the number.
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
            // The first byte of the line is no digit: there is no size.
            (State::Size, _) if self.line == 1 => return Err(Error::BadChunkSize { at }),
            (State::Size | State::AfterSize, b' ' | b'\t') => State::AfterSize,
            (State::Size | State::AfterSize, b';') => State::Extension,
            // Blanks stand only before an extension: where readers differ on them, requests can be smuggled.
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
            // States without framing, which `feed` does not pass here.
            (state @ (State::Done | State::Length | State::UntilClose | State::Data), _) => state,
        };
        Ok(())
    }
}
