//! Detects a storage that hangs, such as a disk that neither completes writes nor reports errors.

use std::{
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

/// Detects a storage that hangs. Times are in nanoseconds of one clock and never 0.
#[derive(Debug, Default)]
pub(crate) struct StallDetector {
    /// Number of submitted parts that are not complete.
    pending_parts: AtomicUsize,
    /// When the storage last completed a part, or got its first part after it was idle.
    progress_ns: AtomicU64,
    /// When a request last exceeded the storage timeout; 0 if all parts have completed since.
    timed_out_ns: AtomicU64,
}

impl StallDetector {
    /// Records that parts were submitted to the storage.
    #[inline]
    pub(crate) fn submitted(&self, now_ns: u64, parts: usize) {
        if self.pending_parts.load(Ordering::Relaxed) == 0 {
            self.progress_ns.store(now_ns, Ordering::Relaxed);
        }
        self.pending_parts.fetch_add(parts, Ordering::Release);
    }

    /// Records that the storage has completed parts.
    #[inline]
    pub(crate) fn completed(&self, now_ns: u64, parts: usize) {
        self.progress_ns.store(now_ns, Ordering::Relaxed);
        let is_idle = self.pending_parts.fetch_sub(parts, Ordering::Relaxed) == parts;
        if is_idle && self.timed_out_ns.load(Ordering::Relaxed) != 0 {
            self.timed_out_ns.store(0, Ordering::Relaxed);
        }
    }

    /// Records that a request exceeded the storage timeout.
    pub(crate) fn record_timeout(&self, now_ns: u64) {
        self.timed_out_ns.store(now_ns, Ordering::Relaxed);
    }

    /// Whether parts are pending and none has completed for longer than `timeout`, or a request exceeded the timeout
    /// less than `timeout` ago.
    ///
    /// The second condition ends even if the storage is never idle. Within `timeout` after a request exceeded the
    /// timeout, either every part that was pending then has completed, or another request exceeds it.
    pub(crate) fn is_stalled(&self, now_ns: u64, timeout: Duration) -> bool {
        let age = |at_ns: u64| u128::from(now_ns.saturating_sub(at_ns));
        let timeout_ns = timeout.as_nanos();
        let has_pending = self.pending_parts.load(Ordering::Acquire) > 0;
        let timed_out_ns = self.timed_out_ns.load(Ordering::Relaxed);
        (has_pending && age(self.progress_ns.load(Ordering::Relaxed)) > timeout_ns)
            || (timed_out_ns != 0 && age(timed_out_ns) <= timeout_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_nanos(10);

    #[test]
    fn who_answers_nothing_for_too_long_is_overdue() {
        let detector = StallDetector::default();
        assert!(!detector.is_stalled(1_000, TIMEOUT), "nothing is owed");
        detector.submitted(1_000, 2);
        detector.submitted(1_008, 2);
        assert!(!detector.is_stalled(1_010, TIMEOUT) && detector.is_stalled(1_011, TIMEOUT));
        detector.completed(1_012, 1);
        assert!(!detector.is_stalled(1_022, TIMEOUT) && detector.is_stalled(1_023, TIMEOUT));
        detector.completed(1_024, 3);
        assert!(!detector.is_stalled(9_000, TIMEOUT));
    }

    #[test]
    fn who_lets_clients_wait_in_vain_is_overdue_until_all_is_answered() {
        let detector = StallDetector::default();
        detector.submitted(1_000, 2);
        detector.record_timeout(1_001);
        detector.completed(1_002, 1);
        assert!(detector.is_stalled(1_003, TIMEOUT));
        detector.completed(1_004, 1);
        assert!(!detector.is_stalled(1_005, TIMEOUT));
    }

    #[test]
    fn who_answers_in_time_again_is_not_overdue_though_it_always_owes_something() {
        let detector = StallDetector::default();
        detector.submitted(1_000, 3);
        detector.record_timeout(1_010);
        detector.completed(1_015, 1);
        assert!(detector.is_stalled(1_020, TIMEOUT), "others may still wait in vain");
        detector.completed(1_020, 1);
        assert!(!detector.is_stalled(1_021, TIMEOUT));
        detector.record_timeout(1_022);
        assert!(detector.is_stalled(1_023, TIMEOUT));
    }
}
