//! Machines that are hosts of a study: the controller's side of their agents. Each is asked one question at a time.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    bootstrap::{self, LOGIN_WAIT, LOGINS_AT_ONCE, Placement, Program},
    connection::Connection,
    machine::Machine,
    protocol::{FromMember, Numbered, ToMember},
    started::Started,
};

/// How often a wait for an answer checks whether it was stopped.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// A stop flag that is never set, for questions that undo something.
static NEVER: AtomicBool = AtomicBool::new(false);
/// How long an agent may take to undo what it has changed when its connection is closed.
const FAREWELL: Duration = Duration::from_secs(10);

/// A machine that is a host of a study.
#[derive(Debug)]
pub struct HostMachine {
    machine: Machine,
    program: Arc<Program>,
    remote_path: Option<String>,
    stop: Arc<AtomicBool>,
    /// None after the connection was lost.
    link: Mutex<Option<Link>>,
}

/// The connection to an agent, and its answers.
#[derive(Debug)]
struct Link {
    connection: Connection,
    answers: mpsc::Receiver<(u64, Result<Value, String>)>,
    next: u64,
    has_ended: Arc<AtomicBool>,
}

impl HostMachine {
    /// Logs in to all machines and starts their agents. Copies this program to machines that do not have it yet.
    ///
    /// # Errors
    /// The reason for each machine that cannot be used.
    pub fn connect(
        machines: Vec<Machine>,
        remote_path: Option<&str>,
        stop: &Arc<AtomicBool>,
    ) -> Result<Vec<Self>, Vec<String>> {
        let program = Program::own().map_err(|why| vec![format!("cannot read this program: {why}")])?;
        let program = Arc::new(program);
        let host = |machine| Self {
            machine,
            program: Arc::clone(&program),
            remote_path: remote_path.map(str::to_owned),
            stop: Arc::clone(stop),
            link: Mutex::default(),
        };
        let (hosts, placement) =
            (machines.into_iter().map(host).collect::<Vec<_>>(), Placement { remote_path });
        let mut mistakes = Vec::new();
        for some in hosts.chunks(LOGINS_AT_ONCE) {
            let machines: Vec<_> = some.iter().map(Self::machine).collect();
            let together = bootstrap::start_together(&machines, &placement, &program, stop);
            mistakes.extend(
                some.iter().zip(together).filter_map(|(host, started)| host.listen_to(started).err()),
            );
        }
        if mistakes.is_empty() { Ok(hosts) } else { Err(mistakes) }
    }

    /// The machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Logs in again if the connection was lost.
    ///
    /// # Errors
    /// The reason, with the machine's name.
    pub fn reconnect(&self) -> Result<(), String> {
        self.reconnect_unless(&self.stop)
    }

    /// Logs in again if the connection was lost, even if the command was stopped.
    ///
    /// # Errors
    /// The reason, with the machine's name.
    pub fn reconnect_to_undo(&self) -> Result<(), String> {
        self.reconnect_unless(&NEVER)
    }

    fn reconnect_unless(&self, stop: &AtomicBool) -> Result<(), String> {
        if self.lost().is_none() {
            return Ok(());
        }
        *self.lock() = None;
        let placement = Placement { remote_path: self.remote_path.as_deref() };
        self.listen_to(bootstrap::start(&self.machine, &placement, &self.program, LOGIN_WAIT, stop))
    }

    /// Why the connection was lost; none if it was not.
    pub fn lost(&self) -> Option<String> {
        // While a question is being asked, its answer will tell.
        let place = self.link.try_lock().ok()?;
        let why = match &*place {
            None => "its agent has ended".to_owned(),
            Some(link) => link.has_ended.load(Ordering::Relaxed).then(|| link.connection.why_ended())?,
        };
        Some(format!("{}: {why}", self.machine.name))
    }

    /// Asks a question and waits for its answer, at most for `wait`. After an error that is not the agent's own, the
    /// connection is closed.
    ///
    /// # Errors
    /// The reason, with the machine's name.
    pub fn ask<A: DeserializeOwned>(&self, question: &impl Serialize, wait: Duration) -> Result<A, String> {
        self.ask_unless(question, wait, &self.stop)
    }

    /// Asks a question as [`ask`](Self::ask) does, and waits as long even if the command was stopped.
    ///
    /// # Errors
    /// Those of [`ask`](Self::ask).
    pub fn ask_to_undo<A: DeserializeOwned>(
        &self,
        question: &impl Serialize,
        wait: Duration,
    ) -> Result<A, String> {
        self.ask_unless(question, wait, &NEVER)
    }

    fn ask_unless<A: DeserializeOwned>(
        &self,
        question: &impl Serialize,
        wait: Duration,
        stop: &AtomicBool,
    ) -> Result<A, String> {
        let named = |why: String| format!("{}: {why}", self.machine.name);
        let mut place = self.lock();
        let link = place.as_mut().ok_or_else(|| named("its agent has ended".to_owned()))?;
        let answer = link.ask(question, wait, stop);
        if answer.is_err() {
            *place = None;
        }
        let answer = answer.and_then(|answer| answer).map_err(named)?;
        serde_json::from_value(answer).map_err(|error| named(format!("its answer cannot be read: {error}")))
    }

    fn listen_to(&self, started: Result<Started, String>) -> Result<(), String> {
        let link = started.and_then(Link::new);
        *self.lock() = Some(link.map_err(|why| format!("{}: {why}", self.machine.name))?);
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Link>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    fn new(started: Started) -> Result<Self, String> {
        let (sender, answers) = mpsc::channel();
        let has_ended = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&has_ended);
        // The channel's end tells that the agent has ended.
        let hear = move |heard| match heard {
            Some(Numbered { message: FromMember::Host { number, answer }, .. }) => {
                sender.send((number, answer)).is_ok()
            }
            Some(_) => true,
            None => {
                ended.store(true, Ordering::Relaxed);
                false
            }
        };
        Ok(Self { connection: Connection::open(started, FAREWELL, hear)?, answers, next: 0, has_ended })
    }

    /// The outer error is that of the connection.
    fn ask(
        &mut self,
        question: &impl Serialize,
        wait: Duration,
        stop: &AtomicBool,
    ) -> Result<Result<Value, String>, String> {
        let number = self.next;
        self.next += 1;
        let question = serde_json::to_value(question).map_err(|error| error.to_string())?;
        self.connection.send(0, ToMember::Host { number, question });
        let mut until = Instant::now() + wait;
        loop {
            match self.answers.recv_timeout(LOOK_AGAIN) {
                Ok((of, answer)) if of == number => return Ok(answer),
                // The answer to a question that was given up.
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) if Instant::now() < until => {
                    if stop.load(Ordering::Relaxed) {
                        until = until.min(Instant::now() + FAREWELL);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("it did not answer within {} s", wait.as_secs()));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.connection.why_ended()),
            }
        }
    }
}
