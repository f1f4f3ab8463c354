//! When what happened to a request.

use record::ErrorClass;

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

/// A request that failed and is to be made again.
#[derive(Debug, Clone, Copy)]
pub struct Waiting {
    /// When the plan wanted it sent, in the first place.
    pub intended_ns: u64,
    /// When it is to be made again.
    pub due_ns: u64,
    /// How it failed.
    pub class: ErrorClass,
    /// Whether anything of it was sent.
    pub sent: bool,
    /// How much of its time may be our own; what came of it may be, too.
    pub own_ns: u64,
}
