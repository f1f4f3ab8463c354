//! Watches hosts during a trial: reads counters before, during and after the trial, and samples sockets and processes about ten times a
//! second.

mod samples;

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    path::PathBuf,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use record::{
    Counters,
    counters::{HostCounters, SCHEMA, TrialCounters},
};
use samples::Samples;

use crate::{
    namespaces,
    processor_time::Booking,
    remote::Remote,
    source::{Here, Source},
};

/// The counters are read after each interval.
const INTERVAL: Duration = Duration::from_secs(1);
/// The shortest time that has one sample.
const SHORTEST_SLOT: Duration = Duration::from_millis(100);
/// A sample takes at most one in this many parts of the time, unless it is the only one of its second.
const PARTS_PER_SAMPLE: u32 = 50;
/// The fractional part of the golden ratio. The fractional parts of its multiples spread evenly over an interval, for
/// any number of them.
const GOLDEN: f64 = 0.618_034;
/// Key in [`Counters::missing`] for the reason why processor time could not be assigned to hosts.
pub const PROCESSOR_TIME: &str = "processor time of hosts";

/// A host to watch. The hosts of one watch are either this process's own network namespace alone or only other namespaces: the
/// watching thread enters those and never returns to its own.
#[derive(Debug, Clone)]
pub struct WatchedHost {
    /// Its name.
    pub name: String,
    /// Its network namespace.
    pub network: Arc<File>,
    /// Its control group; none if it has no quota.
    pub group: Option<PathBuf>,
}

/// Watches hosts until it is stopped. The hosts of this machine share a thread; each remote host has its own, so that a
/// slow one does not delay the others.
#[derive(Debug)]
pub struct Watch {
    here: Watcher,
    /// The remote hosts with their names.
    remotes: Vec<(String, Watcher)>,
    /// None if it was not requested.
    booking: Option<Result<Booking, String>>,
    /// The inode numbers of the namespaces of this machine's hosts.
    inodes: Vec<u64>,
}

/// A thread that watches hosts.
#[derive(Debug)]
struct Watcher {
    /// Receives a message when the first counters have been read. Disconnected without a message if they cannot be
    /// read.
    begun: mpsc::Receiver<()>,
    stop: mpsc::Sender<()>,
    thread: JoinHandle<io::Result<Seen>>,
}

/// The results of a watching thread.
struct Seen {
    elapsed_s: f64,
    machine: Counters,
    hosts: Vec<HostCounters>,
    reading_s: f64,
}

impl Watch {
    /// Reads all counters and begins to sample. With `books_time`, assigns processor time to the hosts of this machine;
    /// if this is not possible, [`Counters::missing`] of the machine contains the reason.
    ///
    /// # Errors
    /// If a thread cannot be started, the namespace of a host of this machine cannot be entered, or its sockets cannot
    /// be listed. A remote host that does not answer is not an error, but its counters will be missing.
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
        // The remote hosts are read in parallel: a slow one delays the trial, but not the first readings of the others.
        all.iter().for_each(|(_, watcher)| _ = watcher.begun.recv());
        let ignored: Arc<[_]> = remotes.iter().filter_map(|remote| remote.own()).collect();
        let here = Watcher::start(move |orders| {
            let source =
                |host: WatchedHost| Ok((host.name, Here::new(host.network, host.group, ignored.clone())?));
            watch(hosts.into_iter().map(source).collect::<io::Result<_>>()?, orders)
        })?;
        if here.begun.recv().is_err() {
            return Err(here.stop().err().unwrap_or_else(|| io::Error::other("the observer ended at once")));
        }
        // Booking starts last here and ends first in `stop`, so that it does not include the time of reading the
        // counters.
        let booking = books_time.then(Booking::start);
        Ok(Self { here, remotes: all, booking, inodes })
    }

    /// Reads all counters once more.
    ///
    /// # Errors
    /// Those of [`start`](Self::start), for any sample.
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
                    let of_remote = seen.hosts.into_iter();
                    hosts.extend(of_remote.map(|host| HostCounters {
                        machine: Some(seen.machine.clone()),
                        elapsed_s: Some(seen.elapsed_s),
                        ..host
                    }));
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

    /// Tells the thread to stop, without waiting for its end.
    fn tell(&self) {
        // A thread that has failed no longer receives messages.
        let _ = self.stop.send(());
    }

    fn stop(self) -> io::Result<Seen> {
        self.tell();
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Samples hosts one after the other, until a message tells it to stop.
fn watch<S: Source>(hosts: Vec<(String, S)>, orders: Orders) -> io::Result<Seen> {
    let mut samples = Samples::begin(hosts)?;
    let _ = orders.begun.send(());
    let begun = Instant::now();
    let mut times = SampleTimes::default();
    let (mut next_sample, mut next_counts) = (times.next(Duration::ZERO, SHORTEST_SLOT), INTERVAL);
    loop {
        let next = next_sample.min(next_counts);
        let wait = next.saturating_sub(begun.elapsed());
        if orders.stopped.recv_timeout(wait) != Err(mpsc::RecvTimeoutError::Timeout) {
            break;
        }
        if next == next_sample {
            let took = samples.take()?;
            let slot = (took * PARTS_PER_SAMPLE).clamp(SHORTEST_SLOT, INTERVAL);
            next_sample = times.next(begun.elapsed(), slot);
        } else {
            samples.count()?;
            // Intervals that ended while a slow host was read are skipped.
            next_counts = INTERVAL * (begun.elapsed().as_secs() as u32 + 1);
        }
    }
    samples.end()
}

/// The times of the samples. Time is divided into slots, and each sample is at another point of its slot: a target's regular activity, such
/// as a pause for a log, would otherwise be in all samples or in none.
#[derive(Debug, Default)]
struct SampleTimes {
    number: u32,
    slot_end: Duration,
}

impl SampleTimes {
    /// The time of the next sample after `now`, in a slot of this length.
    fn next(&mut self, now: Duration, slot: Duration) -> Duration {
        self.number = self.number.wrapping_add(1);
        let begin = self.slot_end.max(now);
        self.slot_end = begin + slot;
        begin + slot.mul_f64((f64::from(self.number) * GOLDEN).fract())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use rustix::{
        fs::Timespec,
        time::{ClockId, clock_gettime},
    };

    use super::*;
    use crate::{
        namespaces::{self, Kind},
        tcp::{self, Listener},
    };

    #[test]
    fn what_happens_between_begin_and_end_is_seen() {
        // The test runs in a separate process, because threads of other tests that end meanwhile would hide the busiest
        // thread.
        if crate::testing::is_run_again("watch::tests::what_happens_between_begin_and_end_is_seen", &[]) {
            return;
        }
        let path = namespaces::path_of(std::process::id(), Kind::Network);
        let host = WatchedHost {
            name: "here".to_owned(),
            network: Arc::new(File::open(path).unwrap()),
            group: None,
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let watch = Watch::start(vec![host], &[], false).unwrap();
        let _waiting = TcpStream::connect(address).unwrap();
        let is_it = |listener: &Listener| listener.address == address && listener.waiting == 1;
        testing::until("it waits", || tcp::listeners().unwrap().iter().any(is_it));
        let worked = || clock_gettime(ClockId::ThreadCPUTime);
        let until = worked() + Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        while worked() < until {}
        let seen = watch.stop().unwrap();
        let host = &seen.hosts[0];
        let queue = &host.listeners[&address.to_string()];
        // The first sample precedes the connection, and the last one follows it.
        assert_eq!(queue.most_waiting, 1);
        assert!((1..queue.samples).contains(&queue.samples_waiting), "{queue:?}");
        assert!(host.counters.get("Tcp.PassiveOpens").unwrap() >= 1, "{host:?}");
        let pid = std::process::id();
        let program = host.programs.iter().find(|program| program.pid == pid).unwrap();
        assert!(program.listens.contains(&address.to_string()), "{program:?}");
        assert!(program.busiest_thread_s.unwrap() > 0.01, "{program:?}");
        assert!(program.busiest_thread_s.unwrap() <= program.running_s && program.cpus.is_some());
        assert!(seen.elapsed_s >= 0.05 && seen.reading_s > 0.0 && seen.machine.get("cpu0.idle_ms").is_some());
    }

    #[test]
    fn what_is_done_every_second_is_in_few_samples() {
        for (slot_ms, (period_ms, pause_ms)) in [100, 170, 1_000]
            .into_iter()
            .flat_map(|slot| [(500, 75), (1_000, 150), (2_000, 150)].map(|p| (slot, p)))
        {
            for first_ms in 0..period_ms {
                let is_paused =
                    |time: &Duration| (time.as_millis() as u64 + period_ms - first_ms) % period_ms < pause_ms;
                for seconds in 3..60 {
                    let times = sample_times(slot_ms).take_while(|time| time.as_secs() < seconds);
                    let (paused, all): (Vec<_>, Vec<_>) = times.partition(is_paused);
                    assert!(
                        paused.len() <= all.len(),
                        "{paused:?} in slots of {slot_ms} ms, from {first_ms} ms on"
                    );
                }
            }
        }
        let slots: Vec<u64> = sample_times(100).take(100).map(|time| time.as_millis() as u64 / 100).collect();
        assert_eq!(slots, Vec::from_iter(0..100), "one in each slot");
        let mut times = SampleTimes::default();
        let slot = Duration::from_millis(100);
        let (first, late) = (times.next(Duration::ZERO, slot), times.next(5 * slot, slot));
        assert!(first < slot && late >= 5 * slot, "slots that passed meanwhile have no sample");
    }

    fn sample_times(slot_ms: u64) -> impl Iterator<Item = Duration> {
        let mut times = SampleTimes::default();
        std::iter::from_fn(move || Some(times.next(Duration::ZERO, Duration::from_millis(slot_ms))))
    }

    #[test]
    fn a_host_that_cannot_be_entered_is_an_error() {
        let no_namespace = Arc::new(File::open("/proc/self/stat").unwrap());
        let host = WatchedHost { name: "gone".to_owned(), network: no_namespace, group: None };
        assert!(Watch::start(vec![host], &[], false).is_err());
    }
}
