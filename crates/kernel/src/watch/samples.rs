//! Samples of the hosts of one machine: at the start of a trial, during it, and at the end.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    io, mem,
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};

use record::{
    Counters,
    counters::{HostCounters, ProgramUse, WorkingThreads},
};

use super::Seen;
use crate::{
    programs::{self, Program, ThreadTimes},
    senders::Senders,
    series::Recorder,
    source::{Look, Processes, Source},
    tcp::UNKNOWN_INODE,
};

/// How long threads are watched before the load: ten of the kernel's ticks of 4 ms, between which a thread's time may stand still, and some
/// more.
const BEFORE_LOAD: Duration = Duration::from_millis(50);

/// When a host was looked at before the load, and the times of all its threads, by process.
type Before = (Instant, BTreeMap<(u32, u64), BTreeMap<u32, ThreadTimes>>);

/// The busiest threads of a process do its work that ran for this part of its time.
const WORKING_SHARE: f64 = 0.95;

/// The samples of all hosts of one machine.
pub(super) struct Samples<S> {
    began: Instant,
    machine: Recorder,
    hosts: Vec<HostSamples<S>>,
}

struct HostSamples<S> {
    source: S,
    counters: Recorder,
    /// Processes by id and start time.
    programs: BTreeMap<(u32, u64), ProgramSamples>,
    senders: Senders,
    /// The sockets at which an answer is awaited, with the addresses that were asked.
    awaiting: BTreeMap<u32, SocketAddr>,
    /// Number of looks at processes.
    looks: u32,
    /// The process that each of the sockets belongs to at which an answer was awaited; none if it is no program that listens.
    owners: BTreeMap<u32, Option<u32>>,
    /// The sockets at which data was sent before the load that had no answer: nobody waits there.
    one_way: BTreeSet<u32>,
    seen: HostCounters,
}

struct ProgramSamples {
    /// Its state before the trial; none if it began during the trial.
    before: Option<Program>,
    /// The last look at it, including the last known times of threads that have ended.
    last: Program,
    cpus: Option<String>,
    /// Number of the last look that found it.
    last_look: u32,
    listens: BTreeSet<String>,
    /// Whether it has these addresses from its parent.
    is_child: bool,
    /// The quota counters of its control group, first when the process was first seen and then at the end.
    quota: [BTreeMap<String, u64>; 2],
    looks: Looks,
    /// Share of the time just before the load for which each of its threads ran, or was ready to.
    busy_before: BTreeMap<u32, f64>,
    /// For each address that it asked, the sum over all looks of the requests without an answer.
    asked: BTreeMap<SocketAddr, u32>,
}

/// Numbers of looks at a process.
#[derive(Debug, Clone, Default)]
struct Looks {
    all: u32,
    /// A thread waited for a device.
    blocked: u32,
    /// The same by thread.
    blocked_threads: BTreeMap<u32, u32>,
    /// A signal had stopped it.
    stopped: u32,
}

impl Looks {
    fn add(&mut self, now: &Program) {
        self.all += 1;
        self.blocked += u32::from(!now.blocked.is_empty());
        now.blocked.iter().for_each(|thread| *self.blocked_threads.entry(*thread).or_default() += 1);
        self.stopped += u32::from(now.is_stopped);
    }
}

impl<S: Source> Samples<S> {
    pub(super) fn begin(hosts: Vec<(String, S)>) -> io::Result<Self> {
        let mut hosts: Vec<_> =
            hosts.into_iter().map(|(name, source)| HostSamples::new(name, source)).collect();
        let processes = S::processes();
        if S::IS_QUICK {
            let before: Vec<_> =
                hosts.iter_mut().map(|host| host.times(&processes)).collect::<io::Result<_>>()?;
            thread::sleep(BEFORE_LOAD);
            for (host, before) in hosts.iter_mut().zip(before) {
                host.begin(&processes)?;
                host.ran_before(&before);
            }
        } else {
            hosts.iter_mut().try_for_each(|host| host.begin(&processes))?;
        }
        // The machine is read last here and first in `end`, because looking at hosts over a slow path takes time.
        let machine = machine_of(&mut hosts, Look::Whole)?;
        Ok(Self { began: Instant::now(), machine: Recorder::begin(machine), hosts })
    }

    /// Samples sockets and processes. Returns the processor time that it took, or the time to read another machine.
    pub(super) fn take(&mut self) -> io::Result<Duration> {
        let (began, began_running) = (Instant::now(), own_running());
        let processes = S::processes();
        for host in &mut self.hosts {
            host.source.enter()?;
            host.look_at_sockets(Look::Brief)?;
            host.look_at_programs(&processes, Look::Brief)?;
        }
        Ok(if S::IS_QUICK { own_running().saturating_sub(began_running) } else { began.elapsed() })
    }

    /// Reads the counters.
    pub(super) fn count(&mut self) -> io::Result<()> {
        for host in &mut self.hosts {
            host.source.enter()?;
            host.counters.sample(&host.source.network(Look::Brief)?);
        }
        self.machine.sample(&machine_of(&mut self.hosts, Look::Brief)?);
        Ok(())
    }

    pub(super) fn end(mut self) -> io::Result<Seen> {
        let elapsed_s = self.began.elapsed().as_secs_f64();
        let machine = self.machine.end(machine_of(&mut self.hosts, Look::Whole)?);
        let processes = S::processes();
        self.hosts.iter_mut().try_for_each(|host| host.end(&processes, elapsed_s))?;
        let hosts = self.hosts.into_iter().map(|host| host.seen).collect();
        Ok(Seen { elapsed_s, machine, hosts, reading_s: own_running().as_secs_f64() })
    }
}

/// The time for which this thread had a processor.
fn own_running() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// The counters of the machine that these hosts are on.
fn machine_of<S: Source>(hosts: &mut [HostSamples<S>], look: Look) -> io::Result<Counters> {
    hosts.first_mut().map_or(Ok(Counters::default()), |host| host.source.machine(look))
}

impl<S: Source> HostSamples<S> {
    fn new(name: String, source: S) -> Self {
        Self {
            source,
            counters: Recorder::begin(Counters::default()),
            programs: BTreeMap::new(),
            senders: Senders::default(),
            awaiting: BTreeMap::new(),
            looks: 0,
            owners: BTreeMap::new(),
            one_way: BTreeSet::new(),
            seen: HostCounters { host: name, ..HostCounters::default() },
        }
    }

    /// The times of all threads, by process.
    fn times(&mut self, processes: &Processes) -> io::Result<Before> {
        self.source.enter()?;
        // Among many processes, only those that listen are looked at.
        self.source.listeners()?;
        let at = Instant::now();
        let programs = self.source.programs(processes, Look::Brief)?;
        Ok((at, programs.into_iter().map(|one| ((one.pid, one.began_ticks), one.threads)).collect()))
    }

    /// Notes which threads have run since an earlier look.
    fn ran_before(&mut self, (at, before): &Before) {
        let elapsed_ns = at.elapsed().as_nanos() as f64;
        for (process, program) in &mut self.programs {
            let Some(before) = before.get(process) else { continue };
            let ran = |(thread, now): (&u32, &ThreadTimes)| {
                let before = before.get(thread)?;
                // A thread that had to share its processor then would have run for all of that time.
                let ran_ns =
                    (now.running_ns + now.waiting_ns).saturating_sub(before.running_ns + before.waiting_ns);
                Some((*thread, (ran_ns as f64 / elapsed_ns).min(1.0)))
            };
            program.busy_before = program.last.threads.iter().filter_map(ran).collect();
        }
    }

    /// The first look. Activity before it does not count.
    fn begin(&mut self, processes: &Processes) -> io::Result<()> {
        self.source.enter()?;
        self.look_at_sockets(Look::Whole)?;
        self.look_at_programs(processes, Look::Whole)?;
        // The counters are read last here and first in `end`, so that they do not include the work of the looks.
        self.counters = Recorder::begin(self.source.network(Look::Whole)?);
        self.senders.begin();
        for program in self.programs.values_mut() {
            program.before = Some(program.last.clone());
        }
        Ok(())
    }

    fn end(&mut self, processes: &Processes, elapsed_s: f64) -> io::Result<()> {
        self.source.enter()?;
        self.seen.counters = self.counters.end(self.source.network(Look::Whole)?);
        self.look_at_sockets(Look::Whole)?;
        self.look_at_programs(processes, Look::Whole)?;
        self.seen.senders = self.senders.used();
        for one in self.programs.values_mut() {
            if !one.quota[0].is_empty() {
                one.quota[1] = self.source.quota(one.last.pid);
            }
            // Threads may begin or change their CPU affinity during the trial, so the processors are read again.
            if one.last_look == self.looks && one.has_run() {
                let threads: Vec<u32> = one.last.threads.keys().copied().collect();
                one.cpus = self.source.cpus(one.last.pid, &threads).or(one.cpus.take());
            }
        }
        // The processor time of ended processes, by parent, because the parent's time of children includes it.
        let mut ended_ns: BTreeMap<u32, u64> = BTreeMap::new();
        for ProgramSamples { last, .. } in self.programs.values().filter(|one| one.last_look < self.looks) {
            *ended_ns.entry(last.parent).or_default() += last.running_ns + last.children_ns;
        }
        // The first and the last look are before and after the load.
        let under_load = self.looks.saturating_sub(2).max(1);
        let used = |one: &ProgramSamples| {
            one.used(ended_ns.get(&one.last.pid).copied().unwrap_or(0), elapsed_s, under_load)
        };
        self.seen.programs = self.programs.values().map(used).collect();
        Ok(())
    }

    fn look_at_programs(&mut self, processes: &Processes, look: Look) -> io::Result<()> {
        self.looks += 1;
        for now in self.source.programs(processes, look)? {
            match self.programs.entry((now.pid, now.began_ticks)) {
                Entry::Occupied(known) => known.into_mut().add(now, self.looks),
                Entry::Vacant(new) => {
                    let mut looks = Looks::default();
                    looks.add(&now);
                    new.insert(ProgramSamples {
                        before: None,
                        cpus: self.source.cpus(now.pid, &[now.pid]),
                        last_look: self.looks,
                        listens: self.source.listens(now.pid),
                        is_child: false,
                        quota: [self.source.quota(now.pid), BTreeMap::new()],
                        looks,
                        busy_before: BTreeMap::new(),
                        asked: BTreeMap::new(),
                        last: now,
                    });
                }
            }
        }
        self.adopt();
        if look == Look::Brief {
            self.look_at_asked();
        }
        Ok(())
    }

    /// A process for each connection or request works for the parent that listens.
    fn adopt(&mut self) {
        let own = self.programs.values().filter(|one| !one.listens.is_empty() && !one.is_child);
        let own = own.filter(|one| one.last.pid != programs::FIRST);
        let listening: BTreeMap<u32, BTreeSet<String>> =
            own.map(|one| (one.last.pid, one.listens.clone())).collect();
        for one in self.programs.values_mut().filter(|one| one.listens.is_empty()) {
            if let Some(listens) = listening.get(&one.last.parent) {
                (one.listens, one.is_child) = (listens.clone(), true);
            }
        }
    }

    /// Adds the requests without an answer to the programs that sent them.
    fn look_at_asked(&mut self) {
        let is_new = self.awaiting.keys().any(|socket| !self.owners.contains_key(socket));
        let now = self.looks;
        for one in self.programs.values_mut().filter(|one| one.last_look == now && !one.listens.is_empty()) {
            if is_new {
                for socket in programs::sockets(one.last.pid) {
                    if self.awaiting.contains_key(&socket) {
                        self.owners.entry(socket).or_insert(Some(one.last.pid));
                    }
                }
            }
            let is_own = |socket: &u32| self.owners.get(socket) == Some(&Some(one.last.pid));
            for (_, address) in self.awaiting.iter().filter(|(socket, _)| is_own(socket)) {
                *one.asked.entry(*address).or_default() += 1;
            }
        }
        self.awaiting.keys().for_each(|socket| _ = self.owners.entry(*socket).or_insert(None));
    }

    fn look_at_sockets(&mut self, look: Look) -> io::Result<()> {
        let listeners = self.source.listeners()?;
        for listener in &listeners {
            let seen = self.seen.listeners.entry(listener.address.to_string()).or_default();
            seen.backlog = listener.backlog;
            seen.sum_waiting += u64::from(listener.waiting);
            seen.most_waiting = seen.most_waiting.max(listener.waiting);
            seen.samples += 1;
            seen.samples_waiting += u32::from(listener.waiting > 0);
        }
        // The last look comes after the load. If there was no earlier sample, as in a short trial, it counts as one
        // under load.
        let is_under_load = look == Look::Brief || self.senders.used().samples == 0;
        let add = if is_under_load { Senders::look_at } else { Senders::look_after_load };
        let connections = self.source.connections(look)?;
        self.awaiting.clear();
        let mut accepted: BTreeMap<SocketAddr, (u32, BTreeSet<String>)> = BTreeMap::new();
        let mut open = BTreeSet::new();
        for connection in &connections {
            add(&mut self.senders, connection);
            open.insert(connection.inode);
            if let Some(listener) = listeners.iter().find(|at| at.has(connection)) {
                let (number, addresses) = accepted.entry(listener.address).or_default();
                *number += 1;
                addresses.insert(connection.local.ip().to_canonical().to_string());
            } else if connection.inode != UNKNOWN_INODE && connection.info.awaits() {
                let remote = SocketAddr::new(connection.remote.ip().to_canonical(), connection.remote.port());
                self.awaiting.insert(connection.inode, remote);
            }
        }
        self.owners.retain(|socket, _| open.contains(socket));
        if look == Look::Whole && self.looks == 0 {
            self.one_way = self.awaiting.keys().copied().collect();
        }
        self.awaiting.retain(|socket, _| !self.one_way.contains(socket));
        self.seen.is_cut |= connections.len() >= look.max_connections();
        for (address, (number, at)) in accepted {
            let seen = self.seen.listeners.entry(address.to_string()).or_default();
            seen.most_connections = seen.most_connections.max(number);
            seen.reached_at.extend(at);
        }
        Ok(())
    }
}

impl ProgramSamples {
    /// Adds a look at it.
    fn add(&mut self, now: Program, number: u32) {
        self.last_look = number;
        self.looks.add(&now);
        let descriptors = self.last.descriptors.max(now.descriptors);
        let mut threads = mem::take(&mut self.last.threads);
        threads.extend(&now.threads);
        self.last = Program { descriptors, threads, ..now };
    }

    /// Whether any of its threads has run since the start.
    fn has_run(&self) -> bool {
        self.before.as_ref().is_none_or(|before| before.threads != self.last.threads)
    }

    /// Its use of processors in `elapsed_s`, without `ended_ns`: the time of ended children that have separate entries. `looks`: the number of
    /// looks at the host under load.
    fn used(&self, ended_ns: u64, elapsed_s: f64, looks: u32) -> ProgramUse {
        let (now, before) = (&self.last, self.before.as_ref());
        let of = |of: fn(&Program) -> u64| of(now).saturating_sub(before.map_or(0, of));
        let used_ns = |(&thread, now): (&u32, &ThreadTimes)| {
            let was = before.and_then(|before| before.threads.get(&thread)).copied().unwrap_or_default();
            let (ran_ns, waited_ns) = (
                now.running_ns.saturating_sub(was.running_ns),
                now.waiting_ns.saturating_sub(was.waiting_ns),
            );
            (ran_ns, waited_ns, thread)
        };
        let threads: Vec<(u64, u64, u32)> = now.threads.iter().map(used_ns).collect();
        let seen_ns: u64 = threads.iter().map(|times| times.0).sum();
        let (own_ns, children_ns) = (of(|now| now.running_ns), of(|now| now.children_ns));
        // The kernel cuts user and system time to whole ticks in both readings, so their difference may be off by two
        // ticks.
        let unseen_ns = own_ns.saturating_sub(seen_ns + 2 * programs::TICK_NS);
        let working = self.working(&threads, elapsed_s, looks);
        let busiest = threads.into_iter().max().filter(|busiest| busiest.0 >= unseen_ns);
        let children_ns = children_ns.saturating_sub(ended_ns);
        let running_ns = own_ns.max(seen_ns) + children_ns;
        let seconds = |ns: u64| ns as f64 / 1e9;
        let mean =
            |(address, sum): (&SocketAddr, &u32)| (address.to_string(), f64::from(*sum) / f64::from(looks));
        ProgramUse {
            pid: self.last.pid,
            name: self.last.name.clone(),
            listens: self.listens.iter().cloned().collect(),
            busiest_thread_s: busiest.map(|times| seconds(times.0)),
            busiest_thread_waiting_s: busiest.map(|times| seconds(times.1)),
            busy_before_share: busiest.and_then(|times| self.busy_before.get(&times.2)).copied(),
            running_s: seconds(running_ns),
            cpus: self.cpus.clone(),
            quota: self.used_quota(),
            samples: self.looks.all,
            samples_blocked: self.looks.blocked,
            working,
            ended_s: seconds(unseen_ns + children_ns),
            asked: self.asked.iter().map(mean).collect(),
            samples_stopped: self.looks.stopped,
            most_descriptors: self.last.descriptors,
            max_descriptors: self.last.max_descriptors,
        }
    }

    /// Sums over those of these threads that did its work: the busiest ones, which ran for nearly all of its time. Each has the time that it ran
    /// and waited for a processor, in nanoseconds, and its id.
    fn working(&self, threads: &[(u64, u64, u32)], elapsed_s: f64, looks: u32) -> Option<WorkingThreads> {
        let works_for_load = |&&(ran_ns, _, thread): &&(u64, u64, u32)| {
            let (before, share) = (self.busy_before.get(&thread), ran_ns as f64 / 1e9 / elapsed_s);
            let ran_before = before.is_some_and(|before| WorkingThreads::ran_before(*before, share));
            ran_ns > 0 && !ran_before
        };
        let mut for_load: Vec<_> = threads.iter().filter(works_for_load).collect();
        for_load.sort_unstable_by(|a, b| b.cmp(a));
        let all_ns: u64 = for_load.iter().map(|thread| thread.0).sum();
        let mut all = WorkingThreads::default();
        let mut seen_ns = 0;
        for (ran_ns, waited_ns, thread) in for_load {
            if seen_ns as f64 >= WORKING_SHARE * all_ns as f64 {
                break;
            }
            seen_ns += ran_ns;
            let blocked = self.looks.blocked_threads.get(thread).copied().unwrap_or(0).min(looks);
            all.count += 1;
            all.running_s += *ran_ns as f64 / 1e9;
            all.waiting_s += *waited_ns as f64 / 1e9;
            all.blocked_s += elapsed_s * f64::from(blocked) / f64::from(looks);
        }
        (all.count > 0).then_some(all)
    }

    fn used_quota(&self) -> BTreeMap<String, u64> {
        let [before, now] = &self.quota;
        let change =
            |(name, now): (&String, &u64)| Some((name.clone(), now.checked_sub(*before.get(name)?)?));
        now.iter().filter_map(change).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process whose threads ran for `seen_ns` each. Together with threads that have ended, it ran for `running_ns`.
    fn program(seen_ns: &[u64], running_ns: u64, children_ns: u64) -> Program {
        let stat = "7 (python3) S 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 2 0 11 0";
        let times = |(thread, &running_ns)| (thread, ThreadTimes { running_ns, waiting_ns: 5 });
        let threads = (7..).zip(seen_ns).map(times).collect();
        let program = programs::parse(7, stat, "", threads, None).unwrap();
        Program { running_ns, children_ns, ..program }
    }

    fn used(before: Program, last: Program, ended_ns: u64) -> ProgramUse {
        let (before, cpus, listens) = (Some(before), None, BTreeSet::new());
        let quota = [5, 8].map(|count| BTreeMap::from([("cgroup.periods".to_owned(), count)]));
        let (looks, busy_before) = (Looks { all: 2, ..Looks::default() }, BTreeMap::from([(7, 0.5)]));
        let asked = BTreeMap::new();
        let is_child = false;
        ProgramSamples {
            before,
            last,
            cpus,
            last_look: 2,
            listens,
            is_child,
            quota,
            looks,
            busy_before,
            asked,
        }
        .used(ended_ns, 4.0, 1)
    }

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn the_work_of_threads_that_ended_is_not_lost() {
        let before = || program(&[SECOND_NS], SECOND_NS, 0);
        let of = |seen_ns: &[u64], running_ns| {
            let used = used(before(), program(seen_ns, running_ns, 0), 0);
            (used.busiest_thread_s, used.running_s)
        };
        // Each connection had its own thread, which began and ended between two samples.
        assert_eq!(of(&[SECOND_NS], 3 * SECOND_NS), (None, 2.0));
        assert_eq!(of(&[3 * SECOND_NS], 4 * SECOND_NS), (Some(2.0), 3.0));
        assert_eq!(of(&[3 * SECOND_NS], 3 * SECOND_NS + programs::TICK_NS).0, Some(2.0));
        assert_eq!(of(&[], 2 * SECOND_NS), (None, 1.0), "its threads cannot be read");
    }

    #[test]
    fn the_work_of_children_that_ended_counts_once() {
        let before = || program(&[SECOND_NS], SECOND_NS, SECOND_NS);
        let of =
            |ended_ns| used(before(), program(&[SECOND_NS], SECOND_NS, 4 * SECOND_NS), ended_ns).running_s;
        assert_eq!((of(0), of(2 * SECOND_NS), of(9 * SECOND_NS)), (3.0, 1.0, 0.0));
    }

    #[test]
    fn a_quota_counts_from_the_begin() {
        let of = used(program(&[], 0, 0), program(&[], 0, 0), 0).quota;
        assert_eq!(of, BTreeMap::from([("cgroup.periods".to_owned(), 3)]));
    }
}
