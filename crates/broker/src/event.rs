//! What an agent tells of itself.

use std::fmt;

use crate::keys::PublicKey;

/// What happens to an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The broker cannot be reached yet, for this reason; it is tried again.
    Unreachable(String),
    /// It is in the pool.
    Connected,
    /// The connection to the broker was lost; it is made again.
    Disconnected,
    /// The broker complains, such as of a missing right.
    Complaint(String),
    /// A session of the controller with this key has begun.
    SessionBegan(PublicKey),
    /// It has ended, with these last words.
    SessionEnded(String),
    /// A controller wants the agent to end.
    Drained,
}

impl fmt::Display for Event {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(formatter, "{why}; trying again"),
            Self::Connected => formatter.write_str("connected to the broker"),
            Self::Disconnected => formatter.write_str("lost the broker; trying again"),
            Self::Complaint(complaint) => write!(formatter, "the broker says: {complaint}"),
            Self::SessionBegan(key) => write!(formatter, "a session of the controller {key} begins"),
            Self::SessionEnded(words) if words.is_empty() => formatter.write_str("the session has ended"),
            Self::SessionEnded(words) => write!(formatter, "the session has ended: {words}"),
            Self::Drained => formatter.write_str("a controller has asked this agent to end"),
        }
    }
}
