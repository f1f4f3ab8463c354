use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use http1::ResponseReader;
use proptest::prelude::*;

use super::*;

/// Reads an answer with this body, fed in pieces of this size.
fn read(body: &[u8], encoding: &str, needs: &Needs, piece: usize) -> Answer {
    let head = format!("HTTP/1.1 200 OK\r\nA: 1\r\na: 2\r\n{encoding}Content-Length: {}\r\n\r\n", body.len());
    let bytes = [head.as_bytes(), body].concat();
    let (mut answer, mut reader) = (Answer::default(), ResponseReader::default());
    for piece in bytes.chunks(piece) {
        let mut sink = AnswerSink { answer: &mut answer, needs };
        reader.feed(piece, false, &mut sink).unwrap();
    }
    answer.body_bytes = body.len() as u64;
    answer.end(needs);
    answer
}

fn needs(texts: &[&str]) -> Needs {
    let texts = texts.iter().map(|text| memmem::Finder::new(text.as_bytes()).into_owned()).collect();
    Needs { texts, ..Needs::default() }
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn header_fields_of_a_name_are_one_list() {
    let mut needs = Needs::default();
    assert_eq!((needs.header("A"), needs.header("b"), needs.header("a")), (0, 1, 0));
    assert_eq!(read(b"", "", &needs, 9).headers, [Some(b"1, 2".to_vec()), None]);
}

#[test]
fn a_long_body_is_searched_in_bounded_memory() {
    let mut body = vec![b'x'; 20 << 20];
    body[15 << 20..][..6].copy_from_slice(b"needle");
    let needs = Needs { body: true, ..needs(&["needle", "missing"]) };
    for (body, encoding) in [(body.clone(), ""), (gzip(&body), "Content-Encoding: gzip\r\n")] {
        let answer = read(&body, encoding, &needs, 100_000);
        assert_eq!(answer.found, [true, false]);
        assert_eq!(answer.body(), None);
        assert!(answer.kept.capacity() <= MAX_KEPT_BYTES && answer.tail.capacity() < 100);
    }
}

#[test]
fn members_of_gzip_are_one_body() {
    let needs = needs(&["first", "second"]);
    let answer =
        read(&[gzip(b"the first"), gzip(b"the second")].concat(), "Content-Encoding: gzip\r\n", &needs, 7);
    assert_eq!((&answer.found[..], answer.is_undecodable), (&[true, true][..], false));
    assert!(
        read(&[gzip(b"the first"), b"more".to_vec()].concat(), "Content-Encoding: gzip\r\n", &needs, 7)
            .is_undecodable
    );
}

#[test]
fn a_compressed_body_is_kept_as_what_was_compressed() {
    let needs = Needs { body: true, ..Needs::default() };
    for coding in ["GZIP", "gzip,", ", x-gzip ,identity"] {
        let answer = read(&gzip(b"{\"a\": 1}"), &format!("content-encoding: {coding}\r\n"), &needs, 3);
        assert_eq!(answer.body(), Some(&b"{\"a\": 1}"[..]), "{coding}");
    }
    // Only one content coding can be decoded.
    assert_eq!(read(&gzip(b"abc"), "content-encoding: gzip, gzip\r\n", &needs, 3).body(), None);
    // A body with the coding gzip that is not gzip, or is cut off, cannot be decoded.
    assert_eq!(read(b"not gzip", "content-encoding: gzip\r\n", &needs, 3).body(), None);
    assert_eq!(read(&gzip(b"abc")[..10], "content-encoding: gzip\r\n", &needs, 3).body(), None);
}

proptest! {
    #[test]
    fn a_text_is_found_wherever_it_is_cut(
        before in "[ab]{0,12}", text in "[ab]{1,5}", after in "[ab]{0,12}", other in "[ab]{1,5}", piece in 1_usize..7,
    ) {
        let body = format!("{before}{text}{after}");
        let answer = read(body.as_bytes(), "", &needs(&[&text, &other]), piece);
        prop_assert_eq!(answer.found, [true, body.contains(&other)]);
    }
}
