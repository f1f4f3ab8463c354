//! Watches hosts during a trial: their counters before and after it, and once a second what does not last until its end.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fs::File,
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use record::{
    Counters,
    counters::{HostCounters, ProgramUse, SCHEMA, SenderUse, TrialCounters},
};

use crate::{
    cgroups,
    counters::{of_machine, of_network, read_own, since},
    namespaces::{self, Kind},
    processor_time::{Booked, Booking},
    programs::{self, Program, ThreadTimes},
    tcp::{self, Connection, Listener},
};

/// Time from one sample to the next.
const INTERVAL: Duration = Duration::from_secs(1);
/// More connections than this are sampled at the begin and the end only.
const MAX_CONNECTIONS_EACH_SECOND: usize = 100;
/// Connections that are sampled at most.
const MAX_CONNECTIONS: usize = 1_000;
/// More processes than this are looked at at the begin and the end only.
const MAX_PROGRAMS_EACH_SECOND: usize = 64;
/// The name under which [`Counters::missing`] says why processor time could not be booked.
pub const PROCESSOR_TIME: &str = "processor time of hosts";

/// Processes by the identity of their network namespace.
type Processes = BTreeMap<(u64, u64), Vec<u32>>;

/// A host to watch: this process's own network namespace alone, or any others.
#[derive(Debug, Clone)]
pub struct WatchedHost {
    /// Its name.
    pub name: String,
    /// Its network namespace.
    pub network: Arc<File>,
    /// Its control group, if it has a quota.
    pub group: Option<PathBuf>,
}

/// Watches hosts on a thread of its own until it is stopped.
#[derive(Debug)]
pub struct Watch {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<io::Result<TrialCounters>>,
}

impl Watch {
    /// Reads all counters, and begins to sample. Books processor time to the hosts if `books_time`; where this is not
    /// possible, [`Counters::missing`] of the machine says why.
    ///
    /// # Errors
    /// When a thread cannot be started, a host's namespace cannot be entered, or its sockets cannot be listed.
    pub fn start(hosts: Vec<WatchedHost>, books_time: bool) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let (began, begin) = mpsc::channel();
        let work = move || {
            let mut samples = Samples::begin(hosts, books_time)?;
            let _ = began.send(());
            while stopped.recv_timeout(INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
                samples.take()?;
            }
            samples.end()
        };
        let thread = thread::Builder::new().name("watch".to_owned()).spawn(work)?;
        if begin.recv().is_err() {
            return Err(joined(thread).err().unwrap_or_else(|| io::Error::other("the watch ended at once")));
        }
        Ok(Self { stop, thread })
    }

    /// Reads all counters once more.
    ///
    /// # Errors
    /// As those of [`start`](Self::start), from any sample.
    pub fn stop(self) -> io::Result<TrialCounters> {
        // If the thread has failed, it does not listen any more.
        let _ = self.stop.send(());
        joined(self.thread)
    }
}

fn joined(thread: JoinHandle<io::Result<TrialCounters>>) -> io::Result<TrialCounters> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The samples of all hosts, on the thread that goes from one to the next.
struct Samples {
    began: Instant,
    machine: Counters,
    hosts: Vec<HostSamples>,
    /// None if it was not asked for.
    booking: Option<Result<Booking, String>>,
}

struct HostSamples {
    host: WatchedHost,
    identity: (u64, u64),
    /// Whether it is the namespace of this process.
    is_own: bool,
    before: Counters,
    /// Processes by their id and begin.
    programs: BTreeMap<(u32, u64), ProgramSamples>,
    connections: BTreeMap<(SocketAddr, SocketAddr), Connection>,
    seen: HostCounters,
}

struct ProgramSamples {
    /// The threads before the trial; none of a process that began during it.
    before: BTreeMap<u32, ThreadTimes>,
    last: Program,
    listens: Vec<String>,
}

impl Samples {
    fn begin(hosts: Vec<WatchedHost>, books_time: bool) -> io::Result<Self> {
        let machine = of_machine(&read_own);
        let mut hosts = hosts.into_iter().map(HostSamples::begin).collect::<io::Result<Vec<_>>>()?;
        let processes = programs::by_network();
        for host in &mut hosts {
            host.enter()?;
            host.look_at_programs(&processes, &tcp::listeners()?, true);
        }
        // Last, so that what is read before does not count.
        let booking = books_time.then(Booking::start);
        Ok(Self { began: Instant::now(), machine, hosts, booking })
    }

    fn take(&mut self) -> io::Result<()> {
        let processes = programs::by_network();
        for host in &mut self.hosts {
            host.enter()?;
            let listeners = host.look_at_sockets(MAX_CONNECTIONS_EACH_SECOND)?;
            if processes.get(&host.identity).is_some_and(|own| own.len() <= MAX_PROGRAMS_EACH_SECOND) {
                host.look_at_programs(&processes, &listeners, false);
            }
        }
        Ok(())
    }

    fn end(mut self) -> io::Result<TrialCounters> {
        let elapsed_s = self.began.elapsed().as_secs_f64();
        let booked = self.booking.map(|booking| booking.and_then(Booking::stop)).transpose();
        let mut machine = since(of_machine(&read_own), &self.machine);
        let mut booked = booked.unwrap_or_else(|why| {
            machine.missing.insert(PROCESSOR_TIME.to_owned(), why);
            None
        });
        let processes = programs::by_network();
        for host in &mut self.hosts {
            host.end(&processes)?;
            host.seen.processor = booked.as_mut().map(|booked| booked.take(host.identity.1));
        }
        let own = programs::parse_times(&crate::read("/proc/thread-self/schedstat")?).unwrap_or_default();
        Ok(TrialCounters {
            schema: SCHEMA.to_owned(),
            trial: 0,
            elapsed_s,
            machine,
            hosts: self.hosts.into_iter().map(|host| host.seen).collect(),
            processor: booked.map(Booked::rest),
            reading_s: own.running_ns as f64 / 1e9,
        })
    }
}

impl HostSamples {
    fn begin(host: WatchedHost) -> io::Result<Self> {
        let identity = namespaces::identity(&host.network)?;
        let mut samples = Self {
            identity,
            is_own: identity == namespaces::own_identity(Kind::Network)?,
            before: Counters::default(),
            programs: BTreeMap::new(),
            connections: BTreeMap::new(),
            seen: HostCounters { host: host.name.clone(), ..HostCounters::default() },
            host,
        };
        samples.enter()?;
        samples.before = samples.read();
        samples.look_at_sockets(MAX_CONNECTIONS)?;
        // What connections did before the begin does not count.
        samples.seen.senders = SenderUse::default();
        Ok(samples)
    }

    /// Enters the host's namespace. To stay in that of this process needs no rights.
    fn enter(&self) -> io::Result<()> {
        if self.is_own { Ok(()) } else { namespaces::enter(&self.host.network, Kind::Network) }
    }

    fn read(&self) -> Counters {
        let mut counters = of_network(&read_own);
        match self.host.group.as_ref().map(|group| crate::read(group.join("cpu.stat"))) {
            Some(Ok(stat)) => cgroups::add_throttling(&stat, &mut counters.values),
            Some(Err(error)) => _ = counters.missing.insert("cpu.stat".to_owned(), error.to_string()),
            None => {}
        }
        counters
    }

    fn end(&mut self, processes: &Processes) -> io::Result<()> {
        self.enter()?;
        let listeners = self.look_at_sockets(MAX_CONNECTIONS)?;
        self.look_at_programs(processes, &listeners, false);
        self.seen.counters = since(self.read(), &self.before);
        self.seen.programs = self.programs.values().map(ProgramSamples::used).collect();
        Ok(())
    }

    /// Looks at the processes of this host. What they have done before the first look does not count.
    fn look_at_programs(&mut self, processes: &Processes, sockets: &[Listener], is_first: bool) {
        let listens = |pid| {
            let own = if sockets.is_empty() { BTreeSet::new() } else { programs::sockets(pid) };
            let own = sockets.iter().filter(|listener| own.contains(&listener.inode));
            own.map(|listener| listener.address.to_string()).collect()
        };
        for &pid in processes.get(&self.identity).into_iter().flatten() {
            let Some(now) = programs::read(pid) else { continue };
            match self.programs.entry((pid, now.began_ticks)) {
                Entry::Occupied(known) => {
                    let last = &mut known.into_mut().last;
                    let descriptors = last.descriptors.max(now.descriptors);
                    *last = Program { descriptors, ..now };
                }
                Entry::Vacant(new) => {
                    let before = if is_first { now.threads.clone() } else { BTreeMap::new() };
                    new.insert(ProgramSamples { before, last: now, listens: listens(pid) });
                }
            }
        }
    }

    /// Looks at the sockets of this host, in its namespace. Returns those that listen.
    fn look_at_sockets(&mut self, max_connections: usize) -> io::Result<Vec<Listener>> {
        let listeners = tcp::listeners()?;
        for listener in &listeners {
            let seen = self.seen.listeners.entry(listener.address.to_string()).or_default();
            seen.backlog = listener.backlog;
            seen.most_waiting = seen.most_waiting.max(listener.waiting);
            seen.samples += 1;
            seen.samples_waiting += u32::from(listener.waiting > 0);
        }
        let connections = tcp::connections(max_connections + 1, &listeners)?;
        if connections.len() <= max_connections || max_connections == MAX_CONNECTIONS {
            connections.into_iter().for_each(|connection| self.look_at(connection));
        }
        Ok(listeners)
    }

    fn look_at(&mut self, connection: Connection) {
        let ends = (connection.local, connection.remote);
        let before = self.connections.get(&ends).map(|before| before.info.clone()).unwrap_or_default();
        let (now, senders) = (&connection.info, &mut self.seen.senders);
        let passed = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before.unwrap_or(0)));
        senders.samples += 1;
        senders.retransmits += u64::from(now.retransmits.saturating_sub(before.retransmits));
        if let Some(busy_us) = passed(now.busy_us, before.busy_us) {
            *senders.busy_us.get_or_insert_default() += busy_us;
        }
        senders.receive_window_limited_us +=
            passed(now.receive_window_limited_us, before.receive_window_limited_us).unwrap_or(0);
        senders.send_buffer_limited_us +=
            passed(now.send_buffer_limited_us, before.send_buffer_limited_us).unwrap_or(0);
        if connection.unacknowledged_bytes > 0 {
            let bytes = |segments: u32| u64::from(segments) * u64::from(now.segment_bytes);
            senders.samples_sending += 1;
            senders.in_flight_bytes += bytes(now.in_flight);
            senders.congestion_window_bytes += bytes(now.congestion_window);
            senders.send_buffer_used_bytes += u64::from(connection.send_buffer_used_bytes);
            senders.send_buffer_bytes += u64::from(connection.send_buffer_bytes);
            senders.rtt_us += u64::from(now.rtt_us);
        }
        self.connections.insert(ends, connection);
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
            listens: self.listens.clone(),
            busiest_thread_s: busiest.0,
            busiest_thread_waiting_s: busiest.1,
            running_s: threads.iter().map(|times| times.0).sum(),
            most_descriptors: self.last.descriptors,
            max_descriptors: self.last.max_descriptors,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn what_happens_between_begin_and_end_is_seen() {
        let own = namespaces::path_of(std::process::id(), Kind::Network);
        let host =
            WatchedHost { name: "here".to_owned(), network: Arc::new(File::open(own).unwrap()), group: None };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let watch = Watch::start(vec![host], false).unwrap();
        let _waiting = TcpStream::connect(address).unwrap();
        let until = Instant::now() + Duration::from_millis(50);
        while Instant::now() < until {}
        let seen = watch.stop().unwrap();
        let host = &seen.hosts[0];
        let queue = host.listeners[&address.to_string()];
        assert_eq!((queue.most_waiting, queue.samples, queue.samples_waiting), (1, 2, 1));
        assert!(host.counters.get("Tcp.PassiveOpens").unwrap() >= 1, "{host:?}");
        let pid = std::process::id();
        let program = host.programs.iter().find(|program| program.pid == pid).unwrap();
        assert!(program.listens.contains(&address.to_string()), "{program:?}");
        assert!(program.busiest_thread_s > 0.01, "{program:?}");
        assert!(program.busiest_thread_s <= program.running_s);
        assert!(seen.elapsed_s >= 0.05 && seen.reading_s > 0.0 && seen.machine.get("cpu0.idle_ms").is_some());
    }

    #[test]
    fn a_host_that_cannot_be_entered_is_an_error() {
        let no_namespace = Arc::new(File::open("/proc/self/stat").unwrap());
        let host = WatchedHost { name: "gone".to_owned(), network: no_namespace, group: None };
        assert!(Watch::start(vec![host], false).is_err());
    }
}
