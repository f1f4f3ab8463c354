//! What an agent reports about itself.

use std::fmt;

use crate::keys::PublicKey;

/// What happens to an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The broker cannot be reached yet, for this reason; the agent tries again.
    Unreachable(String),
    /// The agent is in the pool.
    Connected,
    /// The connection to the broker was lost; the agent tries to connect again.
    Disconnected,
    /// The broker complains, for example about a missing right.
    Complaint(String),
    /// A session of the controller with this key has begun.
    SessionBegan(PublicKey),
    /// The session has ended, with these last words.
    SessionEnded(String),
    /// A controller wants the agent to end.
    Drained,
}

impl fmt::Display for Event {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(formatter, "{why}; trying again"),
            Self::Connected => formatter.write_str("connected to the broker"),
            Self::Disconnected => formatter.write_str("lost the connection to the broker; trying again"),
            Self::Complaint(complaint) => write!(formatter, "the broker says: {complaint}"),
            Self::SessionBegan(key) => write!(formatter, "a session of the controller {key} begins"),
            Self::SessionEnded(words) if words.is_empty() => formatter.write_str("the session has ended"),
            Self::SessionEnded(words) => write!(formatter, "the session has ended: {words}"),
            Self::Drained => formatter.write_str("a controller has asked this agent to end"),
        }
    }
}
