//! Requests to a running balancer and its answers: each is one line of JSON on a Unix socket.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::{IpAddr, Shutdown},
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
    sync::{
        Arc,
        mpsc::{self, Sender},
    },
    thread,
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use tracing::error;

use crate::{Error, Instance, statistics::Statistics};

/// Maximum bytes of a line.
const MAX_LINE: u64 = 1 << 24;
/// Maximum time for a client to send its line and for the balancer to answer. It is longer in tests, because their
/// machine may be slow.
const TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 300 } else { 10 });
/// Maximum time that a daemon waits at its end for the client to read the last answer.
const END_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 300 } else { 1 });
/// Maximum number of clients that are served at the same time.
pub(crate) const MAX_CLIENTS: usize = 32;
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A request to a balancer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    /// Returns its statistics.
    Statistics,
    /// Changes a server.
    Server {
        /// The server.
        #[serde(flatten)]
        server: ServerName,
        /// The change.
        change: Change,
    },
    /// Reads the configuration file again.
    Reload,
    /// Ends the daemon.
    Stop {
        /// Whether its tables, program and addresses are kept for the next start.
        keep: bool,
    },
}

/// A server of a VIP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerName {
    /// Address of the VIP.
    pub vip: IpAddr,
    /// One of its ports; needed if several VIPs have this address.
    pub port: Option<u16>,
    /// Name or address of the server.
    pub server: String,
}

/// A change of a server. Values that are none stay unchanged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Adds a server. The request names it by its address.
    Add {
        /// Its name; its address if none.
        name: Option<String>,
        /// Its other values; the defaults if none.
        values: Values,
    },
    /// Changes its values.
    Set(Values),
    /// Whether it gets no new flows, so that it can be removed later.
    Drain(bool),
    /// Removes it once its flows have ended.
    Remove,
}

/// Values of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Values {
    /// The weight.
    pub weight: Option<u32>,
    /// From this number of connections on, it gets no new ones; 0 means no limit.
    pub max_connections: Option<u32>,
    /// Below this number, it gets new ones again; 0 means three quarters of the maximum.
    pub resume_connections: Option<u32>,
}

/// The answer of a balancer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The request was carried out.
    Done {
        /// A description of the change.
        what: String,
    },
    /// The requested statistics.
    Statistics(Box<Statistics>),
    /// The request was not carried out.
    Refused {
        /// All reasons.
        why: Vec<String>,
    },
}

/// A request, and the channel for its answer.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    pub(crate) request: Request,
    pub(crate) answer: Sender<Answer>,
    /// The connection of the process that sent the request; none for a request of this process.
    client: Option<UnixStream>,
}

impl PendingRequest {
    pub(crate) fn new(request: Request, answer: Sender<Answer>, client: Option<UnixStream>) -> Self {
        Self { request, answer, client }
    }

    /// Whether the caller no longer waits for the answer. The request must then not be carried out, because the caller
    /// was told that it had failed.
    pub(crate) fn is_given_up(&self) -> bool {
        self.hangs_up_within(Duration::ZERO)
    }

    /// A request on behalf of a signal. If it is refused, the reason is logged.
    pub(crate) fn of_signal(request: Request) -> Self {
        Self::new(request, mpsc::channel().0, None)
    }

    /// Sends the answer. If the caller is gone, the reasons of a refusal are logged.
    pub(crate) fn answer(self, answer: Answer) {
        if let Err(mpsc::SendError(Answer::Refused { why })) = self.answer.send(answer) {
            why.iter().for_each(|why| error!("not done: {why}"));
        }
    }

    /// Sends the answer and waits until the client has read it, because the process ends afterwards.
    pub(crate) fn answer_at_the_end(self, answer: Answer) {
        if self.answer.send(answer).is_ok() {
            self.hangs_up_within(END_TIMEOUT);
        }
    }

    fn hangs_up_within(&self, time: Duration) -> bool {
        let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        // `poll` reports a closed connection even if no event is requested.
        let ends = |client: &UnixStream| poll(&mut [PollFd::new(client, PollFlags::empty())], Some(&time));
        self.client.as_ref().is_some_and(|client| ends(client).is_ok_and(|ready| ready > 0))
    }
}

/// Sends a request to a running balancer and returns its answer.
///
/// # Errors
/// If the balancer does not run or does not answer.
pub fn ask(instance: &Instance, request: &Request) -> Result<Answer, Error> {
    ask_within(instance, request, TIMEOUT)
}

fn ask_within(instance: &Instance, request: &Request, timeout: Duration) -> Result<Answer, Error> {
    let path = instance.control();
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Error::Refused(format!(
            "no balancer '{}' runs here, according to {}; start one with `proofload balance --config FILE`",
            instance.name,
            instance.folder.display()
        )),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::UnexpectedEof => {
            let process = fs::read_to_string(instance.lock_path()).unwrap_or_default();
            let (name, process) = (&instance.name, process.trim());
            let what = match error.kind() {
                io::ErrorKind::UnexpectedEof => {
                    "closed the connection without an answer: it is stopping, or it dropped the request"
                        .to_owned()
                }
                _ => {
                    format!("has not answered within {} s, and the request was withdrawn", timeout.as_secs())
                }
            };
            Error::Refused(format!(
                "the balancer '{name}' (process {process}) {what}; check that the process runs and is not suspended, then repeat the \
                 command"
            ))
        }
        _ => Error::new(format!("ask the balancer at {}", path.display()), &error),
    };
    let stream = UnixStream::connect(&path).map_err(failed)?;
    let exchanged = || -> io::Result<Answer> {
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        (&stream).write_all(&line)?;
        let mut answer = String::new();
        if BufReader::new(&stream).take(MAX_LINE).read_line(&mut answer)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(&answer)?)
    };
    exchanged().map_err(failed)
}

/// Listens on the control socket until the process ends.
///
/// # Errors
/// If the socket cannot be created.
pub(crate) fn listen(
    instance: &Instance,
    asked: impl Fn(PendingRequest) -> bool + Clone + Send + 'static,
) -> Result<(), Error> {
    let path = instance.control();
    let listened = || -> io::Result<()> {
        // The socket was left by a daemon that was killed: the lock proves that no running daemon uses it.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        thread::Builder::new().name("control".to_owned()).spawn(move || {
            // A client that has disconnected gets no answer.
            serve(listener.incoming().flatten(), move |stream| drop(answer(&stream, &asked)));
        })?;
        Ok(())
    };
    listened().map_err(|error| Error::new(format!("listen on {}", path.display()), &error))
}

/// Serves each client in a separate thread. A client waits only while [`MAX_CLIENTS`] others are being served.
pub(crate) fn serve<S: Send + 'static>(
    clients: impl Iterator<Item = S>,
    answer: impl Fn(S) + Clone + Send + 'static,
) {
    let present = Arc::new(());
    for client in clients {
        while Arc::strong_count(&present) > MAX_CLIENTS {
            thread::sleep(POLL_INTERVAL);
        }
        let (answer, present) = (answer.clone(), Arc::clone(&present));
        let run = move || {
            answer(client);
            drop(present);
        };
        // If no thread can be started, the client sees a closed connection.
        let _ = thread::Builder::new().name("client".to_owned()).spawn(run);
    }
}

/// Answers the one line that a client sends.
fn answer(stream: &UnixStream, asked: &impl Fn(PendingRequest) -> bool) -> io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut line = String::new();
    BufReader::new(stream).take(MAX_LINE).read_line(&mut line)?;
    let (sender, answers) = mpsc::channel();
    let answer = match serde_json::from_str(&line) {
        Ok(request) => {
            asked(PendingRequest::new(request, sender, Some(stream.try_clone()?)));
            answers.recv_timeout(TIMEOUT).map_err(io::Error::other).inspect_err(|_| {
                // The closed connection tells the daemon, which may still have the request, that the client has given
                // up.
                let _ = stream.shutdown(Shutdown::Both);
            })?
        }
        Err(error) => Answer::Refused { why: vec![format!("the request cannot be read: {error}")] },
    };
    let mut bytes = serde_json::to_vec(&answer)?;
    bytes.push(b'\n');
    (&*stream).write_all(&bytes)
}

#[cfg(test)]
mod tests;
