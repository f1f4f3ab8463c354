//! Checks of properties that every body must have. The fuzz target uses them too.

#![allow(dead_code, reason = "each test takes what it needs")]

use events::{EventTime, Kind, LineFormat, LineWriter, Mistake, Mode, Record, Rules, Scratch, Zone, read};
use serde_json::value::RawValue;

/// A copy of a record that `read` has passed to its sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The record's text, on one line.
    pub text: String,
    /// Whether the text is JSON.
    pub is_json: bool,
    /// The record's time.
    pub time: Option<EventTime>,
}

/// All records of a body, read with buffers that were used for other bodies before.
pub(crate) fn records(body: &[u8], kind: Kind, rules: &Rules) -> Result<Vec<Kept>, Mistake> {
    let mut kept = Vec::new();
    let mut scratch = Scratch::default();
    let other = b"{\"other\":\n[1]}";
    read(other, Kind::Json, &Rules::default(), &mut scratch, &mut |_| {}).expect("it is JSON");
    let mut keep = |record: Record<'_>| {
        kept.push(Kept { text: record.text.to_owned(), is_json: record.is_json, time: record.time });
    };
    let count = read(body, kind, rules, &mut scratch, &mut keep)?;
    assert_eq!(kept.len(), count);
    Ok(kept)
}

/// The texts of all records of a body.
pub(crate) fn texts(body: &[u8], kind: Kind, rules: &Rules) -> Result<Vec<String>, Mistake> {
    records(body, kind, rules).map(|kept| kept.into_iter().map(|record| record.text).collect())
}

/// Reads a body and checks the properties that every body must have.
pub(crate) fn check(body: &[u8], kind: Kind, rules: &Rules) -> Result<Vec<Kept>, Mistake> {
    let is_a_field = matches!(kind, Kind::Form | Kind::Multipart(_));
    let outcome = records(body, kind, rules);
    match &outcome {
        Ok(kept) => {
            assert!(kept.len() <= rules.max_records);
            for record in kept {
                check_record(record, rules);
                // If a form sets the time, its records keep their time member.
                let key = rules.time_key.as_deref().filter(|_| !is_a_field && !rules.keep_time_key);
                let key = key.filter(|_| record.is_json);
                assert_eq!(key.and_then(|key| events::field(&record.text, key)), None);
            }
            check_lines(kept);
        }
        Err(mistake) => {
            assert!(is_a_field || mistake.byte <= body.len(), "{mistake}");
            assert!(
                mistake.line > 0 && mistake.column > 0 && mistake.column <= mistake.byte + 1,
                "{mistake}"
            );
            let text = mistake.to_string();
            assert!(!text.is_empty() && !text.contains(['\n', '\r']), "{text:?}");
        }
    }
    if kind == Kind::Ndjson && rules.mode == Mode::Strict {
        as_line_by_line(body, rules, &outcome);
    }
    outcome
}

/// Checks that reading an NDJSON body equals reading its lines one by one.
fn as_line_by_line(body: &[u8], rules: &Rules, outcome: &Result<Vec<Kept>, Mistake>) {
    let lines: Result<Vec<_>, Mistake> =
        body.split(|&byte| byte == b'\n').map(|line| records(line, Kind::Ndjson, rules)).collect();
    match (outcome, lines) {
        (Ok(kept), Ok(lines)) => {
            assert_eq!(*kept, lines.into_iter().flatten().collect::<Vec<_>>());
        }
        // The maximum number of records applies to the whole body, so single lines do not reach it.
        (Err(_), Err(_)) => {}
        (Err(mistake), Ok(lines)) => {
            let records: usize = lines.iter().map(Vec::len).sum();
            assert!(records > rules.max_records, "{mistake}");
        }
        (Ok(_), Err(mistake)) => panic!("a line alone is refused: {mistake}"),
    }
}

/// Checks that a record is one line, is JSON if it claims so, and does not change when it is read again.
fn check_record(record: &Kept, rules: &Rules) {
    let Kept { text, is_json, .. } = record;
    assert!(!text.contains('\n'), "{text:?}");
    if !is_json {
        assert!(!text.is_empty());
        return;
    }
    assert!(!text.contains('\r'), "{text:?}");
    let raw: &RawValue = serde_json::from_str(text).expect("a record is JSON");
    assert!(raw.get() == text && text.starts_with('{'), "{text}");
    let again = Rules { time_key: None, max_records: 1, ..rules.clone() };
    assert_eq!(texts(text.as_bytes(), Kind::Json, &again).as_ref(), Ok(&vec![text.clone()]));
    assert_eq!(texts(text.as_bytes(), Kind::Ndjson, &again).as_ref(), Ok(&vec![text.clone()]));
}

/// Checks that each record becomes one line in every format.
fn check_lines(kept: &[Kept]) {
    let fields = ["a", "b", "message"].map(str::to_owned).to_vec();
    for format in [
        LineFormat::OutFile { time: true, tag: true },
        LineFormat::Json,
        LineFormat::Csv { fields },
        LineFormat::Raw,
    ] {
        let mut writer = LineWriter::new(format, Zone::Utc);
        let mut out = Vec::new();
        for Kept { text, is_json, time } in kept {
            let before = out.len();
            let time_or_now = time.unwrap_or(EventTime { seconds: 1_578_905_529, nanos: 0 });
            let record = Record { text, is_json: *is_json, time: *time };
            writer.write(&mut out, time_or_now, "a.\nb", &record);
            let line = &out[before..];
            assert_eq!(line.iter().position(|&byte| byte == b'\n'), Some(line.len() - 1));
        }
    }
}
