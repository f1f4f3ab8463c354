//! Locks of files and folders.

use std::{
    os::fd::AsFd,
    thread,
    time::{Duration, Instant},
};

use rustix::fs::{FlockOperation, flock};

/// Time that the kernel may take to release the lock of an owner that was just killed.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// Tries to lock a file or folder for `time`, because a killed owner may need a moment to release it. Returns whether
/// it succeeded.
pub(crate) fn try_lock(file: impl AsFd, time: Duration) -> bool {
    let deadline = Instant::now() + time;
    while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    true
}
