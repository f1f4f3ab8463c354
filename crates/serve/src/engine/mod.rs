//! Serves connections: reads requests and sends answers, correct or deliberately wrong.
//!
//! A connection's next request is parsed only after the previous one has been answered. Most requests take two system
//! calls, no allocation and no reading of the clock.

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

/// Size of a thread's receive buffer in bytes.
const BUFFER_BYTES: usize = 64 * 1024;
/// Maximum steps of one connection before other connections get their turn.
const TURNS: u32 = 8;

/// Read-only data that the threads of a target share.
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

/// What to do after a step of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Take the next step immediately.
    Continue,
    /// Wait for the kernel or a timer.
    Wait,
    Close,
}

/// Serves the connections of a thread.
#[derive(Debug)]
pub(crate) struct Engine<'a> {
    shared: Shared<'a>,
    pub report: Report,
    pub timers: Timers,
    /// The time of the last clock reading. Updated only if something depends on it.
    pub now_ns: u64,
    picker: MisbehaviourPicker,
    rng: Pcg64Mcg,
    buffer: Vec<u8>,
    /// Whether the times of answers are measured. Needed only if answers can be due later than their requests.
    pub measured: bool,
    /// Whether every TLS handshake is refused.
    refuses_handshakes: bool,
    /// This thread's lines for the record of requests; `None` without a record.
    pub lines: Option<Lines<'a>>,
}

impl<'a> Engine<'a> {
    /// Creates the engine of thread number `thread`.
    pub(crate) fn new(shared: Shared<'a>, thread: u64) -> Self {
        let config = shared.config;
        // Threads use adjacent seeds. Seeding hashes them, so the generators are unrelated.
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

    #[inline]
    pub(crate) fn read_clock(&mut self) -> u64 {
        self.now_ns = self.shared.clock.now_ns();
        self.now_ns
    }

    /// Counts and prepares an accepted connection.
    pub(crate) fn opened(&mut self, connection: &mut Connection) {
        self.report.connections_accepted += 1;
        self.prepare(connection);
        if let Some(timeout_ns) = self.shared.config.keepalive_timeout_ns {
            let due_ns = connection.active_ns.saturating_add(timeout_ns);
            self.timers.set(due_ns, connection.token, TimerKind::Idle);
        }
    }

    /// Updates a connection's state after an epoll event, and serves the connection.
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
            // The client has stopped waiting for the answer that it would never get.
            Phase::Silent if reset || connection.peer_closed => NextStep::Close,
            _ => self.proceed(connection),
        }
    }

    /// Continues a connection when one of its timers is due.
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

    /// Takes steps until the connection must wait or has used its turns.
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
