//! Tests that compressed bodies are decompressed completely, in pieces, and within limits.

use std::io::Write as _;

use flate2::{Compression, write};

use events::{Encoding, InflateError, Inflater, Mode};

fn coded(encoding: Encoding, data: &[u8]) -> Vec<u8> {
    match encoding {
        Encoding::Identity => data.to_vec(),
        Encoding::Gzip => {
            let mut encoder = write::GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(data).expect("memory");
            encoder.finish().expect("memory")
        }
        Encoding::Deflate | Encoding::Zlib => {
            let mut encoder = write::ZlibEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(data).expect("memory");
            encoder.finish().expect("memory")
        }
        Encoding::Zstd => zstd::encode_all(data, 1).expect("memory"),
    }
}

fn inflated(encoding: Encoding, coded: &[u8], piece: usize, most: usize) -> Result<Vec<u8>, InflateError> {
    let mut inflater = Inflater::new(encoding, most);
    let mut out = Vec::new();
    for piece in coded.chunks(piece) {
        inflater.feed(piece, &mut out)?;
        assert!(out.len() <= most);
    }
    inflater.finish().map(|()| out)
}

const ALL: [Encoding; 4] = [Encoding::Identity, Encoding::Gzip, Encoding::Deflate, Encoding::Zstd];
const CODED: [Encoding; 3] = [Encoding::Gzip, Encoding::Deflate, Encoding::Zstd];

fn some_data() -> Vec<u8> {
    (0..100_000_u64).flat_map(|number| (number * number / 7).to_le_bytes()).collect()
}

#[test]
fn bodies_come_back_in_pieces_of_any_size() {
    for data in [Vec::new(), b"{}".to_vec(), some_data()] {
        for encoding in ALL {
            let coded = coded(encoding, &data);
            for piece in [1, 7, 4096, usize::MAX] {
                let out = inflated(encoding, &coded, piece, data.len());
                assert!(out.as_ref() == Ok(&data), "{encoding:?} in pieces of {piece}");
            }
        }
    }
}

#[test]
fn deflate_is_taken_without_the_frame_of_zlib() {
    let mut encoder = write::DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(b"{\"a\":1}").expect("memory");
    let bare = encoder.finish().expect("memory");
    for piece in [1, 2, 100] {
        assert_eq!(inflated(Encoding::Deflate, &bare, piece, 100).as_deref(), Ok(&b"{\"a\":1}"[..]));
    }
}

#[test]
fn members_and_frames_follow_each_other() {
    for encoding in [Encoding::Gzip, Encoding::Zstd] {
        let two = [coded(encoding, b"{}\n"), coded(encoding, b""), coded(encoding, b"[]")].concat();
        for piece in [1, 5, 1000] {
            assert_eq!(inflated(encoding, &two, piece, 5).as_deref(), Ok(&b"{}\n[]"[..]), "{encoding:?}");
        }
    }
}

#[test]
fn what_holds_too_much_is_refused_before_it_takes_the_memory() {
    let zeros = vec![0; 64 << 20];
    for encoding in ALL {
        let bomb = coded(encoding, &zeros);
        let mut inflater = Inflater::new(encoding, 100_000);
        let mut out = Vec::new();
        let refused = bomb.chunks(4096).find_map(|piece| inflater.feed(piece, &mut out).err());
        assert_eq!(refused, Some(InflateError::TooLarge { max_bytes: 100_000 }), "{encoding:?}");
        // Without a coding, the input is copied as it is, so only other codings bound the buffer.
        assert!(
            encoding == Encoding::Identity || out.capacity() <= 100_001,
            "{encoding:?}: {}",
            out.capacity()
        );
    }
}

#[test]
fn what_is_cut_off_or_damaged_or_goes_on_is_refused() {
    for encoding in CODED {
        let coded = coded(encoding, &some_data());
        let is_refused =
            |body: &[u8]| matches!(inflated(encoding, body, 100, 4 << 20), Err(InflateError::Corrupt { .. }));
        assert!(is_refused(b""), "{encoding:?}");
        assert!(is_refused(&coded[..coded.len() - 1]), "{encoding:?}");
        assert!(is_refused(&coded[..1]), "{encoding:?}");
        assert!(is_refused(&[&coded[..], b"more than that"].concat()), "{encoding:?}");
        assert!(is_refused(b"{\"a\":1, \"b\":2, \"c\":3}"), "{encoding:?}");
    }
    // The decoder may accept a flipped bit; the checksums of gzip and zlib detect it.
    for encoding in [Encoding::Gzip, Encoding::Deflate] {
        let mut damaged = coded(encoding, b"some bytes that do not repeat");
        let middle = damaged.len() - 12;
        damaged[middle] ^= 1;
        assert!(inflated(encoding, &damaged, 100, 1000).is_err(), "{encoding:?}");
    }
}

#[test]
fn a_window_that_is_too_large_is_refused() {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).expect("memory");
    encoder.window_log(27).expect("Zstandard has it");
    encoder.write_all(&vec![7; 32 << 20]).expect("memory");
    let coded = encoder.finish().expect("memory");
    let refused = inflated(Encoding::Zstd, &coded, 1 << 20, 64 << 20);
    assert_eq!(refused.err(), Some(InflateError::Corrupt { coding: "zstd" }));
}

#[test]
fn headers_name_codings() {
    let of = |value: &str, mode| Encoding::of_header(value.as_bytes(), mode);
    assert_eq!(of(" GZIP ", Mode::Strict), Some(Encoding::Gzip));
    assert_eq!(of("zstd", Mode::Strict), Some(Encoding::Zstd));
    assert_eq!(of("GZIP", Mode::Fluentd), Some(Encoding::Identity));
    assert_eq!(of("deflate", Mode::Fluentd), Some(Encoding::Zlib));
    assert_eq!(of("gzip, br", Mode::Strict), None);
}
