//! The two halves of a session that a program reads and writes, and what they share with the task that moves the bytes.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Read, Write},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use crate::frames::{Kind, MAX_FRAME, frame};

/// Maximum number of bytes that wait in each direction between a program and the task, besides those of the link's window.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;

/// A stream of bytes in both directions to a process that the other side runs.
#[derive(Debug)]
pub struct Session {
    /// What is written reaches the other side. When this is dropped, the other side reads the end.
    pub input: Input,
    /// What the other side writes.
    pub output: Output,
    /// Tells how the session ended.
    pub ending: Ending,
}

/// The half that is written to. Blocks while the other side does not read: at most about 1 MiB is on its way.
#[derive(Debug)]
pub struct Input(Arc<Shared>);

/// The half that is read from. Gives an error, with the reason, when the session broke.
#[derive(Debug)]
pub struct Output(Arc<Shared>);

/// What is known about a session's end.
#[derive(Debug, Clone)]
pub struct Ending(Arc<Shared>);

/// What the halves share with the task.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Something in `state` has changed that a blocked thread may wait for.
    changed: Condvar,
    /// Something in `state` has changed that the task has to look at.
    pub(crate) wake: Notify,
}

/// What the two sides of [`Shared`] tell each other.
#[derive(Debug, Default)]
pub(crate) struct State {
    outgoing: VecDeque<u8>,
    /// Messages that go before and after `outgoing`.
    pub(crate) first: Option<Vec<u8>>,
    last: Option<Vec<u8>>,
    pub(crate) incoming: VecDeque<u8>,
    pub(crate) has_all_incoming: bool,
    pub(crate) is_input_closed: bool,
    pub(crate) is_output_closed: bool,
    /// The agent's answer to the order.
    pub(crate) answer: Option<Result<(), String>>,
    pub(crate) last_words: Option<String>,
    /// Why this side has given up the session.
    pub(crate) abandoned: Option<String>,
    /// Why the session broke.
    broken: Option<String>,
    /// Nothing is sent or received any more.
    pub(crate) is_over: bool,
}

/// What the task has to send next.
pub(crate) enum Next {
    Frame(Vec<u8>),
    End,
}

impl Session {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self { input: Input(shared.clone()), output: Output(shared.clone()), ending: Ending(shared.clone()) }
    }
}

impl Write for Input {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.wait(None, |state| state.outgoing.len() < BUFFER_BYTES || state.is_broken());
        state.check(ErrorKind::BrokenPipe)?;
        let count = bytes.len().min(BUFFER_BYTES - state.outgoing.len());
        state.outgoing.extend(&bytes[..count]);
        drop(state);
        self.0.wake.notify_one();
        Ok(count)
    }

    /// Does nothing: what is written is on its way.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        self.0.change(|state| state.is_input_closed = true);
    }
}

impl Read for Output {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let is_ready =
            |state: &State| !state.incoming.is_empty() || state.has_all_incoming || state.is_broken();
        let mut state = self.0.wait(None, is_ready);
        if state.incoming.is_empty() && !state.has_all_incoming {
            state.check(ErrorKind::ConnectionAborted)?;
        }
        let was_full = state.incoming.len() >= BUFFER_BYTES;
        let count = state.incoming.read(buffer)?;
        drop(state);
        if was_full {
            self.0.wake.notify_one();
        }
        Ok(count)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.0.change(|state| state.is_output_closed = true);
    }
}

impl Ending {
    /// Why the session ended: what the other side said last, or why it broke. `None` while neither has happened; empty if the other
    /// side ended without a message.
    pub fn last_words(&self) -> Option<String> {
        let state = self.0.state();
        state.broken.clone().or_else(|| state.last_words.clone()).or_else(|| state.is_over.then(String::new))
    }

    /// Ends the session at once, if it has not ended. Both halves then give this reason as their error.
    pub fn abandon(&self, why: &str) {
        self.0.abandon(why);
    }

    /// Why the session broke; `None` while it has not.
    pub(crate) fn broken(&self) -> Option<String> {
        self.0.state().broken.clone()
    }

    /// Waits for the end.
    pub(crate) fn wait(&self, wait: Duration) {
        drop(self.0.wait(Some(wait), |state| state.is_over));
    }

    /// Tells the other side why this side ends, after everything that was written. Call it before the input is dropped.
    pub(crate) fn say_last(&self, words: &str) {
        self.0.change(|state| state.last = Some(frame(Kind::LastWords, words.as_bytes())));
    }
}

impl Shared {
    /// The other side's answer to the order; `None` after `wait`.
    pub(crate) fn answer(&self, wait: Duration) -> Option<Result<(), String>> {
        let state = self.wait(Some(wait), |state| state.answer.is_some() || state.is_broken());
        state.answer.clone().or_else(|| state.broken.clone().map(Err))
    }

    /// Ends both directions, for a session whose halves are not used.
    pub(crate) fn close(&self) {
        self.change(|state| (state.is_input_closed, state.is_output_closed) = (true, true));
    }

    /// Ends the session at once.
    pub(crate) fn abandon(&self, why: &str) {
        self.change(|state| state.abandoned = state.abandoned.take().or(Some(why.to_owned())));
    }

    /// Records why the session broke.
    pub(crate) fn broke(&self, why: &str) {
        self.change(|state| state.broken = state.broken.take().or(Some(why.to_owned())));
    }

    /// What the task has to send next.
    pub(crate) fn next(&self) -> Option<Next> {
        let mut state = self.state();
        let frame = if let Some(frame) = state.first.take() {
            frame
        } else if !state.outgoing.is_empty() {
            let count = state.outgoing.len().min(MAX_FRAME);
            let bytes: Vec<u8> = state.outgoing.drain(..count).collect();
            self.changed.notify_all();
            frame(Kind::Bytes, &bytes)
        } else if !state.is_input_closed {
            return None;
        } else if let Some(frame) = state.last.take() {
            frame
        } else {
            return Some(Next::End);
        };
        Some(Next::Frame(frame))
    }

    /// Changes the state, and wakes everything that waits for a change.
    pub(crate) fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
        self.wake.notify_one();
    }

    /// Waits until `holds` is true, or for `wait`.
    fn wait(&self, wait: Option<Duration>, holds: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let until = wait.map(|wait| Instant::now() + wait);
        let mut state = self.state();
        while !holds(&state) {
            let Some(until) = until else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_broken(&self) -> bool {
        self.broken.is_some() || self.is_over
    }

    /// # Errors
    /// When nothing can be sent or will arrive.
    fn check(&self, kind: ErrorKind) -> io::Result<()> {
        match &self.broken {
            Some(why) => Err(io::Error::new(kind, why.clone())),
            None if self.is_over => Err(kind.into()),
            None => Ok(()),
        }
    }
}
