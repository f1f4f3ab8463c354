//! Tests of writing and reading the journal.

use super::*;

fn opened(id: u64, path: &str) -> Entry {
    let segment = Segment {
        path: path.into(),
        inode: 7,
        good_bytes: 10,
        binary: false,
        key: "x".into(),
        index: None,
        end: Some(5),
    };
    Entry::Opened { id, segment }
}

#[test]
fn open_segments_are_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, damaged) = Journal::open(folder.path()).unwrap();
    assert_eq!((damaged, journal.unfinished()), (0, vec![]));
    let (one, two) = (journal.next_id(), journal.next_id());
    journal.append(&[opened(one, "a.log"), opened(two, "b.log")], true).unwrap();
    journal.append(&[Entry::Good { id: one, good_bytes: 99 }, Entry::Gone { id: two }], false).unwrap();
    drop(journal);
    let (journal, _) = Journal::open(folder.path()).unwrap();
    let unfinished = journal.unfinished();
    assert_eq!(unfinished.len(), 1);
    assert_eq!((unfinished[0].0, unfinished[0].1.segment.good_bytes), (one, 99));
    assert!(journal.next_id() > two || journal.next_id() > one);
}

#[test]
fn a_torn_record_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(folder.path()).unwrap();
    journal.append(&[opened(1, "a.log"), Entry::Good { id: 1, good_bytes: 50 }], true).unwrap();
    let path = folder.path().join("journal");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 4]).unwrap();
    let (journal, damaged) = Journal::open(folder.path()).unwrap();
    assert_eq!(damaged, 1);
    assert_eq!(journal.unfinished()[0].1.segment.good_bytes, 10);
}

#[test]
fn facts_are_written_after_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    fs::create_dir(&state).unwrap();
    let (journal, _) = Journal::open(&state).unwrap();
    journal.append(&[opened(1, "a.log"), opened(2, "b.log")], true).unwrap();
    journal.require_rewrite();
    fs::remove_dir_all(&state).unwrap();
    journal.append(&[Entry::Gone { id: 2 }], true).unwrap_err();
    journal.append_eventually(&[Entry::Good { id: 1, good_bytes: 99 }], true).unwrap_err();
    assert!(journal.needs_rewrite());
    fs::create_dir(&state).unwrap();
    journal.append(&[opened(3, "c.log")], true).unwrap();
    let (journal, _) = Journal::open(&state).unwrap();
    let good =
        journal.unfinished().iter().map(|(_, unfinished)| unfinished.segment.good_bytes).collect::<Vec<_>>();
    assert_eq!(good, [99, 10, 10]);
}

#[test]
fn a_long_journal_is_rewritten() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(folder.path()).unwrap();
    journal.append(&[opened(1, "a.log")], true).unwrap();
    for good_bytes in 0..20_000 {
        journal.append(&[Entry::Good { id: 1, good_bytes }], false).unwrap();
    }
    assert!(fs::metadata(folder.path().join("journal")).unwrap().len() < REWRITE_BYTES + 200);
    drop(journal);
    assert_eq!(Journal::open(folder.path()).unwrap().0.unfinished()[0].1.segment.good_bytes, 19_999);
}
