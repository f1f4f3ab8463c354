use proptest::prelude::*;
use record::receipt::{REFERENCE_EVENT, RunId};

use super::*;
use crate::testing::event;

fn numbering() -> Numbering {
    Numbering::new(REFERENCE_EVENT, RunId(0x1234_abcd)).unwrap()
}

fn seen(line: &[u8]) -> Vec<Seen> {
    let numbering = numbering();
    let mut seen = Vec::new();
    Examiner::new([&numbering].into_iter()).examine(line, |one| seen.push(one));
    seen
}

fn whole(client: u32, number: u32) -> Seen {
    Seen::Event { run: 0, marker: numbering().marker(client, number) }
}

#[test]
fn an_event_is_found_however_the_receiver_wraps_it() {
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
fn other_runs_are_told_apart_from_broken_ones() {
    let other = Numbering::new(REFERENCE_EVENT, RunId(7)).unwrap();
    assert_eq!(seen(event(&other, 1, 1).as_bytes()), [Seen::Foreign]);
    let broken = event(&numbering(), 1, 1).replace("1234abcd-", "1234abce-");
    assert!(matches!(seen(broken.as_bytes())[..], [Seen::Altered { .. }]));
    assert_eq!(seen(b"127.0.0.1 \"POST / HTTP/1.1\" 204 \"proofload/0.1.0\""), []);
}

#[test]
fn a_torn_event_before_another_is_seen() {
    let event = event(&numbering(), 1, 1);
    let seen = seen(format!("{}{event}", &event[..40]).as_bytes());
    assert!(matches!(seen[..], [Seen::Altered { marker: None, .. }, Seen::Event { .. }]), "{seen:?}");
}

proptest! {
    #[test]
    fn no_flipped_bit_of_an_event_goes_unseen(client in 0u32..1 << 24, number: u32, at: usize, bit in 0u8..8) {
        let mut line = event(&numbering(), client, number).into_bytes();
        let at = at % line.len();
        line[at] ^= 1 << bit;
        let seen = seen(&line);
        let altered = seen.iter().any(|one| matches!(one, Seen::Altered { .. }));
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
        members in prop::collection::btree_map("[a-z]{1,6}", prop_oneof![
            any::<i64>().prop_map(Value::from), "\\PC{0,12}".prop_map(Value::from), any::<bool>().prop_map(Value::from),
            (-1e9f64..1e9).prop_map(Value::from),
        ], 0..6),
        prefix in "[ -z]{0,20}",
    ) {
        let template = serde_json::to_string(&members).unwrap();
        prop_assume!(!template.contains(EVENT_KEY) && !prefix.contains(EVENT_KEY));
        let numbering = Numbering::new(&template, RunId(1)).unwrap();
        let event = event(&numbering, 5, 6);
        let value: Value = serde_json::from_str(&event).unwrap();
        let wrapped = serde_json::json!({ "z": value, "a": 1 }).to_string();
        let examiner = Examiner::new([&numbering].into_iter());
        for line in [format!("{prefix}{event}"), wrapped] {
            let mut seen = Vec::new();
            examiner.examine(line.as_bytes(), |one| seen.push(one));
            prop_assert_eq!(&seen, &[Seen::Event { run: 0, marker: numbering.marker(5, 6) }], "{}", line);
        }
    }
}
