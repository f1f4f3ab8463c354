//! What lies between TCP and HTTP on a connection: nothing ([`Plain`]), or TLS.

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

/// The layer that carries HTTP on the sockets of a wire.
pub(crate) trait Layer {
    /// The layer's state of a connection.
    type State;
    /// As [`super::Wire::HAS_HANDSHAKE`].
    const HAS_HANDSHAKE: bool;
    /// As [`super::Wire::DISCARDS`].
    const DISCARDS: bool;

    /// The state of a new connection.
    fn begin(&mut self, slot: SlotId) -> Self::State;

    /// As [`super::Wire::handshake`].
    fn handshake(&mut self, slot: SlotId, state: &mut Self::State, io: &mut Io<'_>) -> Result<HandshakeStep>;

    /// As [`super::Wire::send`].
    fn send(&mut self, state: &mut Self::State, io: &mut Io<'_>, bytes: &[u8]) -> Result<usize>;

    /// As [`super::Wire::receive`].
    fn receive(
        &mut self,
        state: &mut Self::State,
        io: &mut Io<'_>,
        buffer: &mut [u8],
        discard: bool,
    ) -> Result<Received>;

    /// Ends a connection whose socket is closed next.
    fn close(&mut self, state: &mut Self::State, io: &mut Io<'_>);

    /// As [`super::Wire::tickets`]. `open`: the connections that are still open.
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

/// A socket that keeps what each read tells beside the bytes.
pub(crate) struct Io<'a> {
    socket: &'a OwnedFd,
    stamps: &'a mut Stamps,
    /// The last read, if there was one that gave bytes.
    pub last: Option<Received>,
    /// For how long all bytes that were read had been unread when they were read, in nanoseconds; `None` if unknown.
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
        // A message in one part needs no list; sendmsg(2) takes several.
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
