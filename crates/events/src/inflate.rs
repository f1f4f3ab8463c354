//! Decompresses a body as it arrives, up to a maximum size.

use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use crate::Mode;

/// The content coding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    /// No compression.
    #[default]
    Identity,
    /// gzip (RFC 1952), with any number of members.
    Gzip,
    /// zlib (RFC 1950), which HTTP calls `deflate`, or bare deflate (RFC 1951), which some clients send.
    Deflate,
    /// Only zlib. Fluentd reads `deflate` like this.
    Zlib,
    /// Zstandard (RFC 8878) with any number of frames and a window of at most 8 MiB.
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
    /// The body is not in the declared coding, or it is incomplete (400).
    #[error("the body is not valid {coding}: it is damaged, incomplete, or has another coding")]
    Corrupt {
        /// The declared coding.
        coding: &'static str,
    },
}

/// Decompresses one body up to a maximum size. Needs at most one window of additional memory
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
    /// Deflate before its second byte. The first two bytes distinguish zlib from bare deflate.
    Undecided(Option<u8>),
    Zstd {
        decoder: Decoder<'static>,
        is_complete: bool,
    },
}

/// Base-2 logarithm of the largest accepted window, 8 MiB. RFC 8878 recommends that decoders support this size,
/// and allows them to refuse larger ones.
const MAX_ZSTD_WINDOW_LOG: u32 = 23;
const MAX_ZSTD_WINDOW_BYTES: usize = 1 << MAX_ZSTD_WINDOW_LOG;
/// Memory in bytes for the state and window of gzip and deflate.
const FLATE_BYTES: usize = 64 * 1024;
/// Memory in bytes for the state and buffers of Zstandard, without its window.
const ZSTD_BYTES: usize = 256 * 1024;
/// Minimum number of bytes by which the output buffer grows.
const STEP_BYTES: usize = 32 * 1024;

impl Encoding {
    /// The coding named by a `Content-Encoding` header. Fluentd knows only `gzip` and `deflate` in lower case, and
    /// treats everything else as no coding. `None` for an unsupported coding, and for several.
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
    /// An inflater for one body, whose decompressed size may be at most `max_bytes`.
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
    /// If the body is corrupt or too large. Neither the inflater nor its output is usable afterwards.
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
                            // Another member of the gzip file follows.
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
                // RFC 1950, 2.2: the method is 8, the window at most 2^15, and the two bytes form a multiple of 31.
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
                    // After the end of a frame, another call would start a new one.
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

    /// Current memory of the decoder in bytes, without the output. Only the filled part of Zstandard's window counts,
    /// because the kernel does not allocate untouched memory.
    pub fn memory_bytes(&self) -> usize {
        match &self.coding {
            Coding::Identity => 0,
            Coding::Flate { .. } | Coding::Undecided(_) => FLATE_BYTES,
            Coding::Zstd { .. } => ZSTD_BYTES + (self.max_bytes - self.left_bytes).min(MAX_ZSTD_WINDOW_BYTES),
        }
    }

    /// Checks that the body has ended where its compressed data do.
    ///
    /// # Errors
    /// If the compressed data are incomplete.
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

/// Calls `step` until there is no more output. `step` writes to the spare capacity of `out` and returns the number of
/// unread input bytes.
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
            // Grows by half, so that copying remains cheap, but at most to the maximum plus one byte, which shows that a
            // body is too large.
            out.reserve_exact(STEP_BYTES.max(out.len() / 2).min(*left_bytes + 1));
        }
        let before = out.len();
        let unread = step(out)?;
        let written = out.len() - before;
        *left_bytes = left_bytes.checked_sub(written).ok_or(too_large)?;
        // A full buffer may mean that more output follows.
        if unread == 0 && out.len() < out.capacity() {
            return Ok(());
        }
        if unread == unread_before && written == 0 {
            return Err(corrupt);
        }
        unread_before = unread;
    }
}
