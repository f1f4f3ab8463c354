//! Machines that have dialled out to a broker: their agents wait there for a controller.

use std::{
    collections::BTreeMap,
    fmt,
    io::BufReader,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use broker::{Access, AgentKeys, Broker, BrokerAddress, Key, Present, PublicKey, Readiness};

use crate::started::{Peer, Started};

/// Maximum wait for the connection to the broker, and for a session.
const WAIT: Duration = Duration::from_secs(20);
/// How long agents may take to answer that they are there.
const ANSWERS_WAIT: Duration = Duration::from_secs(1);
/// The same, if none has answered in that time.
const SLOW_ANSWERS_WAIT: Duration = Duration::from_secs(5);

/// The message when the keys are missing by which the controller and the agents prove themselves.
pub const NO_KEYS: &str = "--fleet-key and --agent-keys are missing: `proofload fleet key FILE` makes a key, and each line of the other file is \
                       an agent's name and key";

/// How a controller reaches agents of a broker, and proves itself.
#[derive(Debug, Clone, Default)]
pub struct PoolOptions {
    /// A file with the credentials for the broker (`.creds`).
    pub credentials: Option<PathBuf>,
    /// A file with the certificates of the authorities that vouch for the broker.
    pub authorities: Option<PathBuf>,
    /// The file with the controller's key.
    pub key: Option<PathBuf>,
    /// The file with the keys of the agents.
    pub agent_keys: Option<PathBuf>,
}

impl PoolOptions {
    /// Whether both sides can be proved.
    pub fn has_keys(&self) -> bool {
        self.key.is_some() && self.agent_keys.is_some()
    }
}

/// The agents of a broker.
#[derive(Debug)]
pub struct Pool {
    address: String,
    broker: Broker,
    /// None: the agents can be listed, but not used.
    keys: Option<(Key, AgentKeys)>,
    /// The agents that were there, by name.
    present: Mutex<BTreeMap<String, Present>>,
}

/// A pool that several machines share. Two are equal if they are the same connection.
#[derive(Debug, Clone)]
pub struct SharedPool(Arc<Pool>);

impl PartialEq for SharedPool {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SharedPool {}

impl Pool {
    /// Connects to the broker at this address, `nats://HOST:PORT/POOL`, which may have several servers of a cluster.
    ///
    /// # Errors
    /// If it cannot be reached, or a file cannot be used. The error is a message for the user.
    pub fn connect(address: &str, options: &PoolOptions) -> Result<Self, String> {
        let access = Access {
            address: address.parse::<BrokerAddress>()?,
            credentials: options.credentials.clone(),
            authorities: options.authorities.clone(),
        };
        let keys = match (&options.key, &options.agent_keys) {
            (Some(key), Some(agents)) => Some((Key::read(key)?, AgentKeys::read(agents)?)),
            _ => None,
        };
        let broker = Broker::connect(&access, WAIT)?;
        Ok(Self { address: address.to_owned(), broker, keys, present: Mutex::default() })
    }

    /// The agents that are there, by name. Two may have one name.
    ///
    /// # Errors
    /// If the broker cannot be reached.
    pub fn agents(&self) -> Result<Vec<Present>, String> {
        self.broker.agents(ANSWERS_WAIT)
    }

    /// The names of all agents that wait there.
    ///
    /// # Errors
    /// The reason for each agent that waits and cannot take part; or that none waits.
    pub(crate) fn waiting(&self) -> Result<Vec<String>, Vec<String>> {
        let mut all = self.agents().map_err(|why| vec![why])?;
        if all.is_empty() {
            // Busy machines answer later.
            all = self.broker.agents(SLOW_ANSWERS_WAIT).map_err(|why| vec![why])?;
        }
        let agents: Vec<Present> =
            all.iter().filter(|agent| agent.state == Readiness::Idle).cloned().collect();
        let mistakes: Vec<String> = agents.iter().filter_map(|agent| self.refusal(agent, &agents)).collect();
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        if agents.is_empty() {
            let others = match all.len() {
                0 => "no agent is there".to_owned(),
                count => format!(
                    "none of the {count} agents that are there is idle: others use them, or they were asked to end"
                ),
            };
            return Err(vec![format!(
                "{}: {others}; start `proofload agent --nats` on machines, or see `proofload fleet list`",
                self.address
            )]);
        }
        let names: Vec<String> = agents.iter().map(|agent| agent.name.clone()).collect();
        self.lock().extend(agents.into_iter().map(|agent| (agent.name.clone(), agent)));
        Ok(names)
    }

    /// Asks these agents to take no more sessions, and to end; all of the pool if none is named.
    ///
    /// # Errors
    /// The reason for each agent that was not asked.
    pub fn drain(&self, names: &[String]) -> Result<(), Vec<String>> {
        let agents = self.agents().map_err(|why| vec![why])?;
        let all: Vec<String> = agents.iter().map(|agent| agent.name.clone()).collect();
        let mut mistakes = Vec::new();
        for name in if names.is_empty() { &all } else { names } {
            let mut found = agents.iter().filter(|agent| agent.name == *name).peekable();
            if found.peek().is_none() {
                mistakes.push(format!("no agent is called {name}; see `proofload fleet list`"));
            }
            for agent in found {
                let drained =
                    self.keys_for(agent).and_then(|(own, its)| self.broker.drain(agent, own, &its, WAIT));
                mistakes.extend(drained.err().map(|why| format!("{name}: {why}")));
            }
        }
        if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
    }

    /// Why an agent cannot take part; none if it can.
    fn refusal(&self, agent: &Present, all: &[Present]) -> Option<String> {
        let (name, own) = (&agent.name, env!("CARGO_PKG_VERSION"));
        if all.iter().any(|other| other.name == *name && other.id < agent.id) {
            return Some(format!("two agents are called {name}; start one of them with another --name"));
        }
        if let Err(why) = self.keys_for(agent) {
            return Some(format!("{name}: {why}"));
        }
        if agent.version != own {
            return Some(format!(
                "{name}: its agent has version {}, this program {own}; install the same version on both",
                agent.version
            ));
        }
        None
    }

    /// The controller's key, and the key that an agent must have.
    fn keys_for(&self, agent: &Present) -> Result<(&Key, PublicKey), String> {
        let Some((own, agents)) = &self.keys else {
            return Err(NO_KEYS.to_owned());
        };
        match agents.of(&agent.name) {
            Some(its) if its == agent.key => Ok((own, its)),
            Some(_) => Err("it has another key than the file of --agent-keys says; correct the line, or find out who runs it".to_owned()),
            None => Err(format!("its key is not in the file of --agent-keys; if it is yours, add the line '{} {}'", agent.name, agent.key)),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Present>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<Pool> for SharedPool {
    fn from(pool: Pool) -> Self {
        Self(Arc::new(pool))
    }
}

impl SharedPool {
    /// Opens a session with an agent, which starts a process for it.
    ///
    /// # Errors
    /// The reason, without the agent's name.
    pub(crate) fn start(&self, name: &str) -> Result<Started, String> {
        let pool = &self.0;
        let known = pool.lock().get(name).cloned();
        let opened = known.ok_or_else(|| "it is not there any more".to_owned()).and_then(|agent| {
            let (own, its) = pool.keys_for(&agent)?;
            pool.broker.open(&agent, own, &its, WAIT)
        });
        let session = match opened {
            Ok(session) => session,
            Err(why) => {
                // It may have been restarted meanwhile.
                let agents = pool.agents()?;
                let agent = agents.iter().find(|agent| agent.name == name).ok_or(why)?;
                let (own, its) = pool.keys_for(agent)?;
                let session = pool.broker.open(agent, own, &its, WAIT)?;
                pool.lock().insert(name.to_owned(), agent.clone());
                session
            }
        };
        Ok(Started {
            peer: Peer::Session(session.ending),
            input: Box::new(session.input),
            output: Box::new(BufReader::new(session.output)),
            has_copied: false,
        })
    }
}

impl fmt::Display for SharedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.address)
    }
}
