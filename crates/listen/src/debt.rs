//! What the storage owes the threads: whether it hangs, a disk that neither works nor fails.

use std::{
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

/// The storage's debt. Times are nanoseconds of one clock, and never 0.
#[derive(Debug, Default)]
pub(crate) struct Debt {
    /// Parts that are not answered yet.
    parts: AtomicUsize,
    /// Since when it has owed something without paying anything, while it owes something.
    since_ns: AtomicU64,
    /// When a client last waited for it in vain; 0 if all has been answered since.
    late_ns: AtomicU64,
}

impl Debt {
    /// So many parts were handed over to the storage.
    #[inline]
    pub(crate) fn grows(&self, now_ns: u64, parts: usize) {
        if self.parts.load(Ordering::Relaxed) == 0 {
            self.since_ns.store(now_ns, Ordering::Relaxed);
        }
        self.parts.fetch_add(parts, Ordering::Release);
    }

    /// The storage has answered so many.
    #[inline]
    pub(crate) fn shrinks(&self, now_ns: u64, parts: usize) {
        self.since_ns.store(now_ns, Ordering::Relaxed);
        let owes_nothing = self.parts.fetch_sub(parts, Ordering::Relaxed) == parts;
        if owes_nothing && self.late_ns.load(Ordering::Relaxed) != 0 {
            self.late_ns.store(0, Ordering::Relaxed);
        }
    }

    /// A client has waited for the storage in vain.
    pub(crate) fn is_late(&self, now_ns: u64) {
        self.late_ns.store(now_ns, Ordering::Relaxed);
    }

    /// Whether the storage has paid nothing for so long, or has let a client wait in vain within that time.
    ///
    /// What was owed when a client gave up has been answered after another `patience`, or its client has given up too: so
    /// it need not come to owe nothing, which it never does while several threads hand over more and more.
    pub(crate) fn is_overdue(&self, now_ns: u64, patience: Duration) -> bool {
        let age = |at_ns: u64| u128::from(now_ns.saturating_sub(at_ns));
        let patience_ns = patience.as_nanos();
        let owes = self.parts.load(Ordering::Acquire) > 0;
        let late_ns = self.late_ns.load(Ordering::Relaxed);
        (owes && age(self.since_ns.load(Ordering::Relaxed)) > patience_ns)
            || (late_ns != 0 && age(late_ns) <= patience_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_nanos(10);

    #[test]
    fn who_answers_nothing_for_too_long_is_overdue() {
        let debt = Debt::default();
        assert!(!debt.is_overdue(1_000, PATIENCE), "nothing is owed");
        debt.grows(1_000, 2);
        debt.grows(1_008, 2);
        assert!(!debt.is_overdue(1_010, PATIENCE) && debt.is_overdue(1_011, PATIENCE));
        debt.shrinks(1_012, 1);
        assert!(!debt.is_overdue(1_022, PATIENCE) && debt.is_overdue(1_023, PATIENCE));
        debt.shrinks(1_024, 3);
        assert!(!debt.is_overdue(9_000, PATIENCE));
    }

    #[test]
    fn who_lets_clients_wait_in_vain_is_overdue_until_all_is_answered() {
        let debt = Debt::default();
        debt.grows(1_000, 2);
        debt.is_late(1_001);
        debt.shrinks(1_002, 1);
        assert!(debt.is_overdue(1_003, PATIENCE));
        debt.shrinks(1_004, 1);
        assert!(!debt.is_overdue(1_005, PATIENCE));
    }

    #[test]
    fn who_answers_in_time_again_is_not_overdue_though_it_always_owes_something() {
        let debt = Debt::default();
        debt.grows(1_000, 3);
        debt.is_late(1_010);
        debt.shrinks(1_015, 1);
        assert!(debt.is_overdue(1_020, PATIENCE), "others may still wait in vain");
        debt.shrinks(1_020, 1);
        assert!(!debt.is_overdue(1_021, PATIENCE));
        debt.is_late(1_022);
        assert!(debt.is_overdue(1_023, PATIENCE));
    }
}
