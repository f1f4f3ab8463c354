//! The task that moves a session's bytes: between its halves, TLS, the link, and the broker.

use std::{
    any::Any,
    io::{self, Read, Write},
    sync::Arc,
    time::Duration,
};

use async_nats::{Client, Message, Subject, client::PublishErrorKind, connection::State};
use clock::monotonic_ns;
use rustls::{AlertDescription, Connection, Error as TlsError};
use tokio::{sync::mpsc, time};

use crate::{
    frames::{self, Frame, Kind, Order, frame},
    handshake,
    keys::PublicKey,
    link::{self, Link},
    session::{BUFFER_BYTES, Next, Shared},
};

/// Time in which a peer has to prove its key, and a controller has to give its order.
const HANDSHAKE_NS: u64 = 15_000_000_000;
/// How long a session whose halves are both dropped waits for the end of the other side.
const LINGER_NS: u64 = 30_000_000_000;
/// How long the other side may take to receive the reason why its handshake was refused.
const REFUSAL_NS: u64 = 5_000_000_000;
/// Maximum wait for room in the queue of the broker's connection. A datagram that finds none counts as lost.
const STUCK: Duration = Duration::from_secs(1);

/// Decides whether to obey an order of the controller with this key.
pub(crate) type Decide = Box<dyn FnOnce(Order, PublicKey, &Arc<Shared>) -> Result<(), String> + Send + Sync>;

/// The side that the task is on.
pub(crate) enum Role {
    Controller,
    /// With the function that decides about the order, until the order has arrived.
    Agent(Option<Decide>),
}

/// A session's task.
pub(crate) struct Driver {
    client: Client,
    /// Where the other side receives.
    to: Subject,
    datagrams: mpsc::Receiver<Message>,
    shared: Arc<Shared>,
    link: Link,
    tls: Connection,
    role: Role,
    /// Bytes that have arrived and are not a complete message yet.
    frames: Vec<u8>,
    has_closed: bool,
    has_heard_close: bool,
    /// When the session is given up, if its state does not change before that.
    deadline_ns: u64,
    has_failed: bool,
    /// When dropped, removes the session from those that datagrams are passed to.
    _route: Box<dyn Any + Send + Sync>,
}

impl Driver {
    pub(crate) fn new(
        client: Client,
        to: Subject,
        datagrams: mpsc::Receiver<Message>,
        shared: Arc<Shared>,
        (tls, role): (Connection, Role),
        route: impl Send + Sync + 'static,
    ) -> Self {
        let now_ns = monotonic_ns();
        let piece_bytes = client.max_payload().saturating_sub(link::HEADER_BYTES);
        Self {
            link: Link::new(now_ns, piece_bytes),
            client,
            to,
            datagrams,
            shared,
            tls,
            role,
            frames: Vec::new(),
            has_closed: false,
            has_heard_close: false,
            deadline_ns: now_ns + HANDSHAKE_NS,
            has_failed: false,
            _route: Box::new(route),
        }
    }

    /// Runs until the session has ended in any way.
    pub(crate) async fn run(mut self) {
        if let Err(why) = self.move_bytes().await {
            self.shared.broke(&why);
            // If this is lost, the other side is told when it next sends something.
            let _ = self.publish(link::over()).await;
        }
    }

    /// # Errors
    /// When the session breaks.
    async fn move_bytes(&mut self) -> Result<(), String> {
        loop {
            while let Ok(message) = self.datagrams.try_recv() {
                self.link.receive(monotonic_ns(), &message.payload);
            }
            self.turn()?;
            while let Some(datagram) = self.link.transmit(monotonic_ns()) {
                self.publish(datagram).await?;
            }
            if let Some(why) = self.link.dead() {
                return Err(why.to_owned());
            }
            if self.link.is_over() && self.link.has_read_all() {
                return Ok(());
            }
            let wake_ns = self.link.wake_ns().min(self.deadline_ns);
            let pause = Duration::from_nanos(wake_ns.saturating_sub(monotonic_ns()));
            tokio::select! {
                message = self.datagrams.recv() => match message {
                    Some(message) => self.link.receive(monotonic_ns(), &message.payload),
                    None => return Err("the connection to the broker was closed".to_owned()),
                },
                () = self.shared.wake.notified() => {}
                () = time::sleep(pause) => {}
            }
        }
    }

    /// Sends a datagram if the broker is connected. Otherwise it is lost, like others, and the link sends it again.
    async fn publish(&self, datagram: Vec<u8>) -> Result<(), String> {
        if self.client.connection_state() != State::Connected {
            return Ok(());
        }
        match time::timeout(STUCK, self.client.publish(self.to.clone(), datagram.into())).await {
            Ok(Err(error)) if error.kind() == PublishErrorKind::MaxPayloadExceeded => Err(format!(
                "the broker carries only {} bytes in a message, fewer than when the session began: set the same \
                 max_payload on all its servers",
                self.client.max_payload()
            )),
            _ => Ok(()),
        }
    }

    /// Moves what can be moved between the link, TLS and the halves.
    fn turn(&mut self) -> Result<(), String> {
        let now_ns = monotonic_ns();
        self.give_up(now_ns)?;
        if self.has_failed {
            while !self.link.read().is_empty() {}
            return Ok(());
        }
        while self.shared.state().incoming.len() < BUFFER_BYTES {
            let bytes = self.link.read();
            if bytes.is_empty() {
                break;
            }
            if let Err(error) = self.take(&bytes)? {
                self.fail(now_ns, &error);
                return Ok(());
            }
        }
        if self.link.has_read_all() && !self.has_heard_close {
            return Err("the session was cut off by somebody between the two sides".to_owned());
        }
        self.hand_over().map_err(|error| format!("the session's encryption failed: {error}"))
    }

    /// # Errors
    /// When the session is abandoned here, or its time is over.
    fn give_up(&mut self, now_ns: u64) -> Result<(), String> {
        if let Some(why) = self.shared.state().abandoned.clone() {
            return Err(why);
        }
        let is_early = self.tls.is_handshaking() || matches!(self.role, Role::Agent(Some(_)));
        if now_ns >= self.deadline_ns {
            let why = if is_early {
                "the other side did not prove who it is within 15 s"
            } else {
                "the other side does not end the session"
            };
            return Err(why.to_owned());
        }
        if !self.has_failed && !is_early {
            let state = self.shared.state();
            let is_left = state.is_input_closed && state.is_output_closed;
            self.deadline_ns = match (is_left, self.deadline_ns) {
                (true, u64::MAX) => now_ns + LINGER_NS,
                (true, deadline_ns) => deadline_ns,
                (false, _) => u64::MAX,
            };
        }
        Ok(())
    }

    /// Takes bytes from the link. The inner error comes from TLS.
    fn take(&mut self, mut bytes: &[u8]) -> Result<Result<(), TlsError>, String> {
        while !bytes.is_empty() {
            let count = self.tls.read_tls(&mut bytes).map_err(|error| error.to_string())?;
            let state = match self.tls.process_new_packets() {
                Ok(state) => state,
                Err(error) => return Ok(Err(error)),
            };
            let known = self.frames.len();
            self.frames.resize(known + state.plaintext_bytes_to_read(), 0);
            self.tls.reader().read_exact(&mut self.frames[known..]).map_err(|error| error.to_string())?;
            self.take_frames()?;
            if state.peer_has_closed() && !self.has_heard_close {
                self.has_heard_close = true;
                self.shared.change(|state| state.has_all_incoming = true);
            }
            if count == 0 {
                break;
            }
        }
        Ok(Ok(()))
    }

    fn take_frames(&mut self) -> Result<(), String> {
        let mut taken = 0;
        let frames = std::mem::take(&mut self.frames);
        while let Some(Frame { kind, bytes, length }) =
            frames::parse(&frames[taken..]).map_err(|_| unknown_message())?
        {
            taken += length;
            let text = String::from_utf8_lossy(bytes);
            match (kind, &mut self.role) {
                (Kind::Order, Role::Agent(decide)) => {
                    let order = Order::of(&text).ok_or_else(unknown_message)?;
                    let decide = decide.take().ok_or_else(unknown_message)?;
                    let controller = handshake::proved(&self.tls).ok_or_else(unknown_message)?;
                    let refusal = decide(order, controller, &self.shared).err();
                    if refusal.is_some() {
                        self.shared.close();
                    }
                    let answer = frame(Kind::Answer, refusal.unwrap_or_default().as_bytes());
                    self.shared.change(|state| state.first = Some(answer));
                }
                (Kind::Answer, Role::Controller) => {
                    let answer = if text.is_empty() { Ok(()) } else { Err(text.into_owned()) };
                    self.shared.change(|state| state.answer = Some(answer));
                }
                (Kind::LastWords, Role::Controller | Role::Agent(None)) => {
                    self.shared.change(|state| state.last_words = Some(text.into_owned()));
                }
                (Kind::Bytes, Role::Controller | Role::Agent(None)) => self.shared.change(|state| {
                    if !state.is_output_closed {
                        state.incoming.extend(bytes);
                    }
                }),
                _ => return Err(unknown_message()),
            }
        }
        self.frames = frames;
        self.frames.drain(..taken);
        Ok(())
    }

    /// Passes what was written to TLS, and TLS's records to the link, as far as the link has room.
    fn hand_over(&mut self) -> io::Result<()> {
        loop {
            self.send_records()?;
            if self.tls.wants_write() || self.tls.is_handshaking() || self.has_closed {
                break;
            }
            match self.shared.next() {
                Some(Next::Frame(frame)) => self.tls.writer().write_all(&frame)?,
                Some(Next::End) => {
                    self.tls.send_close_notify();
                    self.has_closed = true;
                }
                None => break,
            }
        }
        if self.has_closed && !self.tls.wants_write() {
            self.link.finish();
        }
        Ok(())
    }

    fn send_records(&mut self) -> io::Result<()> {
        while self.tls.wants_write() && self.link.room() > 0 {
            self.tls.write_tls(&mut IntoLink(&mut self.link))?;
        }
        Ok(())
    }

    /// Ends the session after an error of TLS, and tells the other side why.
    fn fail(&mut self, now_ns: u64, error: &TlsError) {
        self.shared.broke(&self.explain(error));
        self.has_failed = true;
        self.deadline_ns = now_ns + REFUSAL_NS;
        let _ = self.send_records();
        self.link.finish();
    }

    fn explain(&self, error: &TlsError) -> String {
        match (&self.role, error) {
            (Role::Controller, TlsError::InvalidCertificate(_)) => {
                "it has another key than the one that was given for it: compare the key that it prints"
                    .to_owned()
            }
            (Role::Controller, TlsError::AlertReceived(AlertDescription::AccessDenied)) => {
                "it does not accept this controller's key: add the key to those that it was given".to_owned()
            }
            (Role::Agent(_), TlsError::InvalidCertificate(_)) => {
                "a controller was refused: its key is not one of those that were given".to_owned()
            }
            _ => format!("what arrived is not what the other side sent, or was replayed: {error}"),
        }
    }
}

impl Drop for Driver {
    /// Marks the session as over, even if the task is dropped with its runtime.
    fn drop(&mut self) {
        let is_sound = self.link.is_over() && self.link.has_read_all();
        if !is_sound {
            self.shared.broke("this program has ended the connection to the broker");
        }
        self.shared.change(|state| state.is_over = true);
    }
}

fn unknown_message() -> String {
    "it sent a message that this version does not know: use the same version on both sides".to_owned()
}

/// Writes to a link as much as it has room for.
struct IntoLink<'a>(&'a mut Link);

impl Write for IntoLink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes) {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
