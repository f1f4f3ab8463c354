//! The state of a segment's file, shared by the threads.

use std::{
    fs::File,
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use rustix::fs::fstat;

use crate::inode::Inode;

/// An open file.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    pub file: File,
    pub id: u64,
    pub path: PathBuf,
    pub inode: Inode,
    pub sync_state: Arc<SyncState>,
    /// [`Progress::changed_bytes`] at the last successful sync.
    pub synced_bytes: AtomicU64,
    /// Folders whose names may not be durable yet.
    pub folders: Mutex<Vec<PathBuf>>,
    /// Whether the filesystem counts links, so that zero links mean that the file was removed.
    pub linked: bool,
    /// Whether the file was found to be removed.
    pub removed: AtomicBool,
    /// Must be declared after `file`, so that the descriptor is closed before the count decreases.
    pub _descriptor: DescriptorGuard,
}

impl SegmentFile {
    pub(crate) fn is_poisoned(&self) -> bool {
        self.sync_state.is_poisoned()
    }

    /// Checks and records whether the file has no name left. Its lines are then lost when it is closed.
    pub(crate) fn detect_removal(&self) -> bool {
        if self.linked && fstat(&self.file).is_ok_and(|now| now.st_nlink == 0) {
            self.removed.store(true, Ordering::Relaxed);
        }
        self.removed.load(Ordering::Relaxed)
    }

    /// Takes the folders that must be synced.
    pub(crate) fn take_folders(&self) -> Vec<PathBuf> {
        std::mem::take(&mut self.folders.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Progress of writing a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Progress {
    /// Bytes appended or truncated since the segment was opened. Never decreases, whatever other processes do to the file.
    pub changed_bytes: u64,
    /// Offset of the end of the last line.
    pub tail: u64,
    /// How often other processes were found to have truncated the file.
    pub truncations: u64,
}

/// The known durability of a file that this store may continue, whether the file is open or not.
#[derive(Debug, Default)]
pub(crate) struct SyncState {
    poisoned: AtomicBool,
    prefix: Mutex<SyncedPrefix>,
}

#[derive(Debug, Default)]
struct SyncedPrefix {
    bytes: u64,
    truncations: u64,
}

impl SyncState {
    /// The state of a file whose first `good_bytes` need no recovery.
    pub(crate) fn new(good_bytes: u64) -> Self {
        Self { prefix: Mutex::new(SyncedPrefix { bytes: good_bytes, truncations: 0 }), ..Self::default() }
    }

    /// Records that a sync failed, so that it is unknown which pages are on the disk.
    pub(crate) fn poison(&self) {
        self.poisoned.store(true, Ordering::Release);
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// Bytes at the beginning of the file that need no recovery.
    pub(crate) fn good_bytes(&self) -> u64 {
        self.prefix().bytes
    }

    /// How often other processes were found to have truncated the file.
    pub(crate) fn truncations(&self) -> u64 {
        self.prefix().truncations
    }

    /// Records that the file has at most `length` bytes. Returns the number of bytes that need no recovery.
    pub(crate) fn limit_to(&self, length: u64) -> u64 {
        let mut prefix = self.prefix();
        if length < prefix.bytes {
            (prefix.bytes, prefix.truncations) = (length, prefix.truncations + 1);
        }
        prefix.bytes
    }

    /// Records that other processes truncated the file to at most `length`.
    pub(crate) fn record_truncation(&self, length: u64) {
        let mut prefix = self.prefix();
        (prefix.bytes, prefix.truncations) = (prefix.bytes.min(length), prefix.truncations + 1);
    }

    /// Records that all bytes up to `progress` are on the disk, unless other processes truncated the file since. Calls
    /// `note` with the number of bytes that need no recovery, while the state is locked.
    pub(crate) fn record_sync(&self, progress: &Progress, note: impl FnOnce(u64)) {
        let mut prefix = self.prefix();
        if prefix.truncations == progress.truncations {
            prefix.bytes = prefix.bytes.max(progress.tail);
            note(prefix.bytes);
        }
    }

    fn prefix(&self) -> MutexGuard<'_, SyncedPrefix> {
        self.prefix.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of descriptors that segments hold, in use or waiting for the last sync.
#[derive(Debug, Default)]
pub(crate) struct Descriptors {
    open: Mutex<usize>,
    closed: Condvar,
}

/// Counts one descriptor until it is dropped.
#[derive(Debug)]
pub(crate) struct DescriptorGuard(Arc<Descriptors>);

impl Descriptors {
    pub(crate) fn count(self: &Arc<Self>) -> DescriptorGuard {
        *self.lock() += 1;
        DescriptorGuard(self.clone())
    }

    /// Waits until fewer than `max` descriptors are open, but not longer than until `until`. Returns whether fewer are
    /// open.
    pub(crate) fn wait_below(&self, max: usize, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        let waited = self.closed.wait_timeout_while(self.lock(), left, |open| *open >= max);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DescriptorGuard {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.closed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use super::*;

    #[test]
    fn a_sync_before_a_foreign_truncation_does_not_count() {
        let sync_state = SyncState::new(100);
        let before = Progress { changed_bytes: 900, tail: 1000, truncations: sync_state.truncations() };
        sync_state.record_truncation(0);
        sync_state.record_sync(&before, |_| panic!("this sync is older than the truncation"));
        assert_eq!(sync_state.good_bytes(), 0);
        let since = Progress { changed_bytes: 910, tail: 10, truncations: sync_state.truncations() };
        sync_state.record_sync(&since, |good_bytes| assert_eq!(good_bytes, 10));
        assert_eq!((sync_state.limit_to(20), sync_state.limit_to(4)), (10, 4));
    }

    #[test]
    fn waiting_for_descriptors_ends_in_time() {
        let descriptors = Arc::new(Descriptors::default());
        let (one, two) = (descriptors.count(), descriptors.count());
        let soon = || Instant::now() + Duration::from_millis(10);
        assert!(descriptors.wait_below(3, soon()) && !descriptors.wait_below(2, soon()));
        let later = thread::spawn(move || {
            // Lets the main thread start waiting.
            thread::sleep(Duration::from_millis(10));
            drop(one);
        });
        assert!(descriptors.wait_below(2, Instant::now() + testing::PATIENCE));
        later.join().unwrap();
        drop(two);
        assert!(descriptors.wait_below(1, soon()));
    }
}
