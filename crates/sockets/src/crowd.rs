//! How many connections there are, and may be.

use std::sync::atomic::{AtomicU64, Ordering};

/// Connections open on all threads.
#[derive(Debug)]
pub struct Crowd {
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
pub struct Seat<'a> {
    crowd: &'a Crowd,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.crowd.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
