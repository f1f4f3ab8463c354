//! The bytes of answers. Repeated parts are stored once, so a body of 1 TiB takes 64 KiB of memory.

use std::{io::IoSlice, sync::Arc};

use crate::{Body, Config};

/// Maximum size in bytes of an answer that is stored in one piece, so that a single `send` without a gather list
/// suffices.
const ONE_PIECE_BYTES: u64 = 32 * 1024;
/// Size in bytes of the block that generated bodies repeat; a multiple of the pattern's length.
const BLOCK_BYTES: usize = 64 * 1024;
/// Maximum size in bytes of a generated chunk that is stored whole and repeated. Larger chunks consist of blocks; a body
/// has at most 65,536 of them.
const REPEATED_CHUNK_BYTES: u64 = 16 * 1024 * 1024;
/// The pattern that generated bodies repeat.
const PATTERN: &[u8; 16] = b"proofload-serve\n";
/// Maximum number of pieces in one system call. More would not help, because the kernel's send buffer limits the bytes.
pub(crate) const MAX_PIECES: usize = 4;

/// Byte strings, each with its number of repetitions.
pub(crate) type Parts = Vec<(Arc<[u8]>, u64)>;

/// The bytes of an answer. Repeated parts are stored once.
#[derive(Debug)]
pub(crate) struct Wire {
    parts: Vec<Part>,
    head_bytes: u64,
    total_bytes: u64,
}

/// A byte string and its repetitions in an answer.
#[derive(Debug, Clone)]
struct Part {
    bytes: Arc<[u8]>,
    times: u64,
    /// The offset of the part within the answer.
    start: u64,
}

impl Wire {
    /// Size of the head in bytes.
    pub(crate) fn head_bytes(&self) -> u64 {
        self.head_bytes
    }

    /// Size of the whole answer in bytes.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// The bytes in `from..to`, if the answer is stored in one piece.
    #[inline]
    pub(crate) fn piece(&self, from: u64, to: u64) -> Option<&[u8]> {
        match self.parts.as_slice() {
            [Part { bytes, times: 1, .. }] => bytes.get(from as usize..to as usize),
            _ => None,
        }
    }

    /// The first pieces of the bytes in `from..to`; at least one unless the range is empty.
    pub(crate) fn pieces(&self, from: u64, to: u64) -> ([IoSlice<'_>; MAX_PIECES], usize) {
        let mut pieces = [IoSlice::new(&[]); MAX_PIECES];
        let (mut at, mut count) = (from, 0);
        let first = self.parts.partition_point(|part| part.start <= from).saturating_sub(1);
        for part in &self.parts[first..] {
            let length = part.bytes.len() as u64;
            let end = to.min(part.start + length * part.times);
            while at < end && count < MAX_PIECES {
                let offset = (at - part.start) % length;
                let taken = (length - offset).min(end - at);
                pieces[count] = IoSlice::new(&part.bytes[offset as usize..(offset + taken) as usize]);
                (at, count) = (at + taken, count + 1);
            }
        }
        (pieces, count)
    }

    /// An answer that consists of a head and the parts after it.
    pub(crate) fn new(head: &[u8], body: &[(Arc<[u8]>, u64)]) -> Self {
        let mut parts = Vec::with_capacity(body.len() + 1);
        let mut start = 0;
        let head_part = (Arc::<[u8]>::from(head), 1);
        for (bytes, times) in std::iter::once(&head_part).chain(body) {
            if !bytes.is_empty() && *times > 0 {
                parts.push(Part { bytes: bytes.clone(), times: *times, start });
                start += bytes.len() as u64 * times;
            }
        }
        let mut wire = Self { parts, head_bytes: head.len() as u64, total_bytes: start };
        if wire.total_bytes <= ONE_PIECE_BYTES {
            let repeated = wire.parts.iter().flat_map(|part| part.bytes.repeat(part.times as usize));
            let bytes = repeated.collect::<Vec<u8>>().into();
            wire.parts = vec![Part { bytes, times: 1, start: 0 }];
        }
        wire
    }
}

/// The configured body, with Content-Length and in chunks.
pub(crate) struct BodyParts {
    /// The body with a Content-Length.
    pub plain: Parts,
    /// The body in chunks; `None` if not configured.
    pub chunked: Option<Parts>,
    /// Size of the body in bytes.
    pub bytes: u64,
}

impl BodyParts {
    /// Builds the body in both framings.
    pub(crate) fn new(config: &Config) -> Self {
        let bytes = config.body.len();
        let part = |bytes: Vec<u8>| (Arc::<[u8]>::from(bytes), 1);
        let (plain, chunked) = match &config.body {
            Body::Bytes(given) => {
                let chunked = config.chunk_bytes.map(|size| {
                    let size = usize::try_from(size).unwrap_or(usize::MAX);
                    let mut encoded: Vec<u8> = given.chunks(size).flat_map(chunk).collect();
                    encoded.extend_from_slice(b"0\r\n\r\n");
                    vec![part(encoded)]
                });
                (vec![part(given.clone())], chunked)
            }
            Body::Size(size) => {
                let block: Arc<[u8]> = PATTERN.repeat(BLOCK_BYTES / PATTERN.len()).into();
                let chunked = config.chunk_bytes.map(|chunk_bytes| {
                    let mut parts = generated_chunks(&block, chunk_bytes, size / chunk_bytes);
                    parts.extend(generated_chunks(&block, size % chunk_bytes, 1));
                    parts.push(part(b"0\r\n\r\n".to_vec()));
                    parts
                });
                (generated(&block, *size), chunked)
            }
        };
        Self { plain, chunked, bytes }
    }
}

/// A generated body of `size` bytes.
fn generated(block: &Arc<[u8]>, size: u64) -> Parts {
    let rest = (size % BLOCK_BYTES as u64) as usize;
    vec![(block.clone(), size / BLOCK_BYTES as u64), (block[..rest].into(), 1)]
}

/// A generated body of `times` chunks, each of `size` bytes. The pattern starts again in each chunk.
fn generated_chunks(block: &Arc<[u8]>, size: u64, times: u64) -> Parts {
    if size == 0 {
        return Vec::new();
    }
    if size <= REPEATED_CHUNK_BYTES {
        let data: Vec<u8> = PATTERN.iter().copied().cycle().take(size as usize).collect();
        let one = chunk(&data);
        // A part contains several small chunks, so that one system call sends many of them.
        let together = (BLOCK_BYTES / one.len()).max(1) as u64;
        let rest = one.repeat((times % together) as usize);
        return vec![(one.repeat(together as usize).into(), times / together), (rest.into(), 1)];
    }
    let mut one = vec![(format!("{size:x}\r\n").into_bytes().into(), 1)];
    one.extend(generated(block, size));
    one.push((b"\r\n".as_slice().into(), 1));
    (0..times).flat_map(|_| one.clone()).collect()
}

/// Encodes one chunk (RFC 9112, 7.1).
fn chunk(data: &[u8]) -> Vec<u8> {
    let mut encoded = format!("{:x}\r\n", data.len()).into_bytes();
    encoded.extend_from_slice(data);
    encoded.extend_from_slice(b"\r\n");
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All bytes of an answer, as sent through a socket that accepts `step` bytes at a time.
    fn gathered(wire: &Wire, step: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < wire.total_bytes() {
            let (pieces, count) = wire.pieces(bytes.len() as u64, wire.total_bytes());
            let taken: Vec<u8> = pieces[..count].iter().flat_map(|p| p.to_vec()).take(step).collect();
            assert!(!taken.is_empty());
            bytes.extend(taken);
        }
        bytes
    }

    fn body(size: u64) -> Vec<u8> {
        PATTERN.iter().copied().cycle().take(size as usize).collect()
    }

    #[test]
    fn generated_bodies_are_the_pattern_however_they_are_gathered() {
        for size in [0, 1, 13, 65_536, 65_537, 300_000] {
            let parts = BodyParts::new(&Config { body: Body::Size(size), ..Config::default() });
            let wire = Wire::new(b"head", &parts.plain);
            let expected = [b"head".to_vec(), body(size)].concat();
            assert_eq!((wire.head_bytes(), wire.total_bytes()), (4, size + 4));
            for step in [1_000, 65_536, usize::MAX] {
                assert!(gathered(&wire, step) == expected, "{size} bytes by {step}");
            }
        }
    }

    #[test]
    fn chunks_hold_the_body() {
        for (size, chunk_bytes) in [
            (0, 5),
            (13, 5),
            (15, 5),
            (100_000, 10),
            (3_000_000, 1_200_000),
            (40_000_000, 17_000_000),
            (70_000, 1 << 50),
        ] {
            for given in [Body::Size(size), Body::Bytes(body(size))] {
                let generated = matches!(given, Body::Size(_));
                let config = Config { body: given, chunk_bytes: Some(chunk_bytes), ..Config::default() };
                let wire = Wire::new(b"", &BodyParts::new(&config).chunked.unwrap());
                let whole = gathered(&wire, 999_999);
                let (mut rest, mut data_bytes, mut sizes) = (&whole[..], 0, Vec::new());
                loop {
                    let line = rest.iter().position(|&b| b == b'\r').unwrap();
                    let length = usize::from_str_radix(str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
                    let data = &rest[line + 2..line + 2 + length];
                    // The pattern starts again in each generated chunk, but continues across chunks of given bytes.
                    let start = if generated { 0 } else { data_bytes };
                    assert!(data.iter().zip(PATTERN.iter().cycle().skip(start % 16)).all(|(a, b)| a == b));
                    data_bytes += length;
                    assert_eq!(&rest[line + 2 + length..][..2], b"\r\n");
                    rest = &rest[line + 4 + length..];
                    if length == 0 {
                        break;
                    }
                    sizes.push(length as u64);
                }
                assert!(rest.is_empty());
                assert_eq!(data_bytes as u64, size);
                assert_eq!(sizes.len() as u64, size.div_ceil(chunk_bytes));
                assert!(sizes.iter().rev().skip(1).all(|&s| s == chunk_bytes));
            }
        }
    }

    #[test]
    fn a_body_of_a_tebibyte_takes_little_memory() {
        let config = Config { body: Body::Size(1 << 40), chunk_bytes: Some(1 << 30), ..Config::default() };
        let parts = BodyParts::new(&config);
        let wire = Wire::new(b"", &parts.plain);
        let (pieces, count) = wire.pieces((1 << 40) - 10, 1 << 40);
        assert_eq!((&*pieces[0], count), (b"load-serve\n".get(1..).unwrap(), 1));
        assert!(Wire::new(b"", &parts.chunked.unwrap()).total_bytes() > 1 << 40);
    }

    #[test]
    fn small_wires_are_in_one_piece() {
        let parts = BodyParts::new(&Config { body: Body::Size(20_000), ..Config::default() });
        let wire = Wire::new(b"head", &parts.plain);
        assert_eq!(wire.piece(2, 6), Some(b"adpr".as_slice()));
        let parts = BodyParts::new(&Config { body: Body::Size(200_000), ..Config::default() });
        assert_eq!(Wire::new(b"head", &parts.plain).piece(2, 6), None);
    }
}
