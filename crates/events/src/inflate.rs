//! A body's coding, undone as it arrives and within bounds.

use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use crate::Mode;

/// How a body is coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    /// Not at all.
    #[default]
    Identity,
    /// gzip (RFC 1952), several members too.
    Gzip,
    /// zlib (RFC 1950), as the name means in HTTP, or bare deflate (RFC 1951), as some clients take it.
    Deflate,
    /// zlib alone, as Fluentd reads deflate.
    Zlib,
    /// Zstandard (RFC 8878) with a window of 8 MiB at the most, several frames too.
    Zstd,
}

/// A `Content-Encoding` that is not undone (415).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the Content-Encoding {name} is not read: expected gzip, deflate, zstd or identity")]
pub struct UnsupportedEncoding {
    name: String,
}

/// Why a coded body is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InflateError {
    /// It holds more than it may (413).
    #[error("the body holds more than the {max_bytes} bytes allowed: send it in parts")]
    TooLarge {
        /// What it may hold.
        max_bytes: usize,
    },
    /// It is not coded as it says, or has no end (400).
    #[error("the body is not valid {coding}: it is damaged, cut off, or coded otherwise")]
    Corrupt {
        /// How it says it is coded.
        coding: &'static str,
    },
}

/// Undoes the coding of one body. It never makes more of a body than it is allowed to: memory beyond that is what
/// [`Inflater::memory_bytes`] says, one window at the most, 32 KiB for gzip and deflate, 8 MiB for Zstandard.
pub struct Inflater {
    coding: Coding,
    max_bytes: usize,
    left_bytes: usize,
}

enum Coding {
    Identity,
    Flate {
        decompress: Decompress,
        name: &'static str,
        /// Whether the last member is complete, or nothing came yet.
        is_complete: bool,
    },
    /// Deflate whose first byte, which tells zlib from bare deflate together with the second, may have come.
    Undecided(Option<u8>),
    Zstd {
        decoder: Decoder<'static>,
        is_complete: bool,
    },
}

/// A window of 8 MiB, which RFC 8878 asks every decoder for and lets it refuse more.
const MAX_ZSTD_WINDOW_LOG: u32 = 23;
const MAX_ZSTD_WINDOW_BYTES: usize = 1 << MAX_ZSTD_WINDOW_LOG;
/// State and window of gzip and deflate.
const FLATE_BYTES: usize = 64 * 1024;
/// State and buffers of Zstandard, but for the window.
const ZSTD_BYTES: usize = 256 * 1024;
/// What is asked of memory at once.
const STEP_BYTES: usize = 32 * 1024;

impl Encoding {
    /// The coding a `Content-Encoding` names. Fluentd knows `gzip` and `deflate`, written so, and takes all else for no
    /// coding.
    ///
    /// # Errors
    /// When it names another coding, or several.
    pub fn of_header(value: &[u8], mode: Mode) -> Result<Encoding, UnsupportedEncoding> {
        if mode.is_fluentd() {
            return Ok(match value {
                b"gzip" => Encoding::Gzip,
                b"deflate" => Encoding::Zlib,
                _ => Encoding::Identity,
            });
        }
        match value.trim_ascii().to_ascii_lowercase().as_slice() {
            b"" | b"identity" => Ok(Encoding::Identity),
            b"gzip" | b"x-gzip" => Ok(Encoding::Gzip),
            b"deflate" => Ok(Encoding::Deflate),
            b"zstd" => Ok(Encoding::Zstd),
            other => Err(UnsupportedEncoding { name: other.escape_ascii().to_string() }),
        }
    }
}

impl Inflater {
    /// For one body, which may hold `max_bytes` when its coding is undone.
    pub fn new(encoding: Encoding, max_bytes: usize) -> Inflater {
        let coding = match encoding {
            Encoding::Identity => Coding::Identity,
            Encoding::Gzip => {
                Coding::Flate { decompress: Decompress::new_gzip(15), name: "gzip", is_complete: false }
            }
            Encoding::Deflate => Coding::Undecided(None),
            Encoding::Zlib => {
                Coding::Flate { decompress: Decompress::new(true), name: "deflate", is_complete: false }
            }
            Encoding::Zstd => {
                let mut decoder = Decoder::new().expect("a decoder without a dictionary needs only memory");
                decoder
                    .set_parameter(DParameter::WindowLogMax(MAX_ZSTD_WINDOW_LOG))
                    .expect("the window is one that Zstandard has");
                Coding::Zstd { decoder, is_complete: false }
            }
        };
        Inflater { coding, max_bytes, left_bytes: max_bytes }
    }

    /// Appends what the next part of the body holds to `out`.
    ///
    /// # Errors
    /// When the body is damaged or holds too much; the inflater is of no more use then, and what it has written is
    /// not to be used.
    pub fn feed(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), InflateError> {
        let too_large = InflateError::TooLarge { max_bytes: self.max_bytes };
        let left_bytes = &mut self.left_bytes;
        match &mut self.coding {
            Coding::Identity => {
                *left_bytes = left_bytes.checked_sub(input.len()).ok_or(too_large)?;
                out.extend_from_slice(input);
                Ok(())
            }
            Coding::Flate { decompress, name, is_complete } => {
                let corrupt = InflateError::Corrupt { coding: name };
                let is_gzip = *name == "gzip";
                let mut rest = input;
                inflate_in_steps(out, left_bytes, too_large, corrupt, |out| {
                    if *is_complete {
                        match rest {
                            [] => return Ok(0),
                            _ if !is_gzip => return Err(corrupt),
                            // Another member.
                            _ => *decompress = Decompress::new_gzip(15),
                        }
                    }
                    let before = decompress.total_in();
                    let status =
                        decompress.decompress_vec(rest, out, FlushDecompress::None).map_err(|_| corrupt)?;
                    rest = &rest[(decompress.total_in() - before) as usize..];
                    *is_complete = status == Status::StreamEnd;
                    Ok(rest.len())
                })
            }
            Coding::Undecided(first) => {
                let Some((&next, _)) = input.split_first() else { return Ok(()) };
                let (head, rest) = match *first {
                    None if input.len() == 1 => {
                        *first = Some(next);
                        return Ok(());
                    }
                    None => ([next, input[1]], &input[2..]),
                    Some(first) => ([first, next], &input[1..]),
                };
                // RFC 1950, 2.2: the method is 8, the window 2^15 at the most, and the two are a multiple of 31.
                let is_zlib = head[0] & 0x0f == 8 && head[0] >> 4 <= 7 && u16::from_be_bytes(head) % 31 == 0;
                self.coding = Coding::Flate {
                    decompress: Decompress::new(is_zlib),
                    name: "deflate",
                    is_complete: false,
                };
                self.feed(&head, out)?;
                self.feed(rest, out)
            }
            Coding::Zstd { decoder, is_complete } => {
                let corrupt = InflateError::Corrupt { coding: "zstd" };
                let mut rest = InBuffer::around(input);
                inflate_in_steps(out, left_bytes, too_large, corrupt, |out| {
                    let unread = |rest: &InBuffer<'_>| input.len() - rest.pos();
                    // Asked for more after its end, the decoder would begin another frame.
                    if unread(&rest) == 0 && (*is_complete || input.is_empty()) {
                        return Ok(0);
                    }
                    let position = out.len();
                    let mut buffer = OutBuffer::around_pos(out, position);
                    let hint = decoder.run(&mut rest, &mut buffer).map_err(|_| corrupt)?;
                    *is_complete = hint == 0;
                    Ok(unread(&rest))
                })
            }
        }
    }

    /// Memory that undoing the coding takes now, in bytes, besides what it has written. The window of Zstandard counts
    /// as it fills: memory that was asked for and never touched is none.
    pub fn memory_bytes(&self) -> usize {
        match &self.coding {
            Coding::Identity => 0,
            Coding::Flate { .. } | Coding::Undecided(_) => FLATE_BYTES,
            Coding::Zstd { .. } => ZSTD_BYTES + (self.max_bytes - self.left_bytes).min(MAX_ZSTD_WINDOW_BYTES),
        }
    }

    /// Says that the body has ended.
    ///
    /// # Errors
    /// When its coding has not.
    pub fn finish(&mut self) -> Result<(), InflateError> {
        match &self.coding {
            Coding::Identity
            | Coding::Flate { is_complete: true, .. }
            | Coding::Zstd { is_complete: true, .. } => Ok(()),
            Coding::Flate { name, .. } => Err(InflateError::Corrupt { coding: name }),
            Coding::Undecided(_) => Err(InflateError::Corrupt { coding: "deflate" }),
            Coding::Zstd { .. } => Err(InflateError::Corrupt { coding: "zstd" }),
        }
    }
}

impl std::fmt::Debug for Inflater {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (max_bytes, left_bytes) = (self.max_bytes, self.left_bytes);
        f.debug_struct("Inflater")
            .field("max_bytes", &max_bytes)
            .field("left_bytes", &left_bytes)
            .finish_non_exhaustive()
    }
}

/// Calls `step`, which fills the spare room of `out` and says how much of its input it has not read, until all is
/// written.
fn inflate_in_steps(
    out: &mut Vec<u8>,
    left_bytes: &mut usize,
    too_large: InflateError,
    corrupt: InflateError,
    mut step: impl FnMut(&mut Vec<u8>) -> Result<usize, InflateError>,
) -> Result<(), InflateError> {
    let mut unread_before = usize::MAX;
    loop {
        if out.len() == out.capacity() {
            // Grows by half its size, so that copying stays cheap, but never past what is allowed; one byte more, or
            // a body that is just as large as it may be would look too large.
            out.reserve_exact(STEP_BYTES.max(out.len() / 2).min(*left_bytes + 1));
        }
        let before = out.len();
        let unread = step(out)?;
        let written = out.len() - before;
        *left_bytes = left_bytes.checked_sub(written).ok_or(too_large)?;
        // Room that was filled may have been too little.
        if unread == 0 && out.len() < out.capacity() {
            return Ok(());
        }
        if unread == unread_before && written == 0 {
            return Err(corrupt);
        }
        unread_before = unread;
    }
}
