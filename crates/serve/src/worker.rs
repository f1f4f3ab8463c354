//! A thread of the target: an epoll loop with listeners, connections and timers.

use std::{
    mem::MaybeUninit,
    num::NonZeroU64,
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use clock::Clock;
use rustix::{
    event::epoll::{self, Event, EventFlags},
    io::Errno,
    thread::set_current_timer_slack,
    time::Timespec,
};
use sockets::{Acceptor, ConnectionLimit, Connections, NextStep, Token, error_name, pin, watch};

use crate::{
    Config, Report,
    connection::Connection,
    engine::{Engine, Shared, reset_on_close},
};

/// Maximum number of events per round.
const EVENTS: usize = 128;
/// Maximum sleep in nanoseconds, so that a stop is noticed soon enough.
const MAX_SLEEP_NS: u64 = 20_000_000;
/// Epoll data of the first listener's events; the other listeners' follow.
const LISTENER: u64 = 1 << 63;

/// A thread of the target.
#[derive(Debug)]
pub(crate) struct Worker<'a> {
    config: &'a Config,
    clock: Clock,
    number: usize,
    epoll: OwnedFd,
    acceptor: Acceptor<OwnedFd>,
    connection_limit: &'a ConnectionLimit,
    stop: &'a AtomicBool,
    engine: Engine<'a>,
    connections: Connections<Connection<'a>>,
    /// Whether the clock must be read for each event.
    timed: bool,
}

impl<'a> Worker<'a> {
    /// Creates the thread with this number without starting it.
    pub(crate) fn new(
        shared: Shared<'a>,
        number: usize,
        epoll: OwnedFd,
        listeners: Vec<OwnedFd>,
        connection_limit: &'a ConnectionLimit,
        stop: &'a AtomicBool,
    ) -> Self {
        let config = shared.config;
        let engine = Engine::new(shared, number as u64);
        let timed = engine.measured || config.keepalive_timeout_ns.is_some() || config.stall.is_some();
        let (acceptor, connections) = (Acceptor::new(listeners, LISTENER), Connections::default());
        Self {
            config,
            clock: shared.clock,
            number,
            epoll,
            acceptor,
            connection_limit,
            stop,
            engine,
            connections,
            timed,
        }
    }

    /// Serves until the target stops. Returns the report.
    pub(crate) fn run(mut self) -> Report {
        self.prepare_thread();
        self.acceptor.register(&self.epoll).expect("epoll takes a listening socket");
        let mut events = [const { MaybeUninit::<Event>::uninit() }; EVENTS];
        while !self.is_over() {
            let sleep_ns = self.sleep_ns();
            let sleep = Timespec { tv_sec: 0, tv_nsec: sleep_ns as _ };
            let ready = match epoll::wait(&self.epoll, &mut events[..], Some(&sleep)) {
                Ok((ready, _)) => ready,
                Err(Errno::INTR) => continue,
                Err(error) => panic!("epoll_wait fails only when interrupted: {error}"),
            };
            for event in ready {
                self.run_timers();
                if self.stop.load(Ordering::Relaxed) {
                    break;
                }
                let (flags, number) = (event.flags, event.data.u64());
                match number {
                    LISTENER.. => self.accept(number),
                    _ => self.event(Token::from_number(number), flags),
                }
            }
            self.run_timers();
            if self.acceptor.paused_until_ns().is_some() {
                self.acceptor.resume_if_due(&self.epoll, self.clock.now_ns());
            }
            if let Some(lines) = &mut self.engine.lines {
                lines.write_if_due();
            }
            for _ in 0..self.connections.waiting() {
                self.run_timers();
                let Some(token) = self.connections.take_next() else { break };
                let Some(connection) = self.connections.find(token) else { continue };
                let next_step = self.engine.proceed(connection);
                self.settle(token, next_step);
            }
        }
        if let Some(lines) = &mut self.engine.lines {
            lines.write();
        }
        // Closes the listeners first, so that no further connection is accepted.
        drop(self.acceptor);
        self.engine.report.unanswered = self.connections.iter().filter(|c| c.is_unanswered()).count() as u64;
        self.engine.report
    }

    /// Pins the thread to its processor and reduces the slack of its timers to the minimum.
    fn prepare_thread(&self) {
        // If this fails, the kernel's default slack of 50 µs remains; the report shows how late answers are.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        pin(&self.config.cpus, self.number);
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
            || self.config.duration_ns.is_some_and(|duration| self.clock.now_ns() >= duration)
    }

    /// Maximum nanoseconds to wait for events.
    fn sleep_ns(&self) -> u64 {
        if self.connections.waiting() > 0 {
            return 0;
        }
        let due =
            [self.engine.timers.next_due_ns(), self.acceptor.paused_until_ns(), self.config.duration_ns];
        match due.into_iter().flatten().min() {
            Some(due_ns) => due_ns.saturating_sub(self.clock.now_ns()).min(MAX_SLEEP_NS),
            None => MAX_SLEEP_NS,
        }
    }

    /// Reads the clock if anything depends on it, stalls if a stall has started, and handles due timers. Called after
    /// each event, because all events of a round together can take a millisecond.
    #[inline]
    fn run_timers(&mut self) {
        if !self.timed && self.engine.timers.next_due_ns().is_none() {
            return;
        }
        let mut now_ns = self.engine.read_clock();
        if let Some(stall) = &self.config.stall
            && let Some(end_ns) = stall.end_ns_at(now_ns)
        {
            self.stall_until(end_ns);
            now_ns = self.engine.read_clock();
        }
        while let Some((token, timer)) = self.engine.timers.pop_due(now_ns) {
            if let Some(connection) = self.connections.find(token) {
                let next_step = self.engine.timer_due(connection, timer);
                self.settle(token, next_step);
            }
        }
    }

    /// Sleeps until `end_ns`, but returns early on a stop.
    fn stall_until(&self, end_ns: u64) {
        loop {
            let left_ns = end_ns.saturating_sub(self.clock.now_ns());
            if left_ns == 0 || self.is_over() {
                return;
            }
            std::thread::sleep(Duration::from_nanos(left_ns.min(MAX_SLEEP_NS)));
        }
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
        drop(self.connections.apply(token, next_step));
    }

    fn accept(&mut self, listener: u64) {
        for _ in 0..Acceptor::<OwnedFd>::MAX_ACCEPTS {
            match self.acceptor.accept(listener) {
                Ok(Some(socket)) => self.add_connection(socket),
                Ok(None) => return,
                Err(error) => self.accept_failed(error),
            }
        }
    }

    fn add_connection(&mut self, socket: OwnedFd) {
        let Some(permit) = self.connection_limit.try_acquire() else {
            self.engine.report.connections_refused += 1;
            reset_on_close(&socket);
            return;
        };
        let now_ns = self.engine.now_ns;
        let (token, connection) =
            self.connections.insert(|token| Connection::new(socket, token, permit, now_ns));
        match watch(&self.epoll, &connection.socket, token.number()) {
            Ok(()) => self.engine.opened(connection),
            Err(error) => {
                self.settle(token, NextStep::Close);
                self.accept_failed(error);
            }
        }
    }

    fn accept_failed(&mut self, error: Errno) {
        *self.engine.report.accept_errors.entry(error_name(error)).or_default() += 1;
        self.acceptor.pause_on_shortage(&self.epoll, error, self.clock.now_ns());
    }
}
