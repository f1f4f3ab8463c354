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
    counters::since,
    namespaces,
    processor_time::Booking,
    programs::{self, Program, ThreadTimes},
    remote::Remote,
    source::{Here, Look, Processes, Source},
    tcp::Connection,
};

/// Time from one sample to the next.
const INTERVAL: Duration = Duration::from_secs(1);
/// The name under which [`Counters::missing`] says why processor time could not be booked.
pub const PROCESSOR_TIME: &str = "processor time of hosts";

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

/// Watches hosts until it is stopped: those of this machine on one thread, each remote host on its own, so that a slow one does not
/// delay the others.
#[derive(Debug)]
pub struct Watch {
    here: Watcher,
    /// The remote hosts with their names.
    remotes: Vec<(String, Watcher)>,
    /// None if it was not asked for.
    booking: Option<Result<Booking, String>>,
    /// The inode numbers of the namespaces of this machine's hosts.
    inodes: Vec<u64>,
}

/// A thread that watches.
#[derive(Debug)]
struct Watcher {
    /// Disconnected once the begin has been read, or cannot be.
    begun: mpsc::Receiver<()>,
    stop: mpsc::Sender<()>,
    thread: JoinHandle<io::Result<Seen>>,
}

/// What a thread has seen.
struct Seen {
    elapsed_s: f64,
    machine: Counters,
    hosts: Vec<HostCounters>,
    reading_s: f64,
}

impl Watch {
    /// Reads all counters, and begins to sample. Books processor time to the hosts of this machine if `books_time`; where this
    /// is not possible, [`Counters::missing`] of the machine says why.
    ///
    /// # Errors
    /// When a thread cannot be started, the namespace of a host of this machine cannot be entered, or its sockets cannot be
    /// listed. A remote host that does not answer is no error: its counters will be missing.
    pub fn start(hosts: Vec<WatchedHost>, remotes: &[Arc<Remote>], books_time: bool) -> io::Result<Self> {
        let inode = |host: &WatchedHost| namespaces::identity(&host.network).map(|(_, inode)| inode);
        let inodes = hosts.iter().map(inode).collect::<io::Result<_>>()?;
        let of_remote = |remote: &Arc<Remote>| {
            let (name, remote) = (remote.name().to_owned(), remote.clone());
            let host = name.clone();
            let watcher =
                Watcher::start(move |orders| remote.with_shell(|shell| watch(vec![(host, shell)], orders)))?;
            Ok((name, watcher))
        };
        let all: Vec<(String, Watcher)> = remotes.iter().map(of_remote).collect::<io::Result<_>>()?;
        // A slow answer delays the trial, and no other host's begin.
        all.iter().for_each(|(_, watcher)| _ = watcher.begun.recv());
        let ignored: Arc<[_]> = remotes.iter().filter_map(|remote| remote.own()).collect();
        let here = Watcher::start(move |orders| {
            let source =
                |host: WatchedHost| Ok((host.name, Here::new(host.network, host.group, ignored.clone())?));
            watch(hosts.into_iter().map(source).collect::<io::Result<_>>()?, orders)
        })?;
        if here.begun.recv().is_err() {
            return Err(here.stop().err().unwrap_or_else(|| io::Error::other("the watch ended at once")));
        }
        // Last here and first at the end: what is read does not count.
        let booking = books_time.then(Booking::start);
        Ok(Self { here, remotes: all, booking, inodes })
    }

    /// Reads all counters once more.
    ///
    /// # Errors
    /// As those of [`start`](Self::start), from any sample.
    pub fn stop(self) -> io::Result<TrialCounters> {
        let booked = self.booking.map(|booking| booking.and_then(Booking::stop)).transpose();
        self.remotes.iter().for_each(|(_, watcher)| watcher.tell());
        let seen = self.here.stop();
        let remotes: Vec<_> =
            self.remotes.into_iter().map(|(name, watcher)| (name, watcher.stop())).collect();
        let Seen { elapsed_s, mut machine, mut hosts, mut reading_s } = seen?;
        let mut booked = booked.unwrap_or_else(|why| {
            machine.missing.insert(PROCESSOR_TIME.to_owned(), why);
            None
        });
        for (host, inode) in hosts.iter_mut().zip(self.inodes) {
            host.processor = booked.as_mut().map(|booked| booked.take(inode));
        }
        for (name, seen) in remotes {
            match seen {
                Ok(seen) => {
                    reading_s += seen.reading_s;
                    let own = seen.hosts.into_iter();
                    hosts
                        .extend(own.map(|host| HostCounters { machine: Some(seen.machine.clone()), ..host }));
                }
                Err(error) => {
                    let missing = BTreeMap::from([("ssh".to_owned(), error.to_string())]);
                    let counters = Counters { missing, ..Counters::default() };
                    hosts.push(HostCounters { host: name, counters, ..HostCounters::default() });
                }
            }
        }
        let (schema, processor) = (SCHEMA.to_owned(), booked.map(|booked| booked.rest()));
        Ok(TrialCounters { schema, trial: 0, elapsed_s, machine, hosts, processor, reading_s })
    }
}

/// The other ends of the channels of a [`Watcher`].
struct Orders {
    begun: mpsc::Sender<()>,
    stopped: mpsc::Receiver<()>,
}

impl Watcher {
    fn start(work: impl FnOnce(Orders) -> io::Result<Seen> + Send + 'static) -> io::Result<Self> {
        let ((stop, stopped), (sender, begun)) = (mpsc::channel(), mpsc::channel());
        let orders = Orders { begun: sender, stopped };
        let thread = thread::Builder::new().name("watch".to_owned()).spawn(move || work(orders))?;
        Ok(Self { begun, stop, thread })
    }

    /// Tells it to stop, without waiting.
    fn tell(&self) {
        // If the thread has failed, it does not listen any more.
        let _ = self.stop.send(());
    }

    fn stop(self) -> io::Result<Seen> {
        self.tell();
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Samples hosts, one after the other, until it is told to stop.
fn watch<S: Source>(hosts: Vec<(String, S)>, orders: Orders) -> io::Result<Seen> {
    let mut samples = Samples::begin(hosts)?;
    let _ = orders.begun.send(());
    while orders.stopped.recv_timeout(INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
        samples.take()?;
    }
    samples.end()
}

/// The samples of hosts of one machine.
struct Samples<S> {
    began: Instant,
    machine: Counters,
    hosts: Vec<HostSamples<S>>,
}

struct HostSamples<S> {
    source: S,
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
    listens: BTreeSet<String>,
    /// Looks, and those in which a thread waited for a device.
    looks: (u32, u32),
}

impl<S: Source> Samples<S> {
    fn begin(hosts: Vec<(String, S)>) -> io::Result<Self> {
        let mut hosts: Vec<_> =
            hosts.into_iter().map(|(name, source)| HostSamples::new(name, source)).collect();
        let processes = S::processes();
        hosts.iter_mut().try_for_each(|host| host.begin(&processes))?;
        // Last here and first at the end: on a slow path, looking takes a while.
        let machine = hosts.first_mut().map(|host| host.source.machine()).transpose()?.unwrap_or_default();
        Ok(Self { began: Instant::now(), machine, hosts })
    }

    fn take(&mut self) -> io::Result<()> {
        let processes = S::processes();
        for host in &mut self.hosts {
            host.source.enter()?;
            host.look_at_sockets(Look::Brief)?;
            host.look_at_programs(&processes, Look::Brief)?;
        }
        Ok(())
    }

    fn end(mut self) -> io::Result<Seen> {
        let elapsed_s = self.began.elapsed().as_secs_f64();
        let machine = match self.hosts.first_mut() {
            Some(host) => since(host.source.machine()?, &self.machine),
            None => Counters::default(),
        };
        let processes = S::processes();
        self.hosts.iter_mut().try_for_each(|host| host.end(&processes))?;
        let own = programs::parse_times(&crate::read("/proc/thread-self/schedstat")?).unwrap_or_default();
        let hosts = self.hosts.into_iter().map(|host| host.seen).collect();
        Ok(Seen { elapsed_s, machine, hosts, reading_s: own.running_ns as f64 / 1e9 })
    }
}

impl<S: Source> HostSamples<S> {
    fn new(name: String, source: S) -> Self {
        Self {
            source,
            before: Counters::default(),
            programs: BTreeMap::new(),
            connections: BTreeMap::new(),
            seen: HostCounters { host: name, ..HostCounters::default() },
        }
    }

    /// The first look. What was done before it does not count.
    fn begin(&mut self, processes: &Processes) -> io::Result<()> {
        self.source.enter()?;
        self.look_at_sockets(Look::Whole)?;
        self.look_at_programs(processes, Look::Whole)?;
        // The last thing here and the first at the end: looking is work, too.
        self.before = self.source.network()?;
        self.seen.senders = SenderUse::default();
        for program in self.programs.values_mut() {
            program.before = program.last.threads.clone();
        }
        Ok(())
    }

    fn end(&mut self, processes: &Processes) -> io::Result<()> {
        self.source.enter()?;
        self.seen.counters = since(self.source.network()?, &self.before);
        self.look_at_sockets(Look::Whole)?;
        self.look_at_programs(processes, Look::Whole)?;
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
        self.source.connections(look)?.into_iter().for_each(|connection| self.look_at(connection));
        Ok(())
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

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::namespaces::{self, Kind};

    #[test]
    fn what_happens_between_begin_and_end_is_seen() {
        let own = namespaces::path_of(std::process::id(), Kind::Network);
        let host =
            WatchedHost { name: "here".to_owned(), network: Arc::new(File::open(own).unwrap()), group: None };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let watch = Watch::start(vec![host], &[], false).unwrap();
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
        assert!(Watch::start(vec![host], &[], false).is_err());
    }
}
