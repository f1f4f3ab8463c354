//! The options for the connections of a wire.

use std::{net::SocketAddr, os::fd::OwnedFd};

use rustix::{
    io::Errno,
    net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType},
};

use super::preface::Preface;

pub(super) const SOCKET_FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// The options for the connections of a wire.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectOptions {
    /// Whether Nagle's algorithm is off.
    pub nodelay: bool,
    /// The Unix socket for connections without a target address.
    pub unix_socket: Option<SocketAddrUnix>,
    /// The preface of each connection.
    pub preface: Option<Preface>,
}

impl ConnectOptions {
    /// Connects to the Unix socket, which succeeds or fails at once.
    pub(super) fn connect_unix(&self) -> Result<OwnedFd, Errno> {
        let path = self.unix_socket.as_ref().ok_or(Errno::DESTADDRREQ)?;
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SOCKET_FLAGS, None)?;
        net::connect(&socket, path).map_err(|errno| match errno {
            // The target's accept queue is full. TCP would wait for room; on a Unix socket the attempt fails.
            Errno::AGAIN | Errno::NOENT => Errno::CONNREFUSED,
            other => other,
        })?;
        Ok(socket)
    }
}

/// The connection's local and peer addresses, if both are IP addresses.
pub(super) fn addresses(socket: &OwnedFd) -> Option<(SocketAddr, SocketAddr)> {
    let local = SocketAddr::try_from(net::getsockname(socket).ok()?).ok()?;
    let peer = SocketAddr::try_from(net::getpeername(socket).ok()??).ok()?;
    Some((local, peer))
}
