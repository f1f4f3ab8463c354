//! TLS on the sockets of a wire.

use std::{mem, sync::Arc};

use rustls::{ClientConfig, client::Resumption, pki_types::ServerName};
use tls::{Failure, Session, Version};

use super::{
    Agreed, ConnectionError, HandshakeStep, Received, Result, SlotId,
    layer::{Io, Layer},
};

/// Maximum number of consecutive calls without plaintext. Beyond it the connection is given up, because no correct peer
/// sends so many empty records.
const MAX_EMPTY_CALLS: u32 = 64;

/// TLS with separate sessions for each slot: a slot resumes only its own sessions, as a user's browser does.
pub(crate) struct Secure {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    /// The configuration of each slot that has had a connection; empty without resumption.
    by_slot: Vec<Option<Arc<ClientConfig>>>,
    /// Number of tickets that closed connections received.
    tickets: u64,
}

/// A TLS connection.
pub(crate) struct SecureState {
    /// `None` before the handshake begins, or if the session could not be created.
    session: Option<Session>,
    /// When the kernel received the last bytes, if known.
    received_ns: Option<u64>,
    /// Bytes that the session has accepted but not sent completely.
    taken: usize,
}

impl Secure {
    /// A layer for `slots` slots. `resumes`: whether a slot resumes its earlier sessions.
    pub(crate) fn new(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
        resumes: bool,
        slots: usize,
    ) -> Self {
        Self { config, name, by_slot: vec![None; if resumes { slots } else { 0 }], tickets: 0 }
    }

    fn config_of(&mut self, slot: SlotId) -> Arc<ClientConfig> {
        match self.by_slot.get_mut(slot as usize) {
            None => Arc::clone(&self.config),
            Some(of_slot) => Arc::clone(of_slot.get_or_insert_with(|| {
                let mut config = (*self.config).clone();
                config.resumption = Resumption::in_memory_sessions(1);
                Arc::new(config)
            })),
        }
    }
}

impl Layer for Secure {
    type State = Box<SecureState>;
    const HAS_HANDSHAKE: bool = true;
    const DISCARDS: bool = false;

    fn begin(&mut self, _: SlotId) -> Box<SecureState> {
        Box::new(SecureState { session: None, received_ns: None, taken: 0 })
    }

    fn handshake(
        &mut self,
        slot: SlotId,
        state: &mut Box<SecureState>,
        io: &mut Io<'_>,
    ) -> Result<HandshakeStep> {
        if state.session.is_none() {
            // The session is created only now, because a failed connection does not need one.
            let session = Session::client(self.config_of(slot), self.name.clone());
            state.session = Some(session.map_err(ConnectionError::Tls)?);
        }
        let SecureState { session: Some(session), received_ns, .. } = &mut **state else {
            return Err(ConnectionError::AGAIN);
        };
        let result = session.handshake(io);
        note(received_ns, io);
        let done = result.map_err(error_of)?;
        let agreed = done.then(|| Agreed {
            version: session.version().map_or("", version_name),
            cipher: session.cipher().map_or("", |cipher| cipher.name),
            is_resumed: session.is_resumed(),
        });
        let may_have_more = io.last.is_some_and(|last| last.may_have_more) || session.has_buffered();
        Ok(HandshakeStep { agreed, unread_ns: io.unread_ns, may_have_more })
    }

    fn send(&mut self, state: &mut Box<SecureState>, io: &mut Io<'_>, bytes: &[u8]) -> Result<usize> {
        let session = state.session.as_mut().ok_or(ConnectionError::AGAIN)?;
        if state.taken == 0 {
            state.taken = session.send(io, bytes).map_err(error_of)?;
        } else {
            session.flush(io).map_err(error_of)?;
        }
        // Encrypted bytes that the kernel has not accepted do not count as sent.
        if session.has_unsent() { Err(ConnectionError::AGAIN) } else { Ok(mem::take(&mut state.taken)) }
    }

    fn receive(
        &mut self,
        state: &mut Box<SecureState>,
        io: &mut Io<'_>,
        buffer: &mut [u8],
        _: bool,
    ) -> Result<Received> {
        let SecureState { session: Some(session), received_ns, .. } = &mut **state else {
            return Err(ConnectionError::AGAIN);
        };
        for _ in 0..MAX_EMPTY_CALLS {
            let result = session.receive(io, buffer);
            note(received_ns, io);
            match result {
                Ok(0) if session.was_cut_off() => return Err(ConnectionError::CutOff),
                Ok(bytes) => {
                    let may_have_more = session.may_have_more();
                    return Ok(Received { bytes, may_have_more, received_ns: *received_ns });
                }
                Err(Failure::Again) => {}
                Err(failure) => return Err(error_of(failure)),
            }
        }
        Err(ConnectionError::Tls(Failure::Other))
    }

    fn close(&mut self, state: &mut Box<SecureState>, io: &mut Io<'_>) {
        let Some(session) = &mut state.session else { return };
        self.tickets += u64::from(session.tickets());
        if !session.is_handshaking() {
            // A peer that has closed the connection does not need the alert.
            let _ = session.send_close_notify(io);
        }
    }

    fn tickets<'a>(&self, open: impl Iterator<Item = &'a Box<SecureState>>) -> u64 {
        let sessions = open.filter_map(|state| state.session.as_ref());
        self.tickets + sessions.map(|session| u64::from(session.tickets())).sum::<u64>()
    }
}

/// Keeps the receive time of the last bytes, because plaintext decrypted from them later has no receive time.
fn note(received_ns: &mut Option<u64>, io: &Io<'_>) {
    if let Some(last) = io.last {
        *received_ns = last.received_ns;
    }
}

fn version_name(version: Version) -> &'static str {
    match version {
        Version::Tls12 => "TLS 1.2",
        Version::Tls13 => "TLS 1.3",
    }
}

fn error_of(failure: Failure) -> ConnectionError {
    match failure {
        Failure::WouldBlock | Failure::Again => ConnectionError::AGAIN,
        Failure::Io(errno) => ConnectionError::Kernel(errno),
        other => ConnectionError::Tls(other),
    }
}
