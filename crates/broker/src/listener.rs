//! The agent's side: it answers controllers that look for agents, and accepts one session at a time.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

use async_nats::Message;
use futures_util::StreamExt;
use rustls::ServerConfig;
use tokio::task::JoinHandle;

use crate::{
    broker::{Broker, Present, Readiness, Who},
    driver::{Decide, Role},
    frames::Order,
    handshake,
    keys::{Key, PublicKey},
    line::LineState,
    link,
    names::{self, HERE, Side},
    session::{Session, Shared},
};

/// Maximum number of sessions whose controllers have not proved their keys yet.
const MAX_UNPROVED: usize = 16;

/// An agent in the pool of a [`Broker`], until it is dropped.
#[derive(Debug)]
pub struct Listener {
    agent: Arc<Agent>,
    accepted: Receiver<Accepted>,
    tasks: [JoinHandle<()>; 2],
}

/// A session that a controller has opened. Until it is dropped, others are told that the agent is busy.
#[derive(Debug)]
pub struct Accepted {
    /// The session.
    pub session: Session,
    /// The controller's key, whose possession it has proved.
    pub controller: PublicKey,
    pub(crate) busy: Busy,
}

/// What [`Listener::accept`] found.
#[derive(Debug)]
pub enum Arrival {
    /// A session.
    Session(Box<Accepted>),
    /// Nothing in this time.
    Nothing,
    /// A controller wants the agent to end, and there is no session.
    Drained,
}

struct Agent {
    line: Arc<LineState>,
    id: String,
    name: String,
    key: PublicKey,
    config: Arc<ServerConfig>,
    state: Mutex<Readinesses>,
    unproved: AtomicUsize,
    accepted: Sender<Accepted>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Readinesses {
    is_busy: bool,
    is_draining: bool,
}

/// Others are told that the agent is busy until this is dropped.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Agent>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.state().is_busy = false;
    }
}

impl Broker {
    /// Joins the pool as an agent of this name, for controllers with one of these keys.
    ///
    /// # Errors
    /// When a machine cannot have this name, or no controller's key is given.
    pub fn listen(&self, name: &str, key: &Key, controllers: &[PublicKey]) -> Result<Listener, String> {
        names::check_name(name)?;
        if controllers.is_empty() {
            return Err(
                "an agent obeys only controllers whose keys it was given: give at least one".to_owned()
            );
        }
        let (sender, accepted) = channel();
        let agent = Arc::new(Agent {
            line: self.line().clone(),
            id: names::new_id()?,
            name: name.to_owned(),
            key: key.public(),
            config: handshake::agent(key, controllers).map_err(|error| error.to_string())?,
            state: Mutex::default(),
            unproved: AtomicUsize::new(0),
            accepted: sender,
        });
        let handle = &self.line().handle;
        let tasks = [handle.spawn(agent.clone().receive()), handle.spawn(agent.clone().answer())];
        Ok(Listener { agent, accepted, tasks })
    }
}

impl Listener {
    /// Waits for a session.
    pub fn accept(&self, wait: Duration) -> Arrival {
        if let Ok(accepted) = self.accepted.recv_timeout(wait) {
            return Arrival::Session(Box::new(accepted));
        }
        let state = *self.agent.state();
        if state.is_draining && !state.is_busy { Arrival::Drained } else { Arrival::Nothing }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Agent {
    /// Passes datagrams to their sessions, and begins new sessions.
    async fn receive(self: Arc<Self>) {
        let subject = names::inbox(&self.line.pool, Side::Agent, &self.id, "*", "*");
        let Ok(mut messages) = self.line.subscribe(subject).await else { return };
        while let Some(message) = messages.next().await {
            let Some(message) = self.line.deliver(message) else { continue };
            if link::opens(&message.payload) && self.unproved.load(Ordering::Relaxed) < MAX_UNPROVED {
                self.begin(message);
            } else {
                self.line.disown(Side::Agent, &self.id, &message).await;
            }
        }
    }

    fn begin(self: &Arc<Self>, message: Message) {
        let subject = message.subject.clone();
        let Some((controller, session)) = names::sender(&subject) else { return };
        let Ok(tls) = handshake::accept(&self.config) else { return };
        let unproved = Unproved::new(self);
        let decide: Decide =
            Box::new(move |order, controller, shared| unproved.0.decide(order, controller, shared));
        let ids = (self.id.as_str(), controller, session);
        let datagrams = self.line.begin(Side::Agent, ids, tls, Role::Agent(Some(decide)), Arc::default());
        let _ = datagrams.try_send(message);
    }

    /// Obeys an order of a controller that has proved its key.
    ///
    /// # Errors
    /// Why the order is not obeyed.
    fn decide(
        self: &Arc<Self>,
        order: Order,
        controller: PublicKey,
        shared: &Arc<Shared>,
    ) -> Result<(), String> {
        let mut state = self.state();
        if order == Order::Drain {
            state.is_draining = true;
            shared.close();
            return Ok(());
        }
        if state.is_draining {
            return Err("it was asked to end, and takes no more sessions".to_owned());
        }
        if state.is_busy {
            return Err("it is busy with another session: wait for its end".to_owned());
        }
        state.is_busy = true;
        drop(state);
        let accepted = Accepted { session: Session::new(shared), controller, busy: Busy(self.clone()) };
        self.accepted.send(accepted).map_err(|_| "it is ending".to_owned())
    }

    /// Answers the controllers that ask which agents are there.
    async fn answer(self: Arc<Self>) {
        let Ok(mut questions) = self.line.subscribe(names::who(&self.line.pool)).await else { return };
        while let Some(question) = questions.next().await {
            let Ok(who) = serde_json::from_slice::<Who>(&question.payload) else { continue };
            let Ok(answer) = serde_json::to_vec(&self.present()) else { continue };
            if names::is_id(&who.controller) {
                let to = names::inbox(&self.line.pool, Side::Controller, &who.controller, &self.id, HERE);
                let _ = self.line.client.publish(to, answer.into()).await;
            }
        }
    }

    fn present(&self) -> Present {
        let state = *self.state();
        Present {
            name: self.name.clone(),
            id: self.id.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            key: self.key,
            state: match state {
                Readinesses { is_draining: true, .. } => Readiness::Draining,
                Readinesses { is_busy: true, .. } => Readiness::Busy,
                _ => Readiness::Idle,
            },
        }
    }

    fn state(&self) -> MutexGuard<'_, Readinesses> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Agent")
            .field("name", &self.name)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// Counts a session whose controller has not proved its key yet.
struct Unproved(Arc<Agent>);

impl Unproved {
    fn new(agent: &Arc<Agent>) -> Self {
        agent.unproved.fetch_add(1, Ordering::Relaxed);
        Self(agent.clone())
    }
}

impl Drop for Unproved {
    fn drop(&mut self) {
        self.0.unproved.fetch_sub(1, Ordering::Relaxed);
    }
}
