//! The points in time that are recorded for a request.

use record::ErrorClass;

/// A request between its assignment to a connection and its end.
#[derive(Debug, Clone, Copy)]
pub struct InFlight {
    /// When the request was due by the plan.
    pub intended_ns: u64,
    /// When it was assigned to a connection.
    pub started_ns: u64,
    /// When its first byte was sent; 0 before that.
    pub sent_ns: u64,
    /// When its last byte was sent; 0 before that.
    pub sent_whole_ns: u64,
    /// Upper bound of the generator's share of the response time: the request, or other requests sent with it, left late.
    pub own_ns: u64,
    /// The part of `own_ns` that may be in the service time, because late requests queued in the target.
    pub own_queue_ns: u64,
    /// Upper bound of the generator's further share of the service time.
    pub own_service_ns: u64,
}

impl InFlight {
    /// A request that has just been assigned to a connection. `own_ns` and `own_queue_ns`: the generator's shares.
    pub(crate) fn assigned(intended_ns: u64, now_ns: u64, own_ns: u64, own_queue_ns: u64) -> Self {
        Self {
            intended_ns,
            started_ns: now_ns,
            sent_ns: 0,
            sent_whole_ns: 0,
            own_ns,
            own_queue_ns,
            own_service_ns: 0,
        }
    }
}

/// When an answer was received.
#[derive(Debug, Clone, Copy)]
pub struct ReceiveTime {
    /// When the kernel received the last byte; when it was read if the kernel's time is unknown.
    pub received_ns: u64,
    /// Largest time by which the answer may have arrived earlier.
    pub uncertainty_ns: u64,
    /// When the last byte was read.
    pub read_ns: u64,
}

/// A failed request that waits for its retry.
#[derive(Debug, Clone, Copy)]
pub struct PendingRetry {
    /// When the first attempt was due by the plan.
    pub intended_ns: u64,
    /// When the retry is due.
    pub due_ns: u64,
    /// How the last attempt failed.
    pub class: ErrorClass,
    /// Whether any byte of the last attempt was sent.
    pub was_sent: bool,
    /// Upper bound of the generator's share of the time so far. At `MIN_ABSENCE_NS` or more, the generator may also have caused the
    /// failure.
    pub own_ns: u64,
}
