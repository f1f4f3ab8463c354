//! What the storage owes the threads: whether it hangs, a disk that neither works nor fails.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// The storage's debt. Times are nanoseconds of one clock, and never 0.
#[derive(Debug, Default)]
pub(crate) struct Debt {
    /// Since when it has owed something without paying anything; 0 if it owes nothing.
    since_ns: AtomicU64,
    /// When a client last waited for it in vain; 0 if all has been answered since.
    late_ns: AtomicU64,
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
        if to_nothing && self.late_ns.load(Ordering::Relaxed) != 0 {
            self.late_ns.store(0, Ordering::Relaxed);
        }
    }

    /// A client has waited for the storage in vain.
    pub fn is_late(&self, now_ns: u64) {
        self.late_ns.store(now_ns, Ordering::Relaxed);
    }

    /// Whether the storage has paid nothing for so long, or has let a client wait in vain within that time.
    ///
    /// What was owed when a client gave up has been answered after another `patience`, or its client has given up too: so
    /// it need not come to owe nothing, which it never does while several threads hand over more and more.
    pub fn is_overdue(&self, now_ns: u64, patience: Duration) -> bool {
        let age = |at: &AtomicU64| match at.load(Ordering::Relaxed) {
            0 => None,
            at_ns => Some(u128::from(now_ns.saturating_sub(at_ns))),
        };
        let patience_ns = patience.as_nanos();
        age(&self.since_ns).is_some_and(|age_ns| age_ns > patience_ns)
            || age(&self.late_ns).is_some_and(|age_ns| age_ns <= patience_ns)
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
        debt.is_late(1_001);
        debt.shrinks(1_002, false);
        assert!(debt.is_overdue(1_003, PATIENCE));
        debt.shrinks(1_004, true);
        assert!(!debt.is_overdue(1_005, PATIENCE));
    }

    #[test]
    fn who_answers_in_time_again_is_not_overdue_though_it_always_owes_something() {
        let debt = Debt::default();
        debt.grows(1_000);
        debt.is_late(1_010);
        debt.shrinks(1_015, false);
        assert!(debt.is_overdue(1_020, PATIENCE), "others may still wait in vain");
        debt.shrinks(1_020, false);
        assert!(!debt.is_overdue(1_021, PATIENCE));
        debt.is_late(1_022);
        assert!(debt.is_overdue(1_023, PATIENCE));
    }
}
