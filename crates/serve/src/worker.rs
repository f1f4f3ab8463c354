//! One thread: an epoll loop with its own listeners, connections and timers.

use std::{
    collections::VecDeque,
    mem::MaybeUninit,
    num::NonZeroU64,
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use clock::Clock;
use rustix::{
    event::epoll::{self, Event, EventData, EventFlags},
    io::Errno,
    net::{SocketFlags, accept_with},
    thread::{CpuSet, sched_setaffinity, set_current_timer_slack},
    time::Timespec,
};
use sockets::{Places, Token};

use crate::{
    Config, Report,
    connection::Connection,
    engine::{Engine, Fate, Shared, reset_on_close},
};

/// Events taken at once. Timers that fall due meanwhile are looked at after each.
const EVENTS: usize = 128;
/// Connections accepted before others get their turn.
const ACCEPTS: usize = 64;
/// Longest sleep, so that a stop is seen in time.
const LONGEST_SLEEP_NS: u64 = 20_000_000;
/// How long nothing is accepted when descriptors or memory have run out.
const ACCEPT_PAUSE_NS: u64 = 10_000_000;
/// Marks the events of listeners.
const LISTENER: u64 = 1 << 63;

/// Connections open on all threads.
#[derive(Debug)]
pub(crate) struct Crowd {
    pub open: AtomicU64,
    pub peak: AtomicU64,
}

impl Crowd {
    /// Lets one in, unless there are `most` already.
    fn enter(&self, most: Option<u64>) -> bool {
        let before = self.open.fetch_add(1, Ordering::Relaxed);
        if most.is_some_and(|most| before >= most) {
            self.leave();
            return false;
        }
        self.peak.fetch_max(before + 1, Ordering::Relaxed);
        true
    }

    fn leave(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One thread of the target.
#[derive(Debug)]
pub(crate) struct Worker<'a> {
    config: &'a Config,
    clock: Clock,
    number: usize,
    epoll: OwnedFd,
    listeners: Vec<OwnedFd>,
    crowd: &'a Crowd,
    stop: &'a AtomicBool,
    engine: Engine<'a>,
    table: Places<Connection>,
    /// Connections that have more to do at once.
    again: VecDeque<Token>,
    /// Nothing is accepted until then.
    accept_paused_until_ns: Option<u64>,
    /// Each event is to know the time.
    timed: bool,
}

impl<'a> Worker<'a> {
    /// Thread number `number`, not yet running.
    pub fn new(
        shared: Shared<'a>,
        number: usize,
        epoll: OwnedFd,
        listeners: Vec<OwnedFd>,
        crowd: &'a Crowd,
        stop: &'a AtomicBool,
    ) -> Self {
        let config = shared.config;
        let engine = Engine::new(shared, number as u64);
        let timed = engine.measures() || config.keepalive_timeout_ns.is_some() || config.stall.is_some();
        let (table, again) = (Places::default(), VecDeque::new());
        let (clock, accept_paused_until_ns) = (shared.clock, None);
        Self {
            config,
            clock,
            number,
            epoll,
            listeners,
            crowd,
            stop,
            engine,
            table,
            again,
            accept_paused_until_ns,
            timed,
        }
    }

    /// Serves until told to stop; says what was done.
    pub fn run(mut self) -> Report {
        self.settle();
        self.listen(EventFlags::IN, true);
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
                match number.checked_sub(LISTENER) {
                    Some(listener) => self.accept(listener as usize),
                    None => self.event(Token::from_number(number), flags),
                }
            }
            self.keep_time();
            self.accept_again();
            for _ in 0..self.again.len() {
                self.keep_time();
                let Some(token) = self.again.pop_front() else { break };
                let Some(connection) = self.table.find(token) else { continue };
                connection.queued = false;
                let fate = self.engine.proceed(connection);
                self.settle_fate(token, fate);
            }
        }
        // First the listeners, so that nobody gets in any more.
        drop(self.listeners);
        self.engine.report.unanswered = self.table.iter().filter(|c| c.owes_an_answer()).count() as u64;
        self.engine.report
    }

    /// Makes the thread ready: its processor, and timers as exact as the kernel has them.
    fn settle(&self) {
        // A refusal leaves the kernel's default of 50 µs; the report shows how late answers are.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        if !self.config.cpus.is_empty() {
            let mut set = CpuSet::new();
            set.set(self.config.cpus[self.number % self.config.cpus.len()] as usize);
            // Checked when the target was bound.
            let _ = sched_setaffinity(None, &set);
        }
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
            || self.config.duration_ns.is_some_and(|duration| self.clock.now_ns() >= duration)
    }

    /// How long there is nothing to do, at the most.
    fn sleep_ns(&self) -> u64 {
        if !self.again.is_empty() {
            return 0;
        }
        let due = [self.engine.timers.next_due_ns(), self.accept_paused_until_ns, self.config.duration_ns];
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
            if let Some(connection) = self.table.find(token) {
                let fate = self.engine.alarm(connection, alarm);
                self.settle_fate(token, fate);
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
                self.table.remove(token);
                self.crowd.leave();
            }
        }
    }

    fn accept(&mut self, listener: usize) {
        for _ in 0..ACCEPTS {
            if self.accept_paused_until_ns.is_some() {
                return;
            }
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match accept_with(&self.listeners[listener], flags) {
                Ok(socket) => self.welcome(socket),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(error) => self.accept_failed(error),
            }
        }
    }

    fn welcome(&mut self, socket: OwnedFd) {
        if !self.crowd.enter(self.config.max_connections) {
            self.engine.report.connections_refused += 1;
            reset_on_close(&socket);
            return;
        }
        let now_ns = self.engine.now_ns;
        let (token, connection) = self.table.insert(|token| Connection::new(socket, token, now_ns));
        // Once and for all: edges tell of everything that comes later.
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let data = EventData::new_u64(token.number());
        match epoll::add(&self.epoll, &connection.socket, data, flags) {
            Ok(()) => self.engine.opened(connection),
            Err(error) => {
                self.settle_fate(token, Fate::Gone);
                self.accept_failed(error);
            }
        }
    }

    fn accept_failed(&mut self, error: Errno) {
        *self.engine.report.accept_errors.entry(name(error)).or_default() += 1;
        if matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::NOSPC) {
            // The connection stays in the queue: to ask again at once would be to ask for ever.
            self.accept_paused_until_ns = Some(self.clock.now_ns() + ACCEPT_PAUSE_NS);
            self.listen(EventFlags::empty(), false);
        }
    }

    /// Ends a pause.
    fn accept_again(&mut self) {
        if self.accept_paused_until_ns.is_some_and(|until_ns| until_ns <= self.clock.now_ns()) {
            self.accept_paused_until_ns = None;
            self.listen(EventFlags::IN, false);
        }
    }

    /// Asks for events of the listeners, for the first time or anew.
    fn listen(&self, flags: EventFlags, first: bool) {
        for (number, listener) in self.listeners.iter().enumerate() {
            let data = EventData::new_u64(LISTENER + number as u64);
            let asked = if first {
                epoll::add(&self.epoll, listener, data, flags)
            } else {
                epoll::modify(&self.epoll, listener, data, flags)
            };
            asked.expect("epoll takes a listening socket");
        }
    }
}

/// An error's name as in errno(3), of those that accept4(2) and epoll_ctl(2) give.
fn name(error: Errno) -> String {
    let name = match error {
        Errno::MFILE => "EMFILE",
        Errno::NFILE => "ENFILE",
        Errno::NOBUFS => "ENOBUFS",
        Errno::NOMEM => "ENOMEM",
        Errno::NOSPC => "ENOSPC",
        Errno::CONNABORTED => "ECONNABORTED",
        Errno::PROTO => "EPROTO",
        Errno::PERM => "EPERM",
        other => return format!("errno {}", other.raw_os_error()),
    };
    name.to_owned()
}
