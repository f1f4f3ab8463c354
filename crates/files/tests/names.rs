//! A process whose files are those of another machine: the only test of its program, because that holds until it ends.

use std::{
    collections::BTreeMap,
    fs,
    io::{ErrorKind, Read, Write},
};

#[test]
fn names_are_those_of_another_machine() {
    let folder = tempfile::tempdir().unwrap();
    let [sent, own, log] = ["sent", "own", "log"].map(|name| folder.path().join(name));
    fs::write(&own, "of this machine").unwrap();
    fs::write(&sent, "of this machine").unwrap();
    assert!(files::create_elsewhere(&log).is_none() && !files::is_elsewhere());
    assert_eq!(files::read(&own, 100).unwrap(), b"of this machine");

    files::are_elsewhere(BTreeMap::from([(sent.clone(), b"rows".to_vec())]));
    assert!(files::is_elsewhere());
    assert_eq!(files::read(&sent, 4).unwrap(), b"rows");
    assert_eq!(files::read(&sent, 3).unwrap_err().kind(), ErrorKind::FileTooLarge);
    // It can be read again, from its beginning.
    for _ in 0..2 {
        let mut text = String::new();
        files::open(&sent).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "rows");
    }
    for refused in [files::read(&own, 100).map(drop), files::open(&own).map(drop)] {
        assert!(refused.unwrap_err().to_string().contains("was not sent"));
    }
    assert_eq!(files::read_here(&own, 100).unwrap(), b"of this machine");

    let mut written = files::written("--log", &log, true, 0o600).unwrap();
    written.write_all(b"one\n").unwrap();
    written.write_all(b"two\n").unwrap();
    let again = files::create_elsewhere(&log).unwrap().unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    let mut large = files::create_elsewhere(&own).unwrap().unwrap();
    let megabyte = vec![b'x'; 1 << 20];
    let whole = (0..65).take_while(|_| large.write_all(&megabyte).is_ok()).count();
    assert_eq!(whole, 64);
    let written = files::written_elsewhere().unwrap();
    let lengths: Vec<_> = written.iter().map(|(name, bytes)| (name, bytes.len())).collect();
    assert_eq!(lengths, [(&log, 8), (&own, 64 << 20)]);
    assert_eq!(written[0].1, b"one\ntwo\n");
    assert!(!log.exists());
    assert_eq!(fs::read(&own).unwrap(), b"of this machine");
}
