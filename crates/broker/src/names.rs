//! The names of pools, machines and processes, and the subjects of the broker made of them.
//!
//! A subject is a list of tokens between dots, in which `*` and `>` are wildcards; no text that could contain one of them
//! gets into a subject. Rights on the broker can be given by subject:
//!
//! | subject | who publishes | who subscribes |
//! |---|---|---|
//! | `proofload.POOL.who` | controllers | agents |
//! | `proofload.POOL.agent.AGENT.CONTROLLER.SESSION` | controllers | the agent AGENT: `proofload.POOL.agent.>` |
//! | `proofload.POOL.controller.CONTROLLER.AGENT.SESSION` | agents | the controller: `proofload.POOL.controller.>` |
//!
//! AGENT, CONTROLLER and SESSION are random numbers, new for each process and session; `here` in place of SESSION
//! marks an agent's answer to `who`.

use ring::rand::{SecureRandom, SystemRandom};

/// Maximum length of the name of a pool or a machine, in bytes.
const MAX_NAME: usize = 64;

/// The two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Agent,
    Controller,
}

impl Side {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Agent => Self::Controller,
            Self::Controller => Self::Agent,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Controller => "controller",
        }
    }
}

/// The subject on which controllers ask which agents are there.
pub(crate) fn who(pool: &str) -> String {
    format!("proofload.{pool}.who")
}

/// The subject on which a process receives messages: of one session, or of all sessions if `from` and `session` are `*`.
pub(crate) fn inbox(pool: &str, side: Side, id: &str, from: &str, session: &str) -> String {
    format!("proofload.{pool}.{}.{id}.{from}.{session}", side.word())
}

/// The sender and the session in a subject that [`inbox`] made.
pub(crate) fn sender(subject: &str) -> Option<(&str, &str)> {
    let mut tokens = subject.rsplit('.');
    let (session, from) = (tokens.next()?, tokens.next()?);
    (is_id(from) && (session == HERE || is_id(session))).then_some((from, session))
}

/// In place of a session: an agent's answer to the question which agents are there.
pub(crate) const HERE: &str = "here";

/// A new number for a process or a session, which nobody can guess.
///
/// # Errors
/// When the kernel gives no random numbers.
pub(crate) fn new_id() -> Result<String, String> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).map_err(|_| "the kernel gives no random numbers".to_owned())?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

/// Whether a text is such a number.
pub(crate) fn is_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// # Errors
/// When a pool cannot have this name.
pub(crate) fn check_pool(pool: &str) -> Result<(), String> {
    if has_only(pool, "-_") {
        Ok(())
    } else {
        Err(format!("a pool's name has letters, digits, `-` and `_`, at most {MAX_NAME}"))
    }
}

/// # Errors
/// When a machine cannot have this name.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    if has_only(name, "-_.") {
        return Ok(());
    }
    Err(format!(
        "{name:?} is not a valid machine name: use letters, digits, `-`, `_` and `.`, at most {MAX_NAME}"
    ))
}

/// Whether a machine can have a name that matches this pattern.
pub(crate) fn is_pattern(pattern: &str) -> bool {
    has_only(pattern, "-_.*")
}

fn has_only(text: &str, more: &str) -> bool {
    (1..=MAX_NAME).contains(&text.len())
        && text.chars().all(|char| char.is_ascii_alphanumeric() || more.contains(char))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_lead_back_to_their_sender() {
        let [to, from, session] = [(); 3].map(|()| new_id().unwrap());
        assert!(to != from && is_id(&to));
        let subject = inbox("load", Side::Agent, &to, &from, &session);
        assert_eq!(sender(&subject), Some((from.as_str(), session.as_str())));
        for subject in
            ["", "a.b", "proofload.load.agent.x.*.>", &format!("{from}.x"), &format!("{from}.{session}.x")]
        {
            assert_eq!(sender(subject), None, "{subject}");
        }
        assert!(check_name("web-1.example").is_ok() && is_pattern("web-*"));
        for name in ["", "a b", "a\n", "ä", "*", &"x".repeat(65)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
