//! Tests of writing and reading the journal.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

use super::*;
use crate::lock::Lock;

fn opened(id: u64, path: &str) -> Entry {
    let segment = Segment {
        path: path.into(),
        inode: Inode { number: 7, born_ns: None },
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

#[test]
fn a_journal_that_others_may_have_written_is_refused_and_no_link_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    fs::create_dir(&state).unwrap();
    let [precious, journal_file] = [folder.path().join("precious"), state.join("journal")];
    fs::write(&precious, "precious").unwrap();
    let refused = || Journal::open(&state).unwrap_err().to_string();

    symlink(&precious, state.join("journal.new")).unwrap();
    let (journal, _) = Journal::open(&state).unwrap();
    journal.append(&[opened(1, "a.log")], true).unwrap();
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");

    fs::set_permissions(&journal_file, fs::Permissions::from_mode(0o620)).unwrap();
    assert!(refused().contains("can be written to by other users: recovery changes the files"));
    fs::set_permissions(&journal_file, fs::Permissions::from_mode(0o600)).unwrap();
    fs::hard_link(&journal_file, state.join("second")).unwrap();
    assert!(refused().contains("has a second hard link"));
    fs::remove_file(state.join("second")).unwrap();
    // Earlier versions left the folder with this mode.
    fs::set_permissions(&state, fs::Permissions::from_mode(0o775)).unwrap();
    assert_eq!(Journal::open(&state).unwrap().0.unfinished().len(), 1);

    fs::rename(&journal_file, folder.path().join("moved")).unwrap();
    symlink("../moved", &journal_file).unwrap();
    assert!(refused().contains("is a link"));
}

#[test]
fn the_lock_of_an_earlier_version_is_taken_and_a_planted_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let (lock, precious) = (folder.path().join("lock"), folder.path().join("precious"));
    fs::write(&precious, "precious").unwrap();
    fs::write(&lock, "12\n").unwrap();
    fs::set_permissions(&lock, fs::Permissions::from_mode(0o664)).unwrap();
    drop(Lock::acquire(folder.path()).unwrap());
    assert_eq!(fs::read_to_string(&lock).unwrap().trim(), std::process::id().to_string());
    for plant in [|to: &Path, at: &Path| symlink(to, at), |to: &Path, at: &Path| fs::hard_link(to, at)] {
        fs::remove_file(&lock).unwrap();
        plant(&precious, &lock).unwrap();
        let refused = Lock::acquire(folder.path()).unwrap_err();
        assert!(matches!(refused, Error::Config(_)), "{refused}");
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    }
}
