//! The controller's side of one agent: the connection to it, and what is known about it.

use std::{collections::BTreeMap, thread};

use clock::monotonic_ns;
use load::MachineLimits;

use crate::{
    clock_offset::ClockOffset,
    connection::Connection,
    machine::Machine,
    protocol::{FromMember, Numbered, ToMember},
};

/// How long a machine may send after its controller was last heard, in nanoseconds.
pub(crate) const LEASE_NS: u64 = 5_000_000_000;

/// A machine and what is known about its agent.
#[derive(Debug)]
pub(crate) struct RemoteAgent {
    pub(crate) machine: Machine,
    pub(crate) weight: u64,
    pub(crate) has_own_weight: bool,
    pub(crate) link: Option<Link>,
    /// Why there is no link.
    pub(crate) lost: Option<String>,
    pub(crate) limits: MachineLimits,
    /// From this machine's CLOCK_MONOTONIC to the agent's.
    pub(crate) clock: ClockOffset,
    /// From this machine's CLOCK_MONOTONIC to the agent's CLOCK_BOOTTIME.
    pub(crate) boot_clock: ClockOffset,
}

/// A connection to an agent.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) connection: Connection,
    /// Distinguishes this connection from earlier ones to the same machine.
    pub(crate) number: u64,
    /// When each unanswered question for the time was asked, by its number.
    pub(crate) asked: BTreeMap<u64, u64>,
    pub(crate) next_question: u64,
    pub(crate) heard_ns: u64,
    pub(crate) has_said_hello: bool,
    /// Whether the agent has the files of the trial.
    pub(crate) has_files: bool,
}

/// A line of an agent, or the end of its connection.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) agent: usize,
    pub(crate) link: u64,
    pub(crate) at_ns: u64,
    pub(crate) message: Option<Numbered<FromMember>>,
}

impl RemoteAgent {
    /// A machine that is not connected yet. Its weight follows from its processors if none is given.
    pub(crate) fn new(machine: Machine, weight: Option<u64>) -> Self {
        Self {
            weight: weight.unwrap_or(1),
            has_own_weight: weight.is_some(),
            machine,
            link: None,
            lost: None,
            limits: MachineLimits::EXAMPLE,
            clock: ClockOffset::default(),
            boot_clock: ClockOffset::default(),
        }
    }

    /// Sends a message, if the agent is connected.
    pub(crate) fn send(&mut self, trial: u64, message: ToMember) {
        if let Some(link) = &self.link {
            link.connection.send(trial, message);
        }
    }

    /// Asks the agent for its time.
    pub(crate) fn ask_for_time(&mut self, trial: u64) {
        let Some(link) = &mut self.link else { return };
        let number = link.next_question;
        link.next_question += 1;
        link.asked.insert(number, monotonic_ns());
        self.send(trial, ToMember::Clock { number });
    }

    /// The end of a lease that is given now, on the agent's CLOCK_BOOTTIME.
    pub(crate) fn lease_until_ns(&self) -> u64 {
        let now_ns = monotonic_ns();
        let there_ns = self.boot_clock.there_ns(now_ns).unwrap_or(0);
        there_ns.saturating_add(LEASE_NS).saturating_sub(self.boot_clock.bound_ns(now_ns).unwrap_or(0))
    }

    /// Ends the connection; keeps the reason.
    pub(crate) fn is_lost(&mut self, why: String) {
        // Ending `ssh` may take a moment, during which the leases of other machines have to be extended.
        let link = self.link.take();
        let _ = thread::Builder::new().spawn(move || drop(link));
        self.lost = Some(why);
    }
}
