//! Whether the disk takes what it is given.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rustix::io::Errno;

use crate::Failure;

/// What the last attempts to write and to sync have shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageState {
    /// They worked.
    Ok,
    /// The disk or the quota is full.
    Full,
    /// The filesystem is read-only.
    ReadOnly,
    /// The kernel's error number. EOWNERDEAD: a thread of the store has ended before its time; nothing is
    /// stored any more, and only a new start helps.
    Failing(i32),
}

/// What a thread that has panicked leaves unanswered fails with this.
pub(crate) const PANICKED: Errno = Errno::OWNERDEAD;

/// The state, shared by all threads. To write and to sync fail each in its own way, and only a success of the
/// same kind says that it is over: pages are taken by a disk that takes no sync. 0 is well, anything else an
/// error number.
#[derive(Debug, Default)]
pub(crate) struct Health {
    writing: AtomicI32,
    syncing: AtomicI32,
    panicked: AtomicBool,
}

impl Health {
    pub(crate) fn state(&self) -> StorageState {
        if self.panicked.load(Ordering::Relaxed) {
            return StorageState::Failing(PANICKED.raw_os_error());
        }
        let numbers = [&self.writing, &self.syncing].map(|number| number.load(Ordering::Relaxed));
        match numbers.into_iter().find(|&number| number != 0) {
            None => StorageState::Ok,
            Some(number) => match Failure::of(Errno::from_raw_os_error(number)) {
                Failure::Full => StorageState::Full,
                Failure::ReadOnly => StorageState::ReadOnly,
                Failure::Io(number) | Failure::Partial(number) => StorageState::Failing(number),
                Failure::Closed => StorageState::Ok,
            },
        }
    }

    pub(crate) fn write_succeeded(&self) {
        clear(&self.writing);
    }

    pub(crate) fn sync_succeeded(&self) {
        clear(&self.syncing);
    }

    /// A file could not be opened or written to. What only says something about that file, or that there are
    /// no descriptors left for further ones, is no reason to refuse what goes to others.
    pub(crate) fn write_failed(&self, cause: Errno) {
        if is_of_the_disk(cause) {
            self.writing.store(cause.raw_os_error(), Ordering::Relaxed);
        }
    }

    pub(crate) fn sync_failed(&self, cause: Errno) {
        self.syncing.store(cause.raw_os_error(), Ordering::Relaxed);
    }

    /// A thread has panicked. Nothing takes that back.
    pub(crate) fn thread_panicked(&self) {
        self.panicked.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_panicked(&self) -> bool {
        self.panicked.load(Ordering::Relaxed)
    }
}

fn clear(number: &AtomicI32) {
    // Mostly it is well, and all threads keep their copy of it.
    if number.load(Ordering::Relaxed) != 0 {
        number.store(0, Ordering::Relaxed);
    }
}

/// It would be the same with any other file: the disk is full, read-only, damaged or gone.
fn is_of_the_disk(cause: Errno) -> bool {
    matches!(
        cause,
        Errno::NOSPC
            | Errno::DQUOT
            | Errno::ROFS
            | Errno::IO
            | Errno::UCLEAN
            | Errno::NODEV
            | Errno::NOTCONN
            | Errno::SHUTDOWN
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_kind_of_success_ends_an_error() {
        let health = Health::default();
        health.sync_failed(Errno::IO);
        health.write_succeeded();
        assert_eq!(health.state(), StorageState::Failing(Errno::IO.raw_os_error()));
        health.write_failed(Errno::NOSPC);
        assert_eq!(health.state(), StorageState::Full);
        health.sync_succeeded();
        assert_eq!(health.state(), StorageState::Full);
        health.write_succeeded();
        assert_eq!(health.state(), StorageState::Ok);
    }

    #[test]
    fn what_is_wrong_with_one_file_says_nothing_about_the_disk() {
        let health = Health::default();
        for cause in
            [Errno::NOTDIR, Errno::ACCESS, Errno::NAMETOOLONG, Errno::INVAL, Errno::FBIG, Errno::MFILE]
        {
            health.write_failed(cause);
            assert_eq!(health.state(), StorageState::Ok, "{cause}");
        }
    }

    #[test]
    fn a_thread_that_has_died_stays_dead() {
        let health = Health::default();
        health.thread_panicked();
        health.write_succeeded();
        health.sync_succeeded();
        assert_eq!(health.state(), StorageState::Failing(PANICKED.raw_os_error()));
    }
}
