//! A part of a line that a failed write has left, on a disk that does not let itself be cut either.
//!
//! A file that may only be appended to is such a disk, and can be told when to allow it again. Each test runs
//! itself again as root on a filesystem of its own, under a limit that a fourth line exceeds half way.

use std::{fs::File, path::Path, time::Duration};

use rustix::fs::{IFlags, ioctl_setflags};
use segments::{Compression, Config, Level};

use crate::{
    disk::{again, as_root, inside},
    rig::{Rig, config, names},
};

const LIMIT_BYTES: usize = 64 * 512;
const LINE_BYTES: usize = 10_000;
const FIT: usize = LIMIT_BYTES / LINE_BYTES;

/// Runs `test` with a folder in which files may be kept from being cut.
fn on_such_a_disk(name: &str, test: impl FnOnce(&Path)) {
    if let Some(folder) = inside() {
        return test(&folder);
    }
    let folder = tempfile::tempdir().unwrap();
    let wrap = "mount -t tmpfs none \"$0\" && touch \"$0/.probe\" && chattr +a \"$0/.probe\" && \
                trap '' XFSZ && ulimit -f 64";
    if let Some(mut wrapped) = as_root(wrap) {
        again(&format!("remainder::{name}"), folder.path(), &mut wrapped, wrap);
    }
}

fn line() -> String {
    "l".repeat(LINE_BYTES - 1) + "\n"
}

fn cutting(path: &Path, allowed: bool) {
    let flags = if allowed { IFlags::empty() } else { IFlags::APPEND };
    ioctl_setflags(File::open(path).unwrap(), flags).unwrap();
}

/// A store whose first segment ends in a part of a line, and has been followed by the next.
fn torn(folder: &Path, compress: Compression) -> Rig {
    // Swept often.
    let grace = Duration::from_millis(20);
    let mut rig = Rig::open(Config { grace, compress, ..config(folder, "x") }, 1);
    let key = rig.key("");
    for number in 0..=FIT {
        let receipt = rig.put(&key, Level::Synced, &line()).unwrap();
        assert_eq!(&*receipt.segment, if number < FIT { "x.log" } else { "x_1.log" });
        cutting(&folder.join("x.log"), number + 1 < FIT);
    }
    assert_eq!(rig.text("x.log").len(), LIMIT_BYTES);
    rig
}

#[test]
fn it_is_cut_as_soon_as_the_disk_lets_itself_be_cut() {
    on_such_a_disk("it_is_cut_as_soon_as_the_disk_lets_itself_be_cut", |folder| {
        let mut rig = torn(folder, Compression::None);
        cutting(&folder.join("x.log"), true);
        rig.until("cut", |rig| rig.text("x.log") == line().repeat(FIT));
        let key = rig.key("");
        assert_eq!(rig.put(&key, Level::Synced, &line()).unwrap().segment, "x_1.log".into());
        rig.store.close().unwrap();
        drop(rig);
        let rig = Rig::open(config(folder, "x"), 1);
        assert_eq!((rig.recovery.segments, rig.cut_bytes()), (0, 0));
    });
}

#[test]
fn it_is_cut_when_the_store_is_closed() {
    on_such_a_disk("it_is_cut_when_the_store_is_closed", |folder| {
        let mut rig = Rig::open(config(folder, "x"), 1);
        let key = rig.key("");
        rig.put(&key, Level::Synced, &line()).unwrap();
        cutting(&folder.join("x.log"), false);
        rig.put(&key, Level::Written, &(line().repeat(FIT) + &line())).unwrap_err();
        cutting(&folder.join("x.log"), true);
        rig.store.close().unwrap();
        assert_eq!(rig.text("x.log"), line());
    });
}

#[test]
fn it_is_cut_by_the_next_start_if_not_before() {
    on_such_a_disk("it_is_cut_by_the_next_start_if_not_before", |folder| {
        let rig = torn(folder, Compression::None);
        rig.store.close().unwrap();
        // Its whole lines once more too, behind which something was written.
        assert_eq!(rig.store.statistics().syncs, FIT as u64 + 2);
        drop(rig);
        cutting(&folder.join("x.log"), true);
        let rig = Rig::open(config(folder, "x"), 1);
        assert_eq!((rig.recovery.segments, rig.recovery.truncations.len()), (1, 1));
        assert_eq!(rig.cut_bytes(), (LIMIT_BYTES - FIT * LINE_BYTES) as u64);
        assert_eq!(rig.text("x.log"), line().repeat(FIT));
    });
}

#[test]
fn it_is_not_packed() {
    on_such_a_disk("it_is_not_packed", |folder| {
        let rig = torn(folder, Compression::Gzip);
        // Some sweeps later.
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(names(folder), ["x.log", "x_1.log"]);
        cutting(&folder.join("x.log"), true);
        rig.until("packed", |_| names(folder) == ["x.log.gz", "x_1.log"]);
        assert_eq!(rig.text("x.log.gz"), line().repeat(FIT));
    });
}
