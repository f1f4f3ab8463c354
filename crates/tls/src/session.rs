//! One TLS session over a stream that its caller owns.

use std::{
    io::{self, BufRead, Read, Write},
    sync::{Arc, LazyLock},
};

use rustix::io::Errno;
use rustls::{
    ClientConfig, ClientConnection, Connection, HandshakeKind, ServerConfig, ServerConnection,
    client::Resumption, pki_types::ServerName,
};

use crate::{AnyCertificate, Cipher, Failure, Offer, Version};

/// Maximum number of reads without plaintext before other streams get their turn.
const ROUNDS: u32 = 8;

/// A TLS session. It does not own the stream: the caller passes the same stream to every call. The stream should be
/// non-blocking.
///
/// An idle session takes less than 9 KB of memory on each side, once [`Session::receive`] has read all bytes of the
/// stream (measured in `tests/memory.rs`). Half of it is the buffer that rustls reads into.
#[derive(Debug)]
pub struct Session {
    connection: Connection,
    /// The failure that ended the session. The stream must not be read after such a failure.
    failed: Option<Failure>,
    /// Whether the stream may have more bytes, because the last read filled the buffer or the last call read nothing.
    filled: bool,
}

impl Session {
    /// A client's session with a server of this name.
    ///
    /// # Errors
    /// [`Failure::Other`] if the configuration does not support the name.
    pub fn client(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Self, Failure> {
        let connection = ClientConnection::new(config, name).map_err(|_| Failure::Other)?;
        Ok(Self { connection: Connection::Client(connection), failed: None, filled: true })
    }

    /// A client's session that accepts any certificate: it only serves to check whether a service of this name or
    /// address works.
    ///
    /// # Errors
    /// [`Failure::Other`] if `name` is neither a name nor an address.
    pub fn to_anybody(name: &str) -> Result<Self, Failure> {
        static CONFIG: LazyLock<Option<Arc<ClientConfig>>> = LazyLock::new(|| {
            let client = Offer::default().client_builder().ok()?.dangerous();
            let client = client.with_custom_certificate_verifier(Arc::new(AnyCertificate::default()));
            let mut config = client.with_no_client_auth();
            // Resumption is off, because a session of one service must not be resumed with another service of the same
            // name.
            config.resumption = Resumption::disabled();
            Some(Arc::new(config))
        });
        let config = CONFIG.clone().ok_or(Failure::Other)?;
        Self::client(config, name.to_owned().try_into().map_err(|_| Failure::Other)?)
    }

    /// A server's session.
    ///
    /// # Errors
    /// [`Failure::Other`] if the configuration cannot be used.
    pub fn server(config: Arc<ServerConfig>) -> Result<Self, Failure> {
        let connection = ServerConnection::new(config).map_err(|_| Failure::Other)?;
        Ok(Self { connection: Connection::Server(connection), failed: None, filled: true })
    }

    /// Continues the handshake until it must wait for the stream. Returns whether the handshake is complete. Its last
    /// bytes may have contained plaintext ([`Session::has_buffered`]), and there may be bytes left to send
    /// ([`Session::has_unsent`]).
    ///
    /// # Errors
    /// Any failure; [`Failure::WouldBlock`] and [`Failure::Again`] are not returned. An alert has been sent to the
    /// peer, unless the stream had no room for it.
    pub fn handshake(&mut self, io: &mut (impl Read + Write)) -> Result<bool, Failure> {
        loop {
            self.flush(io)?;
            if !self.connection.is_handshaking() {
                return Ok(true);
            }
            match self.connection.read_tls(io) {
                Ok(0) => return Err(self.fail(Failure::ClosedInHandshake)),
                Ok(_) => self.process(io)?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => match Failure::of_stream(&error) {
                    Failure::WouldBlock => return Ok(false),
                    failure => return Err(self.fail(failure)),
                },
            }
        }
    }

    /// Receives plaintext. Returns its number of bytes, 0 at the end of the stream. Continues an unfinished handshake.
    /// The stream may end without the peer's close_notify ([`Session::was_cut_off`]).
    ///
    /// Each read of the stream reads at most the size of `buffer`, which must not be empty; at least 16 KiB are fast.
    /// After a successful call, the stream may have more bytes, even if `buffer` was not filled.
    ///
    /// # Errors
    /// [`Failure::WouldBlock`] and [`Failure::Again`] leave the session usable; all others end it.
    pub fn receive(&mut self, io: &mut (impl Read + Write), buffer: &mut [u8]) -> Result<usize, Failure> {
        debug_assert!(!buffer.is_empty());
        if self.connection.is_handshaking() && self.failed.is_none() {
            self.flush(io)?;
        }
        self.filled = true;
        for _ in 0..ROUNDS {
            match self.connection.reader().read(buffer) {
                Ok(0) if self.connection.is_handshaking() => {
                    return Err(self.fail(Failure::ClosedInHandshake));
                }
                Ok(received) => return Ok(received),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The peer closed the stream without a close_notify.
                Err(_) => return Ok(0),
            }
            if let Some(failure) = self.failed {
                return Err(failure);
            }
            // The buffer first contains the encrypted bytes and then their plaintext, so that no second buffer is
            // needed.
            let read = match io.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.rest();
                    return Err(self.fail(Failure::of_stream(&error)));
                }
                Ok(read) => read,
            };
            self.filled = read == buffer.len();
            if read == 0 {
                if self.connection.is_handshaking() {
                    return Err(self.fail(Failure::ClosedInHandshake));
                }
                let ended = self.connection.read_tls(&mut io::empty());
                debug_assert!(ended.is_ok());
                continue;
            }
            match self.decrypt(io, buffer, read) {
                // Plaintext received before a failure is returned first. The next call reports the failure.
                Ok(0) => {}
                Ok(received) => return Ok(received),
                Err((0, failure)) => return Err(failure),
                Err((received, _)) => {
                    self.filled = true;
                    return Ok(received);
                }
            }
        }
        Err(Failure::Again)
    }

    /// Takes plaintext to send. Returns the number of bytes taken. The session keeps up to 64 KiB that the stream does
    /// not accept at once; [`Session::flush`] sends them. Nothing is sent before the end of the handshake.
    ///
    /// # Errors
    /// [`Failure::WouldBlock`] if no byte was taken; all others end the session.
    pub fn send(&mut self, io: &mut (impl Read + Write), bytes: &[u8]) -> Result<usize, Failure> {
        if let Some(failure) = self.failed {
            return Err(failure);
        }
        let mut taken = self.connection.writer().write(bytes).map_err(|_| self.fail(Failure::Other))?;
        self.flush(io)?;
        if taken == 0 && !bytes.is_empty() {
            // The session was full, but the stream may have accepted some of its bytes since.
            taken = self.connection.writer().write(bytes).map_err(|_| self.fail(Failure::Other))?;
            self.flush(io)?;
        }
        if taken == 0 && !bytes.is_empty() { Err(Failure::WouldBlock) } else { Ok(taken) }
    }

    /// Sends the bytes that the session has kept. Returns whether all have been sent.
    ///
    /// # Errors
    /// Failures of the stream. If the peer sent an alert before it closed the stream, the failure that the alert
    /// reports.
    pub fn flush(&mut self, io: &mut (impl Read + Write)) -> Result<bool, Failure> {
        while self.connection.wants_write() {
            match self.connection.write_tls(io) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let failure = self.failed.unwrap_or_else(|| self.cause(io, Failure::of_stream(&error)));
                    return Err(self.fail(failure));
                }
            }
        }
        Ok(true)
    }

    /// Sends a close_notify after all earlier bytes: it tells the peer that no more plaintext follows. Returns whether
    /// all bytes have been sent.
    ///
    /// # Errors
    /// Those of [`Session::flush`].
    pub fn send_close_notify(&mut self, io: &mut (impl Read + Write)) -> Result<bool, Failure> {
        self.connection.send_close_notify();
        self.flush(io)
    }

    /// Whether the session contains plaintext that [`Session::receive`] can return without a read of the stream.
    pub fn has_buffered(&mut self) -> bool {
        self.connection.reader().fill_buf().is_ok_and(|bytes| !bytes.is_empty())
    }

    /// Whether another [`Session::receive`] may succeed before the stream reports new bytes. False after a read that
    /// did not fill its buffer, because edge-triggered epoll reports all later bytes.
    pub fn may_have_more(&mut self) -> bool {
        let mut reader = self.connection.reader();
        self.filled || !reader.fill_buf().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Whether bytes are waiting to be sent. If so, call [`Session::flush`] when the stream has room.
    pub fn has_unsent(&self) -> bool {
        self.connection.wants_write()
    }

    /// Whether the handshake is still in progress.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether the stream ended without the peer's close_notify, so that bytes may be missing. Many servers close
    /// streams in this way.
    pub fn was_cut_off(&mut self) -> bool {
        self.connection.reader().fill_buf().is_err_and(|error| error.kind() == io::ErrorKind::UnexpectedEof)
    }

    /// Whether the session resumed an earlier one. False until the handshake is done.
    pub fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// The version that the two sides agreed on; none before that.
    pub fn version(&self) -> Option<Version> {
        self.connection.protocol_version().and_then(Version::of)
    }

    /// The cipher that the two sides agreed on; none before that.
    pub fn cipher(&self) -> Option<Cipher> {
        self.connection.negotiated_cipher_suite().and_then(Cipher::of)
    }

    /// Number of tickets for later sessions that the server has sent. Always 0 with TLS 1.2 and on the server's side.
    pub fn tickets(&self) -> u32 {
        match &self.connection {
            Connection::Client(client) => client.tls13_tickets_received(),
            Connection::Server(_) => 0,
        }
    }

    /// Decrypts the first `read` bytes of the buffer in place. Returns the number of bytes of plaintext. A failure is
    /// returned with the number of bytes of plaintext before it.
    fn decrypt(
        &mut self,
        io: &mut (impl Read + Write),
        buffer: &mut [u8],
        read: usize,
    ) -> Result<usize, (usize, Failure)> {
        let (mut used, mut received) = (0, 0);
        while used < read {
            match self.connection.read_tls(&mut &buffer[used..read]) {
                // After a close_notify, rustls takes no more bytes.
                Ok(0) => break,
                Ok(taken) => used += taken,
                Err(_) => return Err((received, self.fail(Failure::Other))),
            }
            let processed = self.process(io);
            // Plaintext overwrites only bytes that were already used. Plaintext is shorter than its records. At most
            // the record that an earlier read began finds no space in the buffer: less than the 16 KiB that rustls
            // keeps.
            received += self.connection.reader().read(&mut buffer[received..used]).unwrap_or(0);
            processed.map_err(|failure| (received, failure))?;
        }
        received += self.connection.reader().read(&mut buffer[received..]).unwrap_or(0);
        if !self.filled {
            self.rest();
        }
        Ok(received)
    }

    /// Makes rustls free the buffer of a large record, because the session may now be idle for a long time.
    fn rest(&mut self) {
        let _ = self.connection.read_tls(&mut Nothing);
    }

    /// Processes the bytes read from the stream and sends the answers that the protocol requires.
    fn process(&mut self, io: &mut (impl Read + Write)) -> Result<(), Failure> {
        let handshaking = self.connection.is_handshaking();
        match self.connection.process_new_packets() {
            Ok(_) if !self.connection.wants_write() => Ok(()),
            Ok(_) => self.flush(io).map(|_| ()),
            Err(error) => {
                let chosen = self.connection.negotiated_cipher_suite().is_some();
                let failure = self.fail(Failure::of_protocol(&error, handshaking, chosen));
                // The alert tells the peer the reason. Even if the stream does not accept the alert, the caller gets
                // the failure.
                let _ = self.flush(io);
                Err(failure)
            }
        }
    }

    /// The reason why the peer closed a stream that accepts no more bytes. An alert that was sent before is more
    /// precise than the stream's error.
    #[cold]
    fn cause(&mut self, io: &mut impl Read, failure: Failure) -> Failure {
        if !matches!(failure, Failure::Io(Errno::PIPE | Errno::CONNRESET)) {
            return failure;
        }
        let handshaking = self.connection.is_handshaking();
        loop {
            match self.connection.read_tls(io) {
                Ok(0) if handshaking => return Failure::ClosedInHandshake,
                Ok(0) | Err(_) => return failure,
                Ok(_) => {}
            }
            if let Err(error) = self.connection.process_new_packets() {
                let chosen = self.connection.negotiated_cipher_suite().is_some();
                return Failure::of_protocol(&error, handshaking, chosen);
            }
        }
    }

    /// Records a failure that ends the session.
    fn fail(&mut self, failure: Failure) -> Failure {
        if !failure.is_temporary() {
            self.failed.get_or_insert(failure);
        }
        failure
    }
}

/// A stream without bytes.
struct Nothing;

impl Read for Nothing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

#[cfg(test)]
mod tests;
