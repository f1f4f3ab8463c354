//! Serves connections: reads requests, submits events to the storage, sends answers.
//!
//! A connection's next request is parsed only after the previous one has been answered. Most requests take two system
//! calls each, and all requests in a round of the loop go to the storage in one batch.

mod body_reader;
mod close;
mod line_budget;
mod prepare;
mod receive;
mod render;
mod send;
mod store;

use std::collections::VecDeque;

use rustix::event::epoll::EventFlags;
use segments::{Batch, Level, Port};
use sockets::{NextStep, Token};

use crate::{
    connection::{Connection, Phase, Wait},
    counters::Counters,
    incoming::IncomingRequest,
    pending::PendingTable,
    shared::{Shared, State},
    timers::Timers,
};

#[cfg(test)]
pub(crate) use body_reader::BodyReader;
use body_reader::Piece;
pub(crate) use body_reader::{BodyReaderQueue, ReadBody};
use render::Renderer;

/// Size of a thread's receive buffer in bytes.
const BUFFER_BYTES: usize = 64 * 1024;
/// Maximum steps of one connection before other connections get their turn.
const TURNS: u32 = 2;

/// What to do after a step of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Take the next step immediately.
    Continue,
    /// Take the next step after other connections have had their turn.
    Yield,
    /// Wait for the kernel, the storage or a timer.
    Wait,
    Close,
}

/// Serves the connections of a thread.
#[derive(Debug)]
pub(crate) struct Engine<'a> {
    shared: &'a Shared,
    pub counters: &'a Counters,
    pub timers: Timers,
    /// The time at the start of this round.
    pub now_ns: u64,
    port: Port,
    /// Lines of this round that have not been submitted.
    batch: Batch,
    renderer: Renderer,
    /// Number of events that the loop has parsed in this round.
    events_read: usize,
    /// The queue to the body reader, which reads large bodies.
    body_reader_queue: BodyReaderQueue<'a>,
    /// Pieces of large requests that have not been submitted, each with its request and level.
    pieces: VecDeque<(Token, Level, Piece)>,
    pending: PendingTable<'a>,
    /// Requests of this round to answer as soon as their lines are submitted.
    accepted: Vec<Token>,
    /// Cleared requests whose buffers are reused.
    #[expect(clippy::vec_box, reason = "they go to connections and come back as they are, without a copy")]
    spare: Vec<Box<IncomingRequest<'a>>>,
    buffer: Vec<u8>,
    /// Buffer for encoding an answer.
    out: Vec<u8>,
    /// Buffer for encoding the receipts of an answer.
    receipts: Vec<u8>,
    /// The last value of `Date`, and the Unix time in seconds that it is for.
    date: (i64, String),
}

impl<'a> Engine<'a> {
    /// Creates the engine of thread `number`. `port` connects it to the storage.
    pub(crate) fn new(
        shared: &'a Shared,
        number: usize,
        port: Port,
        body_reader_queue: BodyReaderQueue<'a>,
    ) -> Self {
        Self {
            shared,
            counters: &shared.counters[number],
            timers: Timers::new(&shared.config.timeouts),
            now_ns: shared.clock.now_ns(),
            port,
            batch: Batch::default(),
            renderer: Renderer::new(&shared.config),
            events_read: 0,
            body_reader_queue,
            pieces: VecDeque::new(),
            pending: PendingTable::default(),
            accepted: Vec::new(),
            spare: Vec::new(),
            buffer: vec![0; BUFFER_BYTES],
            out: Vec::new(),
            receipts: Vec::new(),
            date: (i64::MAX, String::new()),
        }
    }

    /// Begins a round of the loop: reads the clock and resets the counters of the round.
    pub(crate) fn start_round(&mut self) {
        self.now_ns = self.shared.clock.now_ns();
        self.renderer.forget_time();
        self.events_read = 0;
    }

    /// Starts to serve an accepted connection, or refuses it if it is beyond the limit.
    pub(crate) fn opened(&mut self, connection: &mut Connection<'a>) -> NextStep {
        self.counters.connections_accepted.add(1);
        let next_step =
            if connection.permit.is_some() { NextStep::Wait } else { self.refuse_connection(connection) };
        self.set_deadline(connection);
        self.timers.watch(self.now_ns, connection.deadline_ns, connection.token);
        next_step
    }

    /// Updates a connection's state after an epoll event, and serves the connection.
    #[inline]
    pub(crate) fn event(&mut self, connection: &mut Connection<'a>, flags: EventFlags) -> NextStep {
        if flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
            connection.readable = true;
        }
        if flags.contains(EventFlags::RDHUP) {
            connection.peer_closed = true;
        }
        if flags.contains(EventFlags::OUT) && connection.stream.flush().is_err() {
            return NextStep::Close;
        }
        let reset = flags.intersects(EventFlags::HUP | EventFlags::ERR);
        match connection.phase {
            Phase::Storing | Phase::Writing | Phase::Lingering if reset => NextStep::Close,
            _ => self.proceed(connection),
        }
    }

    /// Takes steps until the connection must wait or has used its turns.
    #[inline]
    pub(crate) fn proceed(&mut self, connection: &mut Connection<'a>) -> NextStep {
        for _ in 0..TURNS {
            let step = match connection.phase {
                Phase::Reading => self.read(connection),
                Phase::Writing => self.write(connection),
                Phase::Lingering => self.discard_input(connection),
                Phase::Storing => Step::Wait,
            };
            match step {
                Step::Continue => {}
                Step::Yield => break,
                Step::Wait => {
                    self.set_deadline(connection);
                    if connection.wait != Wait::Request || !self.is_stopping() {
                        return NextStep::Wait;
                    }
                    // The listener is stopping, so an idle connection is closed unless bytes of another request have
                    // arrived.
                    return if connection.check_for_more() { NextStep::Continue } else { NextStep::Close };
                }
                Step::Close => return NextStep::Close,
            }
        }
        self.set_deadline(connection);
        NextStep::Continue
    }

    /// Whether the listener is stopping. If so, connections are closed after their answers.
    #[inline]
    fn is_stopping(&self) -> bool {
        self.shared.lifecycle.state() != State::Running
    }

    /// Whether no request is waiting for the storage.
    pub(crate) fn is_done(&self) -> bool {
        self.pending.is_empty()
    }
}
