//! Locks of files and folders.

use std::{
    os::fd::AsFd,
    thread,
    time::{Duration, Instant},
};

use rustix::fs::{FlockOperation, flock};

/// Time that the kernel may take to release the lock of an owner that has just been killed.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// Locks a file or folder, within the time that a killed owner may take to release it.
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
