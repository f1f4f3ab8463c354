//! Limits shared by all threads: bytes in flight and descriptors.

use std::{
    os::fd::AsRawFd,
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::process::{Resource, getrlimit};

/// Descriptors per thread for connections beyond the limit, which are only answered 503.
const REFUSED_PER_THREAD: u64 = 64;
/// Descriptors reserved, besides those of files, for connections to the admin port and for short-lived uses.
const OTHER_DESCRIPTORS: u64 = 32;

/// Bytes of bodies being read and of lines not yet written.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    used: AtomicU64,
}

impl Budget {
    /// An unused budget.
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, used: AtomicU64::new(0) }
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes not in use.
    pub(crate) fn free(&self) -> u64 {
        self.limit.saturating_sub(self.used())
    }

    /// The size of the budget in bytes.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// An empty reservation.
    pub(crate) fn reservation(&self) -> Reservation<'_> {
        Reservation { budget: self, bytes: 0 }
    }
}

/// The bytes reserved by one request; released when dropped.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    budget: &'a Budget,
    bytes: u64,
}

impl Reservation<'_> {
    /// The number of bytes reserved.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The size of the whole budget in bytes.
    pub(crate) fn limit(&self) -> u64 {
        self.budget.limit
    }

    /// Whether at least `bytes` are reserved.
    #[inline]
    pub(crate) fn covers(&self, bytes: u64) -> bool {
        bytes <= self.bytes
    }

    /// Extends the reservation to `bytes`; returns false, and changes nothing, if the budget is exhausted.
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

    /// Changes the reservation to exactly `bytes`; returns false, and changes nothing, if the budget is exhausted.
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

/// Divides the descriptors of this process between connections and the storage.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// A connection whose descriptor is at least this number only gets a 503.
    refuse_from: u64,
    /// A connection whose descriptor is at least this number is closed at once: the storage needs these descriptors.
    storage_from: u64,
}

impl Descriptors {
    /// Divides the current limit of this process.
    pub(crate) fn new(open_files: usize, threads: u32) -> Self {
        Self::of(getrlimit(Resource::Nofile).current, open_files, threads)
    }

    /// The number of files that fit the storage's descriptors: a file may be open twice, until its last sync.
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

    /// The storage gets two descriptors per open file. Together with the connections that are only answered 503, it
    /// gets at most half of all descriptors, because a listener also needs connections.
    fn of(limit: Option<u64>, open_files: usize, threads: u32) -> Self {
        let Some(limit) = limit else { return Self { refuse_from: u64::MAX, storage_from: u64::MAX } };
        let kept = Self::storage_descriptors(limit, open_files);
        let refuse_from = limit - kept.saturating_add(u64::from(threads) * REFUSED_PER_THREAD).min(limit / 2);
        Self { refuse_from, storage_from: limit - kept }
    }

    /// Whether a connection's descriptor is beyond the range for connections. The kernel assigns the lowest free
    /// descriptor, so all lower ones are in use.
    pub(crate) fn is_beyond_limit(&self, socket: &impl AsRawFd) -> bool {
        socket.as_raw_fd() as u64 >= self.refuse_from
    }

    /// Whether a connection's descriptor is one of the storage's, so that it must be closed at once.
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
