//! What happens on one connection: requests in, events to the storage, answers out.
//!
//! Requests of a connection are taken one after the other: the next is looked at when the last is answered.
//! In the plain case that is two system calls a request, and one batch to the storage for all requests of a
//! round of the loop.

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
use sockets::{Fate, Token};

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

/// The receive buffer of a thread.
const BUFFER_BYTES: usize = 64 * 1024;
/// Reads or writes on one connection before others get their turn.
const TURNS: u32 = 2;

/// What to do after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The next step.
    Continue,
    /// The next step, when others have had their turn.
    Yield,
    /// Nothing until the kernel, the storage or a timer says so.
    Wait,
    /// The connection is over.
    Close,
}

/// The part of a thread that serves connections.
#[derive(Debug)]
pub(crate) struct Engine<'a> {
    shared: &'a Shared,
    pub counters: &'a Counters,
    pub timers: Timers,
    /// The time as last looked at.
    pub now_ns: u64,
    port: Port,
    /// Lines of this round.
    batch: Batch,
    renderer: Renderer,
    /// Events that the loop has read in this round.
    events_read: usize,
    /// For large bodies.
    body_reader_queue: BodyReaderQueue<'a>,
    /// What became of those and waits for the storage, each with its request and its level.
    pieces: VecDeque<(Token, Level, Piece)>,
    pending: PendingTable<'a>,
    /// Requests of this round that are answered as soon as they are handed over.
    accepted: Vec<Token>,
    /// For requests to come.
    #[expect(clippy::vec_box, reason = "they go to connections and come back as they are, without a copy")]
    spare: Vec<Box<IncomingRequest<'a>>>,
    buffer: Vec<u8>,
    /// An answer being written.
    out: Vec<u8>,
    /// The value of its receipts.
    receipts: Vec<u8>,
    /// The second of the last answer's date, and that date.
    date: (u64, String),
}

impl<'a> Engine<'a> {
    /// The part of thread `number`, with its ways to the storage and to its helper.
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
            date: (u64::MAX, String::new()),
        }
    }

    /// Looks at the clocks, at the start of a round.
    pub(crate) fn start_round(&mut self) {
        self.now_ns = self.shared.clock.now_ns();
        self.renderer.forget_time();
        self.events_read = 0;
    }

    /// A connection was accepted.
    pub(crate) fn opened(&mut self, connection: &mut Connection<'a>) -> Fate {
        self.counters.connections_accepted.add(1);
        let fate = if connection.permit.is_some() { Fate::Keep } else { self.refuse_connection(connection) };
        self.set_deadline(connection);
        self.timers.watch(self.now_ns, connection.deadline_ns, connection.token);
        fate
    }

    /// The kernel says that something happened.
    #[inline]
    pub(crate) fn event(&mut self, connection: &mut Connection<'a>, flags: EventFlags) -> Fate {
        if flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
            connection.readable = true;
        }
        if flags.contains(EventFlags::RDHUP) {
            connection.peer_closed = true;
        }
        if flags.contains(EventFlags::OUT) && connection.stream.flush().is_err() {
            return Fate::Gone;
        }
        let reset = flags.intersects(EventFlags::HUP | EventFlags::ERR);
        match connection.phase {
            Phase::Storing | Phase::Writing | Phase::Lingering if reset => Fate::Gone,
            _ => self.proceed(connection),
        }
    }

    /// Does what can be done now.
    #[inline]
    pub(crate) fn proceed(&mut self, connection: &mut Connection<'a>) -> Fate {
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
                        return Fate::Keep;
                    }
                    // Unless something of a request has come meanwhile, none is waited for any more.
                    return if connection.check_for_more() { Fate::Again } else { Fate::Gone };
                }
                Step::Close => return Fate::Gone,
            }
        }
        self.set_deadline(connection);
        Fate::Again
    }

    /// Whether it was told to stop, so that no connection is kept for a next request.
    #[inline]
    fn is_stopping(&self) -> bool {
        self.shared.lifecycle.state() != State::Running
    }

    /// Whether the storage has events of no request.
    pub(crate) fn is_done(&self) -> bool {
        self.pending.is_empty()
    }
}
