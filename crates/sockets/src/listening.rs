//! Listening TCP sockets.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, OwnedFd},
};

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, ipproto, listen, socket_with, sockopt,
};

/// A socket that listens, with an accept queue of `backlog` as far as `net.core.somaxconn` lets it.
///
/// # Errors
/// What the kernel says: the port is taken, or the address is not this machine's.
pub fn listening(address: SocketAddr, reuse_port: bool, backlog: u32) -> io::Result<OwnedFd> {
    let socket = bound(address, reuse_port)?;
    // The kernel caps it anyway, far below.
    listen(&socket, i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(socket)
}

/// A nonblocking socket bound to an address, alone or together with others (SO_REUSEPORT). What is accepted
/// from it sends without delay.
///
/// # Errors
/// As for [`listening`].
pub fn bound(address: SocketAddr, reuse_port: bool) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    // Connections of an earlier run may still be in TIME_WAIT.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if reuse_port {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    // Accepted connections inherit it.
    sockopt::set_tcp_nodelay(&socket, true)?;
    bind(&socket, &address)?;
    Ok(socket)
}

/// The address a socket is bound to, with the port that it was given.
///
/// # Errors
/// When it is none of the Internet.
pub fn local_address(socket: impl AsFd) -> io::Result<SocketAddr> {
    Ok(getsockname(socket)?.try_into()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_connections_send_without_delay() {
        let socket = listening(SocketAddr::from(([127, 0, 0, 1], 0)), false, 1).unwrap();
        let _client = std::net::TcpStream::connect(local_address(&socket).unwrap()).unwrap();
        let accepted = rustix::net::accept(&socket).unwrap();
        assert!(sockopt::tcp_nodelay(&accepted).unwrap());
    }
}
