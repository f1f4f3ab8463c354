//! A circuit breaker: while the storage fails, one request per interval probes it and all others are refused.

use std::sync::atomic::{AtomicU64, Ordering};

use segments::{StorageState, Store};

use crate::refusal::Refusal;

/// Nanoseconds between two probes of a failing storage.
const PROBE_NS: u64 = 250_000_000;

/// Decides which requests are passed to the storage.
#[derive(Debug, Default)]
pub(crate) struct CircuitBreaker {
    next_probe_ns: AtomicU64,
}

impl CircuitBreaker {
    /// The refusal for a request that must not go to the storage; `None` if it may.
    #[inline]
    pub(crate) fn refusal(&self, store: &Store, now_ns: u64) -> Option<Refusal> {
        match store.state() {
            StorageState::Ok => None,
            state => self.refusal_unless_probe(state, now_ns),
        }
    }

    #[cold]
    fn refusal_unless_probe(&self, state: StorageState, now_ns: u64) -> Option<Refusal> {
        let due_ns = self.next_probe_ns.load(Ordering::Relaxed);
        let next_ns = now_ns + PROBE_NS;
        // If several threads find a probe due, only one of them succeeds.
        let probes = due_ns <= now_ns
            && self
                .next_probe_ns
                .compare_exchange(due_ns, next_ns, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if probes { None } else { Refusal::of_state(state) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_storage_is_tried_now_and_then() {
        let breaker = CircuitBreaker::default();
        let passes = |now_ns| breaker.refusal_unless_probe(StorageState::Full, now_ns).is_none();
        assert!(passes(0));
        assert!(!passes(1) && !passes(PROBE_NS - 1));
        assert!(passes(PROBE_NS) && !passes(PROBE_NS + 1));
        assert_eq!(breaker.refusal_unless_probe(StorageState::Full, PROBE_NS + 2), Some(Refusal::Full));
    }
}
