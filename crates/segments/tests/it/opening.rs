//! Only one process can use a journal.

use segments::{Error, Level, Store};

use crate::rig::{Rig, config};

#[test]
fn a_second_store_is_refused_and_the_error_names_the_owner() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::open(config(folder.path(), "x"), 1);
    match Store::open(config(folder.path(), "y"), 1) {
        Err(Error::Locked { pid, .. }) => assert_eq!(pid, std::process::id().to_string()),
        other => panic!("{other:?}"),
    }
    rig.store.close().unwrap();
    Rig::open(config(folder.path(), "y"), 1);
}

#[test]
fn a_store_that_is_dropped_still_writes_what_it_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::open(config(folder.path(), "x"), 1);
    let key = rig.key("");
    crate::rig::submit(&mut rig.ports[0], &[(1, &key, Level::Synced, "line\n")]);
    let Rig { store, mut ports, .. } = rig;
    drop(store);
    assert!(crate::rig::answers(&mut ports[0], 1)[0].result.is_ok());
}

#[test]
fn folders_that_cannot_be_made_are_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    let error = Store::open(config(&folder.path().join("file"), "x"), 1).unwrap_err().to_string();
    assert!(error.contains("cannot make the folder") && error.contains("file"), "{error}");
}
