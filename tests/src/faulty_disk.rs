//! A disk that can be slow, stall, or refuse requests: a file system in user space (FUSE) in front of a folder.
//!
//! Data written through the mount is stored in the folder, where it can be read whatever the disk's mood. Only programs started with
//! [`FaultyDisk::start`] see the mount. This process must not touch it, because it serves the requests itself.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use fuser::{BackgroundSession, Config, MountOption, spawn_mount};

use crate::{
    mounts::PrivateMounts,
    process::{Launch, Process},
    temporary::TemporaryFolder,
};

mod files;
mod nodes;

/// Number of requests that are served concurrently. Further ones wait, as on a real disk.
const THREADS: usize = 4;

/// The disk's reaction to writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mood {
    /// Time that each write takes.
    pub write: Duration,
    /// Time that each sync takes.
    pub sync: Duration,
    /// Error number with which writes, syncs and changes of files fail, if any.
    pub refusal: Option<i32>,
    /// Whether writes and syncs stay unanswered until this is unset.
    pub stands_still: bool,
}

/// Numbers of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Use {
    /// Writes that have begun.
    pub writes: u64,
    /// Syncs that have begun.
    pub syncs: u64,
    /// Requests that were refused.
    pub refused: u64,
}

/// A disk with a changeable mood. Only root can make one.
#[derive(Debug)]
pub struct FaultyDisk {
    // Dropped in this order: the unmount needs the mount's thread.
    session: Option<BackgroundSession>,
    state: Arc<State>,
    mounts: Arc<PrivateMounts>,
    folder: TemporaryFolder,
}

#[derive(Debug, Default)]
struct State {
    inner: Mutex<(Mood, Use)>,
    changed: Condvar,
}

impl FaultyDisk {
    /// Makes a disk that works normally.
    ///
    /// # Errors
    /// If the kernel has no FUSE or refuses the mount.
    pub fn new() -> Result<Self> {
        let (mounts, folder) = (Arc::new(PrivateMounts::new()?), TemporaryFolder::new()?);
        let (mount, store) = (folder.path().join("disk"), folder.path().join("store"));
        fs::create_dir(&mount)?;
        fs::create_dir(&store)?;
        let state = Arc::new(State::default());
        let files = files::Files::new(store, Arc::clone(&state));
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("faulty".to_owned())];
        config.n_threads = Some(THREADS);
        let session = mounts.run(move || {
            spawn_mount(files, &mount, &config).context("cannot mount a file system of FUSE (/dev/fuse)")
        })?;
        Ok(Self { session: Some(session), state, mounts, folder })
    }

    /// The path of the disk for programs started with [`FaultyDisk::start`].
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    /// The folder that holds the written data.
    pub fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// Changes the mood at once, also for requests that are waiting.
    pub fn set(&self, mood: Mood) {
        self.state.lock().0 = mood;
        self.state.changed.notify_all();
    }

    /// The numbers of requests so far.
    pub fn used(&self) -> Use {
        self.state.lock().1
    }

    /// Starts a program that sees the disk.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(&self, launch: Launch) -> Result<Process> {
        self.mounts.run(move || launch.start())
    }
}

impl Drop for FaultyDisk {
    fn drop(&mut self) {
        self.set(Mood::default());
        if let Some(session) = self.session.take() {
            let _ =
                self.mounts.run(move || session.umount_and_join().context("the disk cannot be unmounted"));
        }
    }
}

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Write,
    Sync,
    /// Create, remove, rename or truncate a file.
    Change,
}

impl State {
    fn lock(&self) -> MutexGuard<'_, (Mood, Use)> {
        self.inner.lock().expect("no thread panics while it holds this")
    }

    /// Waits as long as the request takes; fails with the error number if it is refused.
    fn undergo(&self, request: Request) -> Result<(), fuser::Errno> {
        let begun = Instant::now();
        let mut inner = self.lock();
        match request {
            Request::Write => inner.1.writes += 1,
            Request::Sync => inner.1.syncs += 1,
            Request::Change => {}
        }
        loop {
            let mood = inner.0;
            if let Some(errno) = mood.refusal {
                inner.1.refused += 1;
                return Err(fuser::Errno::from_i32(errno));
            }
            let takes = match request {
                Request::Write => mood.write,
                Request::Sync => mood.sync,
                Request::Change => Duration::ZERO,
            };
            let left = takes.saturating_sub(begun.elapsed());
            inner = if mood.stands_still && request != Request::Change {
                self.changed.wait(inner).expect("no thread panics while it holds this")
            } else if left.is_zero() {
                return Ok(());
            } else {
                self.changed.wait_timeout(inner, left).expect("no thread panics while it holds this").0
            };
        }
    }
}

/// The paths of all files below a folder, sorted.
///
/// # Errors
/// If a folder cannot be read.
pub fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files_below(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use testing::PATIENCE;

    use super::*;

    fn shell(disk: &FaultyDisk, line: &str) -> Process {
        let line = format!("cd {} && {line}", disk.path().display());
        disk.start(Launch::new("sh").args(["-c", &line])).unwrap()
    }

    #[test]
    fn files_lie_in_the_store_and_refusals_are_seen() {
        let disk = FaultyDisk::new().unwrap();
        let lines = "mkdir a && echo one >a/x && echo two >>a/x && mv a/x a/y && ln -s y a/z && cat a/z && \
                     truncate -s 4 a/y && ls a && sync a/y && stat -c %s a/y && df . >/dev/null && rm a/z";
        let finished = shell(&disk, lines).finish(PATIENCE).unwrap();
        assert_eq!(
            (finished.stdout.as_str(), finished.code),
            ("one\ntwo\ny\nz\n4\n", Some(0)),
            "{finished:?}"
        );
        assert_eq!(fs::read_to_string(disk.store().join("a/y")).unwrap(), "one\n");
        assert_eq!(files_below(&disk.store()).unwrap(), [disk.store().join("a/y")]);
        assert_eq!(disk.used(), Use { writes: 2, syncs: 1, refused: 0 });
        disk.set(Mood { refusal: Some(28), ..Mood::default() });
        let finished = shell(&disk, "head -c 5 /dev/zero >>a/y").finish(PATIENCE).unwrap();
        assert!(finished.stderr.contains("No space left on device"), "{finished:?}");
        disk.set(Mood::default());
        assert_eq!(shell(&disk, "echo four >>a/y").finish(PATIENCE).unwrap().code, Some(0));
        assert_eq!(fs::read_to_string(disk.store().join("a/y")).unwrap(), "one\nfour\n");
    }

    #[test]
    fn it_is_as_slow_as_it_is_told_and_stands_still_until_told_otherwise() {
        let disk = FaultyDisk::new().unwrap();
        disk.set(Mood { write: Duration::from_millis(300), ..Mood::default() });
        let finished = shell(&disk, "echo one >x").finish(PATIENCE).unwrap();
        assert!(finished.wall >= Duration::from_millis(300), "{finished:?}");
        disk.set(Mood { stands_still: true, ..Mood::default() });
        let mut waiting = shell(&disk, "echo two >y");
        assert!(waiting.wait(Duration::from_millis(500)).unwrap().is_none());
        disk.set(Mood::default());
        assert_eq!(waiting.finish(PATIENCE).unwrap().code, Some(0));
    }
}
