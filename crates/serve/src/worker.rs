//! One thread: an epoll loop with its own listeners, connections and timers.

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

/// Events taken at once. Timers that fall due meanwhile are looked at after each.
const EVENTS: usize = 128;
/// Longest sleep, so that a stop is seen in time.
const LONGEST_SLEEP_NS: u64 = 20_000_000;
/// The first listener's events.
const LISTENER: u64 = 1 << 63;

/// One thread of the target.
#[derive(Debug)]
pub(crate) struct Worker<'a> {
    config: &'a Config,
    clock: Clock,
    number: usize,
    epoll: OwnedFd,
    door: Acceptor<OwnedFd>,
    crowd: &'a ConnectionLimit,
    stop: &'a AtomicBool,
    engine: Engine<'a>,
    connections: Connections<Connection<'a>>,
    /// Each event is to know the time.
    timed: bool,
}

impl<'a> Worker<'a> {
    /// Thread number `number`, not yet running.
    pub(crate) fn new(
        shared: Shared<'a>,
        number: usize,
        epoll: OwnedFd,
        listeners: Vec<OwnedFd>,
        crowd: &'a ConnectionLimit,
        stop: &'a AtomicBool,
    ) -> Self {
        let config = shared.config;
        let engine = Engine::new(shared, number as u64);
        let timed = engine.measures() || config.keepalive_timeout_ns.is_some() || config.stall.is_some();
        let (door, connections) = (Acceptor::new(listeners, LISTENER), Connections::default());
        Self { config, clock: shared.clock, number, epoll, door, crowd, stop, engine, connections, timed }
    }

    /// Serves until told to stop; says what was done.
    pub(crate) fn run(mut self) -> Report {
        self.settle_down();
        self.door.register(&self.epoll).expect("epoll takes a listening socket");
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
                self.keep_time();
                if self.stop.load(Ordering::Relaxed) {
                    break;
                }
                let (flags, number) = (event.flags, event.data.u64());
                match number {
                    LISTENER.. => self.accept(number),
                    _ => self.event(Token::from_number(number), flags),
                }
            }
            self.keep_time();
            if self.door.paused_until_ns().is_some() {
                self.door.resume_if_due(&self.epoll, self.clock.now_ns());
            }
            for _ in 0..self.connections.waiting() {
                self.keep_time();
                let Some(token) = self.connections.take_next() else { break };
                let Some(connection) = self.connections.find(token) else { continue };
                let fate = self.engine.proceed(connection);
                self.settle(token, fate);
            }
        }
        // First the listeners, so that nobody gets in any more.
        drop(self.door);
        self.engine.report.unanswered = self.connections.iter().filter(|c| c.owes_an_answer()).count() as u64;
        self.engine.report
    }

    /// Makes the thread ready: its processor, and timers as exact as the kernel has them.
    fn settle_down(&self) {
        // A refusal leaves the kernel's default of 50 µs; the report shows how late answers are.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        pin(&self.config.cpus, self.number);
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
            || self.config.duration_ns.is_some_and(|duration| self.clock.now_ns() >= duration)
    }

    /// How long there is nothing to do, at the most.
    fn sleep_ns(&self) -> u64 {
        if self.connections.waiting() > 0 {
            return 0;
        }
        let due = [self.engine.timers.next_due_ns(), self.door.paused_until_ns(), self.config.duration_ns];
        match due.into_iter().flatten().min() {
            Some(due_ns) => due_ns.saturating_sub(self.clock.now_ns()).min(LONGEST_SLEEP_NS),
            None => LONGEST_SLEEP_NS,
        }
    }

    /// Looks at the clock if anything depends on it, stands still if it is time for that, and does what is
    /// due. After each event, for those of one round can take a millisecond together.
    #[inline]
    fn keep_time(&mut self) {
        if !self.timed && self.engine.timers.next_due_ns().is_none() {
            return;
        }
        let mut now_ns = self.engine.look_at_clock();
        if let Some(stall) = &self.config.stall
            && let Some(end_ns) = stall.ends_ns(now_ns)
        {
            self.stand_still(end_ns);
            now_ns = self.engine.look_at_clock();
        }
        while let Some((token, alarm)) = self.engine.timers.pop_due(now_ns) {
            if let Some(connection) = self.connections.find(token) {
                let fate = self.engine.alarm(connection, alarm);
                self.settle(token, fate);
            }
        }
    }

    /// Does nothing at all until `end_ns`, except to look whether it is all over.
    fn stand_still(&self, end_ns: u64) {
        loop {
            let left_ns = end_ns.saturating_sub(self.clock.now_ns());
            if left_ns == 0 || self.is_over() {
                return;
            }
            std::thread::sleep(Duration::from_nanos(left_ns.min(LONGEST_SLEEP_NS)));
        }
    }

    #[inline]
    fn event(&mut self, token: Token, flags: EventFlags) {
        // An event of the same round may have ended it.
        let Some(connection) = self.connections.find(token) else { return };
        let fate = self.engine.event(connection, flags);
        self.settle(token, fate);
    }

    #[inline]
    fn settle(&mut self, token: Token, fate: NextStep) {
        drop(self.connections.apply(token, fate));
    }

    fn accept(&mut self, listener: u64) {
        for _ in 0..Acceptor::<OwnedFd>::MAX_ACCEPTS {
            match self.door.accept(listener) {
                Ok(Some(socket)) => self.welcome(socket),
                Ok(None) => return,
                Err(error) => self.accept_failed(error),
            }
        }
    }

    fn welcome(&mut self, socket: OwnedFd) {
        let Some(seat) = self.crowd.try_acquire() else {
            self.engine.report.connections_refused += 1;
            reset_on_close(&socket);
            return;
        };
        let now_ns = self.engine.now_ns;
        let (token, connection) =
            self.connections.insert(|token| Connection::new(socket, token, seat, now_ns));
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
        self.door.pause_on_shortage(&self.epoll, error, self.clock.now_ns());
    }
}
