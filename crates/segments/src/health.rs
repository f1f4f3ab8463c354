//! Whether writing and syncing work.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rustix::io::Errno;

use crate::Failure;

/// The result of the last attempts to write and to sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageState {
    /// The attempts succeeded.
    Ok,
    /// The disk or the quota is full.
    Full,
    /// The filesystem is read-only.
    ReadOnly,
    /// Another error number of the kernel. EOWNERDEAD means that a thread of the store has panicked; nothing is stored
    /// until the store is opened again.
    Failing(i32),
}

/// The error of parts that a thread had not answered when it panicked.
pub(crate) const PANICKED: Errno = Errno::OWNERDEAD;

/// The state, shared by all threads. Errors of writing and of syncing are separate, because writing may succeed while
/// syncing fails. 0 means success, another number is the error.
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

    /// Records that a file could not be opened or written. Ignores errors that concern only this file or missing
    /// descriptors, because other files may still work.
    pub(crate) fn write_failed(&self, cause: Errno) {
        if is_of_the_disk(cause) {
            self.writing.store(cause.raw_os_error(), Ordering::Relaxed);
        }
    }

    pub(crate) fn sync_failed(&self, cause: Errno) {
        self.syncing.store(cause.raw_os_error(), Ordering::Relaxed);
    }

    /// Records that a thread has panicked. This is permanent.
    pub(crate) fn thread_panicked(&self) {
        self.panicked.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_panicked(&self) -> bool {
        self.panicked.load(Ordering::Relaxed)
    }
}

fn clear(number: &AtomicI32) {
    // The number is usually 0 already. An atomic load without a store keeps the cache line shared between the
    // processors.
    if number.load(Ordering::Relaxed) != 0 {
        number.store(0, Ordering::Relaxed);
    }
}

/// Whether every other file would fail too, because the disk is full, read-only, damaged or gone.
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
    fn only_a_success_of_the_same_kind_ends_an_error() {
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
    fn an_error_of_one_file_is_not_one_of_the_disk() {
        let health = Health::default();
        for cause in
            [Errno::NOTDIR, Errno::ACCESS, Errno::NAMETOOLONG, Errno::INVAL, Errno::FBIG, Errno::MFILE]
        {
            health.write_failed(cause);
            assert_eq!(health.state(), StorageState::Ok, "{cause}");
        }
    }

    #[test]
    fn a_panic_is_permanent() {
        let health = Health::default();
        health.thread_panicked();
        health.write_succeeded();
        health.sync_succeeded();
        assert_eq!(health.state(), StorageState::Failing(PANICKED.raw_os_error()));
    }
}
