//! What the storage owes the threads: whether it hangs, a disk that neither works nor fails.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

/// The storage's debt. Times are nanoseconds of one clock, and never 0.
#[derive(Debug, Default)]
pub(crate) struct Debt {
    /// Since when it has owed something without paying anything; 0 if it owes nothing.
    since_ns: AtomicU64,
    /// A client has waited for it in vain.
    was_overdue: AtomicBool,
}

impl Debt {
    /// Something was handed over to the storage.
    #[inline]
    pub fn grows(&self, now_ns: u64) {
        // Mostly it owes something, and all threads keep their copy of that.
        if self.since_ns.load(Ordering::Relaxed) == 0 {
            self.since_ns.store(now_ns, Ordering::Relaxed);
        }
    }

    /// The storage has answered, and has something left to answer or not.
    #[inline]
    pub fn shrinks(&self, now_ns: u64, to_nothing: bool) {
        self.since_ns.store(if to_nothing { 0 } else { now_ns }, Ordering::Relaxed);
        if to_nothing && self.was_overdue.load(Ordering::Relaxed) {
            self.was_overdue.store(false, Ordering::Relaxed);
        }
    }

    /// A client has waited for the storage in vain.
    pub fn is_late(&self) {
        self.was_overdue.store(true, Ordering::Relaxed);
    }

    /// Whether the storage has paid nothing for so long, or lets clients wait in vain.
    pub fn is_overdue(&self, now_ns: u64, patience: Duration) -> bool {
        let since_ns = self.since_ns.load(Ordering::Relaxed);
        let waited_ns = if since_ns == 0 { 0 } else { now_ns.saturating_sub(since_ns) };
        self.was_overdue.load(Ordering::Relaxed) || u128::from(waited_ns) > patience.as_nanos()
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
        debt.grows(1_000);
        debt.grows(1_008);
        assert!(!debt.is_overdue(1_010, PATIENCE) && debt.is_overdue(1_011, PATIENCE));
        debt.shrinks(1_012, false);
        assert!(!debt.is_overdue(1_022, PATIENCE) && debt.is_overdue(1_023, PATIENCE));
        debt.shrinks(1_024, true);
        assert!(!debt.is_overdue(9_000, PATIENCE));
    }

    #[test]
    fn who_lets_clients_wait_in_vain_is_overdue_until_all_is_answered() {
        let debt = Debt::default();
        debt.grows(1_000);
        debt.is_late();
        debt.shrinks(1_001, false);
        assert!(debt.is_overdue(1_002, PATIENCE));
        debt.shrinks(1_003, true);
        assert!(!debt.is_overdue(1_004, PATIENCE));
    }
}
