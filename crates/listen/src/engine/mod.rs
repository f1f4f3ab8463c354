//! Serves connections: reads requests, submits events to the storage, sends answers.
//!
//! A connection's next request is parsed after the previous one was answered. The common case takes two system calls
//! per request, and one batch to the storage for all requests of a round of the loop.

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

/// Size of a thread's receive buffer.
const BUFFER_BYTES: usize = 64 * 1024;
/// Reads or writes on one connection before other connections get their turn.
const TURNS: u32 = 2;

/// The action after a step of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Take the next step now.
    Continue,
    /// Take the next step after other connections had their turn.
    Yield,
    /// Wait for the kernel, the storage or a timer.
    Wait,
    /// Close the connection.
    Close,
}

/// The part of a thread that serves connections.
#[derive(Debug)]
pub(crate) struct Engine<'a> {
    shared: &'a Shared,
    pub counters: &'a Counters,
    pub timers: Timers,
    /// The time at the start of this round.
    pub now_ns: u64,
    port: Port,
    /// Lines of this round.
    batch: Batch,
    renderer: Renderer,
    /// Number of events that the loop has parsed in this round.
    events_read: usize,
    /// Passes large bodies to the body reader.
    body_reader_queue: BodyReaderQueue<'a>,
    /// Pieces of large requests that are not submitted yet, each with its request and level.
    pieces: VecDeque<(Token, Level, Piece)>,
    pending: PendingTable<'a>,
    /// Requests of this round that are answered once their lines are submitted.
    accepted: Vec<Token>,
    /// Finished requests whose buffers later requests reuse.
    #[expect(clippy::vec_box, reason = "they go to connections and come back as they are, without a copy")]
    spare: Vec<Box<IncomingRequest<'a>>>,
    buffer: Vec<u8>,
    /// Buffer for an answer.
    out: Vec<u8>,
    /// Buffer for the value of an answer's receipts.
    receipts: Vec<u8>,
    /// The last `Date`, preceded by its second since 1970.
    date: (i64, String),
}

impl<'a> Engine<'a> {
    /// The engine of thread `number`. `port` leads to the storage.
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

    /// Begins to serve an accepted connection.
    pub(crate) fn opened(&mut self, connection: &mut Connection<'a>) -> NextStep {
        self.counters.connections_accepted.add(1);
        let next_step =
            if connection.permit.is_some() { NextStep::Wait } else { self.refuse_connection(connection) };
        self.set_deadline(connection);
        self.timers.watch(self.now_ns, connection.deadline_ns, connection.token);
        next_step
    }

    /// Handles an epoll event.
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

    /// Serves a connection as far as possible without waiting.
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
                    // The listener is stopping: close unless part of another request has arrived.
                    return if connection.check_for_more() { NextStep::Continue } else { NextStep::Close };
                }
                Step::Close => return NextStep::Close,
            }
        }
        self.set_deadline(connection);
        NextStep::Continue
    }

    /// Whether the listener is stopping, so that no connection is kept for another request.
    #[inline]
    fn is_stopping(&self) -> bool {
        self.shared.lifecycle.state() != State::Running
    }

    /// Whether no request waits for the storage.
    pub(crate) fn is_done(&self) -> bool {
        self.pending.is_empty()
    }
}
