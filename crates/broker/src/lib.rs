//! Byte streams between a controller and agents that both dial out to a NATS server, the broker.
//!
//! The broker is not trusted: it carries messages, and may lose, repeat, reorder or forge them. On top of it, a `link`
//! turns them into an ordered stream, or is dead after 20 s; inside that stream, TLS 1.3 proves both sides by their
//! [keys](Key). Only core NATS is used, no JetStream: nothing is ever stored in the broker.
//!
//! A controller asks a [`Broker`] which [agents](Present) are there, and opens a [`Session`] with one; the agent
//! [`serve`]s it with a command. There is one connection to the broker, and one thread, for all sessions of a process.
//!
//! No result depends on the broker: when it is away for a moment, sessions go on afterwards; when it is away for 20 s,
//! they break, and both sides learn of it.

mod address;
mod broker;
mod driver;
mod event;
mod frames;
mod handshake;
mod keys;
mod line;
mod link;
mod listener;
mod names;
mod serve;
mod session;

pub use address::{Access, BrokerAddress};
pub use broker::{Broker, Present, Readiness};
pub use event::Event;
pub use keys::{AgentKeys, Key, PublicKey};
pub use listener::{Accepted, Arrival, Listener};
pub use serve::{ServeOptions, serve};
pub use session::{Ending, Input, Output, Session};
