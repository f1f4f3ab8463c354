//! Listening sockets.

use std::{io, net::SocketAddr, os::fd::OwnedFd};

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, ipproto, listen, socket_with, sockopt,
};

use crate::{Config, Error};

/// For each thread its listeners, one for each address; and the addresses, with the ports as they are.
///
/// Every thread has its own (SO_REUSEPORT), and the kernel spreads connections over them by a hash. A shared
/// listener (EPOLLEXCLUSIVE) would wake the thread that slept last, which then takes nearly all of the
/// connections of a small load: one core would be full while others are idle.
pub(crate) fn listeners(config: &Config) -> Result<(Vec<Vec<OwnedFd>>, Vec<SocketAddr>), Error> {
    let shared = config.reuse_port || config.threads > 1;
    let mut threads: Vec<Vec<OwnedFd>> = (0..config.threads).map(|_| Vec::new()).collect();
    let mut addresses = Vec::with_capacity(config.listen.len());
    for &asked in &config.listen {
        let fails = |cause: io::Error| Error::Listen { address: asked, cause };
        if shared && !config.reuse_port && asked.port() != 0 {
            // Others that listen there with SO_REUSEPORT would share their connections with us unnoticed.
            drop(bound(asked, false).map_err(fails)?);
        }
        let mut address = asked;
        for thread in &mut threads {
            let socket = bound(address, shared).map_err(fails)?;
            listen(&socket, config.backlog as i32).map_err(|e| fails(e.into()))?;
            address = local_address(&socket).map_err(fails)?;
            thread.push(socket);
        }
        addresses.push(address);
    }
    Ok((threads, addresses))
}

fn bound(address: SocketAddr, shared: bool) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    // Connections of an earlier run may still be in TIME_WAIT.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if shared {
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

fn local_address(socket: &OwnedFd) -> io::Result<SocketAddr> {
    Ok(getsockname(socket)?.try_into()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_connections_send_without_delay() {
        let socket = bound(SocketAddr::from(([127, 0, 0, 1], 0)), false).unwrap();
        listen(&socket, 1).unwrap();
        let _client = std::net::TcpStream::connect(local_address(&socket).unwrap()).unwrap();
        let accepted = rustix::net::accept(&socket).unwrap();
        assert!(sockopt::tcp_nodelay(&accepted).unwrap());
    }

    #[test]
    fn threads_share_the_port_that_the_first_was_given() {
        let listen = vec![SocketAddr::from(([127, 0, 0, 1], 0)); 2];
        let (threads, addresses) = listeners(&Config { listen, threads: 3, ..Config::default() }).unwrap();
        assert_ne!(addresses[0].port(), addresses[1].port());
        for thread in threads {
            let local: Vec<_> = thread.iter().map(|socket| local_address(socket).unwrap()).collect();
            assert_eq!(local, addresses);
        }
    }
}
