//! The processor time that the targets' processes used, and the time that they could have used.

use std::collections::BTreeMap;

use record::units::parse_cpus;

use super::{percent, share_at, target_programs};
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
    /// Number of processors that they share, if known.
    processors: Option<usize>,
}

impl Work<'_> {
    /// Whether the busiest thread, or all threads on their processors, had no time left.
    pub(super) fn is_hot(&self) -> bool {
        self.fullness() >= HOT_SHARE
    }

    /// Whether other programs used the processors for so long that the target had to wait.
    pub(super) fn lacks_processors(&self) -> bool {
        self.waited >= IDLE_SHARE
    }

    fn fullness(&self) -> f64 {
        let of_all = self.processors.map_or(0.0, |number| self.together / number as f64);
        self.thread.unwrap_or(0.0).max(of_all)
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
        words
    }
}

/// The work of the targets' processes, by host and shared processors.
fn works<'a>(observed: &'a Observed<'_>) -> BTreeMap<(&'a str, Option<&'a str>), Work<'a>> {
    let mut works = BTreeMap::new();
    for (host, program) in target_programs(observed) {
        let share = |time_s| share_at(observed, &host.host, time_s);
        let (thread, running) = (program.busiest_thread_s.map(share), share(program.running_s));
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
        let none = Work {
            host: &host.host,
            program: "",
            is_server: false,
            thread: None,
            most: -1.0,
            process: 0.0,
            together: 0.0,
            waited: 0.0,
            processors,
        };
        let work = works.entry(key).or_insert(none);
        let elapsed_s = observed.counters.elapsed_s_at(&host.host);
        let stopped = host.stopped_share(elapsed_s).or(program.stopped_share(elapsed_s)).unwrap_or(0.0);
        let waited = share(program.busiest_thread_waiting_s.unwrap_or(0.0));
        work.waited = work.waited.max(waited - stopped);
        work.process = work.process.max(running);
        work.together += running;
        let most = thread.unwrap_or(running);
        if most > work.most {
            (work.most, work.thread, work.program) = (most, thread, &program.name);
            work.is_server = !program.listens.is_empty();
        }
    }
    works
}

/// The group of target processes that had the least time left; none if proofload saw no process.
pub(super) fn busiest_target<'a>(observed: &'a Observed<'_>) -> Option<Work<'a>> {
    let load = |work: &Work<'_>| (work.fullness() / HOT_SHARE).max(work.waited / IDLE_SHARE).max(0.0);
    works(observed)
        .into_values()
        .max_by(|a, b| (load(a), a.most).partial_cmp(&(load(b), b.most)).expect("numbers"))
}

/// Requests under way on average, by Little's law; 1 if there are none.
pub(super) fn in_flight(observed: &Observed<'_>) -> f64 {
    observed.trial.http().map_or(1.0, |http| {
        let times = &http.service_time.observed;
        times.mean_ns() * times.count() as f64 / 1e9 / observed.counters.elapsed_s.max(f64::MIN_POSITIVE)
    })
}

/// Whether the targets' processes worked or waited for a processor for less than half of the time. This must hold for each process, because
/// a lock can make its threads take turns. It must also hold for all processes of a host together, over as many processors as they have,
/// but no more than there were requests under way.
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
    works.values().all(|work| work.process + work.waited < IDLE_SHARE)
        && hosts.values().all(|(share, processors)| *share < IDLE_SHARE * processors)
}
