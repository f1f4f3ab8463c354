//! What happens on one connection: requests in, answers (or misbehaviour) out.
//!
//! Requests of a connection are taken one after the other: the next is looked at when the last is answered.
//! In the plain case that is two system calls a request, no allocation and no look at the clock.

mod close;
mod receive;
mod send;

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
    misbehave::Draw,
    timers::{Alarm, Timers},
};

/// The receive buffer of a thread.
const BUFFER_BYTES: usize = 64 * 1024;
/// Reads or writes on one connection before others get their turn.
const TURNS: u32 = 8;

/// What the threads of a target share for reading.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shared<'a> {
    pub config: &'a Config,
    pub answers: &'a Answers,
    pub queue: Option<&'a Mutex<Queue>>,
    pub clock: Clock,
}

/// What to do after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The next step.
    On,
    /// Nothing until the kernel or a timer says so.
    Wait,
    /// The connection is over.
    Gone,
}

/// The part of a thread that serves connections.
#[derive(Debug)]
pub(crate) struct Engine<'a> {
    shared: Shared<'a>,
    pub report: Report,
    pub timers: Timers,
    /// The time as last looked at. Only kept up to date where something depends on it.
    pub now_ns: u64,
    draw: Draw,
    rng: Pcg64Mcg,
    buffer: Vec<u8>,
    /// Answers have a time of their own: when they are due is known and how late they are is measured.
    measured: bool,
}

impl<'a> Engine<'a> {
    /// The part of thread number `thread`.
    pub(crate) fn new(shared: Shared<'a>, thread: u64) -> Self {
        let config = shared.config;
        // Seeds that follow each other make unrelated generators: the seed is hashed.
        let rng =
            Pcg64Mcg::seed_from_u64(config.seed.wrapping_add(thread.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        Self {
            shared,
            report: Report::new(),
            timers: Timers::default(),
            now_ns: 0,
            draw: Draw::new(&config.misbehave),
            rng,
            buffer: vec![0; BUFFER_BYTES],
            measured: !config.delay.is_zero() || config.capacity.is_some() || config.slow_head_ns > 0,
        }
    }

    /// Looks at the clock.
    #[inline]
    pub(crate) fn look_at_clock(&mut self) -> u64 {
        self.now_ns = self.shared.clock.now_ns();
        self.now_ns
    }

    /// Whether answers have a time of their own.
    pub(crate) fn measures(&self) -> bool {
        self.measured
    }

    /// A connection was accepted.
    pub(crate) fn opened(&mut self, connection: &Connection) {
        self.report.connections_accepted += 1;
        if let Some(timeout_ns) = self.shared.config.keepalive_timeout_ns {
            let due_ns = connection.active_ns.saturating_add(timeout_ns);
            self.timers.set(due_ns, connection.token, Alarm::Idle);
        }
    }

    /// The kernel says that something happened.
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
                self.lost(connection);
                NextStep::Close
            }
            Phase::Lingering if reset => NextStep::Close,
            // Nobody waits for the answer that never comes.
            Phase::Silent if reset || connection.peer_closed => NextStep::Close,
            _ => self.proceed(connection),
        }
    }

    /// A timer of the connection went off.
    pub(crate) fn alarm(&mut self, connection: &mut Connection, alarm: Alarm) -> NextStep {
        let step = match (alarm, connection.phase) {
            (Alarm::Answer, Phase::Waiting) => self.perform(connection),
            (Alarm::Answer, Phase::Dribbling) => self.dribble(connection),
            (Alarm::Linger, Phase::Lingering) => Step::Gone,
            (Alarm::Idle, _) => self.idle(connection),
            _ => return NextStep::Wait,
        };
        if step == Step::Gone { NextStep::Close } else { self.proceed(connection) }
    }

    /// Does what can be done now.
    #[inline]
    pub(crate) fn proceed(&mut self, connection: &mut Connection) -> NextStep {
        for _ in 0..TURNS {
            let step = match connection.phase {
                Phase::Reading => self.read(connection),
                Phase::Writing => self.write(connection),
                Phase::Lingering => self.drain(connection),
                Phase::Waiting | Phase::Dribbling | Phase::Silent => Step::Wait,
            };
            match step {
                Step::On => {}
                Step::Wait => return NextStep::Wait,
                Step::Gone => return NextStep::Close,
            }
        }
        NextStep::Continue
    }
}
