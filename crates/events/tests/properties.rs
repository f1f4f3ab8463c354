//! Property tests with random bodies: valid records, and bytes that are almost JSON.

mod common;

use common::{check, records, texts};
use events::{Kind, LineFormat, LineWriter, Mode, Record, Rules, Zone};
use proptest::{collection, prelude::*};
use serde_json::{Map, Value, value::RawValue};

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[ -~\\n\\t\"\\\\]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 6, |inner| {
        prop_oneof![
            collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            any_members(inner).prop_map(Value::from),
        ]
    })
}

fn any_members(values: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    let name = prop_oneof!["[a-c]", any::<String>()];
    collection::vec((name, values), 0..6).prop_map(|members| members.into_iter().collect())
}

fn any_records() -> impl Strategy<Value = Vec<Value>> {
    collection::vec(any_members(any_value()).prop_map(Value::from), 0..8)
}

/// Random bytes that are often JSON.
fn nearly_json() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        4 => prop::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"", "\"a\"", "\"a\":1", "{}", "{\"a\":1}", "\n", "\r\n", " ", "1",
            "-", "0.5", "e1", "null", "true", "\\", "\\u00e9", "\\ud800", "é", "\u{feff}", "/**/", "[{},{}]",
        ])
        .prop_map(|token| token.as_bytes().to_vec()),
        1 => collection::vec(any::<u8>(), 0..3),
    ];
    collection::vec(token, 0..12).prop_map(|tokens| tokens.concat())
}

fn any_kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(vec![Kind::Json, Kind::Ndjson, Kind::Form, Kind::Raw])
}

fn any_mode() -> impl Strategy<Value = Mode> {
    prop::sample::select(vec![Mode::Strict, Mode::Fluentd, Mode::FluentdJson])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Valid records are unchanged in every format of a body.
    #[test]
    fn good_records_come_out_as_they_went_in(sent in any_records(), pretty: bool) {
        let render = |value: &Value| {
            if pretty { format!("{value:#}") } else { value.to_string() }
        };
        let compact: Vec<String> = sent.iter().map(Value::to_string).collect();
        // A pretty record without members is already compact.
        let array = format!("[{}]", sent.iter().map(render).collect::<Vec<_>>().join(" ,\n"));
        prop_assert_eq!(texts(array.as_bytes(), Kind::Json, &Rules::default()), Ok(compact.clone()));

        let lines: String = compact.iter().map(|record| format!("{record}\n")).collect();
        prop_assert_eq!(texts(lines.as_bytes(), Kind::Ndjson, &Rules::default()), Ok(compact.clone()));
        let last_line_open = lines.trim_end_matches('\n');
        prop_assert_eq!(texts(last_line_open.as_bytes(), Kind::Ndjson, &Rules::default()), Ok(compact.clone()));
        if !compact.is_empty() {
            prop_assert_eq!(texts(lines.as_bytes(), Kind::Json, &Rules::default()), Ok(compact.clone()));
        }
        let encoded: String = lines.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let form = format!("x=1&ndjson={encoded}");
        prop_assert_eq!(texts(form.as_bytes(), Kind::Form, &Rules::default()), Ok(compact));
    }

    /// Every line in Fluentd's format, alone or in a file, has the value that was sent.
    #[test]
    fn lines_read_back_say_what_was_sent(sent in any_records()) {
        let body = Value::from(sent.clone()).to_string();
        for mode in [Mode::Strict, Mode::Fluentd] {
            let rules = Rules { mode, ..Rules::default() };
            let kept = check(body.as_bytes(), Kind::Json, &rules).expect("they are records");
            let mut writer = LineWriter::new(LineFormat::OutFile { time: true, tag: true }, Zone::Utc);
            let mut out = Vec::new();
            for record in &kept {
                let record = Record { text: &record.text, is_json: record.is_json, time: record.time };
                writer.write(&mut out, std::time::UNIX_EPOCH.into(), "a.b", &record);
            }
            let out = String::from_utf8(out).expect("lines are text");
            let read_back: Vec<Value> = out
                .lines()
                .map(|line| {
                    let record = line.strip_prefix("1970-01-01T00:00:00Z\ta.b\t").expect("time and tag");
                    serde_json::from_str(record).expect("a record is JSON")
                })
                .collect();
            prop_assert_eq!(&read_back, &sent);
        }
    }

    /// A strict reader accepts a line if and only if it is an object that `serde_json` accepts, with or without a byte
    /// order mark.
    #[test]
    fn strict_is_as_strict_as_serde_json(line in nearly_json()) {
        prop_assume!(!line.contains(&b'\n'));
        let behind = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&line);
        let oracle = serde_json::from_slice::<&RawValue>(behind)
            .ok()
            .filter(|value| std::str::from_utf8(&line).is_ok() && value.get().starts_with('{'));
        let is_blank = behind.iter().all(|byte| b" \t\r".contains(byte));
        let outcome = records(&line, Kind::Ndjson, &Rules::default());
        prop_assert_eq!(outcome.is_ok(), oracle.is_some() || is_blank, "{:?}", outcome);
        let outcome = records(&line, Kind::Json, &Rules::default());
        let is_array = behind.trim_ascii_start().starts_with(b"[");
        prop_assert!(is_array || outcome.is_ok() == oracle.is_some(), "{:?}", outcome);
    }

    /// An array is accepted if and only if all its elements are objects.
    #[test]
    fn an_array_is_its_elements(body in nearly_json()) {
        let body = [b"[", &body[..], b"]"].concat();
        let oracle = std::str::from_utf8(&body).ok().and_then(|body| serde_json::from_str::<Vec<&RawValue>>(body).ok());
        let oracle = oracle.filter(|elements| elements.iter().all(|element| element.get().starts_with('{')));
        let outcome = texts(&body, Kind::Json, &Rules::default());
        prop_assert_eq!(outcome.ok().map(|texts| texts.len()), oracle.map(|elements| elements.len()));
    }

    /// The properties of every body also hold for bodies that are almost JSON.
    #[test]
    fn nothing_breaks_a_line_or_panics(body in nearly_json(), kind in any_kind(), mode in any_mode(), keep: bool) {
        let rules = Rules {
            mode,
            time_key: Some("a".to_owned()),
            keep_time_key: keep,
            max_records: 3,
            ..Rules::default()
        };
        let _ = check(&body, kind, &rules);
        let _ = check(&[b"json=", &body[..]].concat(), Kind::Form, &rules);
    }
}
