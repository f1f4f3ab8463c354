//! Two hosts connected by `proofload link`, and the traffic between them.

use std::{
    fs::{self, File},
    net::UdpSocket,
    os::fd::AsFd,
    sync::atomic::{AtomicBool, Ordering},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
use record::{TrialEntry, VoidRule, nearest_rank};
use rustix::{
    process::Signal,
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use serde_json::Value;
use testing::PATIENCE;

use crate::{
    disturbance::{Awake, Witness},
    process::{Launch, Process},
    proofload::binary,
    temporary::TemporaryFolder,
};

mod one_way;

pub use one_way::distance_from_uniform;

/// Why this machine was too busy for the links of a study. None if at least one of its trials is valid.
///
/// # Errors
/// If a trial is void for another reason.
pub fn uncertified(trials: &[TrialEntry]) -> Result<Option<String>> {
    if trials.iter().any(|entry| !entry.trial.validity.is_void()) {
        return Ok(None);
    }
    let reasons: Vec<_> = trials.iter().flat_map(|entry| entry.trial.validity.reasons()).collect();
    let other = reasons.iter().find(|reason| reason.rule != VoidRule::Link);
    ensure!(other.is_none(), "void, and not for the link: {other:?}");
    Ok(Some(reasons.first().context("a void trial has a reason")?.evidence.clone()))
}

/// Default addresses of the two ends of `proofload link`.
const ADDRESSES: [&str; 2] = ["10.255.255.1", "10.255.255.2"];

/// A running link between two new hosts. All of it ends when dropped.
#[derive(Debug)]
pub struct LinkedHosts {
    // Dropped before the hosts, because it has interfaces in them.
    link: Process,
    hosts: [Process; 2],
    folder: TemporaryFolder,
}

impl LinkedHosts {
    /// Starts `proofload link` with these options between two new hosts, and waits until it is ready.
    ///
    /// # Errors
    /// If it does not become ready. The error has its output.
    pub fn start(options: &str) -> Result<Self> {
        Self::start_with_orders(options, "")
    }

    /// The same, with orders on its standard input.
    ///
    /// # Errors
    /// If it does not become ready. The error has its output.
    pub fn start_with_orders(options: &str, orders: &str) -> Result<Self> {
        let (hosts, folder) = ([host()?, host()?], TemporaryFolder::new()?);
        let launch = Launch::new(binary()?.display().to_string())
            .arg("link")
            .args(hosts.iter().map(|host| host.pid().to_string()))
            .words(options)
            .input(orders)
            .args(["--json".to_owned(), folder.file("link.json")]);
        let mut linked = Self { link: launch.start()?, hosts, folder };
        // This may take long, for example for a certificate of a million packets.
        linked.link.says("link ready", PATIENCE)?;
        Ok(linked)
    }

    /// Gives TCP buffers for 1 Gbit/s over 228 ms (28.5 MB) with a queue of twice that. The sender's buffer is the limit: it can fill the
    /// link even when a third of it is empty, and cannot overflow the queue.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn tune(&self) -> Result<()> {
        let script = "cd /proc/sys/net/ipv4 && echo 4096 131072 268435456 > tcp_rmem && \
                      echo 4096 131072 67108864 > tcp_wmem";
        for index in 0..2 {
            let done = self.inside(index, "sh").args(["-c", script]).run(PATIENCE)?;
            ensure!(done.code == Some(0), "cannot tune a host: {}", done.stderr);
        }
        Ok(())
    }

    /// Runs iperf3 from the first host to the second with these options, and returns its result.
    ///
    /// # Errors
    /// If it fails, or takes longer than `most`.
    pub fn iperf3(&self, options: &str, most: Duration) -> Result<Value> {
        let mut server = self.inside(1, "iperf3").words("-s -1 --forceflush").start()?;
        server.says("listening", PATIENCE)?;
        let client =
            self.inside(0, "iperf3").words(&format!("-c {} -J", ADDRESSES[1])).words(options).run(most)?;
        let result: Value = serde_json::from_str(&client.stdout)
            .with_context(|| format!("iperf3 said: {}{}", client.stdout, client.stderr))?;
        match result.get("error") {
            Some(error) => Err(anyhow!("iperf3: {error}")),
            None => Ok(result),
        }
    }

    /// Number of datagrams that the hosts received since their start but dropped for lack of room.
    ///
    /// # Errors
    /// If a host does not report it.
    pub fn datagrams_without_room(&self) -> Result<u64> {
        self.datagrams("RcvbufErrors")
    }

    /// Number of datagrams that a host has sent and the other one has not received, whether or not it used them.
    ///
    /// # Errors
    /// If a host does not report it.
    pub fn datagrams_missing(&self) -> Result<u64> {
        let received = ["InDatagrams", "InErrors", "NoPorts"].map(|name| self.datagrams(name));
        let received: u64 = received.into_iter().sum::<Result<u64>>()?;
        Ok(self.datagrams("OutDatagrams")?.saturating_sub(received))
    }

    /// The sum of a UDP counter over both hosts.
    fn datagrams(&self, name: &str) -> Result<u64> {
        let mut sum = 0;
        for index in 0..2 {
            let snmp = self.inside(index, "cat").arg("/proc/net/snmp").run(PATIENCE)?;
            let mut udp = snmp.stdout.lines().filter_map(|line| line.strip_prefix("Udp: "));
            let (names, values) = udp.next().zip(udp.next()).context("/proc/net/snmp has no lines of UDP")?;
            let mut counters = names.split(' ').zip(values.split(' '));
            let (_, value) =
                counters.find(|(found, _)| *found == name).with_context(|| format!("UDP has no {name}"))?;
            sum += value.parse::<u64>()?;
        }
        Ok(sum)
    }

    /// Round-trip times of small datagrams, one after each interval.
    ///
    /// # Errors
    /// If a host cannot be entered.
    pub fn round_trips(&self, count: u32, interval: Duration) -> Result<RoundTrips> {
        let near = self.socket(0)?;
        let far = self.socket(1)?;
        near.connect(far.local_addr()?)?;
        // Poll the sockets, because a sleeping receiver wakes up tens of microseconds late, which would count for the link.
        for socket in [&near, &far] {
            socket.set_nonblocking(true)?;
        }
        // The link's threads sleep between packets and may run on any processor, so keep all of them awake and watch them all.
        let cores = kernel::noise::allowed_cpus()?;
        let _awake = Awake::keep_all(&cores);
        let is_over = AtomicBool::new(false);
        let started = Instant::now();
        let witnesses = cores.into_iter().map(Witness::on).collect::<Result<Vec<_>>>()?;
        let mut answers = Vec::new();
        let mut gaps = thread::scope(|scope| {
            let echo = scope.spawn(|| {
                let (mut watch, mut buffer) = (Watch::new(started), [0; 64]);
                while !is_over.load(Ordering::Relaxed) {
                    watch.look();
                    if let Ok((bytes, from)) = far.recv_from(&mut buffer) {
                        let _ = far.send_to(&buffer[..bytes], from);
                    }
                }
                watch.gaps
            });
            scope.spawn(|| {
                for index in 0..count {
                    thread::sleep((interval * index).saturating_sub(started.elapsed()));
                    let _ = near.send(&elapsed_ns(started).to_ne_bytes());
                }
            });
            let (mut watch, mut answer, mut last_ns) = (Watch::new(started), [0; 64], 0);
            // A lost packet shows once all others have arrived.
            while answers.len() < count as usize && watch.look() < last_ns + PATIENCE_NS {
                if let Ok(8) = near.recv(&mut answer) {
                    last_ns = elapsed_ns(started);
                    answers.push((u64::from_ne_bytes(std::array::from_fn(|i| answer[i])), last_ns));
                }
            }
            is_over.store(true, Ordering::Relaxed);
            let far_gaps = echo.join().unwrap_or_default();
            [watch.gaps, far_gaps].concat()
        });
        for witness in witnesses {
            let spans = witness.end()?.spans;
            gaps.extend(
                spans.iter().map(|span| (elapsed_until(started, span.0), elapsed_until(started, span.1))),
            );
        }
        Ok(RoundTrips::sorted(&answers, &gaps))
    }

    /// The names of a host's interfaces, including loopback.
    ///
    /// # Errors
    /// If the host is gone.
    pub fn interfaces(&self, index: usize) -> Result<Vec<String>> {
        let text = fs::read_to_string(format!("/proc/{}/net/dev", self.hosts[index].pid()))?;
        Ok(text.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect())
    }

    /// The process of `proofload link`.
    pub fn program(&mut self) -> &mut Process {
        &mut self.link
    }

    /// Ends the link, and returns its report.
    ///
    /// # Errors
    /// If it does not end properly.
    pub fn stop(self) -> Result<Value> {
        self.end_by(Signal::INT)
    }

    /// Ends the link with a signal, and returns its report.
    ///
    /// # Errors
    /// If it does not end properly.
    pub fn end_by(mut self, signal: Signal) -> Result<Value> {
        self.link.signal(signal);
        self.link.wait(PATIENCE)?.context("the link does not end")?;
        let path = self.folder.file("link.json");
        let text = fs::read_to_string(&path).with_context(|| format!("no report: {}", self.link.stderr()))?;
        Ok(serde_json::from_str(&text)?)
    }

    /// A program to run on a host.
    pub fn inside(&self, index: usize, program: &str) -> Launch {
        let pid = self.hosts[index].pid().to_string();
        Launch::new("nsenter").args(["-t", &pid, "-n", program])
    }

    /// Calls `work` on a thread that is on a host. Programs that it starts are there, too.
    ///
    /// # Errors
    /// If the host is gone.
    pub fn within<T: Send + 'static>(
        &self,
        index: usize,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<JoinHandle<Result<T>>> {
        let namespace = File::open(format!("/proc/{}/ns/net", self.hosts[index].pid()))?;
        // A thread cannot leave the namespace again, so use a new one each time.
        Ok(thread::spawn(move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            work()
        }))
    }

    fn socket(&self, index: usize) -> Result<UdpSocket> {
        let bound = self.within(index, move || Ok(UdpSocket::bind((ADDRESSES[index], 0))?))?;
        bound.join().map_err(|_| anyhow!("the thread in the host panicked"))?
    }
}

/// Round-trip times in nanoseconds, each list in ascending order.
#[derive(Debug, Default)]
pub struct RoundTrips {
    /// Trips that had a processor whenever they needed one.
    pub quiet_ns: Vec<u64>,
    /// Trips for which the hypervisor or another program had taken a processor when the datagram was sent, left the link, or was answered.
    pub stolen_ns: Vec<u64>,
}

/// Longest wait for an answer, in nanoseconds.
const PATIENCE_NS: u64 = 60_000_000_000;
/// If a polling thread was away for longer than this, it had lost its processor, in nanoseconds.
const GAP_NS: u64 = 300_000;
/// After a gap, packets may still queue for this time, in nanoseconds.
const AFTER_GAP_NS: u64 = 1_000_000;

/// Notices when the polling thread has lost its processor. `gaps` has the start and end of each such time.
struct Watch {
    started: Instant,
    last_ns: u64,
    gaps: Vec<(u64, u64)>,
}

impl Watch {
    fn new(started: Instant) -> Self {
        Self { started, last_ns: elapsed_ns(started), gaps: Vec::new() }
    }

    /// Must be called without pause. Returns the time.
    fn look(&mut self) -> u64 {
        let now_ns = elapsed_ns(self.started);
        if now_ns - self.last_ns > GAP_NS {
            self.gaps.push((self.last_ns, now_ns));
        }
        self.last_ns = now_ns;
        now_ns
    }
}

fn elapsed_ns(since: Instant) -> u64 {
    elapsed_until(since, Instant::now())
}

fn elapsed_until(since: Instant, moment: Instant) -> u64 {
    moment.saturating_duration_since(since).as_nanos() as u64
}

impl RoundTrips {
    /// Sorts trips (times of sending and answer, in nanoseconds) by whether a gap hit them. A trip needs a processor when it is sent,
    /// half-way, and when it returns, including the time by which it is later than the link alone would make it.
    fn sorted(trips: &[(u64, u64)], gaps: &[(u64, u64)]) -> Self {
        let shortest_ns = trips.iter().map(|(sent, back)| back - sent).min().unwrap_or(0);
        let mut sorted = Self::default();
        for &(sent, back) in trips {
            let late_ns = back - sent - shortest_ns;
            let is_hit = [sent, sent + shortest_ns / 2, sent + shortest_ns].iter().any(|&moment| {
                let ends = moment + late_ns;
                gaps.iter().any(|&(from, to)| from <= ends && to + AFTER_GAP_NS >= moment)
            });
            if is_hit { sorted.stolen_ns.push(back - sent) } else { sorted.quiet_ns.push(back - sent) }
        }
        sorted.quiet_ns.sort_unstable();
        sorted.stolen_ns.sort_unstable();
        sorted
    }

    /// A percentile of the quiet trips in milliseconds; 0 if there are none.
    pub fn percentile_ms(&self, quantile: f64) -> f64 {
        nearest_rank(&self.quiet_ns, quantile).map_or(0.0, |ns| ns as f64 / 1e6)
    }
}

/// The rates of both directions after the first seconds, in Mbit/s, from an iperf3 result with `--bidir`.
pub fn steady_mbit_per_s(result: &Value, after_s: f64) -> [f64; 2] {
    let empty = Vec::new();
    let intervals = result["intervals"].as_array().unwrap_or(&empty);
    [true, false].map(|is_sender| {
        let streams = intervals.iter().filter_map(|interval| interval["streams"].as_array()).flatten();
        let steady = streams.filter(|s| s["sender"] == is_sender && s["start"].as_f64() >= Some(after_s));
        let field = |name: &'static str| move |stream: &Value| stream[name].as_f64().unwrap_or(0.0);
        let (bytes, seconds) = steady.fold((0.0, 0.0), |(bytes, seconds), stream| {
            (bytes + field("bytes")(stream), seconds + field("seconds")(stream))
        });
        if seconds > 0.0 { bytes * 8.0 / seconds / 1e6 } else { 0.0 }
    })
}

/// The share of a processor that the emulator used for each Gbit/s that it delivered in one direction.
pub fn cores_per_gbit(counters: &Value) -> f64 {
    let field = |name: &str| counters[name].as_f64().unwrap_or(0.0);
    field("cpu_ns") / (field("delivered_bytes") * 8.0).max(1.0)
}

/// Makes a network namespace that exists as long as the process.
///
/// # Errors
/// If it cannot be made.
pub fn host() -> Result<Process> {
    let mut host = Launch::new("unshare").args(["-n", "sleep", "infinity"]).start()?;
    let own = fs::read_link("/proc/self/ns/net")?;
    let path = format!("/proc/{}/ns/net", host.pid());
    let is_apart = || fs::read_link(&path).is_ok_and(|namespace| namespace != own);
    host.find("a network namespace; is this root?", PATIENCE, |_| is_apart().then_some(()))?;
    Ok(host)
}
