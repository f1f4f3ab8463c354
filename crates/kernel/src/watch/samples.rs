//! What is seen of hosts of one machine: at the begin, each second, and at the end.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    io,
    time::Instant,
};

use record::{
    Counters,
    counters::{HostCounters, ProgramUse},
};

use super::Seen;
use crate::{
    programs::{self, Program, ThreadTimes},
    senders::Senders,
    series::Recorder,
    source::{Look, Processes, Source},
};

/// The samples of hosts of one machine.
pub(super) struct Samples<S> {
    began: Instant,
    machine: Recorder,
    hosts: Vec<HostSamples<S>>,
}

struct HostSamples<S> {
    source: S,
    counters: Recorder,
    /// Processes by their id and begin.
    programs: BTreeMap<(u32, u64), ProgramSamples>,
    senders: Senders,
    seen: HostCounters,
}

struct ProgramSamples {
    /// The threads before the trial; none of a process that began during it.
    before: BTreeMap<u32, ThreadTimes>,
    last: Program,
    listens: BTreeSet<String>,
    /// Looks, and those in which a thread waited for a device.
    looks: (u32, u32),
}

impl<S: Source> Samples<S> {
    pub(super) fn begin(hosts: Vec<(String, S)>) -> io::Result<Self> {
        let mut hosts: Vec<_> =
            hosts.into_iter().map(|(name, source)| HostSamples::new(name, source)).collect();
        let processes = S::processes();
        hosts.iter_mut().try_for_each(|host| host.begin(&processes))?;
        // Last here and first at the end: on a slow path, looking takes a while.
        let machine = machine_of(&mut hosts, Look::Whole)?;
        Ok(Self { began: Instant::now(), machine: Recorder::begin(machine), hosts })
    }

    pub(super) fn take(&mut self) -> io::Result<()> {
        let processes = S::processes();
        for host in &mut self.hosts {
            host.source.enter()?;
            host.counters.sample(&host.source.network(Look::Brief)?);
            host.look_at_sockets(Look::Brief)?;
            host.look_at_programs(&processes, Look::Brief)?;
        }
        self.machine.sample(&machine_of(&mut self.hosts, Look::Brief)?);
        Ok(())
    }

    pub(super) fn end(mut self) -> io::Result<Seen> {
        let elapsed_s = self.began.elapsed().as_secs_f64();
        let machine = self.machine.end(machine_of(&mut self.hosts, Look::Whole)?);
        let processes = S::processes();
        self.hosts.iter_mut().try_for_each(|host| host.end(&processes))?;
        let own = programs::parse_times(&crate::read("/proc/thread-self/schedstat")?).unwrap_or_default();
        let hosts = self.hosts.into_iter().map(|host| host.seen).collect();
        Ok(Seen { elapsed_s, machine, hosts, reading_s: own.running_ns as f64 / 1e9 })
    }
}

/// What the machine of some hosts counted.
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
            seen: HostCounters { host: name, ..HostCounters::default() },
        }
    }

    /// The first look. What was done before it does not count.
    fn begin(&mut self, processes: &Processes) -> io::Result<()> {
        self.source.enter()?;
        self.look_at_sockets(Look::Whole)?;
        self.look_at_programs(processes, Look::Whole)?;
        // The last thing here and the first at the end: looking is work, too.
        self.counters = Recorder::begin(self.source.network(Look::Whole)?);
        self.senders.begin();
        for program in self.programs.values_mut() {
            program.before = program.last.threads.clone();
        }
        Ok(())
    }

    fn end(&mut self, processes: &Processes) -> io::Result<()> {
        self.source.enter()?;
        self.seen.counters = self.counters.end(self.source.network(Look::Whole)?);
        self.look_at_sockets(Look::Whole)?;
        self.look_at_programs(processes, Look::Whole)?;
        self.seen.senders = self.senders.used();
        self.seen.programs = self.programs.values().map(ProgramSamples::used).collect();
        Ok(())
    }

    fn look_at_programs(&mut self, processes: &Processes, look: Look) -> io::Result<()> {
        for now in self.source.programs(processes, look)? {
            match self.programs.entry((now.pid, now.began_ticks)) {
                Entry::Occupied(known) => {
                    let ProgramSamples { last, looks, .. } = known.into_mut();
                    *looks = (looks.0 + 1, looks.1 + u32::from(now.is_blocked));
                    let descriptors = last.descriptors.max(now.descriptors);
                    *last = Program { descriptors, ..now };
                }
                Entry::Vacant(new) => {
                    let listens = self.source.listens(now.pid);
                    let looks = (1, u32::from(now.is_blocked));
                    new.insert(ProgramSamples { before: BTreeMap::new(), last: now, listens, looks });
                }
            }
        }
        Ok(())
    }

    fn look_at_sockets(&mut self, look: Look) -> io::Result<()> {
        for listener in self.source.listeners()? {
            let seen = self.seen.listeners.entry(listener.address.to_string()).or_default();
            seen.backlog = listener.backlog;
            seen.most_waiting = seen.most_waiting.max(listener.waiting);
            seen.samples += 1;
            seen.samples_waiting += u32::from(listener.waiting > 0);
        }
        self.source.connections(look)?.iter().for_each(|connection| self.senders.look_at(connection));
        Ok(())
    }
}

impl ProgramSamples {
    fn used(&self) -> ProgramUse {
        let used_s = |(thread, now): (&u32, &ThreadTimes)| {
            let was = self.before.get(thread).copied().unwrap_or_default();
            let passed_s = |now_ns: u64, was_ns: u64| now_ns.saturating_sub(was_ns) as f64 / 1e9;
            (passed_s(now.running_ns, was.running_ns), passed_s(now.waiting_ns, was.waiting_ns))
        };
        let threads: Vec<(f64, f64)> = self.last.threads.iter().map(used_s).collect();
        let busiest = threads.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default();
        ProgramUse {
            pid: self.last.pid,
            name: self.last.name.clone(),
            listens: self.listens.iter().cloned().collect(),
            busiest_thread_s: busiest.0,
            busiest_thread_waiting_s: busiest.1,
            running_s: threads.iter().map(|times| times.0).sum(),
            samples: self.looks.0,
            samples_blocked: self.looks.1,
            most_descriptors: self.last.descriptors,
            max_descriptors: self.last.max_descriptors,
        }
    }
}
