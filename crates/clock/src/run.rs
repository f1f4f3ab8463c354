//! Time since a run began.

use std::time::Instant;

/// Measures the time since the start of a run. Its copies on other threads have the same start.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Nanoseconds since the start.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        // The cast is safe: 2⁶⁴ ns are 584 years.
        self.start.elapsed().as_nanos() as u64
    }
}
