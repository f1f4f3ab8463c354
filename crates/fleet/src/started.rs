//! An agent that was started, over whatever carries its messages.

use std::{
    io::{BufRead, Write},
    process::Child,
};

use broker::Ending;
use kernel::remote::LastWords;

/// A started agent.
pub(crate) struct Started {
    pub(crate) peer: Peer,
    pub(crate) input: Box<dyn Write + Send>,
    /// The next line is the agent's first message.
    pub(crate) output: Box<dyn BufRead + Send>,
    /// Whether the program was copied to the machine.
    pub(crate) has_copied: bool,
}

/// What carries the messages of an agent.
#[derive(Debug)]
pub(crate) enum Peer {
    /// `ssh`; on this machine the agent or `sudo`.
    Child(Child, LastWords),
    /// A session over a broker.
    Session(Ending),
}
