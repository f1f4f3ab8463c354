//! One thread: an epoll loop with its own connections, timers and way to the storage.

use std::{
    collections::VecDeque,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    event::epoll::{self, Event, EventData, EventFlags},
    io::Errno,
    net::{SocketFlags, accept_with},
    thread::{CpuSet, sched_setaffinity},
    time::Timespec,
};
use segments::{Done, Port};
use sockets::{Places, Token};

use crate::{
    connection::{Connection, Phase},
    engine::{Engine, Fate},
    listeners::Listener,
    shared::{Shared, State},
    stream::Stream,
};

/// Events taken at once: the requests of one round go to the storage together.
const EVENTS: usize = 256;
/// Connections accepted before others get their turn.
const ACCEPTS: usize = 64;
/// How long nothing is accepted when descriptors or memory have run out.
const ACCEPT_PAUSE_NS: u64 = 10_000_000;
/// Timers may go off so late, so that many of them go off together.
const SLACK_NS: u64 = 10_000_000;
/// Connections beyond the limit that are told so at the same time; further ones are closed at once.
const TURNED_AWAY_MOST: usize = 64;

/// Marks the events that are not of connections.
const SPECIAL: u64 = 1 << 63;
const STORAGE: u64 = SPECIAL;
const WAKE: u64 = SPECIAL + 1;
const LISTENER: u64 = SPECIAL + 2;

/// One thread of the listener.
#[derive(Debug)]
pub(crate) struct Worker<'a> {
    shared: &'a Shared,
    number: usize,
    epoll: OwnedFd,
    listeners: Vec<Listener>,
    engine: Engine<'a>,
    table: Places<Connection<'a>>,
    turned_away: usize,
    /// Connections that have more to do at once.
    again: VecDeque<Token>,
    /// Nothing is accepted until then.
    accept_paused_until_ns: Option<u64>,
    /// When draining ends.
    drain_until_ns: Option<u64>,
    done: Vec<Done>,
    accepted: Vec<Token>,
}

impl<'a> Worker<'a> {
    /// Thread number `number`, not yet running.
    pub fn new(
        shared: &'a Shared,
        number: usize,
        epoll: OwnedFd,
        listeners: Vec<Listener>,
        port: Port,
    ) -> Self {
        let port_added = epoll::add(&epoll, port.fd(), EventData::new_u64(STORAGE), EventFlags::IN);
        port_added.expect("epoll takes an eventfd");
        let data = EventData::new_u64(WAKE);
        epoll::add(&epoll, shared.course.wake(), data, EventFlags::IN | EventFlags::ET)
            .expect("epoll takes an eventfd");
        let worker = Self {
            shared,
            number,
            epoll,
            listeners,
            engine: Engine::new(shared, number, port),
            table: Places::default(),
            turned_away: 0,
            again: VecDeque::new(),
            accept_paused_until_ns: None,
            drain_until_ns: None,
            done: Vec::new(),
            accepted: Vec::new(),
        };
        worker.listen();
        worker
    }

    /// Serves until told to stop.
    pub fn run(mut self) {
        self.settle();
        let mut events = [const { MaybeUninit::<Event>::uninit() }; EVENTS];
        while !self.is_over() {
            let sleep = self.sleep();
            let ready = match epoll::wait(&self.epoll, &mut events[..], sleep.as_ref()) {
                Ok((ready, _)) => ready,
                Err(Errno::INTR) => continue,
                Err(error) => panic!("epoll_wait fails only when interrupted: {error}"),
            };
            self.engine.look_at_clock();
            for event in ready {
                let (flags, number) = (event.flags, event.data.u64());
                match number {
                    STORAGE => self.hear(),
                    WAKE => {}
                    LISTENER.. => self.accept((number - LISTENER) as usize),
                    _ => self.event(Token::from_number(number), flags),
                }
                if self.engine.is_batch_full() {
                    self.hand_over();
                }
            }
            self.accept_again();
            self.go_on_with_some();
            self.ring();
            self.begin_to_drain();
            self.hand_over();
        }
        let waiting = self.table.tokens();
        let waiting = waiting.into_iter().filter_map(|token| self.table.find(token).map(|c| c.phase));
        let unanswered = waiting.filter(|phase| *phase == Phase::Storing).count();
        self.engine.counters.unanswered.add(unanswered as u64);
    }

    /// Pins the thread to its processor.
    fn settle(&self) {
        let cpus = &self.shared.config.cpus;
        if !cpus.is_empty() {
            let mut set = CpuSet::new();
            set.set(cpus[self.number % cpus.len()] as usize);
            // Checked when the listener was bound.
            let _ = sched_setaffinity(None, &set);
        }
    }

    fn is_over(&self) -> bool {
        match (self.shared.course.state(), self.drain_until_ns) {
            (State::Running, _) | (State::Draining, None) => false,
            (State::Draining, Some(until_ns)) => {
                (self.table.is_empty() && self.engine.in_flight() == 0) || self.engine.now_ns >= until_ns
            }
            (State::Over, _) => true,
        }
    }

    /// How long there is nothing to do, at the most; nothing if there is no end to it.
    fn sleep(&self) -> Option<Timespec> {
        if !self.again.is_empty() {
            return Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        }
        let timer = self.engine.timers.next_due_ns().map(|due_ns| due_ns + SLACK_NS);
        let due = [timer, self.accept_paused_until_ns, self.drain_until_ns];
        let due_ns = due.into_iter().flatten().min()?;
        let left_ns = due_ns.saturating_sub(self.shared.clock.now_ns());
        let (tv_sec, tv_nsec) = (left_ns / 1_000_000_000, left_ns % 1_000_000_000);
        Some(Timespec { tv_sec: tv_sec as _, tv_nsec: tv_nsec as _ })
    }

    #[inline]
    fn event(&mut self, token: Token, flags: EventFlags) {
        // An event of the same round may have ended it.
        let Some(connection) = self.table.find(token) else { return };
        let fate = self.engine.event(connection, flags);
        self.settle_fate(token, fate);
    }

    #[inline]
    fn settle_fate(&mut self, token: Token, fate: Fate) {
        match fate {
            Fate::Keep => {}
            Fate::Again => {
                // Events may come to a connection that is in the list: once is enough.
                if let Some(connection) = self.table.find(token)
                    && !std::mem::replace(&mut connection.queued, true)
                {
                    self.again.push_back(token);
                }
            }
            Fate::Gone => {
                if self.table.remove(token).is_some_and(|connection| connection.seat.is_none()) {
                    self.turned_away -= 1;
                }
            }
        }
    }

    fn go_on_with_some(&mut self) {
        for _ in 0..self.again.len() {
            let Some(token) = self.again.pop_front() else { break };
            let Some(connection) = self.table.find(token) else { continue };
            connection.queued = false;
            let fate = self.engine.proceed(connection);
            self.settle_fate(token, fate);
        }
    }

    /// Looks after connections whose time may be over.
    fn ring(&mut self) {
        while let Some(token) = self.engine.timers.pop_due(self.engine.now_ns) {
            if let Some(connection) = self.table.find(token) {
                let fate = self.engine.alarm(connection);
                self.settle_fate(token, fate);
            }
        }
    }

    /// Hands the lines of this round to the storage, and answers those that wait for no more.
    fn hand_over(&mut self) {
        let mut accepted = std::mem::take(&mut self.accepted);
        self.engine.hand_over(&mut accepted);
        for token in accepted.drain(..) {
            let Some(sender) = self.engine.sender(token) else { continue };
            let Some(connection) = waiting(&mut self.table, sender, token) else { continue };
            let fate = self.engine.accept(connection, token);
            self.settle_fate(sender, fate);
        }
        self.accepted = accepted;
    }

    /// Answers those whose events are stored.
    fn hear(&mut self) {
        let mut done = std::mem::take(&mut self.done);
        self.engine.hear(&mut done);
        for done in done.drain(..) {
            let Some((token, pending)) = self.engine.note(done) else { continue };
            let sender = pending.connection;
            let connection = waiting(&mut self.table, sender, token);
            if let Some(fate) = self.engine.conclude(pending, connection) {
                self.settle_fate(sender, fate);
            }
        }
        self.done = done;
    }

    fn accept(&mut self, listener: usize) {
        for _ in 0..ACCEPTS {
            if self.accept_paused_until_ns.is_some() || self.drain_until_ns.is_some() {
                return;
            }
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match accept_with(&self.listeners[listener].socket, flags) {
                Ok(socket) => self.welcome(socket, self.listeners[listener].admin),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(error) => self.accept_failed(error),
            }
        }
    }

    fn welcome(&mut self, socket: OwnedFd, admin: bool) {
        let seat = self.shared.crowd.enter();
        let tls = self.shared.identity.as_ref().filter(|_| !admin).map(|identity| identity.config());
        if seat.is_none() && (tls.is_some() || self.turned_away >= TURNED_AWAY_MOST) {
            self.engine.counters.connections_refused.add(1);
            return;
        }
        let Ok(stream) = Stream::new(socket, tls) else { return };
        self.turned_away += usize::from(seat.is_none());
        let (head_bytes, now_ns) = (self.shared.config.limits.head_bytes, self.engine.now_ns);
        let (token, connection) =
            self.table.insert(|token| Connection::new(stream, token, seat, admin, head_bytes, now_ns));
        // Once and for all: edges tell of everything that comes later.
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let data = EventData::new_u64(token.number());
        match epoll::add(&self.epoll, connection.stream.as_fd(), data, flags) {
            Ok(()) => {
                let fate = self.engine.opened(connection);
                self.settle_fate(token, fate);
            }
            Err(error) => {
                self.settle_fate(token, Fate::Gone);
                self.accept_failed(error);
            }
        }
    }

    fn accept_failed(&mut self, error: Errno) {
        self.engine.counters.accept_errors.add(1);
        if matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::NOSPC) {
            // The connection stays in the queue: to ask again at once would be to ask for ever.
            self.accept_paused_until_ns = Some(self.shared.clock.now_ns() + ACCEPT_PAUSE_NS);
            self.do_not_listen();
        }
    }

    /// Ends a pause.
    fn accept_again(&mut self) {
        if self.accept_paused_until_ns.is_some_and(|until_ns| until_ns <= self.engine.now_ns) {
            self.accept_paused_until_ns = None;
            self.listen();
        }
    }

    /// Asks for events of the listeners.
    fn listen(&self) {
        for (number, listener) in self.listeners.iter().enumerate() {
            // Of the threads that share an accept queue, one is woken for a connection.
            let flags = if listener.shared { EventFlags::IN | EventFlags::EXCLUSIVE } else { EventFlags::IN };
            let data = EventData::new_u64(LISTENER + number as u64);
            epoll::add(&self.epoll, &*listener.socket, data, flags).expect("epoll takes a listening socket");
        }
    }

    /// Asks for them no more. Taken out rather than changed: what is exclusive cannot be changed.
    fn do_not_listen(&self) {
        for listener in &self.listeners {
            // One that is not in is just as well.
            let _ = epoll::delete(&self.epoll, &*listener.socket);
        }
    }

    /// Once it is told to stop: lets everybody in who has connected, then nobody; and lets everybody go who
    /// has sent nothing.
    fn begin_to_drain(&mut self) {
        if self.shared.course.state() != State::Draining || self.drain_until_ns.is_some() {
            return;
        }
        self.accept_paused_until_ns = None;
        (0..self.listeners.len()).for_each(|listener| self.accept(listener));
        self.do_not_listen();
        self.listeners.clear();
        let drain_ns = self.shared.config.timeouts.drain.as_nanos() as u64;
        self.drain_until_ns = Some(self.engine.now_ns.saturating_add(drain_ns));
        for token in self.table.tokens() {
            let Some(connection) = self.table.find(token) else { continue };
            let fate = self.engine.may_go(connection);
            self.settle_fate(token, fate);
        }
    }
}

/// The connection that waits for that request.
#[inline]
fn waiting<'t, 'a>(
    table: &'t mut Places<Connection<'a>>,
    sender: Token,
    pending: Token,
) -> Option<&'t mut Connection<'a>> {
    table
        .find(sender)
        .filter(|connection| connection.phase == Phase::Storing && connection.pending == pending)
}
