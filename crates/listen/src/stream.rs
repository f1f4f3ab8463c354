//! The byte stream of a connection, plain or TLS.

use std::{
    io::{self, Read, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown},
};
use rustls::{ServerConfig, ServerConnection};

/// Maximum number of reads that give only TLS control data, before other connections get their turn.
const ROUNDS: u32 = 8;

/// The byte stream of a connection.
#[derive(Debug)]
pub(crate) enum Stream {
    /// Without TLS.
    Plain(OwnedFd),
    /// With TLS.
    Tls(Box<Encrypted>),
}

#[derive(Debug)]
pub(crate) struct Encrypted {
    socket: OwnedFd,
    session: ServerConnection,
}

impl Stream {
    /// The stream of an accepted socket.
    pub(crate) fn new(socket: OwnedFd, tls: Option<Arc<ServerConfig>>) -> Result<Self, rustls::Error> {
        Ok(match tls {
            None => Self::Plain(socket),
            Some(config) => {
                Self::Tls(Box::new(Encrypted { socket, session: ServerConnection::new(config)? }))
            }
        })
    }

    /// Whether the stream is plain, so that a read that did not fill the buffer has read everything.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    /// Reads; returns 0 at the end of the stream, and [`Errno::INTR`] if the caller should read again later.
    #[inline]
    pub(crate) fn recv(&mut self, buffer: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Plain(socket) => recv(socket, buffer, RecvFlags::empty()).map(|(_, received)| received),
            Self::Tls(encrypted) => encrypted.recv(buffer),
        }
    }

    /// Takes bytes to send; returns how many it took.
    #[inline]
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        match self {
            Self::Plain(socket) => send(socket, bytes, SendFlags::NOSIGNAL),
            Self::Tls(encrypted) => encrypted.send(bytes),
        }
    }

    /// Sends bytes that were taken but not sent yet; returns whether all are sent.
    pub(crate) fn flush(&mut self) -> Result<bool, Errno> {
        match self {
            Self::Plain(_) => Ok(true),
            Self::Tls(encrypted) => encrypted.flush(),
        }
    }

    /// Whether received bytes have not been read yet.
    #[cold]
    pub(crate) fn has_unread(&mut self) -> bool {
        if let Self::Tls(encrypted) = self
            && encrypted.session.process_new_packets().is_ok_and(|state| state.plaintext_bytes_to_read() > 0)
        {
            return true;
        }
        let mut byte = [0];
        let peeked = recv(self.as_fd(), &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
        peeked.is_ok_and(|(_, received)| received > 0)
    }

    /// Shuts down the sending side.
    pub(crate) fn shutdown_write(&mut self) -> Result<(), Errno> {
        if let Self::Tls(encrypted) = self {
            encrypted.session.send_close_notify();
            encrypted.flush()?;
        }
        shutdown(self.as_fd(), Shutdown::Write)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plain(socket) => socket.as_fd(),
            Self::Tls(encrypted) => encrypted.socket.as_fd(),
        }
    }
}

impl Encrypted {
    /// Returns [`Errno::INTR`] after some reads without data, so that other connections get their turn.
    fn recv(&mut self, buffer: &mut [u8]) -> Result<usize, Errno> {
        for _ in 0..ROUNDS {
            match self.session.reader().read(buffer) {
                Ok(received) => return Ok(received),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The client closed without a TLS close_notify: this is the end of the stream.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                Err(error) => return Err(errno(&error)),
            }
            let closed = match self.session.read_tls(&mut Socket(&self.socket)) {
                Ok(received) => received == 0,
                Err(error) => return Err(errno(&error)),
            };
            let processed = self.session.process_new_packets();
            // Sends handshakes and alerts, also after a failure.
            let flushed = self.flush();
            processed.map_err(|_| Errno::PROTO)?;
            flushed?;
            if closed && self.session.is_handshaking() {
                return Ok(0);
            }
        }
        Err(Errno::INTR)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        let taken = self.session.writer().write(bytes).map_err(|error| errno(&error))?;
        self.flush()?;
        if taken == 0 { Err(Errno::AGAIN) } else { Ok(taken) }
    }

    fn flush(&mut self) -> Result<bool, Errno> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Socket(&self.socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(errno(&error)),
            }
        }
        Ok(true)
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::PROTO)
}

/// Implements `Read` and `Write` on a socket for rustls.
struct Socket<'a>(&'a OwnedFd);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| recv(self.0, &mut *buffer, RecvFlags::empty()))?.1)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| send(self.0, bytes, SendFlags::NOSIGNAL))?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use rustls::{crypto::ring::default_provider, pki_types::PrivateKeyDer};

    use super::*;

    fn config() -> Arc<ServerConfig> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        Arc::new(builder.with_single_cert(vec![made.cert.der().clone()], key).unwrap())
    }

    #[test]
    fn a_handshake_that_goes_on_and_on_lets_others_have_their_turn() {
        let (mut client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        let mut stream = Stream::new(server.into(), Some(config())).unwrap();
        // A ClientHello of 60,000 bytes that lacks its end, in records of 100 bytes.
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
