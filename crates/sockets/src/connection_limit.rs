//! A limit on open connections.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the open connections of all threads and limits their number.
#[derive(Debug)]
pub struct ConnectionLimit {
    max_open: u64,
    open: AtomicU64,
    peak: AtomicU64,
}

impl ConnectionLimit {
    /// A limit of `max_open` connections; no limit if none.
    pub fn new(max_open: Option<u64>) -> Self {
        Self { max_open: max_open.unwrap_or(u64::MAX), open: AtomicU64::new(0), peak: AtomicU64::new(0) }
    }

    /// A permit for one connection; none if the limit is reached.
    pub fn try_acquire(&self) -> Option<ConnectionPermit<'_>> {
        let before = self.open.fetch_add(1, Ordering::Relaxed);
        let permit = ConnectionPermit { limit: self };
        if before >= self.max_open {
            return None;
        }
        self.peak.fetch_max(before + 1, Ordering::Relaxed);
        Some(permit)
    }

    /// Number of open connections.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// Maximum number of connections that were open at the same time.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }
}

/// The permit of an open connection, released on drop.
#[derive(Debug)]
pub struct ConnectionPermit<'a> {
    limit: &'a ConnectionLimit,
}

impl Drop for ConnectionPermit<'_> {
    fn drop(&mut self) {
        self.limit.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_has_a_permit_again_when_one_is_dropped() {
        let limit = ConnectionLimit::new(Some(1));
        let first = limit.try_acquire();
        assert!(first.is_some() && limit.try_acquire().is_none());
        assert_eq!((limit.open(), limit.peak()), (1, 1));
        drop(first);
        assert!(limit.try_acquire().is_some());
    }
}
