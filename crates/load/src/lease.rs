//! The permission of another machine to make load, which ends by itself.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

/// A permission to send until a point in time of CLOCK_BOOTTIME, which runs on while the process is stopped and while the machine is
/// suspended.
#[derive(Debug)]
pub struct Lease {
    until_ns: AtomicU64,
}

impl Lease {
    /// A lease until a time, in nanoseconds of CLOCK_BOOTTIME.
    pub fn new(until_ns: u64) -> Self {
        Self { until_ns: AtomicU64::new(until_ns) }
    }

    /// Extends the lease. An earlier time than before changes nothing.
    pub fn extend(&self, until_ns: u64) {
        self.until_ns.fetch_max(until_ns, Ordering::Relaxed);
    }

    /// The end of the lease, in nanoseconds of CLOCK_BOOTTIME.
    pub fn until_ns(&self) -> u64 {
        self.until_ns.load(Ordering::Relaxed)
    }

    /// Whether the lease has ended: nothing may be sent.
    #[inline]
    pub fn has_ended(&self) -> bool {
        clock::boottime_ns() >= self.until_ns()
    }
}

/// Whether a worker may still send.
#[derive(Debug)]
pub(crate) struct Permission {
    /// Set to end the trial.
    pub(crate) stop: Arc<AtomicBool>,
    /// None if this machine ends the trial.
    pub(crate) lease: Option<Arc<Lease>>,
}

impl Permission {
    /// Whether the trial was ended.
    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether the lease has ended.
    #[inline]
    pub(crate) fn has_lost_lease(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.has_ended())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_by_itself_and_is_never_shortened() {
        let lease = Lease::new(clock::boottime_ns() + 3_600_000_000_000);
        lease.extend(1);
        assert!(!lease.has_ended());
        assert!(Lease::new(clock::boottime_ns()).has_ended());
    }
}
