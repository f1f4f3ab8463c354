//! When what happened to a request.

/// A request between its assignment to a connection and its end.
#[derive(Debug, Clone, Copy)]
pub struct InFlight {
    /// When the plan wanted it sent.
    pub intended_ns: u64,
    /// When it was given to a connection.
    pub started_ns: u64,
    /// When its first byte went to the kernel; 0 if not yet.
    pub sent_ns: u64,
    /// How much of its response time may be our own because it was sent late, or along with others that were.
    pub own_ns: u64,
    /// How much of that may be in its service time: what it waited for in the target behind those others.
    pub own_queue_ns: u64,
    /// How much else of its service time may be.
    pub own_service_ns: u64,
}

/// When an answer was there.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// When the kernel received its last byte or, where that is not known, when it was read.
    pub ns: u64,
    /// By how much it may have been there earlier.
    pub earlier_ns: u64,
    /// When it was read.
    pub read_ns: u64,
}
