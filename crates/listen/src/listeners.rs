//! Listening sockets: for each thread its own, one for all, or those handed in.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use rustix::net::sockopt;
use sockets::{bound, listening, local_address};

use crate::{Accept, Config, Error};

/// A socket that connections are accepted from.
#[derive(Debug, Clone)]
pub(crate) struct Listener {
    pub socket: Arc<OwnedFd>,
    /// Only `/health` and `/metrics` are answered here, and never encrypted.
    pub admin: bool,
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// All listening sockets.
#[derive(Debug)]
pub(crate) struct Listeners {
    /// For each thread its own.
    pub threads: Vec<Vec<Listener>>,
    /// The addresses of the data port, with the ports as they are.
    pub addresses: Vec<SocketAddr>,
    /// The address of the admin port.
    pub admin: Option<SocketAddr>,
}

impl Listeners {
    /// Listens on all addresses, and takes over the sockets handed in.
    pub fn open(config: &Config, handed: Vec<OwnedFd>) -> Result<Self, Error> {
        let count = config.threads as usize;
        let mut listeners = Self { threads: vec![Vec::new(); count], addresses: Vec::new(), admin: None };
        for &asked in &config.listen {
            let address = match config.accept {
                Accept::ReusePort if count > 1 => listeners.one_each(asked, config.backlog),
                _ => listeners.one_for_all(asked, config.backlog),
            };
            listeners.addresses.push(address.map_err(|cause| Error::Listen { address: asked, cause })?);
        }
        for (number, socket) in handed.into_iter().enumerate() {
            let address = take_over(&socket).map_err(|cause| Error::Handed { number, cause })?;
            listeners.addresses.push(address);
            listeners.give_to_all(socket);
        }
        if let Some(asked) = config.admin {
            let fails = |cause| Error::Listen { address: asked, cause };
            let socket = listening(asked, false, config.backlog).map_err(fails)?;
            listeners.admin = Some(local_address(&socket).map_err(fails)?);
            // One thread is enough for it.
            listeners.threads[0].push(Listener { socket: Arc::new(socket), admin: true });
        }
        Ok(listeners)
    }

    fn one_each(&mut self, asked: SocketAddr, backlog: u32) -> io::Result<SocketAddr> {
        if asked.port() != 0 {
            // Others that listen there with SO_REUSEPORT would share their connections with us unnoticed.
            drop(bound(asked, false)?);
        }
        let mut address = asked;
        for thread in &mut self.threads {
            let socket = listening(address, true, backlog)?;
            address = local_address(&socket)?;
            thread.push(Listener { socket: Arc::new(socket), admin: false });
        }
        Ok(address)
    }

    fn one_for_all(&mut self, asked: SocketAddr, backlog: u32) -> io::Result<SocketAddr> {
        let socket = listening(asked, false, backlog)?;
        let address = local_address(&socket)?;
        self.give_to_all(socket);
        Ok(address)
    }

    fn give_to_all(&mut self, socket: OwnedFd) {
        let listener = Listener { socket: Arc::new(socket), admin: false };
        self.threads.iter_mut().for_each(|thread| thread.push(listener.clone()));
    }
}

/// Makes a socket handed in fit for the loops; its address.
fn take_over(socket: &OwnedFd) -> io::Result<SocketAddr> {
    if !sockopt::socket_acceptconn(socket)? {
        return Err(io::Error::other("it does not listen"));
    }
    rustix::io::ioctl_fionbio(socket, true)?;
    sockopt::set_tcp_nodelay(socket, true)?;
    local_address(socket)
}
