//! Limits that all threads share: bytes in flight and descriptors.

use std::{
    os::fd::AsRawFd,
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::process::{Resource, getrlimit};

/// Descriptors per thread for connections beyond the limit, which only get a 503.
const REFUSED_PER_THREAD: u64 = 64;
/// Descriptors for connections to the admin port and for short-lived uses, reserved in addition to those for files.
const OTHER_DESCRIPTORS: u64 = 32;

/// Counts bytes of bodies being read and of lines not yet written.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    used: AtomicU64,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, used: AtomicU64::new(0) }
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) fn free(&self) -> u64 {
        self.limit.saturating_sub(self.used())
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Starts a reservation with 0 bytes.
    pub(crate) fn reservation(&self) -> Reservation<'_> {
        Reservation { budget: self, bytes: 0 }
    }
}

/// Bytes reserved for one request. Dropping it releases them.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    budget: &'a Budget,
    bytes: u64,
}

impl Reservation<'_> {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The size of the whole budget in bytes, used and free.
    pub(crate) fn limit(&self) -> u64 {
        self.budget.limit
    }

    #[inline]
    pub(crate) fn covers(&self, bytes: u64) -> bool {
        bytes <= self.bytes
    }

    /// Extends the reservation to `bytes`. If the budget does not suffice, changes nothing and returns false.
    #[inline]
    pub(crate) fn grow_to(&mut self, bytes: u64) -> bool {
        let Some(more) = bytes.checked_sub(self.bytes) else { return true };
        let before = self.budget.used.fetch_add(more, Ordering::Relaxed);
        if before.saturating_add(more) > self.budget.limit {
            self.budget.used.fetch_sub(more, Ordering::Relaxed);
            return false;
        }
        self.bytes = bytes;
        true
    }

    /// Changes the reservation to exactly `bytes`. If the budget does not suffice, changes nothing and returns false.
    #[inline]
    pub(crate) fn resize(&mut self, bytes: u64) -> bool {
        if bytes < self.bytes {
            self.budget.used.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
            self.bytes = bytes;
            return true;
        }
        self.grow_to(bytes)
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// Divides this process's descriptors between connections and the storage.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// A connection with this descriptor or a higher one only gets a 503.
    refuse_from: u64,
    /// A connection with this descriptor or a higher one is closed at once, because the storage needs these descriptors.
    storage_from: u64,
}

impl Descriptors {
    /// Divides the process's current descriptor limit.
    pub(crate) fn new(open_files: usize, threads: u32) -> Self {
        Self::of(getrlimit(Resource::Nofile).current, open_files, threads)
    }

    /// Maximum number of open files for which the storage has descriptors. A file may be open twice until its last sync.
    pub(crate) fn max_open_files(open_files: usize) -> usize {
        Self::max_open_files_of(getrlimit(Resource::Nofile).current, open_files)
    }

    fn max_open_files_of(limit: Option<u64>, open_files: usize) -> usize {
        let Some(limit) = limit else { return open_files };
        let fit = Self::storage_descriptors(limit, open_files).saturating_sub(OTHER_DESCRIPTORS) / 2;
        open_files.min(usize::try_from(fit).unwrap_or(usize::MAX)).max(1)
    }

    fn storage_descriptors(limit: u64, open_files: usize) -> u64 {
        (open_files as u64).saturating_mul(2).saturating_add(OTHER_DESCRIPTORS).min(limit / 2 * 7 / 8)
    }

    /// The storage gets two descriptors per open file. Storage and connections that only get a 503 together take at most
    /// half of all descriptors, because the listener needs the others for connections.
    fn of(limit: Option<u64>, open_files: usize, threads: u32) -> Self {
        let Some(limit) = limit else { return Self { refuse_from: u64::MAX, storage_from: u64::MAX } };
        let kept = Self::storage_descriptors(limit, open_files);
        let refuse_from = limit - kept.saturating_add(u64::from(threads) * REFUSED_PER_THREAD).min(limit / 2);
        Self { refuse_from, storage_from: limit - kept }
    }

    /// Whether a connection's descriptor is beyond the range for connections. The kernel assigns the lowest free
    /// descriptor, so all lower ones must then be in use.
    pub(crate) fn is_beyond_limit(&self, socket: &impl AsRawFd) -> bool {
        socket.as_raw_fd() as u64 >= self.refuse_from
    }

    /// Whether a connection's descriptor belongs to the storage's range, so that the connection must be closed at once.
    pub(crate) fn is_reserved_for_storage(&self, socket: &impl AsRawFd) -> bool {
        socket.as_raw_fd() as u64 >= self.storage_from
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_descriptors_are_kept_but_no_more_than_half() {
        for (limit, open_files, refuse_from, storage_from) in [
            (Some(20_000), 1_000, 17_840, 17_968),
            (Some(1_024), 1_000, 512, 576),
            (Some(128), 8, 64, 80),
            (None, 1_000, u64::MAX, u64::MAX),
        ] {
            assert_eq!(Descriptors::of(limit, open_files, 2), Descriptors { refuse_from, storage_from });
        }
        for (limit, open_files, fit) in [
            (Some(20_000), 1_000, 1_000),
            (Some(1_024), 1_000, 208),
            (Some(256), 1_000, 40),
            (Some(32), 8, 1),
            (None, 7, 7),
        ] {
            assert_eq!(Descriptors::max_open_files_of(limit, open_files), fit, "{limit:?}");
        }
    }

    #[test]
    fn what_is_taken_comes_back_and_never_exceeds_the_limit() {
        let budget = Budget::new(100);
        let mut first = budget.reservation();
        let mut second = budget.reservation();
        assert!(first.grow_to(60) && first.grow_to(50));
        assert!(!second.grow_to(41) && second.grow_to(40));
        assert_eq!(budget.used(), 100);
        assert!(first.resize(10) && second.resize(90) && !second.resize(91));
        drop(second);
        assert_eq!(budget.used(), 10);
        drop(first);
        assert_eq!(budget.used(), 0);
    }
}
