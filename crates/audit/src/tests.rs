//! Tests of audits on files with known damage.

mod damaged;

use std::fs;

use record::{
    AuditFinding, EventOutcome, PlaceCounts,
    receipt::{
        EventRange, Numbering, REFERENCE_EVENT, ReceiptEnd, ReceiptHeader, ReceiptLine, RunId, SCHEMA,
        StoredAt,
    },
};

use super::*;
use crate::testing::{Folder, event};

impl Folder {
    fn audit(&self) -> AuditResult {
        self.audit_at(None)
    }

    fn audit_at(&self, level: Option<AckLevel>) -> AuditResult {
        let files = vec![self.0.join("files").display().to_string()];
        audit(&AuditOptions { receipts: vec![self.0.join("receipts")], files, level }).unwrap()
    }
}

fn numbering() -> Numbering {
    Numbering::new(REFERENCE_EVENT, RunId(0xfeed)).unwrap()
}

fn header(workers: u64, worker: u64, first_client: u32, clients: u32) -> ReceiptLine {
    ReceiptLine::Header(ReceiptHeader {
        schema: SCHEMA.to_owned(),
        run: RunId(0xfeed),
        worker,
        workers,
        first_client,
        clients,
        url: "http://127.0.0.1/x".to_owned(),
        template: REFERENCE_EVENT.to_owned(),
        event_bytes: numbering().event_bytes() as u64,
        events_per_request: 1,
        ack: None,
    })
}

fn run(client: u32, from: u32, to: u32, outcome: EventOutcome, attempts: u8) -> ReceiptLine {
    ReceiptLine::Range(EventRange { client, from, to, outcome, attempts })
}

fn text(lines: &[ReceiptLine]) -> String {
    lines.iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect()
}

/// Writes receipts of `clients` clients with `events` events each. All events have one outcome and `attempts` attempts.
fn receipts(folder: &Folder, clients: u32, events: u32, outcome: EventOutcome, attempts: u8) {
    let mut lines = vec![header(1, 0, 0, clients)];
    lines.extend((0..clients).map(|client| run(client, 0, events - 1, outcome, attempts)));
    lines.push(ReceiptLine::End(ReceiptEnd { events: u64::from(clients * events) }));
    folder.write("receipts/receipts-0.jsonl", text(&lines));
}

/// Lines as a listener stores them. Clients take turns, one event each.
fn stored(clients: u32, events: u32) -> Vec<Vec<u8>> {
    let numbering = numbering();
    let numbers = (0..events).flat_map(|number| (0..clients).map(move |client| (client, number)));
    let lines = numbers.map(|(client, number)| {
        format!("2020-01-13T17:52:09+09:00\t{}\n", event(&numbering, client, number)).into_bytes()
    });
    lines.collect()
}

fn finding_of(result: &AuditResult, finding: AuditFinding) -> Vec<(Option<String>, Option<u64>)> {
    let kept = result.examples.iter().filter(|example| example.finding == finding);
    kept.map(|example| (example.event.clone(), example.line)).collect()
}

#[test]
fn whole_files_are_clean_plain_or_compressed() {
    use std::io::Write;
    let folder = Folder::new();
    receipts(&folder, 3, 100, EventOutcome::Written, 1);
    let lines = stored(3, 100);
    folder.write("files/a.log", lines[..100].concat());
    let mut gzip = Vec::new();
    for part in [&lines[100..120], &lines[120..200]] {
        let mut member = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        member.write_all(&part.concat()).unwrap();
        gzip.extend(member.finish().unwrap());
    }
    folder.write("files/b.log.gz", gzip);
    folder.write("files/c.log.zst", zstd::encode_all(&lines[200..].concat()[..], 1).unwrap());
    folder.write("files/.journal", "not a segment");
    std::os::unix::fs::symlink(folder.0.join("files/a.log"), folder.0.join("files/current.log")).unwrap();
    let result = folder.audit();
    assert!(result.is_clean() && result.is_conclusive(), "{result:#?}");
    assert_eq!((result.stored, result.sent.written, result.missing.total()), (300, 300, 0));
    assert_eq!((result.read.files, result.read.lines, result.out_of_order), (3, 300, 0));
    assert_eq!(result.read.bytes, lines.concat().len() as u64);
}

#[test]
fn each_damage_is_found_at_its_position() {
    let lines = stored(2, 20);
    let check =
        |damaged: Vec<Vec<u8>>, counts: [u64; 4], finding: AuditFinding, event: &str, line: Option<u64>| {
            let folder = Folder::new();
            receipts(&folder, 2, 20, EventOutcome::Synced, 1);
            folder.write("files/x.log", damaged.concat());
            let result = folder.audit();
            let AuditResult { lost, duplicated, corrupt, out_of_order, .. } = result;
            assert_eq!([lost, duplicated, corrupt, out_of_order], counts, "{result:#?}");
            assert_eq!(finding_of(&result, finding), [(Some(event.to_owned()), line)], "{result:#?}");
        };
    // Line 7 contains event 3 of client 0, line 8 event 3 of client 1.
    let mut removed = lines.clone();
    removed.remove(6);
    check(removed, [1, 0, 0, 0], AuditFinding::Lost, "0000feed-000000-00000003", None);
    let mut doubled = lines.clone();
    doubled.insert(7, lines[6].clone());
    check(doubled, [0, 1, 0, 0], AuditFinding::Duplicated, "0000feed-000000-00000003", Some(8));
    let mut flipped = lines.clone();
    flipped[6][40] ^= 4;
    check(flipped.clone(), [1, 0, 1, 0], AuditFinding::Corrupt, "0000feed-000000-00000003", Some(7));
    check(flipped, [1, 0, 1, 0], AuditFinding::Lost, "0000feed-000000-00000003", None);
    let mut swapped = lines.clone();
    swapped.swap(6, 8);
    check(swapped, [0, 0, 0, 1], AuditFinding::OutOfOrder, "0000feed-000000-00000003", Some(9));
    let mut other_client = lines.clone();
    other_client.swap(6, 7);
    let folder = Folder::new();
    receipts(&folder, 2, 20, EventOutcome::Synced, 1);
    folder.write("files/x.log", other_client.concat());
    assert_eq!(folder.audit().out_of_order, 0, "clients know nothing of each other");
    for cut in [1, 30, 80, 120, 170] {
        let mut torn = lines.clone();
        let last = torn.last_mut().unwrap();
        last.truncate(last.len() - cut);
        let folder = Folder::new();
        receipts(&folder, 2, 20, EventOutcome::Synced, 1);
        folder.write("files/x.log", torn.concat());
        let result = folder.audit();
        // An event that lacks only its line end is complete.
        let n = u64::from(cut > 1);
        assert_eq!((result.lost, result.corrupt, result.torn), (n, n, n), "{cut}: {result:#?}");
    }
}

#[test]
fn a_first_line_without_an_end_is_torn_only_if_an_event_begins_in_it() {
    let line = stored(1, 1).concat();
    for (text, torn) in [(&line[..60], 1), (&b"2020-01-13T17:52:09+09:00\tstopped"[..], 0)] {
        let folder = Folder::new();
        receipts(&folder, 1, 1, EventOutcome::Written, 1);
        folder.write("files/x.log", text);
        let result = folder.audit();
        assert_eq!((result.torn, result.corrupt, result.other_lines), (torn, torn, 1 - torn), "{result:#?}");
    }
}

#[test]
fn retries_may_be_stored_as_often_as_they_were_sent() {
    let folder = Folder::new();
    receipts(&folder, 1, 1, EventOutcome::Written, 2);
    let line = stored(1, 1).concat();
    folder.write("files/x.log", line.repeat(2));
    let result = folder.audit();
    assert_eq!((result.stored, result.repeated, result.duplicated), (1, 1, 0));
    folder.write("files/x.log", line.repeat(300));
    let result = folder.audit();
    assert_eq!((result.repeated, result.duplicated), (1, 298));
    assert_eq!(result.examples.len(), record::audit::MAX_EXAMPLES);
}

#[test]
fn an_acknowledgement_is_checked_at_its_own_level() {
    let folder = Folder::new();
    let lines = [
        header(1, 0, 0, 1),
        run(0, 0, 0, EventOutcome::Accepted, 1),
        run(0, 1, 1, EventOutcome::Written, 1),
        run(0, 2, 2, EventOutcome::Synced, 1),
        run(0, 3, 3, EventOutcome::Acknowledged, 1),
        run(0, 4, 4, EventOutcome::Refused, 1),
        run(0, 5, 5, EventOutcome::Unknown, 1),
        run(0, 6, 6, EventOutcome::Unsent, 0),
        ReceiptLine::End(ReceiptEnd { events: 7 }),
    ];
    folder.write("receipts/receipts-0.jsonl", text(&lines));
    for (level, lost) in
        [(None, 4), (Some(AckLevel::Accepted), 4), (Some(AckLevel::Written), 3), (Some(AckLevel::Synced), 2)]
    {
        let result = folder.audit_at(level);
        assert_eq!((result.lost, result.missing.total()), (lost, 7), "{level:?}");
    }
    folder.write("files/x.log", stored(1, 8).concat());
    // Adds the last event, and all events of a client that the complete receipts do not contain.
    folder.write("files/y.log", stored(2, 2)[1].clone());
    let result = folder.audit();
    assert_eq!((result.lost, result.refused_stored, result.unknown_stored, result.never_sent), (0, 1, 1, 3));
    assert_eq!(finding_of(&result, AuditFinding::NeverSent).len(), 3);
}

#[test]
fn events_of_incomplete_receipts_are_unaccounted() {
    let folder = Folder::new();
    folder.write("receipts/receipts-0.jsonl", text(&[header(3, 0, 0, 1)]));
    let whole = [
        header(3, 1, 1, 1),
        run(1, 0, 4, EventOutcome::Written, 1),
        ReceiptLine::End(ReceiptEnd { events: 5 }),
    ];
    folder.write("receipts/receipts-1.jsonl", text(&whole));
    folder.write("files/x.log", stored(3, 5).concat());
    let result = folder.audit();
    assert!(!result.is_conclusive() && result.is_clean(), "{result:#?}");
    assert_eq!(result.incomplete.len(), 2, "{:?}", result.incomplete);
    assert_eq!((result.stored, result.unaccounted, result.never_sent), (5, 10, 0));
    let empty = Folder::new();
    assert!(!empty.audit().is_conclusive());
}

#[test]
fn claimed_positions_are_compared_with_the_lines() {
    let folder = Folder::new();
    let lines = stored(1, 3);
    let claim = |number: u32, segment: &str, offset: usize| {
        let (segment, offset) = (segment.to_owned(), offset as u64);
        ReceiptLine::Stored(StoredAt { client: 0, number, segment, offset, bytes: 1 })
    };
    let second = lines[0].len();
    let receipts = [
        header(1, 0, 0, 1),
        run(0, 0, 2, EventOutcome::Written, 1),
        claim(1, "files/x.log", second),
        claim(2, "x.log", second),
        claim(2, "x.log", second + 1),
        claim(2, "y.log", 0),
        ReceiptLine::End(ReceiptEnd { events: 3 }),
    ];
    folder.write("receipts/receipts-0.jsonl", text(&receipts));
    folder.write("files/x.log", lines.concat());
    let result = folder.audit();
    assert_eq!(result.places, PlaceCounts { right: 1, wrong: 2, unchecked: 1 });
    assert!(!result.is_clean());
}

#[test]
fn a_position_is_promised_only_with_its_event() {
    let folder = Folder::new();
    let claim = |number| {
        ReceiptLine::Stored(StoredAt { client: 0, number, segment: "x.log".to_owned(), offset: 9, bytes: 1 })
    };
    let lines = [
        header(1, 0, 0, 1),
        run(0, 0, 0, EventOutcome::Synced, 1),
        run(0, 1, 1, EventOutcome::Written, 1),
        run(0, 2, 2, EventOutcome::Unknown, 1),
        claim(0),
        claim(1),
        claim(2),
        ReceiptLine::End(ReceiptEnd { events: 3 }),
    ];
    folder.write("receipts/receipts-0.jsonl", text(&lines));
    folder.write("files/x.log", "");
    for (level, wrong) in [(None, 2), (Some(AckLevel::Written), 2), (Some(AckLevel::Synced), 1)] {
        let result = folder.audit_at(level);
        assert_eq!((result.places.wrong, result.lost), (wrong, wrong), "{level:?}");
    }
}

#[test]
fn rotated_and_half_packed_files_are_clean() {
    use std::io::Write;
    let folder = Folder::new();
    let stored = stored(1, 8);
    let mut lines = vec![header(1, 0, 0, 1), run(0, 0, 7, EventOutcome::Written, 1)];
    for number in 0..8 {
        let (segment, offset) = ("x.log".to_owned(), stored[number as usize % 2].len() as u64 * (number % 2));
        let number = number as u32;
        lines.push(ReceiptLine::Stored(StoredAt { client: 0, number, segment, offset, bytes: 1 }));
    }
    lines.push(ReceiptLine::End(ReceiptEnd { events: 8 }));
    folder.write("receipts/receipts-0.jsonl", text(&lines));
    let pair = |at: usize| stored[at..at + 2].concat();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&pair(0)).unwrap();
    folder.write("files/x.log.2.gz", gzip.finish().unwrap());
    folder.write("files/x.log.1", pair(2));
    folder.write("files/x.log-20261121", pair(4));
    folder.write("files/x.log", pair(6));
    // As if packing was interrupted before the plain file was removed.
    folder.write("files/x.log.zst", zstd::encode_all(&pair(6)[..], 1).unwrap());
    let result = folder.audit();
    assert!(result.is_clean(), "{result:#?}");
    assert_eq!((result.places.right, result.repeated, result.read.files), (8, 0, 4));
    // A compressed file with different lines is not a copy.
    folder.write("files/x.log.zst", zstd::encode_all(&pair(4)[..], 1).unwrap());
    assert_eq!(folder.audit().duplicated, 2);
}

#[test]
fn foreign_lines_are_no_findings() {
    let folder = Folder::new();
    receipts(&folder, 1, 2, EventOutcome::Written, 1);
    let [first, second] = &stored(1, 2)[..] else { panic!("two events") };
    let other = "a NUL \0 in another log\n{\"app\":\"proofload\"}\n";
    let unnumbered = format!("{REFERENCE_EVENT}\n");
    let foreign = format!("{}\0\n", event(&Numbering::new(REFERENCE_EVENT, RunId(1)).unwrap(), 0, 0));
    let others = [other, &unnumbered, &foreign].concat();
    folder.write("files/x.log", [&first[..], others.as_bytes(), second].concat());
    let result = folder.audit();
    assert!(result.is_clean(), "{result:#?}");
    assert_eq!((result.stored, result.other_lines, result.foreign_events), (2, 3, 1));
    // A torn event, or an event with NUL bytes, is corrupt at any position.
    let torn = [&first[..70], b"\n", &first[..90], b"\0\0\n"].concat();
    folder.write("files/x.log", [&first[..], &torn, second].concat());
    let result = folder.audit();
    assert_eq!((result.corrupt, result.torn, result.lost), (2, 0, 0), "{result:#?}");
    let zeros = [&first[..first.len() - 1], b"\0\n", second].concat();
    folder.write("files/x.log", zeros);
    assert_eq!(folder.audit().corrupt, 1);
}

#[test]
fn wrong_receipts_and_missing_files_are_errors() {
    let folder = Folder::new();
    let error_of = |lines: &[ReceiptLine]| {
        folder.write("receipts/receipts-0.jsonl", text(lines));
        audit(&AuditOptions { receipts: vec![folder.0.join("receipts")], ..AuditOptions::default() })
            .unwrap_err()
            .to_string()
    };
    let end = ReceiptLine::End(ReceiptEnd { events: 1 });
    assert!(error_of(std::slice::from_ref(&end)).contains("line 1: receipts need exactly one header"));
    let gap = run(0, 1, 1, EventOutcome::Written, 1);
    assert!(error_of(&[header(1, 0, 0, 1), gap]).contains("client 0: expected a range from event 0 on"));
    let other_worker = run(1, 0, 1, EventOutcome::Written, 1);
    assert!(error_of(&[header(1, 0, 0, 1), other_worker]).contains("belongs to another worker"));
    assert!(error_of(&[header(1, 0, 0, 1), end]).contains("counts 1 events, but the lines above contain 0"));
    assert!(error_of(&[header(1, 0, 1 << 24, 1)]).contains("more clients than 24 bits can number"));
    folder.write("receipts/receipts-1.jsonl", text(&[header(2, 1, 1, 1)]));
    assert!(error_of(&[header(3, 0, 0, 1)]).contains("a different template or number of workers"));
    assert!(error_of(&[header(2, 1, 0, 1)]).contains("worker 1 have already been read"));
    fs::remove_file(folder.0.join("receipts/receipts-1.jsonl")).unwrap();
    let options = AuditOptions { files: vec!["/nowhere/at/all".to_owned()], ..AuditOptions::default() };
    assert!(audit(&options).unwrap_err().to_string().contains("/nowhere/at/all"));
    let pattern = AuditOptions {
        files: vec![folder.0.join("files/*.log").display().to_string()],
        ..AuditOptions::default()
    };
    assert_eq!(audit(&pattern).unwrap().read.files, 0);
}

#[test]
fn numbers_in_receipts_reserve_no_memory() {
    let folder = Folder::new();
    let events = u64::from(u32::MAX);
    let lines = [
        header(1, 0, 0, 1 << 24),
        run(7, 0, u32::MAX - 1, EventOutcome::Written, 1),
        ReceiptLine::End(ReceiptEnd { events }),
    ];
    folder.write("receipts/receipts-0.jsonl", text(&lines));
    let marker = |number| event(&numbering(), 7, number);
    folder.write("files/x.log", format!("{}\n{}\n", marker(0), marker(u32::MAX - 1)));
    let result = folder.audit();
    assert_eq!((result.stored, result.lost, result.sent.written), (2, events - 2, events), "{result:#?}");
}

#[test]
fn a_compressed_file_that_was_cut_is_a_finding() {
    let folder = Folder::new();
    receipts(&folder, 1, 2_000, EventOutcome::Written, 1);
    let whole = zstd::encode_all(&stored(1, 2_000).concat()[..], 1).unwrap();
    folder.write("files/x.log.zst", &whole[..whole.len() / 2]);
    let result = folder.audit();
    assert!(result.corrupt > 0 && result.lost > 0, "{result:#?}");
    assert_eq!(result.stored + result.lost, 2_000);
}

#[test]
fn lines_longer_than_a_chunk_are_read_whole() {
    let folder = Folder::new();
    receipts(&folder, 1, 2, EventOutcome::Written, 1);
    let lines = stored(1, 2);
    let long = "x".repeat(3 << 20);
    folder
        .write("files/x.log", [long.as_bytes(), &lines[0], long.as_bytes(), b"\n\0\0\n", &lines[1]].concat());
    let result = folder.audit();
    assert_eq!((result.stored, result.other_lines, result.corrupt), (2, 1, 1), "{result:#?}");
    assert_eq!(result.read.lines, 4);
}
