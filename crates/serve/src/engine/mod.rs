//! Serves connections: reads requests, sends answers or misbehaves.
//!
//! A connection's next request is parsed after the previous one was answered. The common case takes two system calls
//! per request, no allocation and no clock reading.

mod attention;
mod close;
mod receive;
mod send;
#[cfg(test)]
mod tests;

use std::sync::Mutex;

use clock::Clock;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use rustix::event::epoll::EventFlags;
use sockets::NextStep;

pub(crate) use close::reset_on_close;

use crate::{
    Config, Queue, Report,
    answer::Answers,
    connection::{Connection, Phase},
    misbehave::MisbehaviourPicker,
    pages::Pages,
    recording::{Lines, Recorder},
    security::Security,
    timers::{TimerKind, Timers},
};

/// Size of a thread's receive buffer.
const BUFFER_BYTES: usize = 64 * 1024;
/// Reads or writes on one connection before other connections get their turn.
const TURNS: u32 = 8;

/// Read-only data shared by the threads of a target.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shared<'a> {
    pub config: &'a Config,
    pub answers: &'a Answers,
    pub queue: Option<&'a Mutex<Queue>>,
    pub security: Option<&'a Security>,
    pub pages: Option<&'a Pages>,
    pub recorder: Option<&'a Recorder>,
    pub clock: Clock,
}

/// The action that follows a step of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Take the next step now.
    Continue,
    /// Wait for the kernel or a timer.
    Wait,
    /// Close the connection.
    Close,
}

/// The part of a thread that serves connections.
#[derive(Debug)]
pub(crate) struct Engine<'a> {
    shared: Shared<'a>,
    pub report: Report,
    pub timers: Timers,
    /// The time when the clock was last read. Kept up to date only if something depends on it.
    pub now_ns: u64,
    picker: MisbehaviourPicker,
    rng: Pcg64Mcg,
    buffer: Vec<u8>,
    /// Whether the times of answers are measured, because they may be due later than their request.
    pub measured: bool,
    /// Whether every TLS handshake is refused.
    refuses_handshakes: bool,
    /// Lines of the record.
    pub lines: Option<Lines<'a>>,
}

impl<'a> Engine<'a> {
    /// The engine of thread number `thread`.
    pub(crate) fn new(shared: Shared<'a>, thread: u64) -> Self {
        let config = shared.config;
        // Adjacent seeds give unrelated generators, because the seed is hashed.
        let rng =
            Pcg64Mcg::seed_from_u64(config.seed.wrapping_add(thread.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        Self {
            shared,
            report: Report::new(),
            timers: Timers::default(),
            now_ns: 0,
            picker: MisbehaviourPicker::new(&config.misbehave),
            rng,
            buffer: vec![0; BUFFER_BYTES],
            refuses_handshakes: matches!(shared.security, Some(Security::Refuse(_) | Security::Reset)),
            lines: shared.recorder.map(Lines::new),
            measured: !config.delay.is_zero() || config.capacity.is_some() || config.slow_head_ns > 0,
        }
    }

    /// Reads the clock.
    #[inline]
    pub(crate) fn read_clock(&mut self) -> u64 {
        self.now_ns = self.shared.clock.now_ns();
        self.now_ns
    }

    /// Begins to serve an accepted connection.
    pub(crate) fn opened(&mut self, connection: &mut Connection) {
        self.report.connections_accepted += 1;
        self.prepare(connection);
        if let Some(timeout_ns) = self.shared.config.keepalive_timeout_ns {
            let due_ns = connection.active_ns.saturating_add(timeout_ns);
            self.timers.set(due_ns, connection.token, TimerKind::Idle);
        }
    }

    /// Handles an epoll event.
    #[inline]
    pub(crate) fn event(&mut self, connection: &mut Connection, flags: EventFlags) -> NextStep {
        if flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
            connection.readable = true;
        }
        if flags.contains(EventFlags::RDHUP) {
            connection.peer_closed = true;
        }
        let reset = flags.intersects(EventFlags::HUP | EventFlags::ERR);
        match connection.phase {
            Phase::Waiting | Phase::Dribbling | Phase::Writing if reset => {
                self.client_gone(connection);
                NextStep::Close
            }
            Phase::Lingering if reset => NextStep::Close,
            // The client no longer waits for the answer that never comes.
            Phase::Silent if reset || connection.peer_closed => NextStep::Close,
            _ => self.proceed(connection),
        }
    }

    /// Handles a timer of the connection.
    pub(crate) fn timer_due(&mut self, connection: &mut Connection, timer: TimerKind) -> NextStep {
        let step = match (timer, connection.phase) {
            (TimerKind::Answer, Phase::Waiting) => self.perform_action(connection),
            (TimerKind::Answer, Phase::Dribbling) => self.dribble(connection),
            (TimerKind::Linger, Phase::Lingering) => Step::Close,
            (TimerKind::Idle, _) => self.check_idle(connection),
            _ => return NextStep::Wait,
        };
        if step == Step::Close { NextStep::Close } else { self.proceed(connection) }
    }

    /// Serves the connection as far as possible without waiting.
    #[inline]
    pub(crate) fn proceed(&mut self, connection: &mut Connection) -> NextStep {
        for _ in 0..TURNS {
            let step = match connection.phase {
                Phase::Reading if self.refuses_handshakes => self.refuse_handshake(connection),
                Phase::Reading => self.read(connection),
                Phase::Writing => self.write(connection),
                Phase::Lingering => self.discard_input(connection),
                Phase::Waiting | Phase::Dribbling | Phase::Silent => Step::Wait,
            };
            match step {
                Step::Continue => {}
                Step::Wait => return NextStep::Wait,
                Step::Close => return NextStep::Close,
            }
        }
        NextStep::Continue
    }
}
