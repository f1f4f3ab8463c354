//! The interface between the measuring loop and a network: a clock and numbered connections.
//!
//! The loop knows nothing about sockets. [`kernel::KernelWire`] uses the kernel's TCP; tests and the feature `simulated` use
//! a network of virtual time. A kernel-bypass TCP can implement the same trait.

pub(crate) mod connect_options;
pub(crate) mod kernel;
pub(crate) mod layer;
pub(crate) mod preface;
pub(crate) mod secure;
#[cfg(any(test, feature = "simulated"))]
pub mod simulated;
mod stamps;

use std::{
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
};

use rustix::io::Errno;

/// The result of a call on a connection, or its error.
pub(crate) type Result<T, E = ConnectionError> = std::result::Result<T, E>;

/// Index of a slot, which holds at most one connection at a time.
pub type SlotId = u32;

/// The addresses of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// Address to connect to; `None` for the Unix socket that the wire was made for.
    pub target: Option<SocketAddr>,
    /// Local address; the kernel chooses if `None`.
    pub source: Option<IpAddr>,
}

/// An event on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The connection's slot.
    pub slot: SlotId,
    /// The generation given to [`Wire::watch`]. An older generation belongs to a connection that has been closed since then.
    pub generation: u32,
    /// The connection has bytes, an end of stream or an error to read.
    pub readable: bool,
    /// The connection accepts bytes, or its connection attempt has ended.
    pub writable: bool,
    /// The peer has closed its side, or the connection has failed.
    pub closed: bool,
}

/// Why a call on a connection failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionError {
    /// The kernel's error.
    Kernel(Errno),
    /// TLS ended the connection.
    Tls(tls::Failure),
    /// The peer ended the stream without TLS's end alert, as an attacker could: bytes may be missing.
    CutOff,
    /// The proxy opened no tunnel. The status of its answer; 0 if the answer was not HTTP, `None` if it closed the connection.
    Proxy(Option<u16>),
}

impl ConnectionError {
    /// The operation would block.
    pub const AGAIN: Self = Self::Kernel(Errno::AGAIN);
}

impl From<Errno> for ConnectionError {
    #[inline]
    fn from(errno: Errno) -> Self {
        Self::Kernel(errno)
    }
}

/// The parameters on which the two sides of a TLS connection agreed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreed {
    /// Version of TLS.
    pub version: &'static str,
    /// Name of the cipher suite.
    pub cipher: &'static str,
    /// Whether an earlier session was resumed.
    pub is_resumed: bool,
}

/// The progress of a connection's preface after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefaceStep {
    /// Whether it is complete.
    pub is_done: bool,
    /// See [`HandshakeStep::unread_ns`].
    pub unread_ns: Option<u64>,
}

/// The progress of a connection's handshake after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandshakeStep {
    /// The agreed parameters, once the handshake is done.
    pub agreed: Option<Agreed>,
    /// The longest time for which a byte read in this step had been unread, in nanoseconds; `None` if unknown.
    pub unread_ns: Option<u64>,
    /// Whether unread bytes may remain for which no further event comes.
    pub may_have_more: bool,
}

/// The outcome of one receive call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Number of bytes; 0 at the end of the stream.
    pub bytes: usize,
    /// Whether unread bytes may remain for which no further event comes. The end of the stream may be unread in any case.
    pub may_have_more: bool,
    /// When this machine received the last of these bytes, on the wire's clock, if known. After packet loss, the bytes became
    /// readable later: see [`Wire::readable_for_ns`].
    pub received_ns: Option<u64>,
}

/// When a wait ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// At the first event, or at about the given time.
    Loosely,
    /// At the first event, or at the given time to the microsecond, which needs polling.
    Exactly,
    /// At the first event or at about the given time, but not before this number of nanoseconds has passed, so that several
    /// events are handled together.
    Batched(u64),
}

/// The times of a wait, on the wire's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waited {
    /// When the wait began. Earlier events were reported by earlier waits.
    pub began_ns: u64,
    /// When the wait ended.
    pub ended_ns: u64,
    /// How much later than planned the wait ended; its whole length if it was interrupted.
    pub late_ns: u64,
}

/// A clock and the connections of one worker.
pub trait Wire {
    /// Whether a connection needs a further handshake after TCP's, such as TLS's, before it takes requests.
    const HAS_HANDSHAKE: bool = false;
    /// Whether [`Self::receive`] can drop bytes at a lower cost than receiving them.
    const DISCARDS: bool = true;

    /// The time on a monotonic clock, in nanoseconds.
    fn now_ns(&self) -> u64;

    /// Starts a connection attempt in an empty slot, without waiting for its result.
    ///
    /// # Errors
    /// The kernel's error if the attempt fails at once; [`Self::connect_result`] returns a later error.
    fn connect(&mut self, slot: SlotId, route: &Route) -> Result<(), Errno>;

    /// Asks for events of a slot: input, end of stream and errors always, `writable` if requested. Events are edge-triggered:
    /// read until [`ConnectionError::AGAIN`], or until [`Received`] says that nothing is left.
    ///
    /// # Errors
    /// When the kernel has no memory for it.
    fn watch(&mut self, slot: SlotId, generation: u32, writable: bool) -> Result<(), Errno>;

    /// The result of a connection attempt. Call it once the slot is writable or closed.
    ///
    /// # Errors
    /// Why the attempt failed.
    fn connect_result(&mut self, slot: SlotId) -> Result<(), Errno>;

    /// Whether a connection begins with a preface: the tunnel of a proxy, or a line of the PROXY protocol.
    fn has_preface(&self) -> bool {
        false
    }

    /// Advances the preface of an established connection as far as possible without waiting.
    ///
    /// # Errors
    /// Why the connection cannot be used.
    fn preface(&mut self, slot: SlotId) -> Result<PrefaceStep> {
        let _ = slot;
        Ok(PrefaceStep { is_done: true, unread_ns: Some(0) })
    }

    /// Advances the handshake of an established connection as far as possible without waiting.
    ///
    /// # Errors
    /// Why the handshake failed.
    fn handshake(&mut self, slot: SlotId) -> Result<HandshakeStep> {
        let _ = slot;
        Ok(HandshakeStep { agreed: None, unread_ns: None, may_have_more: false })
    }

    /// Sends as many bytes as the kernel accepts, and returns their number.
    ///
    /// # Errors
    /// [`ConnectionError::AGAIN`] if the kernel accepts none, or the connection is not open yet: the next call must begin with
    /// the same bytes.
    fn send(&mut self, slot: SlotId, bytes: &[u8]) -> Result<usize>;

    /// Receives bytes into `buffer`. With `discard`, drops up to `buffer.len()` bytes instead; the content of the buffer is
    /// then undefined.
    ///
    /// # Errors
    /// [`ConnectionError::AGAIN`] when no bytes have arrived.
    fn receive(&mut self, slot: SlotId, buffer: &mut [u8], discard: bool) -> Result<Received>;

    /// How long the last bytes have been readable: lower and upper bound in nanoseconds. `None` unless the connection has
    /// received bytes out of sequence: only then may received bytes have waited for a retransmission of earlier ones.
    fn readable_for_ns(&self, slot: SlotId) -> Option<RangeInclusive<u64>>;

    /// How long TCP's handshake of an established connection took, in nanoseconds, if known.
    fn round_trip_ns(&self, slot: SlotId) -> Option<u64>;

    /// How long a connection that has not received any bytes yet has been open: lower and upper bound in nanoseconds, if known.
    fn open_for_ns(&self, slot: SlotId) -> Option<RangeInclusive<u64>>;

    /// The local address of an open connection, if it has one.
    fn local_address(&self, slot: SlotId) -> Option<SocketAddr> {
        let _ = slot;
        None
    }

    /// Closes a slot's connection and empties the slot.
    fn close(&mut self, slot: SlotId);

    /// Waits for events until a time, or without a time limit. Every wait ends after about 50 milliseconds, so that the caller
    /// can check whether to stop.
    fn wait(&mut self, until_ns: Option<u64>, wake: Wake, events: &mut Vec<Event>) -> Waited;

    /// Number of session tickets that the connections received.
    fn tickets(&self) -> u64 {
        0
    }

    /// Time spent inside [`Self::wait`], asleep or polling, in nanoseconds. In the remaining time the loop was working, or
    /// waiting for a processor.
    fn waited_ns(&self) -> u64;

    /// Time spent polling inside [`Self::wait`] for a precise wake-up, in nanoseconds.
    fn spun_ns(&self) -> u64;

    /// Uses the processor for `ns` nanoseconds without doing anything: a deliberate fault of the instrument.
    fn burn(&mut self, ns: u64);
}
