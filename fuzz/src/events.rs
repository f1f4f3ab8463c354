//! Reads any bytes as the body of a request, of every kind and in both modes: each record is one line that says what
//! was sent, mistakes have places, and codings are undone alike in any pieces and within their bound. `common`, which
//! checks records and mistakes, is that of the crate's tests.
//!
//! Input: a byte with the kind (low three bits), 8: Fluentd's mode, 16: with a time key, 32: which is kept, 64: deflate
//! is zlib alone; a byte with the coding (low two bits) and the bound on what is inside, in units of 64 bytes; a byte with
//! the size of the pieces less one; and the body.

#[path = "../../crates/events/tests/common/mod.rs"]
mod common;

use std::io::Write as _;

use common::check as check_body;
use events::{Boundary, Encoding, Inflater, Kind, Mode, Rules, Zone};
use flate2::{
    Compression,
    write::{DeflateEncoder, GzEncoder, ZlibEncoder},
};

/// Panics when a promise is broken; false for bytes that say nothing.
pub(super) fn check(data: &[u8]) -> bool {
    let Some(([flags, coding, piece], body)) = data.split_first_chunk::<3>() else { return false };
    let kind = match flags & 7 {
        0 => Kind::Json,
        1 => Kind::Ndjson,
        2 => Kind::Form,
        3 => Kind::Multipart(Boundary::new(b"b").expect("a byte")),
        4 => Kind::Raw,
        5 => Kind::Msgpack,
        6 => Kind::Other,
        _ => return false,
    };
    let rules = Rules {
        mode: if flags & 8 != 0 { Mode::Fluentd } else { Mode::Strict },
        time_key: (flags & 16 != 0).then(|| "time".to_owned()),
        keep_time_key: flags & 32 != 0,
        zone: Zone::Utc,
        max_records: 20,
        ..Rules::default()
    };
    let deflate = if flags & 64 != 0 { Encoding::Zlib } else { Encoding::Deflate };
    let encoding = [Encoding::Identity, Encoding::Gzip, deflate, Encoding::Zstd][usize::from(coding & 3)];
    let max_bytes = usize::from(coding >> 2) * 64;
    let piece = usize::from(*piece) + 1;

    assert_eq!(inflated(encoding, &coded(encoding, body), piece, body.len()).as_deref(), Some(body));
    let whole = inflated(encoding, body, usize::MAX, max_bytes);
    assert_eq!(whole, inflated(encoding, body, piece, max_bytes));
    if let Some(inside) = whole {
        assert!(inside.len() <= max_bytes);
        let _ = check_body(&inside, kind, &rules);
    }
    let _ = check_body(body, kind, &rules);
    true
}

/// What a coded body holds, taken in pieces; none if it is refused.
fn inflated(encoding: Encoding, coded: &[u8], piece: usize, max_bytes: usize) -> Option<Vec<u8>> {
    let mut inflater = Inflater::new(encoding, max_bytes);
    let mut out = Vec::new();
    for piece in coded.chunks(piece) {
        inflater.feed(piece, &mut out).ok()?;
        assert!(out.len() <= max_bytes);
    }
    inflater.finish().ok().map(|()| out)
}

/// A body coded by the libraries.
fn coded(encoding: Encoding, body: &[u8]) -> Vec<u8> {
    const MEMORY: &str = "writing to memory does not fail";
    match encoding {
        Encoding::Identity => body.to_vec(),
        Encoding::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(body).expect(MEMORY);
            encoder.finish().expect(MEMORY)
        }
        // What browsers once made of it; what HTTP means has a header by which it is known, and the tests see to it.
        Encoding::Deflate => {
            let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(body).expect(MEMORY);
            encoder.finish().expect(MEMORY)
        }
        Encoding::Zlib => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(body).expect(MEMORY);
            encoder.finish().expect(MEMORY)
        }
        Encoding::Zstd => zstd::encode_all(body, 1).expect(MEMORY),
    }
}
