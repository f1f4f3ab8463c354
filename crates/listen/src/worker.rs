//! A thread of the listener: an epoll loop with connections and timers.

use std::{
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    event::epoll::{self, Event, EventData, EventFlags},
    io::Errno,
    time::Timespec,
};
use segments::{Done, Port};
use sockets::{Acceptor, Connections, NextStep, Token, pin, watch};

use crate::{
    connection::{Connection, Phase},
    engine::{BodyReaderQueue, Engine, ReadBody},
    listeners::Listener,
    shared::{Shared, State},
    stream::Stream,
};

/// Maximum number of events per round. The requests of a round go to the storage together.
const EVENTS: usize = 256;
/// Maximum delay of a timer in nanoseconds, so that one round handles many timers.
const SLACK_NS: u64 = 10_000_000;
/// Nanoseconds after which a round leaves queued connections to the next round, so that new events are handled first.
const TURN_NS: u64 = 1_000_000;
/// Maximum number of open connections that only get a 503; further ones are closed at once.
const MAX_REFUSED_OPEN: usize = 64;

/// Maximum length of an accept queue in the kernel.
const MAX_ACCEPT_QUEUE: usize = 65_536;

/// Marks the data of events that do not belong to a connection.
const SPECIAL: u64 = 1 << 63;
const STORAGE: u64 = SPECIAL;
const WAKE: u64 = SPECIAL + 1;
const BODY_READER: u64 = SPECIAL + 2;
const LISTENER: u64 = SPECIAL + 3;

/// A thread of the listener.
#[derive(Debug)]
pub(crate) struct Worker<'a> {
    shared: &'a Shared,
    number: usize,
    epoll: OwnedFd,
    acceptor: Acceptor<Listener>,
    engine: Engine<'a>,
    connections: Connections<Connection<'a>>,
    refused_open: usize,
    /// When draining ends; `None` before it has started.
    drain_until_ns: Option<u64>,
    done: Vec<Done>,
    read: Vec<ReadBody<'a>>,
    accepted: Vec<Token>,
}

impl<'a> Worker<'a> {
    /// Creates thread `number` without starting it.
    pub(crate) fn new(
        shared: &'a Shared,
        number: usize,
        epoll: OwnedFd,
        listeners: Vec<Listener>,
        port: Port,
        body_reader_queue: BodyReaderQueue<'a>,
    ) -> Self {
        let port_added = epoll::add(&epoll, port.fd(), EventData::new_u64(STORAGE), EventFlags::IN);
        port_added.expect("epoll takes an eventfd");
        epoll::add(&epoll, body_reader_queue.fd(), EventData::new_u64(BODY_READER), EventFlags::IN)
            .expect("epoll takes an eventfd");
        let data = EventData::new_u64(WAKE);
        epoll::add(&epoll, shared.lifecycle.wake(), data, EventFlags::IN | EventFlags::ET)
            .expect("epoll takes an eventfd");
        let acceptor = Acceptor::new(listeners, LISTENER);
        acceptor.register(&epoll).expect("epoll takes a listening socket");
        Self {
            shared,
            number,
            epoll,
            acceptor,
            engine: Engine::new(shared, number, port, body_reader_queue),
            connections: Connections::default(),
            refused_open: 0,
            drain_until_ns: None,
            done: Vec::new(),
            read: Vec::new(),
            accepted: Vec::new(),
        }
    }

    /// Runs the loop until the listener stops.
    pub(crate) fn run(mut self) {
        pin(&self.shared.config.cpus, self.number);
        let mut events = [const { MaybeUninit::<Event>::uninit() }; EVENTS];
        while !self.is_over() {
            self.round(&mut events);
        }
        self.engine.hand_over_all_pieces();
        let waiting = self.connections.tokens();
        let waiting = waiting.into_iter().filter_map(|token| self.connections.find(token).map(|c| c.phase));
        let unanswered = waiting.filter(|phase| *phase == Phase::Storing).count();
        self.engine.counters.unanswered.add(unanswered as u64);
    }

    /// Waits for events once and handles them.
    fn round(&mut self, events: &mut [MaybeUninit<Event>]) {
        let sleep = self.sleep();
        let ready = match epoll::wait(&self.epoll, events, sleep.as_ref()) {
            Ok((ready, _)) => ready,
            Err(Errno::INTR) => return,
            Err(error) => panic!("epoll_wait fails only when interrupted: {error}"),
        };
        self.engine.start_round();
        for event in ready {
            let (flags, number) = (event.flags, event.data.u64());
            match number {
                STORAGE => self.finish_stored(),
                BODY_READER => self.finish_read_bodies(),
                WAKE => {}
                LISTENER.. => self.accept(number, Acceptor::<Listener>::MAX_ACCEPTS),
                _ => self.event(Token::from_number(number), flags),
            }
            if self.engine.is_batch_full() {
                self.hand_over();
            }
        }
        self.acceptor.resume_if_due(&self.epoll, self.engine.now_ns);
        self.continue_connections();
        self.check_deadlines();
        self.start_draining();
        self.hand_over();
    }

    fn is_over(&self) -> bool {
        match (self.shared.lifecycle.state(), self.drain_until_ns) {
            (State::Running, _) | (State::Draining, None) => false,
            (State::Draining, Some(until_ns)) => {
                (self.connections.is_empty() && self.engine.is_done()) || self.engine.now_ns >= until_ns
            }
            (State::Stopped, _) => true,
        }
    }

    /// Maximum wait for events; `None` without a deadline.
    fn sleep(&self) -> Option<Timespec> {
        // After the answer to a submitted request, the connection's next request may already be ready.
        if self.connections.waiting() > 0 || self.engine.has_lines() {
            return Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        }
        let timer = self.engine.timers.next_due_ns().map(|due_ns| due_ns + SLACK_NS);
        let due = [timer, self.acceptor.paused_until_ns(), self.drain_until_ns];
        let due_ns = due.into_iter().flatten().min()?;
        let left_ns = due_ns.saturating_sub(self.shared.clock.now_ns());
        let (tv_sec, tv_nsec) = (left_ns / 1_000_000_000, left_ns % 1_000_000_000);
        Some(Timespec { tv_sec: tv_sec as _, tv_nsec: tv_nsec as _ })
    }

    #[inline]
    fn event(&mut self, token: Token, flags: EventFlags) {
        // An earlier event of this round may have closed the connection.
        let Some(connection) = self.connections.find(token) else { return };
        let next_step = self.engine.event(connection, flags);
        self.settle(token, next_step);
    }

    #[inline]
    fn settle(&mut self, token: Token, next_step: NextStep) {
        if self.connections.apply(token, next_step).is_some_and(|gone| gone.permit.is_none()) {
            self.refused_open -= 1;
        }
    }

    fn continue_connections(&mut self) {
        let until_ns = self.engine.now_ns + TURN_NS;
        for _ in 0..self.connections.waiting() {
            let Some(token) = self.connections.take_next() else { break };
            let Some(connection) = self.connections.find(token) else { continue };
            let next_step = self.engine.proceed(connection);
            self.settle(token, next_step);
            if self.shared.clock.now_ns() >= until_ns {
                break;
            }
        }
    }

    /// Checks the connections whose timers are due.
    fn check_deadlines(&mut self) {
        while let Some(token) = self.engine.timers.pop_due(self.engine.now_ns) {
            if let Some(connection) = self.connections.find(token) {
                let next_step = self.engine.check_deadline(connection);
                self.settle(token, next_step);
            }
        }
    }

    /// Submits the lines of this round to the storage, and answers the requests of level `accepted`.
    fn hand_over(&mut self) {
        let mut accepted = std::mem::take(&mut self.accepted);
        self.engine.hand_over(&mut accepted);
        for token in accepted.drain(..) {
            let Some(sender) = self.engine.connection_of(token) else { continue };
            let Some(connection) = waiting_connection(&mut self.connections, sender, token) else { continue };
            let next_step = self.engine.answer_accepted(connection, token);
            self.settle(sender, next_step);
        }
        self.accepted = accepted;
    }

    /// Answers the requests whose events are stored.
    fn finish_stored(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        self.engine.take_completed(&mut done);
        for done in done.drain(..) {
            let Some((token, pending)) = self.engine.record_completion(done) else { continue };
            let sender = pending.connection;
            let connection = waiting_connection(&mut self.connections, sender, token);
            if let Some(next_step) = self.engine.finish_request(pending, connection) {
                self.settle(sender, next_step);
            }
        }
        self.done = done;
    }

    /// Continues the requests whose bodies the body reader has read.
    fn finish_read_bodies(&mut self) {
        let mut bodies = std::mem::take(&mut self.read);
        self.engine.take_read_bodies(&mut bodies);
        for read in bodies.drain(..) {
            let (sender, request) = (read.connection, read.request);
            let connection = waiting_connection(&mut self.connections, sender, request);
            if let Some(next_step) = self.engine.finish_read_body(read, connection) {
                self.settle(sender, next_step);
            }
        }
        self.read = bodies;
    }

    fn accept(&mut self, number: u64, most: usize) {
        for _ in 0..most {
            let Some(admin) = self.acceptor.listener(number).map(|listener| listener.admin) else { return };
            match self.acceptor.accept(number) {
                Ok(Some(socket)) => self.add_connection(socket, admin),
                Ok(None) => return,
                Err(error) => self.accept_failed(error),
            }
        }
    }

    fn add_connection(&mut self, socket: OwnedFd, admin: bool) {
        let permit = if admin {
            self.shared.admin_connection_limit.try_acquire()
        } else if self.shared.descriptors.is_beyond_limit(&socket) {
            None
        } else {
            self.shared.connection_limit.try_acquire()
        };
        let tls = self.shared.identity.as_ref().filter(|_| !admin).map(|identity| identity.config());
        let is_not_told = tls.is_some()
            || self.refused_open >= MAX_REFUSED_OPEN
            || self.shared.descriptors.is_reserved_for_storage(&socket);
        if permit.is_none() && is_not_told {
            self.engine.counters.connections_refused.add(1);
            return;
        }
        let Ok(stream) = Stream::new(socket, tls) else { return };
        self.refused_open += usize::from(permit.is_none());
        let (head_bytes, now_ns) = (self.shared.config.limits.head_bytes, self.engine.now_ns);
        let (token, connection) = self
            .connections
            .insert(|token| Connection::new(stream, token, permit, admin, head_bytes, now_ns));
        match watch(&self.epoll, connection.stream.as_fd(), token.number()) {
            Ok(()) => {
                let next_step = self.engine.opened(connection);
                self.settle(token, next_step);
            }
            Err(error) => {
                self.settle(token, NextStep::Close);
                self.accept_failed(error);
            }
        }
    }

    fn accept_failed(&mut self, error: Errno) {
        self.engine.counters.accept_errors.add(1);
        self.acceptor.pause_on_shortage(&self.epoll, error, self.shared.clock.now_ns());
    }

    /// When the listener stops: accepts the connections that are queued in the kernel, stops accepting, and closes idle
    /// connections.
    fn start_draining(&mut self) {
        if self.shared.lifecycle.state() != State::Draining || self.drain_until_ns.is_some() {
            return;
        }
        self.acceptor.end_pause();
        self.acceptor.event_numbers().for_each(|listener| self.accept(listener, MAX_ACCEPT_QUEUE));
        self.acceptor.close(&self.epoll);
        let drain_ns = self.shared.config.timeouts.drain.as_nanos() as u64;
        self.drain_until_ns = Some(self.engine.now_ns.saturating_add(drain_ns));
        for token in self.connections.tokens() {
            let Some(connection) = self.connections.find(token) else { continue };
            let next_step = self.engine.drain_connection(connection);
            self.settle(token, next_step);
        }
    }
}

/// The connection that is waiting for this request.
#[inline]
fn waiting_connection<'t, 'a>(
    connections: &'t mut Connections<Connection<'a>>,
    sender: Token,
    pending: Token,
) -> Option<&'t mut Connection<'a>> {
    connections
        .find(sender)
        .filter(|connection| connection.phase == Phase::Storing && connection.pending == pending)
}

#[cfg(test)]
mod tests;
