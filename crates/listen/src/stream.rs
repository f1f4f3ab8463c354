//! The byte stream of a connection, with or without TLS.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown},
};
use rustls::ServerConfig;
use tls::{Failure, Session};

/// The byte stream of a connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(OwnedFd),
    Tls(Box<Encrypted>),
}

#[derive(Debug)]
pub(crate) struct Encrypted {
    socket: sockets::Stream<OwnedFd>,
    session: Session,
}

impl Stream {
    /// Creates the stream of an accepted socket. `tls` enables TLS.
    pub(crate) fn new(socket: OwnedFd, tls: Option<Arc<ServerConfig>>) -> Result<Self, Failure> {
        Ok(match tls {
            None => Self::Plain(socket),
            Some(config) => Self::Tls(Box::new(Encrypted {
                socket: sockets::Stream(socket),
                session: Session::server(config)?,
            })),
        })
    }

    /// Whether the stream has no TLS. Only then does a read that leaves the buffer partly empty mean that nothing is
    /// left.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    /// Reads bytes. Returns 0 at the end of the stream, and [`Errno::INTR`] if the caller should read again later.
    #[inline]
    pub(crate) fn recv(&mut self, buffer: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Plain(socket) => recv(socket, buffer, RecvFlags::empty()).map(|(_, received)| received),
            Self::Tls(encrypted) => {
                let Encrypted { socket, session } = &mut **encrypted;
                session.receive(socket, buffer).map_err(errno)
            }
        }
    }

    /// Accepts bytes for sending. Returns how many it accepted.
    #[inline]
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        match self {
            Self::Plain(socket) => send(socket, bytes, SendFlags::NOSIGNAL),
            Self::Tls(encrypted) => {
                let Encrypted { socket, session } = &mut **encrypted;
                session.send(socket, bytes).map_err(errno)
            }
        }
    }

    /// Sends accepted bytes that are still buffered. Returns whether all are sent.
    pub(crate) fn flush(&mut self) -> Result<bool, Errno> {
        match self {
            Self::Plain(_) => Ok(true),
            Self::Tls(encrypted) => {
                let Encrypted { socket, session } = &mut **encrypted;
                session.flush(socket).map_err(errno)
            }
        }
    }

    /// Whether received bytes are still unread, in the TLS session or in the kernel.
    #[cold]
    pub(crate) fn has_unread(&mut self) -> bool {
        if let Self::Tls(encrypted) = self
            && encrypted.session.has_buffered()
        {
            return true;
        }
        let mut byte = [0];
        let peeked = recv(self.as_fd(), &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
        peeked.is_ok_and(|(_, received)| received > 0)
    }

    /// Ends the sending side: with a close_notify if the stream uses TLS, then with a FIN.
    pub(crate) fn shutdown_write(&mut self) -> Result<(), Errno> {
        if let Self::Tls(encrypted) = self {
            let Encrypted { socket, session } = &mut **encrypted;
            session.send_close_notify(socket).map_err(errno)?;
        }
        shutdown(self.as_fd(), Shutdown::Write)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plain(socket) => socket.as_fd(),
            Self::Tls(encrypted) => encrypted.socket.0.as_fd(),
        }
    }
}

fn errno(failure: Failure) -> Errno {
    match failure {
        Failure::WouldBlock => Errno::AGAIN,
        Failure::Again => Errno::INTR,
        Failure::Io(errno) => errno,
        _ => Errno::PROTO,
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::unix::net::UnixStream};

    use tls::{Authority, Offer, Validity};

    use super::*;

    fn config() -> Arc<ServerConfig> {
        let authority = Authority::new("an authority").unwrap();
        let identity = authority.certify(&["localhost"], Validity::default()).unwrap();
        Arc::new(Offer::default().server(identity, None).unwrap())
    }

    #[test]
    fn a_handshake_that_goes_on_and_on_lets_others_have_their_turn() {
        let (mut client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        let mut stream = Stream::new(server.into(), Some(config())).unwrap();
        // An incomplete ClientHello of 60,000 bytes, in records of 100 bytes.
        let mut hello = vec![1, 0, 0xea, 0x60];
        hello.resize(59_900, 0);
        let records: Vec<u8> = hello
            .chunks(100)
            .flat_map(|part| [&[22, 3, 1, 0, part.len() as u8][..], part].concat())
            .collect();
        client.write_all(&records).unwrap();
        let mut turns = 0;
        loop {
            match stream.recv(&mut [0; 1024]) {
                Err(Errno::INTR) => turns += 1,
                Err(Errno::AGAIN) => break,
                other => panic!("nothing of the connection's own has come: {other:?}"),
            }
        }
        assert!((1..100).contains(&turns), "{turns}");
    }
}
