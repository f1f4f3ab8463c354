use proptest::prelude::*;
use record::receipt::{REFERENCE_EVENT, RunId};

use super::*;
use crate::testing::event;

fn numbering() -> Numbering {
    Numbering::new(REFERENCE_EVENT, RunId(0x1234_abcd)).unwrap()
}

fn seen(line: &[u8]) -> Vec<FoundEvent> {
    let numbering = numbering();
    let mut seen = Vec::new();
    Examiner::new([&numbering].into_iter()).examine(line, |one| seen.push(one));
    seen
}

fn whole(client: u32, number: u32) -> FoundEvent {
    FoundEvent::Event { run: 0, marker: numbering().marker(client, number) }
}

#[test]
fn a_wrapped_event_is_found() {
    let event = event(&numbering(), 3, 9);
    let value: Value = serde_json::from_str(&event).unwrap();
    let inside = serde_json::json!({ "log": event, "date": 1.5 }).to_string();
    let twice = serde_json::json!({ "message": inside }).to_string();
    let mut members = value.as_object().unwrap().clone();
    let number = members.remove(EVENT_KEY).unwrap();
    let mut reordered = Map::new();
    reordered.insert(EVENT_KEY.to_owned(), number);
    reordered.extend(members.into_iter().rev());
    reordered.insert("remote".to_owned(), "127.0.0.1".into());
    for line in [
        event.clone(),
        format!("2020-01-13T17:52:09+09:00\tx\t{event}"),
        format!("{event} 204 -"),
        serde_json::json!({ "tag": "x", "record": value }).to_string(),
        serde_json::to_string_pretty(&value).unwrap().replace('\n', ""),
        Value::Object(reordered).to_string(),
        inside,
        twice,
        event.replace('"', "\\x22"),
        format!("127.0.0.1 - {}", event.replace('"', "\\\"")),
    ] {
        assert_eq!(seen(line.as_bytes()), [whole(3, 9)], "{line}");
    }
    let array = format!("[{event},{}]", crate::testing::event(&numbering(), 3, 10));
    assert_eq!(seen(array.as_bytes()), [whole(3, 9), whole(3, 10)]);
}

#[test]
fn other_runs_differ_from_altered_ones() {
    let other = Numbering::new(REFERENCE_EVENT, RunId(7)).unwrap();
    assert_eq!(seen(event(&other, 1, 1).as_bytes()), [FoundEvent::Foreign]);
    let broken = event(&numbering(), 1, 1).replace("1234abcd-", "1234abce-");
    assert!(matches!(seen(broken.as_bytes())[..], [FoundEvent::Altered { .. }]));
    assert_eq!(seen(b"127.0.0.1 \"POST / HTTP/1.1\" 204 \"proofload/0.1.0\""), []);
}

#[test]
fn a_torn_event_before_another_is_found() {
    let event = event(&numbering(), 1, 1);
    let seen = seen(format!("{}{event}", &event[..40]).as_bytes());
    assert!(
        matches!(seen[..], [FoundEvent::Altered { marker: None, .. }, FoundEvent::Event { .. }]),
        "{seen:?}"
    );
}

#[test]
fn joined_lines_differ_from_events_of_one_text() {
    let [one, other] = [9, 10].map(|number| event(&numbering(), 3, number));
    let record = |event: &str| format!("{{\"record\":{event}}}");
    let (spaced, later) = (one.replace("\":", "\": "), other.replace("\":", "\": "));
    let time = "2020-01-13T17:52:09+09:00\tx\t";
    for joined in [
        format!("{one}{other}"),
        format!("{one} {other}"),
        format!("{time}{one}{time}{other}"),
        format!("{}{}", record(&one), record(&other)),
        format!("[{one}][{other}]"),
        format!("{spaced}{later}"),
        format!("{one}{other}").replace('"', "\\x22"),
    ] {
        let seen = seen(joined.as_bytes());
        let findings =
            seen.iter().filter(|seen| **seen == FoundEvent::Altered { marker: None, why: JOINED }).count();
        assert!(findings == 1 && seen.len() == 3, "{joined}: {seen:?}");
    }
    for one_text in [
        format!("[{one},{other}]"),
        format!("[{one} , {other}]"),
        format!("{time}[{},{}]", record(&one), record(&other)),
        format!("{{\"a\":{one},\"b\":{other}}}"),
        format!("[{spaced},{later}]"),
        format!("{one}\\x0A{other}").replace('"', "\\x22"),
        format!("{one}\\n{other}").replace('"', "\\\""),
        serde_json::json!({ "body": format!("{one}\n{other}\n") }).to_string(),
    ] {
        assert_eq!(seen(one_text.as_bytes()), [whole(3, 9), whole(3, 10)], "{one_text}");
    }
}

#[test]
fn one_damage_is_one_finding() {
    let whole_event = event(&numbering(), 1, 1);
    for damaged in [
        event(&numbering(), 1, 0).replace("minimum", "maximum"),
        event(&numbering(), 1, 0).replace("-000001-", "-000002-"),
        event(&numbering(), 1, 0).replace("1234abcd-", "1234abcd+"),
        event(&numbering(), 1, 0).replace("1234abcd-", "1234abce-"),
    ] {
        let seen = seen(format!("[{damaged},{whole_event}]").as_bytes());
        assert!(
            matches!(seen[..], [FoundEvent::Altered { .. }, FoundEvent::Event { .. }]),
            "{damaged}: {seen:?}"
        );
    }
}

#[test]
fn the_key_alone_is_no_event() {
    let event = event(&numbering(), 3, 9);
    let open = event.strip_suffix('}').unwrap();
    for line in [
        format!("{open},\"path\":\"/proofload\"}}"),
        format!("{open},\"agent\":\"proofload\",\"z\":1}}"),
        format!("\"/proofload\" {event} \"proofload/0.1.0\""),
        serde_json::json!({ "app": "proofload", "log": event }).to_string(),
        event.replacen('{', "{\"app\":\"proofload\",", 1),
    ] {
        assert_eq!(seen(line.as_bytes()), [whole(3, 9)], "{line}");
    }
    for line in
        ["{\"app\":\"proofload\"}", "{\\\"app\\\":\\\"proofload\\\"}", "proofload: started", "\"proofload\""]
    {
        assert_eq!(seen(line.as_bytes()), [], "{line}");
    }
    for name in [
        "\"proofload\":",
        "\"proofload\" : ",
        "\\\"proofload\\\":",
        "\\x22proofload\\x22:",
        "%22proofload%22%3A",
    ] {
        let seen = seen(format!("{{\"a\":1,{name}12").as_bytes());
        assert!(matches!(seen[..], [FoundEvent::Altered { .. }]), "{name}: {seen:?}");
    }
}

#[test]
fn a_torn_event_differs_from_an_event_without_a_number() {
    let numbering = numbering();
    let examiner = Examiner::new([&numbering].into_iter());
    let event = event(&numbering, 1, 1);
    let part = &event[..60];
    for torn in [event[..20].to_owned(), event[..110].to_owned(), format!("time\ttag\t{part}\0\0")] {
        assert!(examiner.ends_early(torn.as_bytes()), "{torn}");
    }
    for other in [String::new(), "{".to_owned(), REFERENCE_EVENT.to_owned(), format!("{part} more")] {
        assert!(!examiner.ends_early(other.as_bytes()), "{other}");
    }
}

/// A template with these members. Their values are JSON text.
fn template_of(members: &std::collections::BTreeMap<String, String>) -> String {
    let members: Vec<String> = members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", members.join(","))
}

/// JSON texts of values, whose integers have up to `max_digits` digits.
fn values(max_digits: usize) -> impl Strategy<Value = String> {
    let plain = prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        any::<u64>().prop_map(|number| number.to_string()),
        prop::string::string_regex(&format!("[1-9][0-9]{{15,{}}}", max_digits - 1)).unwrap(),
        prop::num::f64::NORMAL.prop_map(|number| serde_json::to_string(&number).unwrap()),
        "\\PC{0,12}".prop_map(|text| serde_json::to_string(&text).unwrap()),
        any::<bool>().prop_map(|truth| truth.to_string()),
    ];
    let list = prop::collection::vec(plain.clone(), 0..4);
    prop_oneof![
        3 => plain.clone(),
        1 => list.prop_map(|values| format!("[{}]", values.join(","))),
        1 => plain.prop_map(|value| format!("{{\"in\":{value}}}")),
    ]
}

proptest! {
    #[test]
    fn no_flipped_bit_of_an_event_of_any_template_goes_unseen(
        members in prop::collection::btree_map("[a-z]{1,6}", values(40), 0..6), at: usize, bit in 0u8..8,
    ) {
        let template = template_of(&members);
        prop_assume!(!template.contains(EVENT_KEY));
        let numbering = Numbering::new(&template, RunId(1)).unwrap();
        let mut line = event(&numbering, 5, 6).into_bytes();
        let at = at % line.len();
        line[at] ^= 1 << bit;
        let mut seen = Vec::new();
        Examiner::new([&numbering].into_iter()).examine(&line, |one| seen.push(one));
        // Only one flip keeps the JSON equivalent: it makes the letter of an exponent upper-case.
        let is_same = line[at] == b'E' && line[at - 1].is_ascii_digit() && seen.len() == 1;
        let altered = seen.len() == 1 && matches!(seen[0], FoundEvent::Altered { .. });
        prop_assert!(altered || is_same, "{at}: {:?} {seen:?}", String::from_utf8_lossy(&line));
    }

    #[test]
    fn no_flipped_bit_of_an_event_goes_unseen(client in 0u32..1 << 24, number: u32, at: usize, bit in 0u8..8) {
        let mut line = event(&numbering(), client, number).into_bytes();
        let at = at % line.len();
        line[at] ^= 1 << bit;
        let seen = seen(&line);
        let altered = seen.iter().any(|one| matches!(one, FoundEvent::Altered { .. }));
        prop_assert!(altered && seen.len() == 1, "{at}: {:?}", String::from_utf8_lossy(&line));
    }

    #[test]
    fn no_line_panics(line in prop::collection::vec(any::<u8>(), 0..200), at: usize, cut in 0usize..160) {
        seen(&line);
        let event = event(&numbering(), 1, 2);
        let mut mixed = line.clone();
        let at = at % (line.len() + 1);
        mixed.splice(at..at, event.bytes().take(cut));
        seen(&mixed);
    }

    #[test]
    fn events_of_any_template_are_found_verbatim_and_reserialised(
        members in prop::collection::btree_map("[a-z]{1,6}", values(18), 0..6),
        prefix in "[ -z]{0,20}",
    ) {
        let template = template_of(&members);
        prop_assume!(!template.contains(EVENT_KEY) && !prefix.contains(EVENT_KEY));
        let numbering = Numbering::new(&template, RunId(1)).unwrap();
        let event = event(&numbering, 5, 6);
        let value: Value = serde_json::from_str(&event).unwrap();
        let wrapped = serde_json::json!({ "z": value, "a": 1 }).to_string();
        let examiner = Examiner::new([&numbering].into_iter());
        for line in [format!("{prefix}{event}"), wrapped] {
            let mut seen = Vec::new();
            examiner.examine(line.as_bytes(), |one| seen.push(one));
            prop_assert_eq!(&seen, &[FoundEvent::Event { run: 0, marker: numbering.marker(5, 6) }], "{}", line);
        }
    }
}
