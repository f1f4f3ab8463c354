use super::*;

#[test]
fn a_key_is_stored_once_and_answered_again_as_the_first_time() {
    let keys = Idempotency::new(1_000, 10);
    let Found::New(claim) = keys.look_up("tag", "k", b"body", 0) else { panic!("a new key") };
    assert!(matches!(keys.look_up("tag", "k", b"body", 1), Found::InFlight));
    assert!(matches!(keys.look_up("other", "k", b"body", 1), Found::New(_)));
    claim.finish_answered(Level::Synced, b"receipt", 2);
    let Found::Answered(answered) = keys.look_up("tag", "k", b"body", 3) else { panic!("a known key") };
    assert_eq!((answered.level, &answered.receipts[..]), (Level::Synced, &b"receipt"[..]));
    assert!(matches!(keys.look_up("tag", "k", b"other", 3), Found::OtherBody));
    assert!(matches!(keys.look_up("tag", "k", b"body", 11), Found::Answered(_)));
    assert!(matches!(keys.look_up("tag", "k", b"body", 12), Found::New(_)), "the window is over");
}

#[test]
fn a_request_that_failed_leaves_its_key_free() {
    let keys = Idempotency::new(1_000, 10);
    drop(keys.look_up("tag", "k", b"body", 0));
    assert!(matches!(keys.look_up("tag", "k", b"body", 0), Found::New(_)));
}

#[test]
fn what_is_stored_in_part_is_remembered_until_the_rest_is_stored() {
    let keys = Idempotency::new(1_000, 10);
    let look_up = |now_ns| keys.look_up("tag", "k", b"body", now_ns);
    let claim = |now_ns| match look_up(now_ns) {
        Found::New(claim) => claim,
        other => panic!("not to be stored: {other:?}"),
    };
    let time = EventTime { seconds: 7, nanos: 0 };
    let partly_stored = || {
        let inputs = Box::new(RenderInputs { now: time, time: None, extra_members: "".into() });
        PartlyStored { level: Level::Written, inputs, stored: Vec::new() }
    };
    claim(0).finish_partly_stored(partly_stored(), 1);
    let again = claim(2);
    assert_eq!(again.earlier().map(|earlier| earlier.inputs.now), Some(time));
    assert!(matches!(look_up(3), Found::InFlight));
    // The repeat ends before its parts are stored, which restores the earlier state.
    drop(again);
    let again = claim(4);
    assert!(again.earlier().is_some());
    again.finish_answered(Level::Written, b"all", 5);
    assert!(matches!(look_up(14), Found::Answered(_)));
    assert!(claim(15).earlier().is_none());
    claim(15).finish_partly_stored(partly_stored(), 16);
    assert!(claim(26).earlier().is_none(), "the window is over");
    for (parts, is_remembered, at_ns) in [(30, true, 50), (60, false, 100)] {
        let receipt = || Receipt { segment: "segment.log".into(), offset: 0, bytes: 1 };
        let stored = (0..parts).map(|number| (number, receipt())).collect();
        claim(at_ns).finish_partly_stored(PartlyStored { stored, ..partly_stored() }, at_ns);
        assert_eq!(claim(at_ns + 1).earlier().is_some(), is_remembered, "{parts} parts");
    }
}

#[test]
fn a_key_that_is_repeated_again_and_again_drives_out_no_other() {
    let keys = Idempotency::new(1, u64::MAX / 2);
    let Found::New(claim) = keys.look_up("tag", "first", b"", 0) else { panic!("a new key") };
    claim.finish_answered(Level::Written, b"receipt", 0);
    // Some of these keys share a shard with the first key.
    for name in 0..64 {
        for now_ns in 0..100 {
            let Found::New(claim) = keys.look_up("again", &name.to_string(), b"", now_ns) else {
                continue;
            };
            let time = EventTime { seconds: 0, nanos: 0 };
            let inputs = Box::new(RenderInputs { now: time, time: None, extra_members: "".into() });
            claim.finish_partly_stored(
                PartlyStored { level: Level::Written, inputs, stored: Vec::new() },
                now_ns,
            );
        }
        if name == 0 {
            assert!(matches!(keys.look_up("tag", "first", b"", 200), Found::Answered(_)));
        }
    }
    let longest = keys.shards.iter().map(|shard| lock(shard).order.len()).max();
    assert!(longest <= Some(2 * keys.max_per_shard + 1), "{longest:?}");
}

#[test]
fn the_number_of_keys_is_bounded() {
    let keys = Idempotency::new(160, u64::MAX);
    for number in 0..10_000 {
        if let Found::New(claim) = keys.look_up("tag", &number.to_string(), b"", number) {
            claim.finish_answered(Level::Written, b"", number);
        }
    }
    let held: usize = keys.shards.iter().map(|shard| lock(shard).known.len()).sum();
    let ordered: usize = keys.shards.iter().map(|shard| lock(shard).order.len()).sum();
    let max_keys = SHARDS * keys.max_per_shard;
    assert!(held <= max_keys && ordered <= max_keys && max_keys < 1_000, "{held} {ordered} {max_keys}");
    assert!(!Idempotency::new(0, 1).is_enabled());
}

#[test]
fn as_many_keys_are_remembered_as_were_asked_for() {
    for max_keys in [1, 16, 1_000, 100_000] {
        let keys = Idempotency::new(max_keys, u64::MAX);
        for again in [false, true] {
            for number in 0..max_keys {
                match keys.look_up("tag", &number.to_string(), b"", 1) {
                    Found::New(claim) if !again => claim.finish_answered(Level::Written, b"", 1),
                    Found::Answered(_) if again => {}
                    other => panic!("key {number} of {max_keys}, {again}: {other:?}"),
                }
            }
        }
    }
}

#[test]
fn of_long_receipts_the_first_are_remembered_whole() {
    let receipt = |length: usize| {
        format!("segment=\"{}, segment=\\\"\"; offset=0; bytes=1; level=written", "x".repeat(length))
    };
    let several = vec![receipt(200); 16].join(", ");
    let first = std::str::from_utf8(first_receipts(several.as_bytes())).unwrap();
    assert_eq!(first, vec![receipt(200); 3].join(", "));
    assert_eq!(first_receipts(&several.as_bytes()[..first.len()]), first.as_bytes());
    assert_eq!(first_receipts(receipt(2_000).as_bytes()), b"");
    let exact = receipt(MAX_RECEIPT_BYTES - receipt(0).len());
    assert_eq!(first_receipts(format!("{exact}, {exact}").as_bytes()), exact.as_bytes());
}

#[test]
fn a_long_key_takes_no_more_memory_than_a_short_one() {
    assert!(size_of::<(KeyHash, KeyEntry)>() <= 64 && size_of::<(u64, KeyHash)>() <= 32);
}

#[test]
fn what_is_in_flight_is_not_forgotten_however_long_it_takes_and_however_many_come() {
    let keys = Idempotency::new(16, 10);
    let Found::New(claim) = keys.look_up("tag", "k", b"body", 0) else { panic!("a new key") };
    for number in 0..1_000 {
        if let Found::New(other) = keys.look_up("tag", &number.to_string(), b"", number) {
            other.finish_answered(Level::Written, b"", number);
        }
    }
    assert!(matches!(keys.look_up("tag", "k", b"body", 1_000), Found::InFlight));
    claim.finish_answered(Level::Written, b"receipt", 1_000);
    assert!(matches!(keys.look_up("tag", "k", b"body", 1_009), Found::Answered(_)));
}
