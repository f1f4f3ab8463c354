//! The layer between TCP and HTTP on a connection: none ([`Plain`]), or TLS.

use std::{
    io::{self, Read, Write},
    os::fd::{AsFd, OwnedFd},
};

use clock::monotonic_ns;
use rustix::{
    io::Errno,
    net::{self, SendFlags},
};

use super::{HandshakeStep, Received, Result, SlotId, stamps::Stamps};

/// The protocol layer between a wire's sockets and HTTP.
pub(crate) trait Layer {
    /// The layer's state for one connection.
    type State;
    /// See [`super::Wire::HAS_HANDSHAKE`].
    const HAS_HANDSHAKE: bool;
    /// See [`super::Wire::DISCARDS`].
    const DISCARDS: bool;

    /// The state of a new connection.
    fn begin(&mut self, slot: SlotId) -> Self::State;

    /// See [`super::Wire::handshake`].
    fn handshake(&mut self, slot: SlotId, state: &mut Self::State, io: &mut Io<'_>) -> Result<HandshakeStep>;

    /// See [`super::Wire::send`].
    fn send(&mut self, state: &mut Self::State, io: &mut Io<'_>, bytes: &[u8]) -> Result<usize>;

    /// See [`super::Wire::receive`].
    fn receive(
        &mut self,
        state: &mut Self::State,
        io: &mut Io<'_>,
        buffer: &mut [u8],
        discard: bool,
    ) -> Result<Received>;

    /// Ends a connection before its socket is closed.
    fn close(&mut self, state: &mut Self::State, io: &mut Io<'_>);

    /// See [`super::Wire::tickets`]. `open`: the connections that are still open.
    fn tickets<'a>(&self, open: impl Iterator<Item = &'a Self::State>) -> u64
    where
        Self::State: 'a;
}

/// HTTP on TCP, without a layer in between.
pub(crate) struct Plain;

impl Layer for Plain {
    type State = ();
    const HAS_HANDSHAKE: bool = false;
    const DISCARDS: bool = true;

    fn begin(&mut self, _: SlotId) {}

    fn handshake(&mut self, _: SlotId, (): &mut (), _: &mut Io<'_>) -> Result<HandshakeStep> {
        Ok(HandshakeStep { agreed: None, unread_ns: None, may_have_more: false })
    }

    #[inline]
    fn send(&mut self, (): &mut (), io: &mut Io<'_>, bytes: &[u8]) -> Result<usize> {
        Ok(io.send(bytes)?)
    }

    #[inline]
    fn receive(
        &mut self,
        (): &mut (),
        io: &mut Io<'_>,
        buffer: &mut [u8],
        discard: bool,
    ) -> Result<Received> {
        Ok(io.stamps.receive(io.socket.as_fd(), buffer, discard)?)
    }

    #[inline]
    fn close(&mut self, (): &mut (), _: &mut Io<'_>) {}

    fn tickets<'a>(&self, _: impl Iterator<Item = &'a ()>) -> u64 {
        0
    }
}

/// A socket that also keeps the results of its reads, such as the receive time.
pub(crate) struct Io<'a> {
    socket: &'a OwnedFd,
    stamps: &'a mut Stamps,
    /// The last read that returned bytes, if any.
    pub last: Option<Received>,
    /// The longest time for which a byte had been unread when it was read, in nanoseconds; `None` if unknown.
    pub unread_ns: Option<u64>,
}

impl<'a> Io<'a> {
    #[inline]
    pub(super) fn new(socket: &'a OwnedFd, stamps: &'a mut Stamps) -> Self {
        Self { socket, stamps, last: None, unread_ns: Some(0) }
    }

    #[inline]
    fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        net::send(self.socket, bytes, SendFlags::NOSIGNAL)
    }
}

impl Read for Io<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let received = self.stamps.receive(self.socket.as_fd(), buffer, false)?;
        let unread_ns = received.received_ns.map(|ns| monotonic_ns().saturating_sub(ns));
        self.unread_ns = self.unread_ns.zip(unread_ns).map(|(longest, ns)| longest.max(ns));
        self.last = Some(received);
        Ok(received.bytes)
    }
}

impl Write for Io<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.send(bytes)?)
    }

    fn write_vectored(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
        // A single part does not need sendmsg(2), which takes a list of parts.
        if let [one] = parts {
            return self.write(one);
        }
        let mut control = net::SendAncillaryBuffer::default();
        Ok(net::sendmsg(self.socket, parts, &mut control, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
