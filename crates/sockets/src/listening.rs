//! Listening TCP sockets.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, OwnedFd},
};

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, ipproto, listen, socket_with, sockopt,
};

use crate::StartError;

/// Opens listening sockets on one address, one for each loop. Also returns the address with the actual port.
///
/// Several sockets share the port (SO_REUSEPORT), and the kernel spreads connections over them by a hash. With a single
/// socket (EPOLLEXCLUSIVE), the kernel would wake the thread that slept last; at a small load, that thread would take
/// nearly all connections and fill one core while the others are idle. `with_others` lets other processes share the
/// port too.
///
/// # Errors
/// [`StartError::Listen`].
pub fn listening_each(
    asked: SocketAddr,
    loops: usize,
    with_others: bool,
    backlog: u32,
) -> Result<(Vec<OwnedFd>, SocketAddr), StartError> {
    let is_shared = with_others || loops > 1;
    if is_shared && !with_others {
        check_free(asked)?;
    }
    let fails = |cause| StartError::Listen { address: asked, cause };
    let mut address = asked;
    let mut sockets = Vec::with_capacity(loops);
    for _ in 0..loops {
        let socket = listening(address, is_shared, backlog).map_err(fails)?;
        address = local_address(&socket).map_err(fails)?;
        sockets.push(socket);
    }
    Ok((sockets, address))
}

/// Checks that no other process listens on an address. With SO_REUSEPORT, another process would silently get a part of
/// our connections.
///
/// # Errors
/// [`StartError::Listen`].
pub fn check_free(address: SocketAddr) -> Result<(), StartError> {
    if address.port() == 0 {
        return Ok(());
    }
    bound(address, false).map(drop).map_err(|cause| StartError::Listen { address, cause })
}

/// A listening socket with an accept queue of `backlog`, which `net.core.somaxconn` may reduce.
///
/// # Errors
/// If the port is in use, or the address does not belong to this machine.
pub(crate) fn listening(address: SocketAddr, reuse_port: bool, backlog: u32) -> io::Result<OwnedFd> {
    let socket = bound(address, reuse_port)?;
    // The kernel's limit is far below i32::MAX.
    listen(&socket, i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(socket)
}

/// A nonblocking socket bound to an address, exclusively or shared (SO_REUSEPORT). Accepted connections have
/// TCP_NODELAY.
///
/// # Errors
/// As for [`listening`].
fn bound(address: SocketAddr, reuse_port: bool) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    // Connections of an earlier run may still be in TIME_WAIT and would block the address.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if reuse_port {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    // Accepted connections inherit this.
    sockopt::set_tcp_nodelay(&socket, true)?;
    bind(&socket, &address)?;
    Ok(socket)
}

/// The address to which a socket is bound, with the actual port.
///
/// # Errors
/// If it is not an IPv4 or IPv6 address.
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
        // The kernel may finish the handshake shortly after the client does.
        let accepted = testing::find(testing::PATIENCE, || rustix::net::accept(&socket).ok()).unwrap();
        assert!(sockopt::tcp_nodelay(&accepted).unwrap());
    }

    #[test]
    fn an_address_that_another_socket_has_is_not_free() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (held, address) = listening_each(any, 1, true, 1).unwrap();
        let error = check_free(address).unwrap_err().to_string();
        assert!(error.contains(&format!("cannot listen on {address}")), "{error}");
        assert!(listening_each(address, 2, false, 1).is_err());
        drop(held);
        check_free(address).unwrap();
        check_free(any).unwrap();
    }

    #[test]
    fn all_loops_share_the_port_of_the_first() {
        let (sockets, address) = listening_each(SocketAddr::from(([127, 0, 0, 1], 0)), 3, false, 1).unwrap();
        let local: Vec<_> = sockets.iter().map(|socket| local_address(socket).unwrap()).collect();
        assert_eq!(local, [address; 3]);
    }
}
