//! Segments stay plain until they end, and are packed once.

use std::{fs, time::Duration};

use segments::{Compression, Config, Level};

use crate::rig::{Rig, config, names, now_s, text};

const SHORT: Duration = Duration::from_millis(50);

fn packing(folder: &std::path::Path, path: &str, compress: Compression) -> Config {
    Config { compress, ..config(folder, path) }
}

#[test]
fn what_ends_is_packed_and_late_lines_begin_another() {
    for (compress, suffix) in [(Compression::Gzip, "gz"), (Compression::Zstd, "zst")] {
        let folder = tempfile::tempdir().unwrap();
        let settings = Config { idle: SHORT, ..packing(folder.path(), "x", compress) };
        let mut rig = Rig::open(settings, 1);
        let key = rig.key("");
        assert_eq!(&*rig.put(&key, Level::Written, "one\n").unwrap().segment, "x.log");
        let packed = format!("x.log.{suffix}");
        rig.until("packed", |rig| names(&rig.folder) == [packed.clone()]);
        assert_eq!(&*rig.put(&key, Level::Written, "two\n").unwrap().segment, "x_1.log");
        let second = format!("x_1.log.{suffix}");
        rig.until("packed", |rig| names(&rig.folder).contains(&second) && names(&rig.folder).len() == 2);
        assert_eq!([rig.text(&packed), rig.text(&second)], ["one\n", "two\n"]);
        rig.until("counted", |rig| rig.store.statistics().open_segments == 0);
    }
}

#[test]
fn a_slice_ends_after_its_grace_and_the_present_one_stays_plain() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Config { grace: SHORT, ..packing(folder.path(), "%Y", Compression::Gzip) };
    let mut rig = Rig::open(settings, 1);
    let (past, present) = (rig.key_at("", 0), rig.key_at("", now_s()));
    rig.put(&present, Level::Written, "now\n").unwrap();
    rig.put(&past, Level::Written, "then\n").unwrap();
    let plain = format!("{}.log", present.path());
    rig.until("packed", |rig| names(&rig.folder) == ["1970.log.gz".to_owned(), plain.clone()]);
    assert_eq!([rig.text("1970.log.gz"), rig.text(&plain)], ["then\n", "now\n"]);
}

#[test]
fn what_was_rotated_is_packed_and_numbers_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Config { rotate_bytes: Some(8), ..packing(folder.path(), "x", Compression::Gzip) };
    for start in 0..2 {
        let mut rig = Rig::open(settings.clone(), 1);
        let key = rig.key("");
        for _ in 0..4 {
            rig.put(&key, Level::Written, "1234567\n").unwrap();
        }
        let packed = 3 + 4 * start;
        rig.until("packed", |rig| {
            names(&rig.folder).iter().filter(|name| name.ends_with(".gz")).count() == packed
        });
        rig.store.close().unwrap();
    }
    let files = names(folder.path());
    assert_eq!(files.len(), 8, "{files:?}");
    assert!(files.contains(&"x_7.log".to_owned()), "the live one is plain: {files:?}");
    assert!(files.iter().all(|name| text(&folder.path().join(name)) == "1234567\n"));
}

#[test]
fn what_had_not_ended_is_packed_after_a_later_start() {
    let folder = tempfile::tempdir().unwrap();
    let settings = packing(folder.path(), "${tag}", Compression::Zstd);
    let mut rig = Rig::open(Config { append: false, ..settings.clone() }, 1);
    rig.put(&rig.key("x"), Level::Written, "one\n").unwrap();
    rig.store.close().unwrap();
    assert_eq!(names(folder.path()), ["x_0.log"], "closing packs nothing");
    let mut rig = Rig::open(Config { append: false, ..settings.clone() }, 1);
    assert_eq!(&*rig.put(&rig.key("x"), Level::Written, "two\n").unwrap().segment, "x_0.log");
    rig.store.close().unwrap();
    let rig = Rig::open(Config { append: false, idle: SHORT, ..settings }, 1);
    rig.until("packed", |rig| names(&rig.folder) == ["x_0.log.zst"]);
    assert_eq!(rig.text("x_0.log.zst"), "one\ntwo\n");
}

#[test]
fn a_packed_file_that_is_there_is_never_touched() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Config { rotate_bytes: Some(4), ..packing(folder.path(), "x", Compression::Gzip) };
    let mut rig = Rig::open(settings, 1);
    let key = rig.key("");
    rig.put(&key, Level::Written, "one\n").unwrap();
    fs::write(folder.path().join("x.log.gz"), "somebody's").unwrap();
    for (lines, segment) in [("two\n", "x_1.log"), ("six\n", "x_2.log")] {
        assert_eq!(&*rig.put(&key, Level::Written, lines).unwrap().segment, segment);
    }
    // Segments are packed in the order in which they ended.
    rig.until("the second is packed", |rig| names(&rig.folder).contains(&"x_1.log.gz".to_owned()));
    assert_eq!(fs::read(folder.path().join("x.log.gz")).unwrap(), b"somebody's");
    assert_eq!(rig.text("x.log"), "one\n");
}

#[test]
fn relative_folders_and_a_journal_elsewhere_are_the_same_files() {
    let folder = tempfile::tempdir().unwrap();
    let up = "../".repeat(std::env::current_dir().unwrap().components().count() - 1);
    let relative = format!("{up}{}", folder.path().strip_prefix("/").unwrap().display());
    let state = tempfile::tempdir().unwrap();
    let settings = packing(relative.as_ref(), "x", Compression::Gzip);
    let settings = Config { state: state.path().into(), ..settings };
    let mut rig = Rig::open(settings.clone(), 1);
    rig.put(&rig.key(""), Level::Written, "one\n").unwrap();
    rig.store.close().unwrap();
    let mut rig = Rig::open(settings.clone(), 1);
    assert_eq!(rig.put(&rig.key(""), Level::Written, "two\n").unwrap().offset, 4);
    rig.store.close().unwrap();
    let rig = Rig::open(Config { idle: SHORT, ..settings }, 1);
    rig.until("packed", |rig| names(&rig.folder) == ["x.log.gz"]);
    assert_eq!(rig.text("x.log.gz"), "one\ntwo\n");
}
