//! Tests when each level is answered, and the positions in receipts.

use std::collections::HashSet;

use listen::{Level, Route};
use testing::{
    http::{Receipt, post_json},
    until,
};

use crate::testbed::Testbed;

#[test]
fn a_receipt_says_where_the_lines_lie() {
    let testbed = Testbed::start();
    let mut client = testbed.connect();
    let mut places = HashSet::new();
    for number in 0..50 {
        let level = ["written", "synced"][number % 2];
        let body = format!("{{\"n\":{number}}}\n{{\"n\":\"again\"}}");
        let answer = client.post_with("/a", &format!("Proofload-Ack: {level}\r\n"), &body);
        assert_eq!(answer.status, 204);
        let [receipt] = &answer.receipts()[..] else { panic!("one receipt: {answer:?}") };
        assert_eq!((receipt.segment.as_str(), receipt.level.as_str()), ("a.log", level));
        let stored = testbed.stored("a");
        let lines = &stored[receipt.offset..receipt.offset + receipt.bytes];
        assert_eq!(lines, format!("{body}\n"));
        assert!(places.insert(receipt.offset), "{receipt:?}");
    }
}

#[test]
fn the_longest_route_holds_unless_the_request_says_otherwise() {
    let testbed = Testbed::with(|config| {
        config.level = Level::Written;
        config.routes = vec![
            Route { path: "/fast".into(), level: Level::Accepted },
            Route { path: "/fast/but/safe".into(), level: Level::Synced },
        ];
    });
    let mut client = testbed.connect();
    let mut level = |path: &str, ack: &str| {
        let answer = client.post_with(path, ack, "{}");
        let receipt = answer.header("proofload-receipt").unwrap().to_owned();
        (answer.status, receipt.rsplit_once("level=").unwrap().1.to_owned())
    };
    assert_eq!(level("/x", ""), (204, "written".into()));
    assert_eq!(level("/fast/x", ""), (202, "accepted".into()));
    assert_eq!(level("/fastest", ""), (204, "written".into()));
    assert_eq!(level("/fast/but/safe", ""), (204, "synced".into()));
    assert_eq!(level("/fast/but/safe", "Proofload-Ack: Accepted\r\n"), (202, "accepted".into()));
    drop(client);
    let (report, _folder) = testbed.stop();
    let events = report.statistics.events;
    assert_eq!([events["accepted"], events["written"], events["synced"]], [2, 2, 1]);
}

#[test]
fn accepted_events_are_stored_soon_after() {
    let testbed = Testbed::with(|config| config.level = Level::Accepted);
    let mut client = testbed.connect();
    let answer = client.post("/a", "{\"n\":1}");
    assert_eq!((answer.status, answer.header("proofload-receipt")), (202, Some("level=accepted")));
    until("it is stored", || testbed.stored("a") == "{\"n\":1}\n");
}

#[test]
fn events_of_several_segments_have_a_receipt_each() {
    let testbed = Testbed::with(|config| {
        let template = format!("{}/${{tag}}-${{kind}}", config.store.template.folder().display());
        config.store.template = template.parse().unwrap();
    });
    let mut client = testbed.connect();
    let event = |kind: &str, number: u32| format!("{{\"kind\":\"{kind}\",\"n\":{number}}}");
    let body = [event("x", 1), event("y", 2), event("x", 3), event("y", 4)].join("\n");
    let answer = client.post("/a", body);
    let (x, y) = (testbed.stored("a-x"), testbed.stored("a-y"));
    assert_eq!(x, format!("{}\n{}\n", event("x", 1), event("x", 3)));
    assert_eq!(y, format!("{}\n{}\n", event("y", 2), event("y", 4)));
    let mut found = answer.receipts();
    found.sort_by(|a, b| a.segment.cmp(&b.segment));
    let receipt = |segment: &str, bytes| {
        let (segment, level) = (segment.to_owned(), "written".to_owned());
        Receipt { segment, offset: 0, bytes, level }
    };
    assert_eq!(found, [receipt("a-x.log", x.len()), receipt("a-y.log", y.len())]);
}

#[test]
fn a_request_for_too_many_files_is_refused_whole() {
    let testbed = Testbed::with(|config| {
        let template = format!("{}/${{tag}}-${{kind}}", config.store.template.folder().display());
        config.store.template = template.parse().unwrap();
    });
    let body: String = (0..1_001).map(|kind| format!("{{\"kind\":{kind}}}\n")).collect();
    let answer = testbed.connect().post("/a", body);
    assert_eq!(answer.status, 413);
    assert!(answer.text().contains("more than 1000 files"), "{answer:?}");
    assert_eq!(testbed.stored("a-0"), "");
}

#[test]
fn what_is_stored_in_part_is_told_so() {
    let testbed = Testbed::with(|config| {
        let template = format!("{}/${{tag}}-${{kind}}/e", config.store.template.folder().display());
        config.store.template = template.parse().unwrap();
    });
    // A file with the folder's name prevents the creation of the folder.
    std::fs::write(testbed.folder().join("a-y"), "").unwrap();
    let mut client = testbed.connect();
    let answer = client.post("/a", "{\"kind\":\"x\"}\n{\"kind\":\"y\"}");
    assert_eq!((answer.status, answer.header("proofload-stored")), (500, Some("maybe")), "{answer:?}");
    assert_eq!(answer.json()["reason"].as_str(), Some("stored_in_part"));
    assert_eq!(testbed.stored("a-x/e"), "{\"kind\":\"x\"}\n");
    // No event of this request is stored.
    let answer = client.post("/a", "{\"kind\":\"y\"}");
    assert_eq!((answer.status, answer.header("proofload-stored")), (500, None), "{answer:?}");
}

#[test]
fn lines_of_many_clients_and_threads_stay_whole_and_each_client_keeps_its_order() {
    let testbed = Testbed::with(|config| config.threads = 3);
    std::thread::scope(|scope| {
        for client_number in 0..12 {
            let testbed = &testbed;
            scope.spawn(move || {
                let mut client = testbed.connect();
                for number in 0..100 {
                    let body = format!("{{\"client\":{client_number},\"n\":{number}}}");
                    client.send(post_json("/a", "", body.as_bytes()));
                    let answer = client.answer();
                    let receipt = &answer.receipts()[0];
                    let stored = testbed.stored("a");
                    assert_eq!(stored[receipt.offset..receipt.offset + receipt.bytes].trim_end(), body);
                }
            });
        }
    });
    let stored = testbed.stored("a");
    let mut next = [0; 12];
    for line in stored.lines() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        let client = event["client"].as_u64().unwrap() as usize;
        assert_eq!(event["n"].as_u64(), Some(next[client]));
        next[client] += 1;
    }
    assert_eq!(next, [100; 12]);
}
