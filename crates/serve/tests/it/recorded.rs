//! Tests that the record contains every complete request once and unchanged.

use std::{fs, os::unix::fs::PermissionsExt as _};

use serde_json::{Value, json};
use serve::{Config, Record, Tls};

use super::{
    curl::{text, url},
    target::{GET, Target},
};

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_request_is_in_the_record_as_it_came() {
    for tls in [None, Some(Tls::default())] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("requests.jsonl");
        fs::write(&file, "what was there before").unwrap();
        let record = Some(Record { file: file.clone(), body_bytes: 10 });
        let scheme = if tls.is_some() { "https" } else { "http" };
        let is_encrypted = tls.is_some();
        let target = Target::start(Config { record, tls, threads: 2, ..Config::default() });
        let to = url(scheme, target.address, "/a?b=c");
        text(&["-k", "-u", "ann:secret", &to, &to]);
        text(&["-k", "-X", "PUT", "--data-binary", "0123456789abc", &to]);
        let report = target.stop();
        let mut lines = lines(&fs::read_to_string(&file).unwrap());
        // Threads write their lines separately, so only the lines of one connection are in order.
        lines.sort_by_key(|line| line["received_ns"].as_u64());
        assert_eq!((report.requests, lines.len()), (3, 3));
        let [first, second, third] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!(
            (&first["method"], &first["target"], &first["body"]),
            (&json!("GET"), &json!("/a?b=c"), &json!(""))
        );
        assert!(
            first["headers"]
                .as_array()
                .unwrap()
                .contains(&json!(["Authorization", "Basic YW5uOnNlY3JldA=="]))
        );
        assert_eq!((&first["connection"], &third["connection"]), (&second["connection"], &json!(2)));
        assert!(first["received_ns"].as_u64() < second["received_ns"].as_u64());
        assert_eq!(
            (&third["body"], &third["body_bytes"], &third["truncated"]),
            (&json!("0123456789"), &json!(13), &json!(true))
        );
        assert_eq!(first["tls"], if is_encrypted { json!("new") } else { Value::Null });
    }
}

#[test]
fn many_requests_of_many_threads_are_all_there() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("requests.jsonl");
    let record = Some(Record { file: file.clone(), body_bytes: 0 });
    let target = Target::start(Config { record, threads: 3, ..Config::default() });
    let clients: Vec<_> = (0..6)
        .map(|_| {
            let mut client = target.connect();
            std::thread::spawn(move || {
                (0..500).for_each(|_| assert_eq!(client.ask(GET).unwrap().status, 200))
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    let report = target.stop();
    let lines = lines(&fs::read_to_string(&file).unwrap());
    assert_eq!((report.requests, lines.len()), (3_000, 3_000));
    for number in 1..=6 {
        assert_eq!(lines.iter().filter(|line| line["connection"] == json!(number)).count(), 500);
    }
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o077, 0, "the record holds secrets");
}

#[test]
fn a_record_that_cannot_be_written_is_told() {
    let record = |file: &str| Some(Record { file: file.into(), body_bytes: 0 });
    let refused =
        serve::Server::bind(Config { record: record("/no/file"), ..Config::default() }).unwrap_err();
    assert!(refused.to_string().contains("/no/file: cannot be written"), "{refused}");
    let target = Target::start(Config { record: record("/dev/full"), ..Config::default() });
    text(&[&url("http", target.address, "/")]);
    let report = target.stop();
    assert!(report.record_failure.as_ref().unwrap().contains("No space left"), "{report}");
}
