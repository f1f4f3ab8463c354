//! What all threads share of the machine: bytes in flight, connections and descriptors.

use std::{
    os::fd::AsRawFd,
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::process::{Resource, getrlimit};

/// Descriptors kept for each thread: for connections that are only told that there are too many, and what else
/// the process needs.
const KEPT_PER_THREAD: u64 = 64;

/// Bytes of bodies being read and of lines not yet written.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    used: AtomicU64,
}

impl Budget {
    /// All of it free.
    pub fn new(limit: u64) -> Self {
        Self { limit, used: AtomicU64::new(0) }
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes not in use.
    pub fn free(&self) -> u64 {
        self.limit.saturating_sub(self.used())
    }

    /// All bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Nothing taken yet.
    pub fn share(&self) -> Share<'_> {
        Share { budget: self, bytes: 0 }
    }
}

/// What one request has taken of the budget; given back when dropped.
#[derive(Debug)]
pub(crate) struct Share<'a> {
    budget: &'a Budget,
    bytes: u64,
}

impl Share<'_> {
    /// What it has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What all shares together may have.
    pub fn limit(&self) -> u64 {
        self.budget.limit
    }

    /// Whether so much has been taken already.
    #[inline]
    pub fn covers(&self, bytes: u64) -> bool {
        bytes <= self.bytes
    }

    /// Takes what is missing to `bytes`; false, and nothing taken, if there is not so much left.
    #[inline]
    pub fn grow_to(&mut self, bytes: u64) -> bool {
        let Some(more) = bytes.checked_sub(self.bytes) else { return true };
        let before = self.budget.used.fetch_add(more, Ordering::Relaxed);
        if before.saturating_add(more) > self.budget.limit {
            self.budget.used.fetch_sub(more, Ordering::Relaxed);
            return false;
        }
        self.bytes = bytes;
        true
    }

    /// Has exactly that many, if it can.
    #[inline]
    pub fn settle_at(&mut self, bytes: u64) -> bool {
        if bytes < self.bytes {
            self.budget.used.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
            self.bytes = bytes;
            return true;
        }
        self.grow_to(bytes)
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// Connections open on all threads.
#[derive(Debug)]
pub(crate) struct Crowd {
    most: u64,
    open: AtomicU64,
    peak: AtomicU64,
}

impl Crowd {
    /// Nobody yet.
    pub fn new(most: Option<u64>) -> Self {
        Self { most: most.unwrap_or(u64::MAX), open: AtomicU64::new(0), peak: AtomicU64::new(0) }
    }

    /// Lets one in, unless there are too many already.
    pub fn enter(&self) -> Option<Seat<'_>> {
        let before = self.open.fetch_add(1, Ordering::Relaxed);
        let seat = Seat { crowd: self };
        if before >= self.most {
            return None;
        }
        self.peak.fetch_max(before + 1, Ordering::Relaxed);
        Some(seat)
    }

    /// How many there are.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// The most there were at once.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }
}

/// One connection's place in the crowd; left when dropped.
#[derive(Debug)]
pub(crate) struct Seat<'a> {
    crowd: &'a Crowd,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.crowd.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Descriptors of this process, of which connections leave some to the storage.
#[derive(Debug)]
pub(crate) struct Descriptors {
    kept_from: u64,
}

impl Descriptors {
    /// As many as the limit of this process says now. Kept are as many as files may be open, or wait for their
    /// last sync, and some for each thread; but never more than half of all, for a listener without connections
    /// were of no use either.
    pub fn new(open_files: usize, threads: u32) -> Self {
        Self { kept_from: kept_from(getrlimit(Resource::Nofile).current, open_files, threads) }
    }

    /// Whether a connection has got one that is kept for the storage. The kernel gives out the lowest that is
    /// free, so that all those below are in use.
    pub fn is_kept(&self, socket: &impl AsRawFd) -> bool {
        u64::try_from(socket.as_raw_fd()).is_ok_and(|number| number >= self.kept_from)
    }
}

fn kept_from(limit: Option<u64>, open_files: usize, threads: u32) -> u64 {
    let Some(limit) = limit else { return u64::MAX };
    let files = (open_files as u64).saturating_mul(2);
    let kept = files.saturating_add(u64::from(threads) * KEPT_PER_THREAD);
    limit - kept.min(limit / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_descriptors_are_kept_but_no_more_than_half() {
        assert_eq!(kept_from(Some(20_000), 1_000, 2), 17_872);
        assert_eq!(kept_from(Some(1_024), 1_000, 2), 512);
        assert_eq!(kept_from(None, 1_000, 2), u64::MAX);
    }

    #[test]
    fn what_is_taken_comes_back_and_never_exceeds_the_limit() {
        let budget = Budget::new(100);
        let mut first = budget.share();
        let mut second = budget.share();
        assert!(first.grow_to(60) && first.grow_to(50));
        assert!(!second.grow_to(41) && second.grow_to(40));
        assert_eq!(budget.used(), 100);
        assert!(first.settle_at(10) && second.settle_at(90) && !second.settle_at(91));
        drop(second);
        assert_eq!(budget.used(), 10);
        drop(first);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_full_crowd_lets_nobody_in_until_one_leaves() {
        let crowd = Crowd::new(Some(1));
        let first = crowd.enter();
        assert!(first.is_some() && crowd.enter().is_none());
        assert_eq!((crowd.open(), crowd.peak()), (1, 1));
        drop(first);
        assert!(crowd.enter().is_some());
    }
}
