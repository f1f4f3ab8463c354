//! When segments end and others begin, no line is lost, split or duplicated.

use std::{collections::HashMap, fs, io::Write, time::Duration};

use segments::{Config, Level};

use crate::rig::{Rig, answers, config, lines, names, submit, text};

#[test]
fn several_ports_rotate_one_key_and_every_line_is_there_once() {
    const PORTS: usize = 4;
    const LINES: usize = 2000;
    let folder = tempfile::tempdir().unwrap();
    let settings = Config { rotate_bytes: Some(5000), ..config(folder.path(), "x") };
    let rig = Rig::open(settings.clone(), PORTS);
    let key = rig.key("");
    let threads: Vec<_> = rig
        .ports
        .into_iter()
        .enumerate()
        .map(|(number, mut port)| {
            let key = key.clone();
            std::thread::spawn(move || {
                for line in 0..LINES {
                    let level = if line % 100 == 0 { Level::Synced } else { Level::Written };
                    submit(&mut port, &[(line as u64, &key, level, &format!("{number}-{line:05}\n"))]);
                }
                answers(&mut port, LINES)
            })
        })
        .collect();
    let done: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    rig.store.close().unwrap();
    let stored = lines(folder.path());
    assert_eq!(stored.len(), PORTS * LINES);
    for (port, done) in done.into_iter().enumerate() {
        for done in done {
            let receipt = done.result.unwrap();
            let position = (receipt.segment.to_string(), receipt.offset);
            assert_eq!(stored[&format!("{port}-{:05}", done.token)], [position]);
        }
    }
    let files = names(folder.path());
    assert_eq!(files.len(), (PORTS * LINES * 8).div_ceil(5000));
    let sizes: HashMap<_, _> =
        files.iter().map(|name| (name, fs::metadata(folder.path().join(name)).unwrap().len())).collect();
    assert!(sizes.values().all(|&size| size <= 5000), "{sizes:?}");

    // The next start continues the newest file.
    let newest = format!("x_{}.log", files.len() - 1);
    let mut rig = Rig::open(settings, 1);
    let receipt = rig.put(&rig.key(""), Level::Written, "more\n").unwrap();
    assert_eq!((&*receipt.segment, receipt.offset), (&*newest, sizes[&newest]));
}

#[test]
fn a_part_larger_than_a_segment_has_one_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::open(Config { rotate_bytes: Some(10), ..config(folder.path(), "x") }, 1);
    let key = rig.key("");
    let long = "x".repeat(5_000_000) + "\n";
    for (lines, segment) in [("a\n", "x.log"), (&long, "x_1.log"), ("b\n", "x_2.log"), ("c\n", "x_2.log")] {
        assert_eq!(&*rig.put(&key, Level::Written, lines).unwrap().segment, segment);
    }
    assert_eq!(rig.text("x_1.log").len(), long.len());
    assert_eq!(names(folder.path()), ["x.log", "x_1.log", "x_2.log"]);
}

#[test]
fn more_keys_than_open_files() {
    let folder = tempfile::tempdir().unwrap();
    for append in [true, false] {
        let folder = folder.path().join(append.to_string());
        let mut rig = Rig::open(Config { max_open: 3, append, ..config(&folder, "${tag}") }, 1);
        let keys: Vec<_> = (0..20).map(|number| rig.key(&format!("t{number}"))).collect();
        for round in 0..3 {
            let line = format!("round {round}\n");
            let parts: Vec<_> = keys.iter().map(|key| (0, key, Level::Synced, line.as_str())).collect();
            submit(&mut rig.ports[0], &parts);
            assert!(answers(&mut rig.ports[0], 20).iter().all(|done| done.result.is_ok()));
            assert!(rig.store.statistics().open_segments <= 3);
        }
        rig.store.close().unwrap();
        let files = names(&folder);
        assert_eq!(files.len(), 20, "a key whose file was closed goes on with it: {files:?}");
        assert!(files.iter().all(|name| text(&folder.join(name)) == "round 0\nround 1\nround 2\n"));
    }
}

#[test]
fn every_start_has_its_own_files_unless_it_appends() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Config { append: false, ..config(folder.path(), "${tag}") };
    for number in 0..3 {
        let mut rig = Rig::open(settings.clone(), 1);
        let receipt = rig.put(&rig.key("x"), Level::Written, "line\n").unwrap();
        assert_eq!(*receipt.segment, format!("x_{number}.log"));
        rig.store.close().unwrap();
    }
}

#[test]
fn two_keys_never_share_a_file_while_both_are_open() {
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::open(Config { rotate_bytes: Some(4), ..config(folder.path(), "${tag}") }, 1);
    let (one, other) = (rig.key("x"), rig.key("x_1"));
    assert_eq!(&*rig.put(&one, Level::Written, "a\n").unwrap().segment, "x.log");
    assert_eq!(&*rig.put(&other, Level::Written, "o\n").unwrap().segment, "x_1.log");
    assert_eq!(&*rig.put(&one, Level::Written, "bcd\n").unwrap().segment, "x_2.log");
    assert_eq!(rig.put(&other, Level::Written, "p\n").unwrap().offset, 2);
    assert_eq!(rig.text("x_1.log"), "o\np\n");
}

#[test]
fn a_renamed_segment_is_begun_anew_on_reopen() {
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::open(config(folder.path(), "x"), 1);
    let key = rig.key("");
    rig.put(&key, Level::Written, "one\n").unwrap();
    fs::rename(folder.path().join("x.log"), folder.path().join("x.log.1")).unwrap();
    rig.put(&key, Level::Written, "two\n").unwrap();
    rig.store.reopen();
    assert_eq!(rig.put(&key, Level::Synced, "three\n").unwrap().offset, 0);
    assert_eq!(rig.text("x.log.1"), "one\ntwo\n");
    assert_eq!(rig.text("x.log"), "three\n");
}

#[test]
fn a_removed_segment_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::open(config(folder.path(), "deep/${tag}/x"), 1);
    let key = rig.key("t");
    rig.put(&key, Level::Written, "one\n").unwrap();
    fs::remove_dir_all(folder.path().join("deep/t")).unwrap();
    // The store checks paths once per second and links every 50 ms.
    std::thread::sleep(Duration::from_millis(1050));
    assert_eq!(rig.put(&key, Level::Synced, "two\n").unwrap().offset, 0);
    assert_eq!(text(&folder.path().join("deep/t/x.log")), "two\n");
    assert_eq!(names(&folder.path().join("deep/t")), ["x.log"]);
}

#[test]
fn a_segment_without_a_name_is_noticed_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::open(config(folder.path(), "x"), 1);
    let key = rig.key("");
    rig.put(&key, Level::Written, "one\n").unwrap();
    fs::remove_file(folder.path().join("x.log")).unwrap();
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(rig.put(&key, Level::Written, "two\n").unwrap().offset, 0);
    assert_eq!(rig.text("x.log"), "two\n");
    // The line goes to a new file, or it is not answered as synced.
    for number in 0..50 {
        fs::remove_file(folder.path().join("x.log")).unwrap();
        let line = format!("{number}\n");
        if rig.put(&key, Level::Synced, &line).is_err() {
            rig.put(&key, Level::Synced, &line).unwrap();
        }
        assert_eq!(rig.text("x.log"), line);
    }
}

#[test]
fn what_follows_a_cut_by_others_is_synced_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.log");
    let mut rig = Rig::open(config(folder.path(), "x"), 1);
    let key = rig.key("");
    rig.put(&key, Level::Synced, "a line that is longer than what follows\n").unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
    for syncs in 2..5 {
        rig.put(&key, Level::Synced, "short\n").unwrap();
        assert_eq!(rig.store.statistics().syncs, syncs);
    }
}

#[test]
fn others_may_write_to_a_segment_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.log");
    fs::write(&path, "before").unwrap();
    let mut rig = Rig::open(config(folder.path(), "x"), 1);
    let key = rig.key("");
    assert_eq!(rig.put(&key, Level::Written, "one\n").unwrap().offset, 7);
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"stranger\n").unwrap();
    assert_eq!(rig.put(&key, Level::Written, "two\n").unwrap().offset, 20);
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
    assert_eq!(rig.put(&key, Level::Written, "three\n").unwrap().offset, 0);
    assert_eq!(rig.text("x.log"), "three\n");
}
