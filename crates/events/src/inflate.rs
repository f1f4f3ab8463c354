//! Decompresses a body as it arrives, within bounds.

use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use crate::Mode;

/// The content coding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    /// Not compressed.
    #[default]
    Identity,
    /// gzip (RFC 1952), with any number of members.
    Gzip,
    /// zlib (RFC 1950), as HTTP defines `deflate`, or bare deflate (RFC 1951), as some clients send.
    Deflate,
    /// Only zlib, as Fluentd reads `deflate`.
    Zlib,
    /// Zstandard (RFC 8878) with a window of at most 8 MiB and any number of frames.
    Zstd,
}

/// Why a compressed body is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InflateError {
    /// The body is too large (413).
    #[error("the body has more than the {max_bytes} bytes allowed: send it in parts")]
    TooLarge {
        /// Maximum size of the decompressed body, in bytes.
        max_bytes: usize,
    },
    /// The body does not have the declared coding, or is incomplete (400).
    #[error("the body is not valid {coding}: it is damaged, incomplete, or has another coding")]
    Corrupt {
        /// The declared coding.
        coding: &'static str,
    },
}

/// Decompresses one body up to a maximum size. Needs at most one window of further memory
/// ([`Inflater::memory_bytes`]): 32 KiB for gzip and deflate, 8 MiB for Zstandard.
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
        /// Whether the last member is complete.
        is_complete: bool,
    },
    /// Deflate of which at most the first byte has arrived. The first two distinguish zlib from bare deflate.
    Undecided(Option<u8>),
    Zstd {
        decoder: Decoder<'static>,
        is_complete: bool,
    },
}

/// Window of 8 MiB, which every decoder should support according to RFC 8878. Larger ones may be refused.
const MAX_ZSTD_WINDOW_LOG: u32 = 23;
const MAX_ZSTD_WINDOW_BYTES: usize = 1 << MAX_ZSTD_WINDOW_LOG;
/// Memory of the state and window of gzip and deflate.
const FLATE_BYTES: usize = 64 * 1024;
/// Memory of the state and buffers of Zstandard, without the window.
const ZSTD_BYTES: usize = 256 * 1024;
/// Minimum bytes by which the output grows.
const STEP_BYTES: usize = 32 * 1024;

impl Encoding {
    /// The coding in a `Content-Encoding` header. Fluentd knows only `gzip` and `deflate` in lower case, and treats
    /// everything else as no coding. None for an unsupported coding, and for several.
    pub fn of_header(value: &[u8], mode: Mode) -> Option<Encoding> {
        if mode.is_fluentd() {
            return Some(match value {
                b"gzip" => Encoding::Gzip,
                b"deflate" => Encoding::Zlib,
                _ => Encoding::Identity,
            });
        }
        match value.trim_ascii().to_ascii_lowercase().as_slice() {
            b"" | b"identity" => Some(Encoding::Identity),
            b"gzip" | b"x-gzip" => Some(Encoding::Gzip),
            b"deflate" => Some(Encoding::Deflate),
            b"zstd" => Some(Encoding::Zstd),
            _ => None,
        }
    }
}

impl Inflater {
    /// An inflater for one body of at most `max_bytes` decompressed bytes.
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
                    .expect("Zstandard supports this window");
                Coding::Zstd { decoder, is_complete: false }
            }
        };
        Inflater { coding, max_bytes, left_bytes: max_bytes }
    }

    /// Decompresses the next part of the body and appends it to `out`.
    ///
    /// # Errors
    /// When the body is damaged or too large. Neither the inflater nor its output may be used then.
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
                            // Starts the next member.
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
                // RFC 1950, 2.2: the method is 8, the window at most 2^15, and the two bytes are a multiple of 31.
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
                    // After the end, another call would begin a new frame.
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

    /// Current memory of the decoder, in bytes, without the output. The window of Zstandard counts as far as it is filled,
    /// because untouched memory is not allocated.
    pub fn memory_bytes(&self) -> usize {
        match &self.coding {
            Coding::Identity => 0,
            Coding::Flate { .. } | Coding::Undecided(_) => FLATE_BYTES,
            Coding::Zstd { .. } => ZSTD_BYTES + (self.max_bytes - self.left_bytes).min(MAX_ZSTD_WINDOW_BYTES),
        }
    }

    /// Checks the end of the body.
    ///
    /// # Errors
    /// When the compressed data are incomplete.
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

/// Calls `step` until everything is written. `step` fills the spare capacity of `out` and returns the number of unread input
/// bytes.
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
            // Grows by half its size, so that copying stays cheap, up to the maximum plus one byte, which shows that a body
            // is too large.
            out.reserve_exact(STEP_BYTES.max(out.len() / 2).min(*left_bytes + 1));
        }
        let before = out.len();
        let unread = step(out)?;
        let written = out.len() - before;
        *left_bytes = left_bytes.checked_sub(written).ok_or(too_large)?;
        // If the capacity is used up, there may be more output.
        if unread == 0 && out.len() < out.capacity() {
            return Ok(());
        }
        if unread == unread_before && written == 0 {
            return Err(corrupt);
        }
        unread_before = unread;
    }
}
