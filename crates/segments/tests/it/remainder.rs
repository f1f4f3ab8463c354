//! A failed write leaves part of a line in a file, and the file cannot be truncated.
//!
//! The tests give the file the attribute "append only", which prevents truncation, and later remove it. Each test runs
//! itself again as root on a separate filesystem, with a file size limit in the middle of the fourth line.

use std::{fs::File, path::Path, time::Duration};

use rustix::fs::{IFlags, ioctl_setflags};
use segments::{Compression, Config, Level};

use crate::{
    disk::{inside, run_with_mounts},
    rig::{Rig, config, names},
};

const LIMIT_BYTES: usize = 64 * 512;
const LINE_BYTES: usize = 10_000;
const FITTING_LINES: usize = LIMIT_BYTES / LINE_BYTES;

/// Runs `test` with a folder whose files can be "append only".
fn with_folder(name: &str, test: impl FnOnce(&Path)) {
    if let Some(folder) = inside() {
        return test(&folder);
    }
    let folder = tempfile::tempdir().unwrap();
    let wrap = "mount -t tmpfs none \"$0\" && trap '' XFSZ && ulimit -f 64";
    run_with_mounts(&format!("remainder::{name}"), folder.path(), wrap);
}

fn line() -> String {
    "l".repeat(LINE_BYTES - 1) + "\n"
}

fn set_truncatable(path: &Path, allowed: bool) {
    let flags = if allowed { IFlags::empty() } else { IFlags::APPEND };
    ioctl_setflags(File::open(path).unwrap(), flags).unwrap();
}

/// A store whose first segment ends in part of a line. It has begun the next segment.
fn torn(folder: &Path, compress: Compression) -> Rig {
    // With a short grace time, the store sweeps often.
    let grace = Duration::from_millis(20);
    let mut rig = Rig::open(Config { grace, compress, ..config(folder, "x") }, 1);
    let key = rig.key("");
    for number in 0..=FITTING_LINES {
        let receipt = rig.put(&key, Level::Synced, &line()).unwrap();
        assert_eq!(&*receipt.segment, if number < FITTING_LINES { "x.log" } else { "x_1.log" });
        set_truncatable(&folder.join("x.log"), number + 1 < FITTING_LINES);
    }
    assert_eq!(rig.text("x.log").len(), LIMIT_BYTES);
    rig
}

#[test]
fn as_root_it_is_truncated_as_soon_as_the_disk_allows_it() {
    with_folder("as_root_it_is_truncated_as_soon_as_the_disk_allows_it", |folder| {
        let mut rig = torn(folder, Compression::None);
        set_truncatable(&folder.join("x.log"), true);
        rig.until("cut", |rig| rig.text("x.log") == line().repeat(FITTING_LINES));
        let key = rig.key("");
        assert_eq!(rig.put(&key, Level::Synced, &line()).unwrap().segment, "x_1.log".into());
        rig.store.close().unwrap();
        drop(rig);
        let rig = Rig::open(config(folder, "x"), 1);
        assert_eq!((rig.recovery.segments, rig.cut_bytes()), (0, 0));
    });
}

#[test]
fn as_root_it_is_truncated_when_the_store_is_closed() {
    with_folder("as_root_it_is_truncated_when_the_store_is_closed", |folder| {
        let mut rig = Rig::open(config(folder, "x"), 1);
        let key = rig.key("");
        rig.put(&key, Level::Synced, &line()).unwrap();
        set_truncatable(&folder.join("x.log"), false);
        rig.put(&key, Level::Written, &(line().repeat(FITTING_LINES) + &line())).unwrap_err();
        set_truncatable(&folder.join("x.log"), true);
        rig.store.close().unwrap();
        assert_eq!(rig.text("x.log"), line());
    });
}

#[test]
fn as_root_it_is_truncated_by_the_next_start_if_not_before() {
    with_folder("as_root_it_is_truncated_by_the_next_start_if_not_before", |folder| {
        let rig = torn(folder, Compression::None);
        rig.store.close().unwrap();
        // The whole lines of `x.log` are synced again, because part of a line was written after them.
        assert_eq!(rig.store.statistics().syncs, FITTING_LINES as u64 + 2);
        drop(rig);
        set_truncatable(&folder.join("x.log"), true);
        let rig = Rig::open(config(folder, "x"), 1);
        assert_eq!((rig.recovery.segments, rig.recovery.truncations.len()), (1, 1));
        assert_eq!(rig.cut_bytes(), (LIMIT_BYTES - FITTING_LINES * LINE_BYTES) as u64);
        assert_eq!(rig.text("x.log"), line().repeat(FITTING_LINES));
    });
}

#[test]
fn as_root_it_is_not_packed() {
    with_folder("as_root_it_is_not_packed", |folder| {
        let rig = torn(folder, Compression::Gzip);
        // Waits for several sweeps.
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(names(folder), ["x.log", "x_1.log"]);
        set_truncatable(&folder.join("x.log"), true);
        rig.until("packed", |_| names(folder) == ["x.log.gz", "x_1.log"]);
        assert_eq!(rig.text("x.log.gz"), line().repeat(FITTING_LINES));
    });
}
