//! The connection to an agent. Separate threads read the agent's messages and write those to it, because an agent that was
//! stopped reads nothing and must not keep this program waiting.

use std::{
    io::{BufRead, Write},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use processes::line_of;

use crate::{
    protocol::{FromMember, Numbered, ToMember},
    started::{Peer, Started},
};

/// Maximum time between two messages to an agent, which needs them because a cut network ends no connection for hours.
const ALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// How often a wait for the end of `ssh` checks whether it has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The connection to an agent. Dropping it ends the agent.
#[derive(Debug)]
pub(crate) struct Connection {
    peer: Peer,
    input: Option<mpsc::Sender<Vec<u8>>>,
    /// Whether the program was copied to the machine.
    pub(crate) has_copied: bool,
    /// How long the agent may take to end.
    farewell: Duration,
}

impl Connection {
    /// Passes each message of a started agent to `hear`, then `None` when there are no more, until `hear` returns false.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub(crate) fn open(
        started: Started,
        farewell: Duration,
        mut hear: impl FnMut(Option<Numbered<FromMember>>) -> bool + Send + 'static,
    ) -> Result<Self, String> {
        let Started { peer, mut input, output, has_copied } = started;
        let (lines, to_write) = mpsc::channel::<Vec<u8>>();
        let read = move || {
            for line in output.lines().map_while(Result::ok) {
                let Ok(message) = serde_json::from_str(&line) else { break };
                if !hear(Some(message)) {
                    return;
                }
            }
            hear(None);
        };
        let alive =
            line_of(&Numbered { trial: 0, message: ToMember::Alive }).map_err(|error| error.to_string())?;
        let write = move || loop {
            let line = match to_write.recv_timeout(ALIVE_INTERVAL) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => alive.clone(),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if input.write_all(&line).and_then(|()| input.flush()).is_err() {
                return;
            }
        };
        let connection = Self { peer, input: Some(lines), has_copied, farewell };
        let reading = thread::Builder::new().spawn(read).map(drop);
        reading
            .and_then(|()| thread::Builder::new().spawn(write).map(drop))
            .map_err(|error| error.to_string())?;
        Ok(connection)
    }

    /// Sends a message. If the agent is gone, the end of its own messages shows that.
    pub(crate) fn send(&self, trial: u64, message: ToMember) {
        let line = line_of(&Numbered { trial, message }).expect("messages are plain data");
        let _ = self.input.iter().try_for_each(|input| input.send(line.clone()));
    }

    /// Closes the agent's input, so that the agent ends.
    pub(crate) fn close(&mut self) {
        self.input = None;
    }

    /// Why the agent has ended.
    pub(crate) fn why_ended(&self) -> String {
        let words = match &self.peer {
            Peer::Child(_, last_words) => last_words.last(),
            Peer::Session(ending) => ending.last_words().filter(|words| !words.is_empty()),
        };
        match words {
            Some(words) => format!("its agent has ended: {words}"),
            None => "its agent ended without a message".to_owned(),
        }
    }
}

impl Drop for Connection {
    /// Lets the agent end, and waits for that for a moment.
    fn drop(&mut self) {
        self.close();
        let until = Instant::now() + self.farewell;
        while Instant::now() < until {
            let has_ended = match &mut self.peer {
                Peer::Child(child, _) => child.try_wait().is_ok_and(|status| status.is_some()),
                Peer::Session(ending) => ending.last_words().is_some(),
            };
            if has_ended {
                return;
            }
            thread::sleep(LOOK_AGAIN);
        }
        match &mut self.peer {
            Peer::Child(child, _) => {
                let _ = child.kill();
                let _ = child.wait();
            }
            Peer::Session(ending) => ending.abandon("the controller has given up the session"),
        }
    }
}
