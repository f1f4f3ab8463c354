//! Disks that are full or read-only, and files that may not grow. Each test runs itself again in an isolated
//! environment: a mount namespace or a process with a file size limit.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use segments::{Compression, Config, Failure, Level, StorageState};

use crate::rig::{Rig, config, names};

const INSIDE: &str = "SEGMENTS_TEST_INSIDE";

/// The folder of the test in the inner run; `None` in the outer run.
pub(crate) fn inside() -> Option<PathBuf> {
    env::var_os(INSIDE).map(PathBuf::from)
}

/// Runs the test `name` again after the shell command `wrap`, which gets the folder as `$0`. `wrapped` is the program
/// that runs both.
pub(crate) fn run_again(name: &str, folder: &Path, wrapped: &mut Command, wrap: &str) {
    // On Debian, the programs that create filesystems are in these folders.
    let path = format!("{}:/usr/sbin:/sbin", env::var("PATH").unwrap_or_default());
    // The output goes through pipes, because the file size limit would also apply to a log file.
    let output = wrapped
        .args(["sh", "-c", &format!("{wrap} && exec \"$@\"")])
        .arg(folder)
        .arg(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .envs([("PATH", path.as_ref()), (INSIDE, folder.as_os_str())])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{name} inside: {}\n{text}", output.status);
}

/// Like [`run_again`], in a separate mount namespace. Only root may create a mount namespace, so `make test` skips
/// these tests for other users.
pub(crate) fn run_with_mounts(name: &str, folder: &Path, wrap: &str) {
    run_again(name, folder, Command::new("unshare").args(["--mount", "--"]), wrap);
}

#[test]
fn as_root_a_full_disk_is_reported_and_recovered_from_without_a_restart() {
    let Some(folder) = inside() else {
        let folder = tempfile::tempdir().unwrap();
        let name = "disk::as_root_a_full_disk_is_reported_and_recovered_from_without_a_restart";
        return run_with_mounts(name, folder.path(), "mount -t tmpfs -o size=1m none \"$0\"");
    };
    let ballast = folder.join("ballast");
    fs::write(&ballast, vec![1; 256 << 10]).unwrap();
    let mut rig = Rig::open(config(&folder, "${tag}"), 1);
    let key = rig.key("x");
    let line = "l".repeat(9_999) + "\n";
    let mut stored = Vec::new();
    let failure = loop {
        match rig.put(&key, Level::Written, &line) {
            Ok(receipt) => stored.push(receipt),
            Err(failure) => break failure,
        }
        assert!(stored.len() < 200, "the disk was never full");
    };
    assert_eq!((failure, rig.store.state()), (Failure::Full, StorageState::Full));
    // The file contains no part of the line that did not fit.
    assert_eq!(rig.text("x.log"), line.repeat(stored.len()));
    assert_eq!(rig.put(&rig.key("other"), Level::Written, &line), Err(Failure::Full));
    assert_eq!(rig.put(&key, Level::Synced, &line), Err(Failure::Full));
    fs::remove_file(&ballast).unwrap();
    for level in [Level::Written, Level::Synced] {
        let receipt = rig.put(&key, level, &line).unwrap();
        assert_eq!((&*receipt.segment, receipt.offset), ("x.log", 10_000 * stored.len() as u64));
        stored.push(receipt);
    }
    assert_eq!(rig.store.state(), StorageState::Ok);
    assert_eq!(rig.text("x.log"), line.repeat(stored.len()));
    rig.put(&rig.key("other"), Level::Synced, &line).unwrap();
    rig.store.close().unwrap();
}

#[test]
fn as_root_a_store_opens_on_a_full_disk_and_notices_when_it_has_room_again() {
    let Some(folder) = inside() else {
        let folder = tempfile::tempdir().unwrap();
        let name = "disk::as_root_a_store_opens_on_a_full_disk_and_notices_when_it_has_room_again";
        return run_with_mounts(name, folder.path(), "mount -t tmpfs -o size=1m none \"$0\"");
    };
    // Closed segments stay in the journal until they are packed.
    let settings = Config { compress: Compression::Gzip, ..config(&folder, "${tag}") };
    let mut rig = Rig::open(settings.clone(), 1);
    rig.put(&rig.key("x"), Level::Synced, "one\n").unwrap();
    rig.store.close().unwrap();
    drop(rig);
    let ballast = folder.join("ballast");
    fs::write(&ballast, vec![1; 2 << 20]).unwrap_err();
    let mut rig = Rig::open(settings, 1);
    assert_eq!(rig.store.state(), StorageState::Full);
    assert_eq!(rig.put(&rig.key("x"), Level::Written, "two\n"), Err(Failure::Full));
    fs::remove_file(&ballast).unwrap();
    rig.until("well", |rig| rig.store.state() == StorageState::Ok);
    assert_eq!(rig.put(&rig.key("x"), Level::Synced, "three\n").unwrap().offset, 4);
    rig.store.close().unwrap();
    assert_eq!(names(&folder), ["x.log"]);
}

#[test]
fn as_root_parts_that_fit_are_stored_when_the_batch_does_not_fit() {
    let Some(folder) = inside() else {
        let folder = tempfile::tempdir().unwrap();
        let name = "disk::as_root_parts_that_fit_are_stored_when_the_batch_does_not_fit";
        return run_with_mounts(name, folder.path(), "mount -t tmpfs -o size=256k none \"$0\"");
    };
    let mut rig = Rig::open(config(&folder, "x"), 1);
    let key = rig.key("");
    let line = "l".repeat(999) + "\n";
    let parts: Vec<_> = (0..500).map(|token| (token, &key, Level::Written, line.as_str())).collect();
    crate::rig::submit(&mut rig.ports[0], &parts);
    let mut done = crate::rig::answers(&mut rig.ports[0], 500);
    done.sort_by_key(|done| done.token);
    let stored = done.iter().take_while(|done| done.result.is_ok()).count();
    assert!((100..256).contains(&stored), "{stored}");
    assert!(done[stored..].iter().all(|done| done.result == Err(Failure::Full)));
    assert_eq!(rig.text("x.log"), line.repeat(stored));
    assert_eq!(done.len(), 500);
}

#[test]
fn as_root_a_read_only_filesystem_is_reported_and_recovered_from() {
    let Some(folder) = inside() else {
        let folder = tempfile::tempdir().unwrap();
        let name = "disk::as_root_a_read_only_filesystem_is_reported_and_recovered_from";
        return run_with_mounts(name, folder.path(), "mount -t tmpfs none \"$0\"");
    };
    let state = tempfile::tempdir().unwrap();
    let idle = Duration::from_millis(20);
    let mut rig = Rig::open(Config { state: state.path().into(), idle, ..config(&folder, "x") }, 1);
    let key = rig.key("");
    rig.put(&key, Level::Written, "one\n").unwrap();
    let remount = |how: &str| Command::new("mount").args(["-o", how]).arg(&folder).output().unwrap();
    // A remount fails while a file is open for writing.
    rig.until("read-only", |_| remount("remount,ro").status.success());
    assert_eq!(rig.put(&key, Level::Synced, "two\n"), Err(Failure::ReadOnly));
    assert_eq!(rig.store.state(), StorageState::ReadOnly);
    assert!(remount("remount,rw").status.success());
    assert_eq!(rig.put(&key, Level::Synced, "three\n").unwrap().offset, 4);
    assert_eq!(rig.store.state(), StorageState::Ok);
    assert_eq!(rig.text("x.log"), "one\nthree\n");
}

#[test]
fn a_file_that_may_not_grow_makes_the_store_begin_the_next() {
    let Some(folder) = inside() else {
        let folder = tempfile::tempdir().unwrap();
        let name = "disk::a_file_that_may_not_grow_makes_the_store_begin_the_next";
        // 64 blocks of 512 bytes; exceeding them is an error, not a signal.
        return run_again(name, folder.path(), &mut Command::new("env"), "trap '' XFSZ; ulimit -f 64");
    };
    let limit_bytes = 64 * 512;
    let mut rig = Rig::open(config(&folder, "x"), 1);
    let key = rig.key("");
    let line = "l".repeat(9_999) + "\n";
    for number in 0..10 {
        let receipt = rig.put(&key, Level::Synced, &line).unwrap();
        let segment = match number / 3 {
            0 => "x.log".to_owned(),
            index => format!("x_{index}.log"),
        };
        assert_eq!((&*receipt.segment, receipt.offset), (&*segment, 10_000 * (number % 3)));
    }
    assert_eq!(rig.text("x.log"), line.repeat(3));
    let too_large = "l".repeat(limit_bytes) + "\n";
    let large = Failure::Io(rustix::io::Errno::FBIG.raw_os_error());
    assert_eq!(rig.put(&key, Level::Written, &too_large), Err(large));
    // The disk itself has no problem.
    assert_eq!(rig.store.state(), StorageState::Ok);
    rig.put(&key, Level::Written, &line).unwrap();
    rig.store.close().unwrap();
    let files = names(&folder);
    assert!(
        files.iter().all(|name| rig.text(name) == line.repeat(rig.text(name).len() / 10_000)),
        "{files:?}"
    );
}

#[test]
fn a_truncation_is_synced_too() {
    let Some(folder) = inside() else {
        let folder = tempfile::tempdir().unwrap();
        let name = "disk::a_truncation_is_synced_too";
        return run_again(name, folder.path(), &mut Command::new("env"), "trap '' XFSZ; ulimit -f 64");
    };
    let mut rig = Rig::open(config(&folder, "x"), 1);
    let key = rig.key("");
    let line = "l".repeat(9_999) + "\n";
    for _ in 0..3 {
        rig.put(&key, Level::Synced, &line).unwrap();
    }
    assert_eq!(rig.store.statistics().syncs, 3);
    // Half of the line went to the first file and may be on the disk. A power cut must not restore it.
    assert_eq!(&*rig.put(&key, Level::Written, &line).unwrap().segment, "x_1.log");
    rig.until("synced", |rig| rig.store.statistics().syncs == 4);
}

#[test]
fn as_root_data_that_the_disk_rejects_is_never_answered_as_synced() {
    let Some(folder) = inside() else {
        let folder = tempfile::tempdir().unwrap();
        // A filesystem in an image file, which is on a filesystem smaller than the image.
        let wrap = "mount -t tmpfs -o size=12m none \"$0\" && truncate -s 64M \"$0/image\" && \
                    mkdir \"$0/disk\" && mkfs.ext4 -q \"$0/image\" && mount -o loop \"$0/image\" \"$0/disk\"";
        let name = "disk::as_root_data_that_the_disk_rejects_is_never_answered_as_synced";
        return run_with_mounts(name, folder.path(), wrap);
    };
    // The filesystem accepts more than its device can store.
    let mut rig = Rig::open(config(&folder.join("disk"), "x"), 1);
    let key = rig.key("");
    let line = "l".repeat(99_999) + "\n";
    let mut synced = 0;
    let failure = loop {
        match rig.put(&key, Level::Synced, &line) {
            Ok(_) => synced += 1,
            Err(failure) => break failure,
        }
        assert!(synced < 500, "the device was never full");
    };
    let io = Failure::Io(rustix::io::Errno::IO.raw_os_error());
    assert!([io, Failure::ReadOnly].contains(&failure), "{failure}");
    assert!(synced > 0 && rig.store.state() != StorageState::Ok);
    assert!(rig.store.statistics().sync_failures > 0);
}
