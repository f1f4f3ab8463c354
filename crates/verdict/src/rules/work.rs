//! The processor time that the targets' processes used, and the time that they could have used.

use std::collections::{BTreeMap, BTreeSet};

use record::{Cause, WorkingThreads, units::parse_cpus};

use super::{
    FULL_CORE_SHARE, percent,
    programs::{Process, asked_programs, id, path},
    share_at, target_programs, throttled_share,
};
use crate::Observed;

/// If a thread works for at least this share of the trial, it has no time left. The same holds for all threads on their processors.
const HOT_SHARE: f64 = 0.9;
/// A program that works or waits for a processor for less than this share of the trial has time to spare.
const IDLE_SHARE: f64 = 0.5;
/// A smaller share needs no mention.
const NOTEWORTHY_SHARE: f64 = 0.1;

/// The work of those processes of a target that share the same processors; times are shares of the trial.
#[derive(Debug, Clone)]
pub(super) struct Work<'a> {
    pub(super) host: &'a str,
    /// The process that worked most, or the one with the busiest thread.
    pub(super) program: &'a str,
    /// Whether this process listens.
    pub(super) is_server: bool,
    /// Whether requests were seen in this process.
    is_on_path: bool,
    /// The work of its busiest thread, if known.
    thread: Option<f64>,
    /// The work of that thread, or of the whole process if the thread's is unknown.
    most: f64,
    /// The work of all threads of the process that worked most.
    process: f64,
    /// The work of all threads of all processes, which may be more than 1.
    together: f64,
    /// The longest time for which the busiest thread of a process waited for a processor, without the time that a quota took.
    waited: f64,
    /// The processors that they share, if known, and their number.
    cpus: Option<&'a str>,
    processors: Option<usize>,
    /// Whether a thread ran as much before the load as in it. Its time is left out, because it does not work for the load.
    ran_before: bool,
    /// Whether it is unknown how long threads waited for a processor, although their processors had no time.
    may_wait: bool,
    /// Whether their processors are known to have had time.
    has_idle: bool,
}

/// How the time of a target's processors was divided, as shares.
pub(super) struct Processors {
    idle: f64,
    /// The generator's.
    pub(super) generator: f64,
    /// Programs' that are neither the target's nor the generator.
    pub(super) others: f64,
}

impl Processors {
    /// Whether no time was left.
    pub(super) fn is_full(&self) -> bool {
        self.idle <= 1.0 - FULL_CORE_SHARE
    }
}

impl Work<'_> {
    /// Whether the busiest thread, or all threads on their processors, had no time left.
    pub(super) fn is_hot(&self) -> bool {
        self.fullness() >= HOT_SHARE
    }

    /// Whether other programs used the processors for so long that the target had no time left.
    pub(super) fn lacks_processors(&self) -> bool {
        self.waited >= IDLE_SHARE
            || !self.has_idle && self.waits() && self.fullness() + self.waited >= HOT_SHARE
    }

    /// Whether neither a process nor all processes on their processors worked or waited for a processor all the time.
    pub(super) fn has_some_time(&self) -> bool {
        !self.is_hot()
            && !self.lacks_processors()
            && (self.has_idle || self.process + self.waited < HOT_SHARE)
    }

    /// Whether it waited for a processor for a time that matters, or nobody knows.
    pub(super) fn waits(&self) -> bool {
        self.waited >= NOTEWORTHY_SHARE || self.may_wait
    }

    fn fullness(&self) -> f64 {
        self.thread.unwrap_or(0.0).max(self.of_processors())
    }

    /// The share of their processors' time that all threads worked.
    fn of_processors(&self) -> f64 {
        self.processors.map_or(0.0, |number| self.together / number as f64)
    }

    pub(super) fn in_words(&self) -> String {
        let together = percent(self.together);
        let mut words = match self.thread {
            Some(thread) => {
                format!("the busiest thread of {} was {} busy", self.program, percent(thread))
            }
            None => {
                format!("{} and the programs on its processors worked {together} of the time", self.program)
            }
        };
        if self.thread.is_some_and(|thread| self.together >= thread + NOTEWORTHY_SHARE) {
            words += &format!(" (all processes of the target {together})");
        }
        if self.waited >= NOTEWORTHY_SHARE {
            words += &format!(" and waited {} of the time for a processor", percent(self.waited));
        }
        if self.ran_before {
            words += " (without a thread that ran as much before the load)";
        }
        words
    }
}

/// The work of the targets' processes, by host and shared processors.
fn works<'a>(observed: &'a Observed<'_>) -> BTreeMap<(&'a str, Option<&'a str>), Work<'a>> {
    let mut works = BTreeMap::new();
    let path = path(observed);
    for (host, program) in target_programs(observed) {
        let share = |time_s| share_at(observed, &host.host, time_s);
        let (mut thread, mut running) = (program.busiest_thread_s.map(share), share(program.running_s));
        let ran_before = thread
            .zip(program.busy_before_share)
            .is_some_and(|(thread, before)| WorkingThreads::ran_before(before, thread));
        if ran_before {
            running -= thread.replace(0.0).unwrap_or(0.0);
        }
        let machine = host.machine.as_ref().unwrap_or(&observed.counters.machine);
        let online = machine.online_cpus();
        // A virtual machine may allow processors that it does not have.
        let has = |core: &u32| online.is_empty() || online.contains(core);
        let processors = program
            .cpus
            .as_deref()
            .and_then(|list| Some(parse_cpus(list).ok()?.into_iter().filter(has).count()))
            .or((!online.is_empty()).then_some(online.len()));
        let key = (host.host.as_str(), program.cpus.as_deref());
        // Threads that ended may have waited.
        let is_unknown = program.busiest_thread_waiting_s.is_none() && running >= NOTEWORTHY_SHARE;
        let none = Work {
            host: &host.host,
            program: "",
            is_server: false,
            is_on_path: false,
            thread: None,
            most: -1.0,
            process: 0.0,
            together: 0.0,
            waited: 0.0,
            cpus: program.cpus.as_deref(),
            processors,
            ran_before: false,
            may_wait: false,
            has_idle: false,
        };
        let work = works.entry(key).or_insert(none);
        let elapsed_s = observed.counters.elapsed_s_at(&host.host);
        let stopped = host.stopped_share(elapsed_s).or(program.stopped_share(elapsed_s)).unwrap_or(0.0);
        let waited = if ran_before { 0.0 } else { share(program.busiest_thread_waiting_s.unwrap_or(0.0)) };
        work.waited = work.waited.max(waited - stopped);
        work.may_wait |= is_unknown;
        work.ran_before |= ran_before;
        work.process = work.process.max(running);
        work.together += running;
        let most = thread.unwrap_or(running);
        if most > work.most {
            (work.most, work.thread, work.program) = (most, thread, &program.name);
            work.is_server = !program.listens.is_empty();
            work.is_on_path = path.contains(&id(&(host, program)));
        }
    }
    for work in works.values_mut() {
        let is_full = processors_of(observed, work).map(|processors| processors.is_full());
        work.may_wait &= is_full == Some(true);
        work.has_idle = is_full == Some(false);
    }
    works
}

/// How the processors that a target may use were used; none if they are unknown.
pub(super) fn processors_of(observed: &Observed<'_>, work: &Work<'_>) -> Option<Processors> {
    let is_it = |(host, program): &Process<'_>| {
        (&*host.host, &*program.name, program.cpus.as_deref()) == (work.host, work.program, work.cpus)
    };
    let (host, program) = target_programs(observed).into_iter().find(is_it)?;
    let machine = host.machine.as_ref().unwrap_or(&observed.counters.machine);
    let online = machine.online_cpus();
    let allowed: BTreeSet<u32> = match &program.cpus {
        Some(list) => parse_cpus(list).ok()?.into_iter().filter(|core| online.contains(core)).collect(),
        None => online,
    };
    let all_s = allowed.len() as f64 * observed.counters.elapsed_s_at(&host.host);
    if allowed.is_empty() {
        return None;
    }
    let share = |s: f64| (s / all_s).clamp(0.0, 1.0);
    let idle = share(["idle", "steal"].map(|way| machine.processors_s(&allowed, way)).iter().sum());
    let own = observed.trial.http().filter(|_| host.machine.is_none());
    let generator = share(own.map_or(0.0, |http| http.cpu.user_s + http.cpu.system_s));
    let target = share(work.together * observed.counters.elapsed_s_at(&host.host));
    Some(Processors { idle, generator, others: (1.0 - idle - generator - target).max(0.0) })
}

/// Whether the requests were in the busiest program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestsAt<'a> {
    /// They were not seen there.
    Elsewhere,
    /// They were in this program, the host first. It receives them itself.
    Program(&'a str, &'a str),
    /// They were in it, and its threads together filled their processors, so that those who slept waited for those who ran.
    Turns(&'a str, &'a str),
    /// Other programs asked it, and waited for it.
    Behind,
}

/// The share of the trial for which the busiest target worked, or waited for a processor, and whether the requests were there.
pub(crate) fn busy_share<'a>(observed: &'a Observed<'_>, cause: Cause) -> (f64, RequestsAt<'a>) {
    let Some(work) = busiest_target(observed) else { return (1.0, RequestsAt::Elsewhere) };
    let share = match cause {
        Cause::LacksProcessor if work.may_wait => {
            processors_of(observed, &work).map_or(work.waited, |processors| processors.others)
        }
        Cause::LacksProcessor => work.waited,
        // A core that is busy with the network's interrupts is not the program's work.
        _ if !work.is_hot() => return (1.0, RequestsAt::Elsewhere),
        _ => work.fullness(),
    };
    let is_receiver = asked_programs(observed)
        .iter()
        .any(|(host, one)| (&*host.host, &*one.name) == (work.host, work.program));
    let takes_turns = work.of_processors() >= HOT_SHARE && work.thread.unwrap_or(0.0) < work.together / 2.0;
    let at = match (work.is_on_path, is_receiver) {
        (false, _) => RequestsAt::Elsewhere,
        (true, false) => RequestsAt::Behind,
        (true, true) if takes_turns => RequestsAt::Turns(work.host, work.program),
        (true, true) => RequestsAt::Program(work.host, work.program),
    };
    (share, at)
}

/// The group of target processes that had the least time left; none if proofload saw no process.
pub(super) fn busiest_target<'a>(observed: &'a Observed<'_>) -> Option<Work<'a>> {
    let load = |work: &Work<'_>| (work.fullness() / HOT_SHARE).max(work.waited / IDLE_SHARE).max(0.0);
    works(observed)
        .into_values()
        .max_by(|a, b| (load(a), a.most).partial_cmp(&(load(b), b.most)).expect("numbers"))
}

/// Requests under way on average; 1 if there are none.
pub(super) fn in_flight(observed: &Observed<'_>) -> f64 {
    observed.trial.http().map_or(1.0, |http| {
        let users = &http.users_time;
        let s = users.sending_s + users.waiting_s + users.receiving_s;
        s / observed.counters.elapsed_s.max(f64::MIN_POSITIVE)
    })
}

/// Whether the targets' processes worked or waited for a processor for less than half of the time. This must hold for each process, because
/// a lock can make its threads take turns. It must also hold for all processes of a host together, over as many processors as they have,
/// but no more than there were requests under way. A quota may have stopped them for less than that.
pub(super) fn have_time(observed: &Observed<'_>) -> bool {
    let in_flight = in_flight(observed);
    // By host: the work of all processes, and the number of processors that they may use, at most one for each request under way.
    let mut hosts: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    let works = works(observed);
    for work in works.values() {
        let (share, processors) = hosts.entry(work.host).or_insert((0.0, 1.0));
        *share += work.together + work.waited;
        *processors = processors.max(in_flight.min(work.processors.unwrap_or(1) as f64));
    }
    throttled_share(observed) < IDLE_SHARE
        && works.values().all(|work| work.process + work.waited < IDLE_SHARE && !work.may_wait)
        && hosts.values().all(|(share, processors)| *share < IDLE_SHARE * processors)
}
