//! What the threads know together of the file of a segment.

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

/// An open file.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    pub file: File,
    /// Its number in the journal.
    pub id: u64,
    pub path: PathBuf,
    pub inode: u64,
    pub sync_state: Arc<SyncState>,
    /// [`Progress::changed_bytes`] at the last sync that worked.
    pub synced_bytes: AtomicU64,
    /// Folders whose names may not be durable yet.
    pub folders: Mutex<Vec<PathBuf>>,
    /// Its filesystem counts links, so that none left means that it was removed.
    pub linked: bool,
    /// It was seen to be removed.
    pub removed: AtomicBool,
    /// Behind `file`, so that the descriptor is free before it is no longer counted.
    pub _descriptor: DescriptorGuard,
}

impl SegmentFile {
    pub(crate) fn is_poisoned(&self) -> bool {
        self.sync_state.is_poisoned()
    }

    /// Its last name is gone: what is written to it is gone too, once it is closed.
    pub(crate) fn detect_removal(&self) -> bool {
        if self.linked && fstat(&self.file).is_ok_and(|now| now.st_nlink == 0) {
            self.removed.store(true, Ordering::Relaxed);
        }
        self.removed.load(Ordering::Relaxed)
    }

    /// The folders to sync, for the one who is about to do it.
    pub(crate) fn take_folders(&self) -> Vec<PathBuf> {
        std::mem::take(&mut self.folders.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// How far a segment has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Progress {
    /// Bytes appended to it and cut off it since it was opened. It only grows, whatever others do to the file.
    pub changed_bytes: u64,
    /// Where its last line ends.
    pub tail: u64,
    /// How often others were seen to have cut it.
    pub truncations: u64,
}

/// What is known of a file for as long as this store may go on with it, open or not.
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
    /// Of a file of which so much needs no recovery.
    pub(crate) fn new(good_bytes: u64) -> Self {
        Self { prefix: Mutex::new(SyncedPrefix { bytes: good_bytes, truncations: 0 }), ..Self::default() }
    }

    /// A sync has failed: nobody knows which of its pages the disk has.
    pub(crate) fn poison(&self) {
        self.poisoned.store(true, Ordering::Release);
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// So much of it needs no recovery.
    pub(crate) fn good_bytes(&self) -> u64 {
        self.prefix().bytes
    }

    /// How often others were seen to have cut it.
    pub(crate) fn truncations(&self) -> u64 {
        self.prefix().truncations
    }

    /// It was seen to be no longer than `length`. Says how much of it needs no recovery.
    pub(crate) fn limit_to(&self, length: u64) -> u64 {
        let mut prefix = self.prefix();
        if length < prefix.bytes {
            (prefix.bytes, prefix.truncations) = (length, prefix.truncations + 1);
        }
        prefix.bytes
    }

    /// Others have cut it before a line went to `length`.
    pub(crate) fn record_truncation(&self, length: u64) {
        let mut prefix = self.prefix();
        (prefix.bytes, prefix.truncations) = (prefix.bytes.min(length), prefix.truncations + 1);
    }

    /// All up to `progress` is on the disk. `note` is told how much needs no recovery, before it can be less;
    /// unless others have cut the file since.
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

/// The descriptors of segments: those in use, and those that wait for their last sync.
#[derive(Debug, Default)]
pub(crate) struct Descriptors {
    open: Mutex<usize>,
    closed: Condvar,
}

/// One descriptor, for as long as it lives.
#[derive(Debug)]
pub(crate) struct DescriptorGuard(Arc<Descriptors>);

impl Descriptors {
    pub(crate) fn count(self: &Arc<Self>) -> DescriptorGuard {
        *self.lock() += 1;
        DescriptorGuard(self.clone())
    }

    /// Waits, at max until then, for fewer than `max` to be open. Says whether that is so.
    pub(crate) fn wait_below(&self, max: usize, until: Instant) -> bool {
        let mut open = self.lock();
        while *open >= max {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            open = self.closed.wait_timeout(open, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
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
    fn what_was_synced_before_others_cut_the_file_is_not_good_any_more() {
        let sync_state = SyncState::new(100);
        let before = Progress { changed_bytes: 900, tail: 1000, truncations: sync_state.truncations() };
        sync_state.record_truncation(0);
        sync_state.record_sync(&before, |_| panic!("it says nothing about the file as it is"));
        assert_eq!(sync_state.good_bytes(), 0);
        let since = Progress { changed_bytes: 910, tail: 10, truncations: sync_state.truncations() };
        sync_state.record_sync(&since, |good_bytes| assert_eq!(good_bytes, 10));
        assert_eq!((sync_state.limit_to(20), sync_state.limit_to(4)), (10, 4));
    }

    #[test]
    fn descriptors_are_waited_for_within_bounds() {
        let descriptors = Arc::new(Descriptors::default());
        let (one, two) = (descriptors.count(), descriptors.count());
        let soon = || Instant::now() + Duration::from_millis(10);
        assert!(descriptors.wait_below(3, soon()) && !descriptors.wait_below(2, soon()));
        let later = thread::spawn(move || {
            thread::sleep(Duration::from_millis(10));
            drop(one);
        });
        assert!(descriptors.wait_below(2, Instant::now() + Duration::from_secs(20)));
        later.join().unwrap();
        drop(two);
        assert!(descriptors.wait_below(1, soon()));
    }
}
