//! The one connection of this process to the broker, on a thread of its own, and the sessions that go through it.

use std::{
    collections::HashMap,
    error::Error,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc as blocking},
    thread,
    time::Duration,
};

use async_nats::{Client, ConnectError, ConnectErrorKind, ConnectOptions, Message, ServerAddr};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::{
    Connection,
    pki_types::{CertificateDer, pem::PemObject},
};
use tokio::{
    runtime::{Builder, Handle},
    sync::{mpsc, oneshot},
    time::{self, Instant},
};

use crate::{
    address::Access,
    driver::{Driver, Role},
    event::Event,
    keys, link,
    names::{self, Side},
    session::Shared,
};

/// Maximum duration of an attempt to connect to one server of the broker.
const SERVER_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two attempts to connect to the broker.
const PAUSE: Duration = Duration::from_millis(200);
/// Maximum pause between two attempts to reconnect to the broker, in milliseconds.
const MAX_PAUSE_MS: u64 = 2000;
/// Interval of pings. After twice this time without an answer from the broker, the connection counts as lost.
const PING: Duration = Duration::from_secs(3);
/// Maximum number of messages that wait for this process, which passes them on at once. Those that find no room are lost.
const MAX_WAITING: usize = 8192;
/// Maximum number of datagrams that wait for a session's task: more than a window of the largest ones, and more than a
/// link's pieces and acknowledgements.
const MAX_DATAGRAMS: usize = 256;
/// Minimum size of the messages that a broker has to carry, in bytes.
const MIN_PAYLOAD: usize = 4096;
/// When the connection is closed: how long sessions that have written everything may take to tell the other side so.
const FAREWELL: Duration = Duration::from_secs(1);

/// The connection. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) shared: Arc<LineState>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

/// What sessions and tasks know about the connection.
pub(crate) struct LineState {
    pub(crate) client: Client,
    pub(crate) handle: Handle,
    pub(crate) pool: String,
    /// The sessions, by the subject on which their datagrams arrive.
    sessions: Mutex<HashMap<String, Known>>,
    trouble: Trouble,
}

/// The broker's last complaint.
type Trouble = Arc<Mutex<Option<String>>>;

/// Is called with what happens to the connection.
pub(crate) type Tell = Box<dyn Fn(Event) + Send + Sync>;

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum ConnectFailure {
    /// Another attempt may succeed.
    Unreachable(String),
    /// No other attempt will succeed.
    Refused(String),
}

impl From<ConnectFailure> for String {
    fn from(failure: ConnectFailure) -> Self {
        match failure {
            ConnectFailure::Unreachable(why) | ConnectFailure::Refused(why) => why,
        }
    }
}

struct Known {
    to: String,
    datagrams: mpsc::Sender<Message>,
    shared: Arc<Shared>,
}

/// A session's entry among those that datagrams are passed to. Dropping it removes the entry.
pub(crate) struct Route {
    line: Arc<LineState>,
    subject: String,
}

impl Line {
    /// Connects. If the broker is not reachable yet, tries again until `wait` is over.
    ///
    /// # Errors
    /// When the broker is not reached in that time or refuses the login, or when a file cannot be used.
    pub(crate) fn connect(access: &Access, wait: Duration, tell: Tell) -> Result<Self, ConnectFailure> {
        let trouble = Trouble::default();
        let options = options(access, trouble.clone(), tell).map_err(ConnectFailure::Refused)?;
        let (sender, connected) = blocking::channel();
        let (stop, stopped) = oneshot::channel();
        let access = access.clone();
        let start = move || {
            let runtime = match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(sender.send(Err(ConnectFailure::Refused(error.to_string())))),
            };
            runtime.block_on(async move {
                let shared = dial(&access, options, wait).await.map(|client| {
                    let pool = access.address.pool.clone();
                    Arc::new(LineState {
                        client,
                        handle: Handle::current(),
                        pool,
                        sessions: Mutex::default(),
                        trouble,
                    })
                });
                let kept = shared.as_ref().ok().cloned();
                if sender.send(shared).is_ok()
                    && let Some(shared) = kept
                {
                    let _ = stopped.await;
                    shared.say_farewell().await;
                }
            });
        };
        let cannot = |error: &dyn fmt::Display| {
            ConnectFailure::Refused(format!("cannot begin to reach the broker: {error}"))
        };
        let thread =
            thread::Builder::new().name("broker".to_owned()).spawn(start).map_err(|error| cannot(&error))?;
        let shared = connected.recv().map_err(|error| cannot(&error))??;
        Ok(Self { shared, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Line {
    /// Waits a moment for the sessions' last bytes to be sent.
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl LineState {
    /// Begins a session between the process `own` on this side and the process `peer` on the other.
    pub(crate) fn begin(
        self: &Arc<Self>,
        side: Side,
        (own, peer, session): (&str, &str, &str),
        tls: Connection,
        role: Role,
        shared: Arc<Shared>,
    ) -> mpsc::Sender<Message> {
        let subject = names::inbox(&self.pool, side, own, peer, session);
        let to = names::inbox(&self.pool, side.other(), peer, own, session);
        let (sender, datagrams) = mpsc::channel(MAX_DATAGRAMS);
        let known = Known { to: to.clone(), datagrams: sender.clone(), shared: shared.clone() };
        self.sessions().insert(subject.clone(), known);
        let route = Route { line: self.clone(), subject };
        let driver = Driver::new(self.client.clone(), to.into(), datagrams, shared, (tls, role), route);
        self.handle.spawn(driver.run());
        sender
    }

    /// Passes a datagram to its session. Returns it if there is no such session.
    pub(crate) fn deliver(&self, message: Message) -> Option<Message> {
        let sessions = self.sessions();
        let Some(known) = sessions.get(message.subject.as_str()) else { return Some(message) };
        // No link sends larger datagrams. A session that cannot keep up loses this one, and gets it again.
        if message.payload.len() <= link::HEADER_BYTES + link::PIECE_BYTES {
            let _ = known.datagrams.try_send(message);
        }
        None
    }

    /// Tells the sender of a datagram for a session of process `own` that there is no such session.
    pub(crate) async fn disown(&self, side: Side, own: &str, message: &Message) {
        if let Some((peer, session)) = names::sender(&message.subject)
            && !link::is_over(&message.payload)
        {
            let to = names::inbox(&self.pool, side.other(), peer, own, session);
            let _ = self.client.publish(to, link::over().into()).await;
        }
    }

    /// Subscribes, on the connection's thread. Messages on one connection keep their order, so the server knows of the
    /// subscription before it gets anything that is published after this.
    pub(crate) async fn subscribe(&self, subject: String) -> Result<async_nats::Subscriber, String> {
        self.client.subscribe(subject).await.map_err(|error| format!("cannot subscribe: {error}"))
    }

    /// The broker's last complaint, as the end of a message.
    pub(crate) fn trouble(&self) -> String {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.as_ref().map_or_else(String::new, |trouble| format!("; the broker said: {trouble}"))
    }

    async fn say_farewell(&self) {
        let until = Instant::now() + FAREWELL;
        let is_finishing = |known: &Known| known.shared.state().is_input_closed;
        while self.sessions().values().any(is_finishing) && Instant::now() < until {
            time::sleep(Duration::from_millis(5)).await;
        }
        let left: Vec<String> = self.sessions().values().map(|known| known.to.clone()).collect();
        let end = async {
            for to in left {
                let _ = self.client.publish(to, link::over().into()).await;
            }
            let _ = self.client.flush().await;
        };
        let _ = time::timeout(FAREWELL, end).await;
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for LineState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LineState").field("pool", &self.pool).finish_non_exhaustive()
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        self.line.sessions().remove(&self.subject);
    }
}

fn options(access: &Access, trouble: Trouble, tell: Tell) -> Result<ConnectOptions, String> {
    let mut options = ConnectOptions::new()
        .name("proofload")
        .connection_timeout(SERVER_TIMEOUT)
        .ping_interval(PING)
        .subscription_capacity(MAX_WAITING)
        .reconnect_delay_callback(pause);
    if let Some(path) = &access.authorities {
        let cannot =
            |why: &dyn fmt::Display| format!("cannot use the authorities in {}: {why}", path.display());
        let pem = std::fs::read(path).map_err(|error| cannot(&error))?;
        if !CertificateDer::pem_slice_iter(&pem).any(|certificate| certificate.is_ok()) {
            return Err(cannot(&"it has no certificate (PEM)"));
        }
        options = options.add_root_certificates(path.clone()).require_tls(true);
    }
    if let Some(path) = &access.credentials {
        let cannot = |why: &dyn fmt::Display| format!("cannot use the credentials {}: {why}", path.display());
        let text = String::from_utf8(keys::read_private(path).map_err(|error| cannot(&error))?);
        let text = text.map_err(|_| cannot(&"it is not text"))?;
        options = options.credentials(&text).map_err(|error| cannot(&error))?;
    }
    let tell = Arc::new(tell);
    Ok(options.event_callback(move |event| {
        match event {
            async_nats::Event::Connected => tell(Event::Connected),
            async_nats::Event::Disconnected => tell(Event::Disconnected),
            async_nats::Event::ServerError(error) => {
                *trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
                tell(Event::Complaint(error.to_string()));
            }
            _ => {}
        }
        std::future::ready(())
    }))
}

/// The pause before an attempt to reconnect: grows with the number of attempts, and is random, because all machines lose
/// the broker at the same time.
fn pause(tries: usize) -> Duration {
    let longest_ms = (1_u64 << tries.min(16)).min(MAX_PAUSE_MS);
    let mut random = [0; 2];
    // Without random numbers, the longest pause.
    let share = SystemRandom::new()
        .fill(&mut random)
        .map_or(1.0, |()| f64::from(u16::from_be_bytes(random)) / 65_535.0);
    Duration::from_millis(longest_ms).mul_f64(share)
}

async fn dial(access: &Access, options: ConnectOptions, wait: Duration) -> Result<Client, ConnectFailure> {
    use ConnectFailure::{Refused, Unreachable};

    let address = &access.address;
    let servers = address.servers.iter().map(|url| ServerAddr::from_url(url.clone()));
    let servers: Vec<_> =
        servers.collect::<Result<_, _>>().map_err(|error| Refused(format!("{address}: {error}")))?;
    let until = Instant::now() + wait;
    loop {
        let tried =
            time::timeout_at(until.max(Instant::now() + PAUSE), options.clone().connect(servers.clone()))
                .await;
        let why = match tried {
            Ok(Ok(client)) if client.max_payload() < MIN_PAYLOAD => {
                return Err(Refused(format!(
                    "the broker {address} carries only {} bytes in a message: set its max_payload to at least {MIN_PAYLOAD}",
                    client.max_payload()
                )));
            }
            Ok(Ok(client)) => return Ok(client),
            Ok(Err(error)) => explain(access, &error).map_err(Refused)?,
            Err(_) => "it does not answer".to_owned(),
        };
        if Instant::now() + PAUSE >= until {
            return Err(Unreachable(format!("cannot reach the broker {address}: {why}")));
        }
        time::sleep(PAUSE).await;
    }
}

/// Why an attempt failed.
///
/// # Errors
/// When another attempt would fail, too.
fn explain(access: &Access, error: &ConnectError) -> Result<String, String> {
    let address = &access.address;
    let mut why = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !why.contains(&cause_text) {
            why = format!("{why}: {cause_text}");
        }
        source = cause.source();
    }
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication
            if access.credentials.is_none() =>
        {
            Err(format!("the broker {address} wants a login: give a file of credentials"))
        }
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            Err(format!("the broker {address} does not accept these credentials: {why}"))
        }
        ConnectErrorKind::Tls => {
            Ok(format!("{why}; if the broker has its own authority, give the authority's certificate"))
        }
        _ => Ok(why),
    }
}
