//! Divides the users' time: the states that the generator saw, and what the target's threads did while requests were in it.
//!
//! Of the time of waiting, round trips and the accept queue are taken off. The rest is the time of requests inside. Those that a program had
//! passed on, and that had no answer yet, are in the programs that it asked. Of the other N, which is their mean number, the time divides as
//! that of the threads that worked, of which no more than N can have worked for them. What these threads slept is *asleep*. Docs:
//! `docs/verdict.md`.

use std::collections::{BTreeMap, BTreeSet};

use record::{TimePart, TimeState, WorkingThreads};

use crate::{
    Observed,
    account::Account,
    rules::{DEEPEST, Process, asked_programs, mean_waiting, programs_at},
};

/// If threads and children that ended took at least this part of a program's processor time, its sleep was not seen.
const ENDED_SHARE: f64 = 0.2;
/// A process whose threads ran less than this part of what the busiest ones of its group ran does not serve the same requests.
const SERVING_SHARE: f64 = 0.2;
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
/// Parts that need no mention.
const LITTLE: f64 = 0.005;

/// The parts of the users' time; empty if the trial has no account.
pub(crate) fn account(observed: &Observed<'_>) -> Vec<TimePart> {
    let (Some(account), Some(http)) = (Account::of(observed), observed.trial.http()) else {
        return Vec::new();
    };
    let time = &http.users_time;
    let elapsed_s = observed.counters.elapsed_s.max(f64::MIN_POSITIVE);
    let in_queue = account.share(mean_waiting(observed) * elapsed_s);
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
    let group = Group { observed, asked: BTreeSet::new(), processes: asked_programs(observed) };
    group.divide(&mut parts, (inside, requests), 1);
    parts.all()
}

/// Whether the requests inside slept for most of their time.
pub(crate) fn mostly_asleep(observed: &Observed<'_>) -> bool {
    let of = |is_it: &dyn Fn(TimeState) -> bool| -> f64 {
        account(observed).iter().filter(|part| is_it(part.state)).map(|part| part.share).sum()
    };
    let inside = of(&|state| INSIDE.contains(&state));
    inside > 0.0 && of(&|state| state == TimeState::Asleep) >= inside / 2.0
}

#[derive(Default)]
struct Parts(BTreeMap<(TimeState, String, String), f64>);

impl Parts {
    fn add(&mut self, state: TimeState, (place, program): (&str, &str), share: f64) {
        *self.0.entry((state, place.to_owned(), program.to_owned())).or_default() += share;
    }

    /// The longest first.
    fn all(self) -> Vec<TimePart> {
        let part = |((state, place, program), share)| TimePart { state, program, place, share };
        let mut all: Vec<_> = self.0.into_iter().filter(|(_, share)| *share >= LITTLE).map(part).collect();
        all.sort_by(|a, b| b.share.total_cmp(&a.share));
        all
    }
}

/// The processes that serve the same requests.
struct Group<'a> {
    observed: &'a Observed<'a>,
    /// The addresses that were asked on the way to it.
    asked: BTreeSet<&'a str>,
    processes: Vec<Process<'a>>,
}

/// What the threads of a group did, as mean numbers of threads.
#[derive(Debug, Default)]
struct Threads {
    all: f64,
    running: f64,
    ready: f64,
    blocked: f64,
    throttled: f64,
    stopped: f64,
    ended: f64,
}

impl<'a> Group<'a> {
    /// Adds the parts of requests that are inside: their share of the users' time, and how many they are on average.
    fn divide(&self, parts: &mut Parts, (share, requests): (f64, f64), depth: usize) {
        let busiest = self.processes.iter().max_by(|a, b| a.1.running_s.total_cmp(&b.1.running_s));
        let at = busiest.map_or(("", ""), |(host, program)| (host.host.as_str(), program.name.as_str()));
        if requests <= 0.0 {
            return;
        }
        let asked = self.asked_by_address();
        let all: f64 = asked.values().sum();
        let passed_on = if depth < DEEPEST { all.min(requests) } else { 0.0 };
        for (address, number) in asked {
            let number = passed_on * number / all;
            let (share, behind) = (share * number / requests, self.behind(address));
            match behind.processes.is_empty() {
                true => parts.add(TimeState::Unknown, ("", address), share),
                false => behind.divide(parts, (share, number), depth + 1),
            }
        }
        let (share, requests) = (share * (requests - passed_on) / requests, requests - passed_on);
        if requests > 0.0 {
            self.threads().divide(parts, (share, requests), at);
        }
    }

    fn threads(&self) -> Threads {
        let mut all = Threads::default();
        // A thread that hardly ran beside the others of the group did not serve these requests.
        let mean_s = |working: &WorkingThreads| working.running_s / f64::from(working.count.max(1));
        let most_s = self.processes.iter().filter_map(|(_, program)| program.working.as_ref().map(mean_s));
        let least_s = SERVING_SHARE * most_s.fold(0.0, f64::max);
        for (host, program) in &self.processes {
            let elapsed_s = self.observed.counters.elapsed_s_at(&host.host);
            all.ended += program.ended_s / elapsed_s;
            let Some(working) = program.working.filter(|working| mean_s(working) >= least_s) else {
                continue;
            };
            let number = f64::from(working.count);
            let throttled = host.stopped_share(elapsed_s).or(program.stopped_share(elapsed_s)).unwrap_or(0.0);
            let stopped = f64::from(program.samples_stopped) / f64::from(program.samples.max(1));
            all.all += number;
            all.running += working.running_s / elapsed_s;
            all.throttled += throttled * number;
            // Before Linux 6.18, a throttled thread also counts as one that waits for a processor.
            all.ready += (working.waiting_s / elapsed_s - throttled * number).max(0.0);
            all.blocked += working.blocked_s / elapsed_s;
            all.stopped += stopped * number;
        }
        all
    }

    /// The addresses that it asked, each with how many requests had no answer on average, without those that were asked on the way.
    fn asked_by_address(&self) -> BTreeMap<&'a str, f64> {
        let mut asked = BTreeMap::new();
        for (address, requests) in self.processes.iter().flat_map(|(_, program)| &program.asked) {
            if !self.asked.contains(address.as_str()) {
                *asked.entry(address.as_str()).or_default() += requests;
            }
        }
        asked
    }

    /// The processes behind an address that it asked.
    fn behind(&self, address: &'a str) -> Self {
        let mut asked = self.asked.clone();
        asked.insert(address);
        let hosts: BTreeSet<&str> = self.processes.iter().map(|(host, _)| host.host.as_str()).collect();
        Self { observed: self.observed, asked, processes: programs_at(self.observed, address, &hosts) }
    }
}

impl Threads {
    /// Adds the parts of requests that these threads held.
    fn divide(&self, parts: &mut Parts, (share, requests): (f64, f64), at: (&str, &str)) {
        if self.all + self.ended == 0.0 {
            return parts.add(TimeState::Unknown, at, share);
        }
        let is_unseen = self.ended >= ENDED_SHARE * (self.running + self.ended);
        let serving = if is_unseen { requests } else { requests.min(self.all) };
        let busy = self.running + self.ready + self.blocked + self.throttled + self.stopped + self.ended;
        for (state, number) in [
            (TimeState::Running, self.running + self.ended),
            (TimeState::Ready, self.ready),
            (TimeState::Blocked, self.blocked),
            (TimeState::Throttled, self.throttled),
            (TimeState::Stopped, self.stopped),
            (if is_unseen { TimeState::Unknown } else { TimeState::Asleep }, (serving - busy).max(0.0)),
        ] {
            parts.add(state, at, share * number / serving.max(busy));
        }
    }
}
