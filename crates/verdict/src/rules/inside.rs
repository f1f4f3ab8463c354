//! Divides the users' time: the states that the generator saw, and what the target's threads did while requests were in it.
//!
//! Of the time of waiting, round trips and the accept queue are taken off. The rest is the time of requests inside. Those that a program had
//! passed on, and that had no answer yet, are in the programs that it asked. Of the other N, which is their mean number, the time divides as
//! that of the threads that worked, of which no more than N can have worked for them. What these threads slept is *asleep*. Docs:
//! `docs/verdict.md`.

use std::collections::{BTreeMap, BTreeSet};

use record::{TimePart, TimeState};

use super::{
    programs::{DEEPEST, Process, asked_programs, id, programs_at},
    target::mean_waiting,
};
use crate::{Observed, account::Account};

/// If threads and children that ended took at least this part of a program's processor time, its sleep was not seen.
const ENDED_SHARE: f64 = 0.2;
/// The time inside of the target: these states add up to it.
pub(crate) const INSIDE: [TimeState; 7] = [
    TimeState::Running,
    TimeState::Ready,
    TimeState::Throttled,
    TimeState::Blocked,
    TimeState::Stopped,
    TimeState::Asleep,
    TimeState::Unknown,
];
/// Smaller parts are left out.
const MENTIONED: f64 = 0.000_5;
/// Parts that need no program of their own.
const LITTLE: f64 = 0.005;

/// The parts of the users' time; empty if the trial has no account.
pub(crate) fn parts(observed: &Observed<'_>) -> Vec<TimePart> {
    let (Some(account), Some(http)) = (Account::of(observed), observed.trial.http()) else {
        return Vec::new();
    };
    let time = &http.users_time;
    let elapsed_s = observed.counters.elapsed_s.max(f64::MIN_POSITIVE);
    let in_queue = account.share(mean_waiting(observed, true) * elapsed_s);
    let waiting = account.share(time.waiting_s);
    let round_trips = account.round_trips();
    let in_queue = in_queue.min(waiting - round_trips);
    let mut parts = Parts::default();
    for (state, share) in [
        (TimeState::Paused, account.paused()),
        (TimeState::Own, account.share(time.own_s)),
        (TimeState::NoFreeConnection, account.share(time.no_free_connection_s)),
        (TimeState::Connecting, account.share(time.connecting_s)),
        (TimeState::Sending, account.share(time.sending_s)),
        (TimeState::RoundTrips, round_trips),
        (TimeState::AcceptQueue, in_queue),
        (TimeState::Receiving, account.share(time.receiving_s)),
    ] {
        parts.add(state, ("", ""), share);
    }
    let inside = waiting - round_trips - in_queue;
    let requests = inside * time.total_s() / elapsed_s;
    let group = Group::new(observed, asked_programs(observed), &BTreeSet::new());
    group.divide(&mut parts, (inside, requests), 0);
    parts.all()
}

/// Whether the requests inside slept for most of their time.
pub(super) fn is_asleep(observed: &Observed<'_>) -> bool {
    let parts = parts(observed);
    let of = |states: &[TimeState]| -> f64 {
        parts.iter().filter(|part| states.contains(&part.state)).map(|part| part.share).sum()
    };
    let inside = of(&INSIDE);
    inside > 0.0 && of(&[TimeState::Asleep]) >= inside / 2.0
}

#[derive(Default)]
struct Parts(BTreeMap<(TimeState, String, String), f64>);

impl Parts {
    fn add(&mut self, state: TimeState, (place, program): (&str, &str), share: f64) {
        *self.0.entry((state, place.to_owned(), program.to_owned())).or_default() += share;
    }

    /// The longest first. Little ones of the same state are one.
    fn all(self) -> Vec<TimePart> {
        let mut parts = Self::default();
        for ((state, place, program), share) in self.0 {
            let at = if share >= LITTLE { (&*place, &*program) } else { ("", "") };
            parts.add(state, at, share);
        }
        let part = |((state, place, program), share)| TimePart { state, program, place, share };
        let mut all: Vec<_> =
            parts.0.into_iter().filter(|(_, share)| *share >= MENTIONED).map(part).collect();
        all.sort_by(|a, b| b.share.total_cmp(&a.share));
        all
    }
}

/// The processes that serve the same requests.
struct Group<'a> {
    observed: &'a Observed<'a>,
    processes: Vec<Process<'a>>,
    /// The processes that the requests passed on the way, and these.
    passed: BTreeSet<(&'a str, u32)>,
}

/// The requests that a group has sent to an address and that have no answer, as a mean number.
struct Asked<'a> {
    address: &'a str,
    requests: f64,
    processes: Vec<Process<'a>>,
}

impl<'a> Group<'a> {
    fn new(
        observed: &'a Observed<'a>,
        processes: Vec<Process<'a>>,
        passed: &BTreeSet<(&'a str, u32)>,
    ) -> Self {
        let passed = passed.iter().copied().chain(processes.iter().map(id)).collect();
        Self { observed, processes, passed }
    }

    /// Adds the parts of requests that are inside: their share of the users' time, and how many they are on average.
    fn divide(&self, parts: &mut Parts, (share, requests): (f64, f64), depth: usize) {
        if requests <= 0.0 {
            return;
        }
        let busiest = self.processes.iter().max_by(|a, b| a.1.running_s.total_cmp(&b.1.running_s));
        let at = busiest.map_or(("", ""), |(host, program)| (&*host.host, &*program.name));
        let asked = if depth < DEEPEST { self.asked() } else { Vec::new() };
        let all: f64 = asked.iter().map(|asked| asked.requests).sum();
        let passed_on = all.min(requests);
        for Asked { address, requests: number, processes } in asked {
            let number = passed_on * number / all;
            let share = share * number / requests;
            match processes.is_empty() {
                true => parts.add(TimeState::Unknown, ("", address), share),
                false => {
                    let behind = Group::new(self.observed, processes, &self.passed);
                    behind.divide(parts, (share, number), depth + 1);
                }
            }
        }
        let own = requests - passed_on;
        if own > 0.0 {
            self.threads().divide(parts, (share * own / requests, own), at);
        }
    }

    fn threads(&self) -> Threads {
        let mut all = Threads::default();
        for (host, program) in &self.processes {
            let elapsed_s = self.observed.counters.elapsed_s_at(&host.host);
            all.is_cut |= host.is_cut;
            all.ended += program.ended_s / elapsed_s;
            let Some(working) = program.working else { continue };
            let number = f64::from(working.count);
            let throttled = host.stopped_share(elapsed_s).or(program.stopped_share(elapsed_s)).unwrap_or(0.0);
            let stopped = f64::from(program.samples_stopped) / f64::from(program.samples.max(1));
            all.number += number;
            all.running += working.running_s / elapsed_s;
            all.ready += working.waiting_s / elapsed_s;
            all.blocked += working.blocked_s / elapsed_s;
            all.throttled += throttled * number;
            all.stopped += stopped * number;
        }
        all
    }

    /// What it asked. Addresses that lead to the same processes are one, and nobody asks those whom the requests passed before.
    fn asked(&self) -> Vec<Asked<'a>> {
        let mut all: Vec<Asked<'_>> = Vec::new();
        for (host, program) in &self.processes {
            for (address, requests) in &program.asked {
                let processes = programs_at(self.observed, address, &host.host);
                let is_same = |asked: &&mut Asked<'_>| match processes.is_empty() {
                    true => asked.address == address,
                    false => asked.processes.iter().map(id).eq(processes.iter().map(id)),
                };
                match all.iter_mut().find(is_same) {
                    Some(asked) => asked.requests += requests,
                    None if processes.iter().any(|process| self.passed.contains(&id(process))) => {}
                    None => all.push(Asked { address, requests: *requests, processes }),
                }
            }
        }
        all
    }
}

/// What the threads of a group did, as mean numbers of threads.
#[derive(Debug, Default)]
struct Threads {
    number: f64,
    running: f64,
    ready: f64,
    blocked: f64,
    throttled: f64,
    stopped: f64,
    ended: f64,
    /// Whether not all connections could be seen, so that nobody knows what was asked.
    is_cut: bool,
}

impl Threads {
    /// Adds the parts of requests that these threads held.
    fn divide(&self, parts: &mut Parts, (share, requests): (f64, f64), at: (&str, &str)) {
        if self.number + self.ended == 0.0 {
            return parts.add(TimeState::Unknown, at, share);
        }
        let is_unseen = self.ended > 0.0 && self.ended >= ENDED_SHARE * (self.running + self.ended);
        let serving = if is_unseen { requests } else { requests.min(self.number) };
        // Threads that end with the load were seen last a moment before: they went on as before.
        let seen = if is_unseen || self.running == 0.0 { 1.0 } else { 1.0 + self.ended / self.running };
        // A quota or a signal stops all at once, those who serve no request as well.
        let of_serving = |number: f64| number / self.number.max(1.0) * serving;
        let (throttled, stopped) = (of_serving(self.throttled), of_serving(self.stopped));
        // Before Linux 6.18, a throttled thread also counts as one that waits for a processor.
        let ready = (self.ready * seen - throttled).max(0.0);
        let (running, blocked) = (self.running + self.ended, self.blocked * seen);
        let busy = running + ready + blocked + throttled + stopped;
        let rest = if is_unseen || self.is_cut { TimeState::Unknown } else { TimeState::Asleep };
        for (state, number) in [
            (TimeState::Running, running),
            (TimeState::Ready, ready),
            (TimeState::Blocked, blocked),
            (TimeState::Throttled, throttled),
            (TimeState::Stopped, stopped),
            (rest, (serving - busy).max(0.0)),
        ] {
            parts.add(state, at, share * number / serving.max(busy));
        }
    }
}
