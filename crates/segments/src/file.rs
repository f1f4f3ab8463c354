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
    pub condition: Arc<Condition>,
    /// [`Reach::changed_bytes`] at the last sync that worked.
    pub synced_bytes: AtomicU64,
    /// Folders whose names may not be durable yet.
    pub folders: Mutex<Vec<PathBuf>>,
    /// Its filesystem counts links, so that none left means that it was removed.
    pub linked: bool,
    /// It was seen to be removed.
    pub removed: AtomicBool,
    /// Behind `file`, so that the descriptor is free before it is no longer counted.
    pub _counted: Counted,
}

impl SegmentFile {
    pub(crate) fn is_poisoned(&self) -> bool {
        self.condition.is_poisoned()
    }

    /// Its last name is gone: what is written to it is gone too, once it is closed.
    pub(crate) fn is_removed(&self) -> bool {
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
pub(crate) struct Reach {
    /// Bytes appended to it and cut off it since it was opened. It only grows, whatever others do to the file.
    pub changed_bytes: u64,
    /// Where its last line ends.
    pub tail: u64,
    /// How often others were seen to have cut it.
    pub cuts: u64,
}

/// What is known of a file for as long as this store may go on with it, open or not.
#[derive(Debug, Default)]
pub(crate) struct Condition {
    poisoned: AtomicBool,
    good: Mutex<Good>,
}

#[derive(Debug, Default)]
struct Good {
    bytes: u64,
    cuts: u64,
}

impl Condition {
    /// Of a file of which so much needs no recovery.
    pub(crate) fn new(good_bytes: u64) -> Self {
        Self { good: Mutex::new(Good { bytes: good_bytes, cuts: 0 }), ..Self::default() }
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
        self.good().bytes
    }

    /// How often others were seen to have cut it.
    pub(crate) fn cuts(&self) -> u64 {
        self.good().cuts
    }

    /// It was seen to be no longer than `length`. Says how much of it needs no recovery.
    pub(crate) fn at_most(&self, length: u64) -> u64 {
        let mut good = self.good();
        if length < good.bytes {
            (good.bytes, good.cuts) = (length, good.cuts + 1);
        }
        good.bytes
    }

    /// Others have cut it before a line went to `length`.
    pub(crate) fn was_cut(&self, length: u64) {
        let mut good = self.good();
        (good.bytes, good.cuts) = (good.bytes.min(length), good.cuts + 1);
    }

    /// All up to `reach` is on the disk. `note` is told how much needs no recovery, before it can be less;
    /// unless others have cut the file since.
    pub(crate) fn synced(&self, reach: &Reach, note: impl FnOnce(u64)) {
        let mut good = self.good();
        if good.cuts == reach.cuts {
            good.bytes = good.bytes.max(reach.tail);
            note(good.bytes);
        }
    }

    fn good(&self) -> MutexGuard<'_, Good> {
        self.good.lock().unwrap_or_else(PoisonError::into_inner)
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
pub(crate) struct Counted(Arc<Descriptors>);

impl Descriptors {
    pub(crate) fn count(self: &Arc<Self>) -> Counted {
        *self.lock() += 1;
        Counted(self.clone())
    }

    /// Waits, at most until then, for fewer than `most` to be open. Says whether that is so.
    pub(crate) fn wait_below(&self, most: usize, until: Instant) -> bool {
        let mut open = self.lock();
        while *open >= most {
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

impl Drop for Counted {
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
        let condition = Condition::new(100);
        let before = Reach { changed_bytes: 900, tail: 1000, cuts: condition.cuts() };
        condition.was_cut(0);
        condition.synced(&before, |_| panic!("it says nothing about the file as it is"));
        assert_eq!(condition.good_bytes(), 0);
        let since = Reach { changed_bytes: 910, tail: 10, cuts: condition.cuts() };
        condition.synced(&since, |good_bytes| assert_eq!(good_bytes, 10));
        assert_eq!((condition.at_most(20), condition.at_most(4)), (10, 4));
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
