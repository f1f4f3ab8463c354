//! The seam under the measuring loop: a clock and numbered connections.
//!
//! The loop knows nothing of sockets. [`kernel::KernelWire`] carries it on the kernel's TCP; tests and the
//! feature `simulated` put a network of virtual time here, and a kernel-bypass TCP fits in the same place.

pub mod kernel;
#[cfg(any(test, feature = "simulated"))]
pub mod simulated;
mod stamps;

use std::{
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
};

use rustix::io::Errno;

/// Connections are numbered by the loop: a slot holds at most one at a time.
pub type SlotId = u32;

/// Between two ends.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// Where to.
    pub target: SocketAddr,
    /// Where from; the kernel chooses if `None`.
    pub source: Option<IpAddr>,
}

/// Something happened on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The connection's slot.
    pub slot: SlotId,
    /// The generation given to [`Wire::watch`]; older ones are about a connection closed since.
    pub generation: u32,
    /// There is something to read, an end or an error included.
    pub readable: bool,
    /// There is room to write, or the connection has been made or refused.
    pub writable: bool,
    /// The peer has closed its side, or the connection is broken.
    pub closed: bool,
}

/// What was received at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// How many bytes; none at the end.
    pub bytes: usize,
    /// When this machine received the last of them, on the wire's clock, where that is known. If something before it was
    /// lost on the way, it could be read later: see [`Wire::readable_for_ns`].
    pub arrived_ns: Option<u64>,
}

/// How a wait ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// With the first event, or about when the time has come.
    Loosely,
    /// The same, but when the time has come to the microsecond, at the price of polling.
    Exactly,
    /// The same, but not before so many nanoseconds have passed: events gather meanwhile.
    Gathering(u64),
}

/// How a wait went, on the wire's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waited {
    /// When it began: what is told by its end came later, or was not asked for before.
    pub began_ns: u64,
    /// When it ended.
    pub ended_ns: u64,
    /// How much later that was than asked for; all of it if it was interrupted, as it is by a stop.
    pub late_ns: u64,
}

/// A clock and the connections of one worker.
pub trait Wire {
    /// Nanoseconds on a clock that never goes back.
    fn now_ns(&self) -> u64;

    /// Starts a connection in an empty slot, without waiting for it.
    ///
    /// # Errors
    /// The kernel's, at once or (see [`Self::connect_result`]) later.
    fn connect(&mut self, slot: SlotId, route: &Route) -> Result<(), Errno>;

    /// Asks for events on a slot: input, end, and errors always; room to write if `writable`.
    /// Events are told once (edge-triggered): read until [`Errno::AGAIN`] or a short read.
    ///
    /// # Errors
    /// When the kernel has no memory for it.
    fn watch(&mut self, slot: SlotId, generation: u32, writable: bool) -> Result<(), Errno>;

    /// How a connection attempt ended, once the slot is writable or closed.
    ///
    /// # Errors
    /// The reason why it was not made.
    fn connect_result(&mut self, slot: SlotId) -> Result<(), Errno>;

    /// Sends what fits; how much that was.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] when nothing fits or the connection is not made yet.
    fn send(&mut self, slot: SlotId, bytes: &[u8]) -> Result<usize, Errno>;

    /// Receives what there is, 0 at the end. With `is_dropped`, at most `buffer.len()` bytes are dropped unread: what
    /// the buffer holds afterwards means nothing.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] when there is nothing yet.
    fn receive(&mut self, slot: SlotId, buffer: &mut [u8], is_dropped: bool) -> Result<Received, Errno>;

    /// For how long the last bytes in sequence could have been read, at the least and at the most in nanoseconds; only of a
    /// connection whose bytes came out of sequence. There a stamp may tell of bytes that waited for others to be sent again.
    fn readable_for_ns(&self, slot: SlotId) -> Option<RangeInclusive<u64>>;

    /// How long the handshake of a connection that was made took, in nanoseconds, where that is known.
    fn handshake_ns(&self, slot: SlotId) -> Option<u64>;

    /// Closes a slot's connection and empties the slot.
    fn close(&mut self, slot: SlotId);

    /// Waits for events until a time, or for ever (but never longer than a few dozen milliseconds at
    /// a stretch, so that the caller sees a wish to stop).
    fn wait(&mut self, until_ns: Option<u64>, wake: Wake, events: &mut Vec<Event>) -> Waited;

    /// Time spent inside [`Self::wait`], asleep or polling, in nanoseconds. What is not spent there the
    /// loop was at work, or wanted to be and had no processor.
    fn waited_ns(&self) -> u64;

    /// Time spent polling inside [`Self::wait`] for a precise wake-up, in nanoseconds.
    fn spun_ns(&self) -> u64;

    /// Uses the processor for so long and does nothing: a deliberate fault of the instrument.
    fn burn(&mut self, ns: u64);
}
