//! Whether the disk takes what it is given.

use std::sync::atomic::{AtomicI32, Ordering};

use rustix::io::Errno;

use crate::Failure;

/// What the last attempt to write or to sync has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageState {
    /// It worked.
    Ok,
    /// The disk or the quota is full.
    Full,
    /// The filesystem is read-only.
    ReadOnly,
    /// The kernel's error number.
    Failing(i32),
}

/// The state, shared by all threads. 0 is well, anything else an error number.
#[derive(Debug, Default)]
pub(crate) struct Health(AtomicI32);

impl Health {
    pub fn state(&self) -> StorageState {
        match self.0.load(Ordering::Relaxed) {
            0 => StorageState::Ok,
            number => match Failure::of(Errno::from_raw_os_error(number)) {
                Failure::Full => StorageState::Full,
                Failure::ReadOnly => StorageState::ReadOnly,
                Failure::Io(number) => StorageState::Failing(number),
                Failure::Closed => StorageState::Ok,
            },
        }
    }

    pub fn works(&self) {
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.store(0, Ordering::Relaxed);
        }
    }

    pub fn fails(&self, cause: Errno) {
        self.0.store(cause.raw_os_error(), Ordering::Relaxed);
    }
}
