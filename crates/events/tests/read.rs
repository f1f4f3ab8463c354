//! Examples of accepted and refused bodies, with the position of each mistake.

mod common;

use common::{Kept, check, texts};
use events::{Boundary, EventTime, Kind, Mistake, MistakeKind, Mode, Rules, TimeFormat, Zone};

fn strict(body: &str, kind: Kind) -> Result<Vec<String>, Mistake> {
    check(body.as_bytes(), kind, &Rules::default())
        .map(|kept| kept.into_iter().map(|kept| kept.text).collect())
}

#[track_caller]
fn accepted(body: &str, kind: Kind, lines: &[&str]) {
    assert_eq!(strict(body, kind).expect(body), lines);
}

#[track_caller]
fn refused(body: &[u8], kind: Kind, position: (usize, usize, usize), message: &str) {
    let mistake = check(body, kind, &Rules::default()).expect_err("it is no good");
    assert!(mistake.message.contains(message), "{mistake}");
    assert_eq!((mistake.line, mistake.column, mistake.byte), position, "{mistake}");
}

#[test]
fn json_is_an_object_an_array_or_objects_line_by_line() {
    accepted("{\"a\":1}", Kind::Json, &["{\"a\":1}"]);
    accepted(" \r\n{ \"a\" : 1 } \n\n", Kind::Json, &["{ \"a\" : 1 }"]);
    accepted("[{\"a\":1}, {\"b\":[{}]}\n]\n", Kind::Json, &["{\"a\":1}", "{\"b\":[{}]}"]);
    accepted("[]", Kind::Json, &[]);
    accepted("{\"a\":1}\n{\"b\":2}\r\n\r\n{}", Kind::Json, &["{\"a\":1}", "{\"b\":2}", "{}"]);
    // The first record and the elements of an array may span lines.
    accepted("{\n \"a\": 1\n}\n{\"b\":2}", Kind::Json, &["{\"a\":1}", "{\"b\":2}"]);
    accepted("[{\n\"a\" :\r\n\"x y\"}]", Kind::Json, &["{\"a\":\"x y\"}"]);
}

#[test]
fn ndjson_is_an_object_a_line() {
    accepted("", Kind::Ndjson, &[]);
    accepted("\n \n{\"a\":1}\r\n\t{\"b\":2} \n\r\n{}", Kind::Ndjson, &["{\"a\":1}", "{\"b\":2}", "{}"]);
    accepted("{\"a\":\r1}\n", Kind::Ndjson, &["{\"a\":1}"]);
}

#[test]
fn what_was_sent_is_what_is_stored() {
    for sent in [
        r#"{"a":1,"a":2}"#,
        r#"{ "a" :	1.50, "b": -0, "c": 1e999, "d": "\ud800\/\u0041", "é": "\u0000" }"#,
        r#"{"long":123456789012345678901234567890}"#,
    ] {
        accepted(sent, Kind::Json, &[sent]);
        accepted(sent, Kind::Ndjson, &[sent]);
        accepted(&format!("[{sent}]"), Kind::Json, &[sent]);
    }
}

#[test]
fn mistakes_have_their_place() {
    refused(b"", Kind::Json, (1, 1, 0), "expected an object, an array");
    refused(b"  x", Kind::Json, (1, 3, 2), "expected an object, an array");
    refused(b"{\"a\":1}\n{\"b\":}\n{}", Kind::Ndjson, (2, 6, 13), "expected a JSON value");
    refused(b"{\"a\":1}\n{\"b\":}\n{}", Kind::Json, (2, 6, 13), "expected a JSON value");
    refused(b"{\"a\":1}\n{\"b\":\n{}", Kind::Ndjson, (2, 6, 13), "expected more: a value has no end");
    refused(b"{\"a\":1}\n{b:1}", Kind::Ndjson, (2, 2, 9), "expected the name of a member");
    refused(b"{}\n{} {}\n", Kind::Ndjson, (2, 4, 6), "expected nothing more");
    refused(b"{}\n{}\n[{}]", Kind::Ndjson, (3, 1, 6), "expected an object");
    refused(b"{}\n{\"a\":\"\xff\"}", Kind::Ndjson, (2, 7, 9), "expected UTF-8");
    refused(b"{} {}", Kind::Json, (1, 4, 3), "or a new line");
    refused(b"[{}, 1]", Kind::Json, (1, 6, 5), "expected an object");
    refused(b"[{},\n {\"a\" 1}]", Kind::Json, (2, 7, 11), "expected `:`");
    refused(b"[{}] {}", Kind::Json, (1, 6, 5), "expected nothing more");
    refused(b"[{}", Kind::Json, (1, 4, 3), "a list has no end");
    refused(b"[{},]", Kind::Json, (1, 5, 4), "after the comma");
    refused(b"{\"a\":\"\x01\"}", Kind::Json, (1, 7, 6), "expected an escape");
    refused(b"one\n\xc3\n", Kind::Raw, (2, 1, 4), "expected UTF-8");
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_text_and_another_encoding_is_named() {
    accepted("\u{feff}{\"a\":1}", Kind::Json, &["{\"a\":1}"]);
    accepted("\u{feff} [{}]", Kind::Json, &["{}"]);
    accepted("\u{feff}{}\r\n{}", Kind::Ndjson, &["{}", "{}"]);
    accepted("\u{feff}a\r\n\u{feff}b\n", Kind::Raw, &["a", "\u{feff}b"]);
    accepted("json=%EF%BB%BF{\"a\":1}", Kind::Form, &["{\"a\":1}"]);
    refused("\u{feff}{}\n{} x".as_bytes(), Kind::Json, (2, 4, 9), "expected nothing more");
    for kind in [Kind::Json, Kind::Ndjson, Kind::Raw] {
        refused(b"\xff\xfe{\0}\0", kind, (1, 1, 0), "UTF-16");
        refused(b"{\0}\0", kind, (1, 1, 0), "UTF-16");
        refused(b"{}\ncaf\xe9\n", kind, (2, 4, 6), "Latin-1");
    }
    // Fluentd refuses a byte order mark.
    assert!(check("\u{feff}{}".as_bytes(), Kind::Json, &Rules::fluentd()).is_err());
}

#[test]
fn depth_has_a_bound() {
    let nested = |depth: usize| format!("{}{{}}{}", "{\"a\":".repeat(depth - 1), "}".repeat(depth - 1));
    accepted(&nested(127), Kind::Json, &[&nested(127)]);
    serde_json::from_str::<serde_json::Value>(&nested(127)).expect("readers of the file have the same bound");
    refused(nested(128).as_bytes(), Kind::Ndjson, (1, 1, 0), "127 levels");
    // Deep nesting must not overflow the stack.
    let brackets = "[".repeat(1 << 20);
    refused(brackets.as_bytes(), Kind::Json, (1, (1 << 20) + 1, 1 << 20), "has no end");
}

#[test]
fn records_of_a_body_have_a_bound() {
    let rules = Rules { max_records: 2, ..Rules::default() };
    for (body, kind) in [("{}\n{}\n\n{}", Kind::Ndjson), ("[{},{},{}]", Kind::Json), ("a\nb\nc", Kind::Raw)] {
        let mistake = check(body.as_bytes(), kind, &rules).expect_err("three");
        assert_eq!(mistake.kind, MistakeKind::TooManyRecords, "{mistake}");
    }
    check(b"{}\n{}\n\n", Kind::Ndjson, &rules).expect("two");
}

#[test]
fn raw_lines_are_records_as_they_are() {
    accepted("a b\r\n\r\n{\"x\n\tc\rd", Kind::Raw, &["a b", "{\"x", "\tc\rd"]);
}

#[test]
fn forms_hold_their_record_in_a_field() {
    accepted("json=%7B%22a%22%3A+1%7D&x=y", Kind::Form, &["{\"a\": 1}"]);
    accepted("json={\"a\":1}", Kind::Form, &["{\"a\":1}"]);
    accepted("ndjson={}%0A{}", Kind::Form, &["{}", "{}"]);
    let boundary = Kind::Multipart(Boundary::new(b"b").expect("a byte"));
    let body = "--b\r\nContent-Disposition: form-data; name=\"json\"\r\n\r\n[{\"a\":1},{}]\r\n--b--\r\n";
    accepted(body, boundary, &["{\"a\":1}", "{}"]);

    refused(b"json={%22a%22:%ff}", Kind::Form, (1, 6, 5), "expected UTF-8");
    refused(b"json=", Kind::Form, (1, 1, 0), "expected an object");
    for (body, kind) in [(&b"{\"a\":1}"[..], Kind::Form), (b"x=1", Kind::Form), (b"--b--", boundary)] {
        let mistake = check(body, kind, &Rules::default()).expect_err("no record");
        assert_eq!(mistake.kind, MistakeKind::MissingParameter);
        assert_eq!(mistake.to_string(), "'json' or 'ndjson' parameter is required");
    }
}

#[test]
fn what_is_not_read_is_refused_by_name() {
    for rules in [Rules::default(), Rules::fluentd()] {
        for (body, kind) in [(&b"\x81"[..], Kind::Msgpack), (b"msgpack=%81", Kind::Form)] {
            let mistake = check(body, kind, &rules).expect_err("MessagePack");
            assert_eq!(mistake.kind, MistakeKind::Unsupported);
            assert!(mistake.to_string().contains("MessagePack"), "{mistake}");
        }
    }
    let kind = |rules: &Rules| check(b"{}", Kind::Other, rules).expect_err("no known kind").kind;
    assert_eq!(kind(&Rules::default()), MistakeKind::Unsupported);
    assert_eq!(kind(&Rules::fluentd()), MistakeKind::MissingParameter);
}

#[test]
fn the_time_key_gives_the_time_and_goes_unless_it_is_kept() {
    let rules = |keep_time_key| Rules {
        time_key: Some("at".to_owned()),
        time_format: TimeFormat::Auto,
        keep_time_key,
        zone: Zone::Utc,
        ..Rules::default()
    };
    let body = b"{\"at\":1.5, \"a\": 1}\n{\"a\":\"at\",\"at\":null}\n{\"b\":{\"at\":3}}\n\
                 {\"\\u0061t\":\"1970-01-01T00:00:02Z\"}";
    let kept = check(body, Kind::Ndjson, &rules(false)).expect("all have times that are");
    let found = kept.iter().map(|kept| (kept.text.as_str(), kept.time.map(|time| time.seconds)));
    let expected =
        [("{\"a\":1}", Some(1)), ("{\"a\":\"at\"}", None), ("{\"b\":{\"at\":3}}", None), ("{}", Some(2))];
    assert_eq!(found.collect::<Vec<_>>(), expected);
    let kept = check(body, Kind::Ndjson, &rules(true)).expect("all have times that are");
    let first = Kept {
        text: "{\"at\":1.5, \"a\": 1}".to_owned(),
        is_json: true,
        time: Some(EventTime { seconds: 1, nanos: 500_000_000 }),
    };
    assert_eq!(kept[0], first);

    let mistake = check(b"{}\n{\"at\":\"soon\"}", Kind::Ndjson, &rules(false)).expect_err("no time");
    assert_eq!((mistake.line, mistake.column), (2, 7), "{mistake}");
    assert!(mistake.message.contains("\"at\"") && mistake.message.contains("soon"), "{mistake}");
}

#[test]
fn the_time_of_a_form_is_that_of_its_records() {
    let form = |body: &str, rules: &Rules| {
        let kept = check(body.as_bytes(), Kind::Form, rules).expect(body);
        kept.into_iter().map(|kept| (kept.text, kept.time.map(|time| time.seconds))).collect::<Vec<_>>()
    };
    let record = || "{\"time\":3}".to_owned();
    assert_eq!(form("json={\"time\":3}&time=7", &Rules::fluentd()), [(record(), Some(7))]);
    assert_eq!(form("json={\"time\":3}&time=0", &Rules::fluentd()), [(record(), None)]);
    assert_eq!(form("json={\"time\":3}&time=x", &Rules::fluentd()), [(record(), None)]);
    assert_eq!(form("json={\"time\":3}", &Rules::fluentd()), [("{}".to_owned(), Some(3))]);
    assert_eq!(form("json={\"time\":3}&time=7", &Rules::default()), [(record(), Some(7))]);
    check(b"json={}&time=x", Kind::Form, &Rules::default()).expect_err("no time");
}

#[test]
fn fluentd_refuses_what_it_would_not_store_whole() {
    let fluentd = |body: &str, kind, mode| {
        texts(body.as_bytes(), kind, &Rules { mode, ..Rules::fluentd() }).map_err(|mistake| mistake.byte)
    };
    let json = |body: &str| fluentd(body, Kind::Json, Mode::Fluentd);
    for (body, byte) in [
        ("{\"a\":", 5),
        ("7", 0),
        ("null", 0),
        ("{}\n{}", 3),
        ("[{\"a\":1},2,{\"b\":[1 ]}]", 9),
        ("[{\"a\":1},{]", 10),
        ("{\"a\":1e400}", 5),
        ("{\"a\":[\"\\udc00\"]}", 6),
    ] {
        assert_eq!(json(body), Err(byte), "{body}");
    }
    for nothing in ["", " \n", "[]"] {
        assert_eq!(json(nothing), Ok(vec![]), "{nothing:?}");
    }
    let text_of_json = |body: &str| fluentd(body, Kind::Json, Mode::FluentdJson);
    assert_eq!((text_of_json(""), text_of_json(" ")), (Err(0), Err(1)));
    assert_eq!(text_of_json("[]"), Ok(vec![]));
    let lines = |body: &str| fluentd(body, Kind::Ndjson, Mode::Fluentd).map(|texts| texts.len());
    assert_eq!((lines("{}\r\n{}\r\n\r\n"), lines("\n"), lines("")), (Ok(2), Ok(0), Ok(0)));
    assert_eq!(
        (lines("{}\n\n{}"), lines(" "), lines("{}\nx"), lines("[{}]")),
        (Err(3), Err(1), Err(3), Err(0))
    );
    assert_eq!(fluentd("json=nonsense", Kind::Form, Mode::Fluentd), Err(0));
    let written = texts(b"{ \"x\" : \"\\u00e9\\/\", \"y\":1e3, \"x\":2 }", Kind::Json, &Rules::fluentd());
    assert_eq!(written, Ok(vec!["{\"x\":2,\"y\":1000.0}".to_owned()]));
}

#[test]
fn fluentd_refuses_a_time_that_is_none() {
    let mistake =
        check(b"{\"time\":\"2019-11-12T10:00:01Z\"}", Kind::Json, &Rules::fluentd()).expect_err("a string");
    assert_eq!(mistake.kind, MistakeKind::Malformed);
    let rules =
        Rules { mode: Mode::Fluentd, time_format: TimeFormat::Strftime("%Y".to_owned()), ..Rules::fluentd() };
    check(b"{\"time\":\"soon\"}", Kind::Json, &rules).expect_err("no year");
}

#[test]
fn fluentds_doubles_are_written_as_ruby_writes_them() {
    let recorded = include_str!("data/ruby_floats.txt");
    let pairs: Vec<_> = recorded.lines().skip(1).filter_map(|line| line.split_once(' ')).collect();
    assert!(pairs.len() > 1_000);
    for (sent, written) in pairs {
        // JSON without a point or an exponent would be an integer, but Ruby writes this number as a float.
        let sent = if sent.contains(['.', 'e']) { sent.to_owned() } else { format!("{sent}.0") };
        let texts = texts(format!("{{\"a\":{sent}}}").as_bytes(), Kind::Json, &Rules::fluentd());
        assert_eq!(texts, Ok(vec![format!("{{\"a\":{written}}}")]), "{sent}");
    }
}
