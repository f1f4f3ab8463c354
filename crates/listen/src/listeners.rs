//! Listening sockets: one per thread, one shared by all threads, or those inherited from the caller.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use rustix::net::sockopt;
use sockets::{listening_each, local_address};

use crate::{Accept, Config, Error};

/// A listening socket and its purpose.
#[derive(Debug, Clone)]
pub(crate) struct Listener {
    pub socket: Arc<OwnedFd>,
    /// Whether the socket serves only `/health` and `/metrics`, without TLS.
    pub admin: bool,
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The listening sockets of all threads, and their addresses.
#[derive(Debug)]
pub(crate) struct Listeners {
    /// The listening sockets of each thread.
    pub threads: Vec<Vec<Listener>>,
    /// The data addresses with their actual ports.
    pub addresses: Vec<SocketAddr>,
    /// The admin address with its actual port.
    pub admin: Option<SocketAddr>,
}

impl Listeners {
    /// Listens on all addresses, and prepares the sockets that were passed in.
    pub(crate) fn open(config: &Config, handed: Vec<OwnedFd>) -> Result<Self, Error> {
        let count = config.threads as usize;
        let mut listeners = Self { threads: vec![Vec::new(); count], addresses: Vec::new(), admin: None };
        for &asked in &config.listen {
            let loops = if config.accept == Accept::ReusePort { count } else { 1 };
            let (mut sockets, address) = listening_each(asked, loops, false, config.backlog)?;
            listeners.addresses.push(address);
            if loops == 1 {
                sockets.drain(..).for_each(|socket| listeners.share_among_threads(socket));
            }
            for (thread, socket) in listeners.threads.iter_mut().zip(sockets) {
                thread.push(Listener { socket: Arc::new(socket), admin: false });
            }
        }
        for (number, socket) in handed.into_iter().enumerate() {
            let address = prepare_inherited(&socket).map_err(|cause| Error::Handed { number, cause })?;
            listeners.addresses.push(address);
            listeners.share_among_threads(socket);
        }
        if let Some(asked) = config.admin {
            let (sockets, address) = listening_each(asked, 1, false, config.backlog)?;
            listeners.admin = Some(address);
            // The first thread alone serves the admin port.
            let admins = sockets.into_iter().map(|socket| Listener { socket: Arc::new(socket), admin: true });
            listeners.threads[0].extend(admins);
        }
        Ok(listeners)
    }

    fn share_among_threads(&mut self, socket: OwnedFd) {
        let listener = Listener { socket: Arc::new(socket), admin: false };
        self.threads.iter_mut().for_each(|thread| thread.push(listener.clone()));
    }
}

/// Makes a passed-in socket nonblocking and returns its address.
fn prepare_inherited(socket: &OwnedFd) -> io::Result<SocketAddr> {
    if !sockopt::socket_acceptconn(socket)? {
        return Err(io::Error::other("it is not listening"));
    }
    rustix::io::ioctl_fionbio(socket, true)?;
    sockopt::set_tcp_nodelay(socket, true)?;
    local_address(socket)
}
