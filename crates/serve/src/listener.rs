//! Listening sockets.

use std::{io, net::SocketAddr, os::fd::OwnedFd};

use sockets::{bound, listening, local_address};

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
        if shared && !config.reuse_port {
            check_free(asked)?;
        }
        let mut address = asked;
        for thread in &mut threads {
            let socket = listening(address, shared, config.backlog).map_err(fails)?;
            address = local_address(&socket).map_err(fails)?;
            thread.push(socket);
        }
        addresses.push(address);
    }
    Ok((threads, addresses))
}

/// Whether nobody listens on an address. Others that listen there with SO_REUSEPORT would share their connections
/// with us unnoticed.
pub(crate) fn check_free(address: SocketAddr) -> Result<(), Error> {
    if address.port() == 0 {
        return Ok(());
    }
    bound(address, false).map(drop).map_err(|cause| Error::Listen { address, cause })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_others_share_is_not_free() {
        let listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
        let (held, addresses) = listeners(&Config { listen, reuse_port: true, ..Config::default() }).unwrap();
        let error = check_free(addresses[0]).unwrap_err().to_string();
        assert!(error.contains(&format!("cannot listen on {}", addresses[0])), "{error}");
        drop(held);
        check_free(addresses[0]).unwrap();
        check_free(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
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
