//! The controller's side: which agents are there, and sessions with them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use async_nats::connection::State;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};

use crate::{
    address::Access,
    driver::Role,
    frames::{Kind, Order, frame},
    handshake,
    keys::{Key, PublicKey},
    line::{ConnectFailure, Line, LineState, Tell},
    names::{self, HERE, Side},
    session::{Session, Shared},
};

/// Maximum number of agents that are remembered.
const MAX_AGENTS: usize = 10_000;
/// Maximum length of an agent's answer, in bytes.
const MAX_ANSWER: usize = 4096;
/// Pause after the first question which agents are there; each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// A connection to a broker. Dropping it ends all of its sessions.
#[derive(Debug)]
pub struct Broker {
    id: String,
    answers: Arc<Mutex<BTreeMap<(String, String), Present>>>,
    line: Line,
}

/// An agent that has answered. None of this is proved before [`Broker::open`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Present {
    /// Its name: letters, digits, `-`, `_` and `.`, at most 64.
    pub name: String,
    /// A random number that identifies its process: it differs even between two agents with the same name.
    pub id: String,
    /// The version of its program.
    pub version: String,
    /// The public key that it claims to have.
    #[serde(with = "key_as_text")]
    pub key: PublicKey,
    /// Whether it accepts sessions.
    pub state: Readiness,
}

/// Whether an agent accepts sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Readiness {
    /// It accepts a session.
    Idle,
    /// It has a session and accepts no other.
    Busy,
    /// It accepts no more sessions.
    Draining,
}

/// The question which agents are there.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Who {
    pub(crate) controller: String,
}

impl Broker {
    /// Connects. If the broker is not reachable yet, tries again until `wait` is over.
    ///
    /// # Errors
    /// When the broker is not reached in that time or refuses the login, or when a file cannot be used.
    pub fn connect(access: &Access, wait: Duration) -> Result<Self, String> {
        Ok(Self::connect_and_tell(access, wait, Box::new(drop))?)
    }

    pub(crate) fn connect_and_tell(
        access: &Access,
        wait: Duration,
        tell: Tell,
    ) -> Result<Self, ConnectFailure> {
        let id = names::new_id().map_err(ConnectFailure::Refused)?;
        let answers = Arc::<Mutex<BTreeMap<_, _>>>::default();
        let line = Line::connect(access, wait, tell)?;
        let state = line.shared.clone();
        line.shared.handle.spawn(receive(state, id.clone(), answers.clone()));
        Ok(Self { id, answers, line })
    }

    pub(crate) fn line(&self) -> &Arc<LineState> {
        &self.line.shared
    }

    /// Asks several times which agents are there, and returns those that have answered after `wait`, by name. Two agents
    /// may have the same name. Takes as long as `wait`.
    ///
    /// # Errors
    /// When no agent has answered and the broker is not connected at the end of that time, or has complained.
    pub fn agents(&self, wait: Duration) -> Result<Vec<Present>, String> {
        let line = self.line();
        self.lock().clear();
        let question =
            serde_json::to_vec(&Who { controller: self.id.clone() }).map_err(|error| error.to_string())?;
        let (until, mut pause) = (Instant::now() + wait, FIRST_PAUSE);
        loop {
            let (state, question) = (line.clone(), question.clone());
            line.handle
                .spawn(async move { state.client.publish(names::who(&state.pool), question.into()).await });
            let left = until.saturating_duration_since(Instant::now());
            thread::sleep(pause.min(left));
            if left <= pause {
                break;
            }
            pause *= 2;
        }
        let agents: Vec<Present> = self.lock().values().cloned().collect();
        if agents.is_empty() && line.client.connection_state() != State::Connected {
            return Err("the broker is no longer reachable: try again when it is running".to_owned());
        }
        if agents.is_empty() && !line.trouble().is_empty() {
            return Err(format!("no agent has answered{}", line.trouble()));
        }
        Ok(agents)
    }

    /// Opens a session with an agent, which must have the key `its`. The agent runs its command for this session.
    ///
    /// # Errors
    /// When the agent has another key, does not accept the key `own`, is busy or draining, or does not answer within
    /// `wait`.
    pub fn open(
        &self,
        agent: &Present,
        own: &Key,
        its: &PublicKey,
        wait: Duration,
    ) -> Result<Session, String> {
        self.order(agent, own, its, Order::Load, wait).map(|shared| Session::new(&shared))
    }

    /// Asks an agent to take no more sessions, and to end when it has none.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), except that the agent may be busy.
    pub fn drain(&self, agent: &Present, own: &Key, its: &PublicKey, wait: Duration) -> Result<(), String> {
        self.order(agent, own, its, Order::Drain, wait).map(|shared| shared.close())
    }

    fn order(
        &self,
        agent: &Present,
        own: &Key,
        its: &PublicKey,
        order: Order,
        wait: Duration,
    ) -> Result<Arc<Shared>, String> {
        let failed = |why: &str| format!("agent {}: {why}", agent.name);
        if !names::is_id(&agent.id) {
            return Err(failed("its process number is not valid"));
        }
        let session = names::new_id()?;
        let tls = handshake::controller(own, *its).map_err(|error| failed(&error.to_string()))?;
        let shared = Arc::<Shared>::default();
        shared.change(|state| state.first = Some(frame(Kind::Order, order.word().as_bytes())));
        let ids = (self.id.as_str(), agent.id.as_str(), session.as_str());
        self.line().begin(Side::Controller, ids, tls, Role::Controller, shared.clone());
        match shared.answer(wait) {
            Some(Ok(())) => Ok(shared),
            Some(Err(why)) => {
                shared.close();
                Err(failed(&why))
            }
            None => {
                shared.abandon("no answer in time");
                Err(failed(&format!("no answer in {} s{}", wait.as_secs_f64(), self.line().trouble())))
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<(String, String), Present>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Passes on what arrives for a controller, as long as there is a connection.
async fn receive(line: Arc<LineState>, id: String, answers: Arc<Mutex<BTreeMap<(String, String), Present>>>) {
    let subject = names::inbox(&line.pool, Side::Controller, &id, "*", "*");
    let Ok(mut messages) = line.subscribe(subject).await else { return };
    while let Some(message) = messages.next().await {
        let Some(message) = line.deliver(message) else { continue };
        match names::sender(&message.subject) {
            Some((from, HERE)) => {
                if let Some(present) = Present::parse(from, &message.payload) {
                    let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
                    let name = (present.name.clone(), present.id.clone());
                    if answers.len() < MAX_AGENTS || answers.contains_key(&name) {
                        answers.insert(name, present);
                    }
                }
            }
            Some(_) => line.disown(Side::Controller, &id, &message).await,
            None => {}
        }
    }
}

impl Present {
    /// Parses an answer of the process `from`; `None` if it is not a valid answer.
    fn parse(from: &str, answer: &[u8]) -> Option<Self> {
        let present: Self =
            serde_json::from_slice(answer.get(..MAX_ANSWER).is_none().then_some(answer)?).ok()?;
        let is_sound = present.id == from
            && names::check_name(&present.name).is_ok()
            && present.version.len() <= 64
            && !present.version.chars().any(char::is_control);
        is_sound.then_some(present)
    }
}

mod key_as_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use crate::keys::PublicKey;

    pub(super) fn serialize<S: Serializer>(key: &PublicKey, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(key)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PublicKey, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn foreign_answers_are_borne(answer: Vec<u8>) {
            prop_assert!(Present::parse("x", &answer).is_none());
        }
    }

    #[test]
    fn answers_are_believed_only_of_the_process_that_sends_them() {
        let id = names::new_id().unwrap();
        let key = format!("ed25519:{}=", "A".repeat(43));
        let answer = |name: &str, version: &str| {
            format!(
                r#"{{"name":"{name}","id":"{id}","version":"{version}","key":"{key}","state":"idle","later":1}}"#
            )
        };
        assert_eq!(Present::parse(&id, answer("web-1", "0.1.0").as_bytes()).unwrap().state, Readiness::Idle);
        assert_eq!(Present::parse(&names::new_id().unwrap(), answer("web-1", "0.1.0").as_bytes()), None);
        for (name, version) in [("a b", "1"), ("", "1"), ("a", "\\u001b[2J"), ("a", &"1".repeat(5000))] {
            assert_eq!(Present::parse(&id, answer(name, version).as_bytes()), None);
        }
    }
}
