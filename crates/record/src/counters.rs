//! The kernel counters of a trial's hosts: a line of `counters.jsonl`.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema of counters that this version writes.
pub const SCHEMA: &str = "proofload/counters/1";

/// What the kernels of a trial's hosts counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialCounters {
    /// The format of this record, [`SCHEMA`].
    pub schema: String,
    /// The trial's index. If an index occurs twice, the study was resumed in between, and the last one counts.
    pub trial: u64,
    /// Time from the first reading to the last, in seconds.
    pub elapsed_s: f64,
    /// What the hosts on this machine share: processors, their queues of packets, pressure.
    pub machine: Counters,
    /// The hosts.
    pub hosts: Vec<HostCounters>,
    /// The processor time that no host used; none if it was not asked for, or could not be booked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<UnownedTime>,
    /// Processor time that the readings took, in seconds.
    pub reading_s: f64,
}

impl TrialCounters {
    /// Time from the first to the last reading of the host with this name, in seconds; that of this machine if no host
    /// has the name. It is more than 0, so that callers can divide by it.
    pub fn elapsed_s_at(&self, host: &str) -> f64 {
        let elapsed_s = self.hosts.iter().find(|known| known.host == host).and_then(|known| known.elapsed_s);
        elapsed_s.unwrap_or(self.elapsed_s).max(f64::MIN_POSITIVE)
    }

    /// The processor time of all work on this machine, without the booking itself; `None` if no time was booked.
    pub fn worked(&self) -> Option<ProcessorTime> {
        let unowned = self.processor.as_ref()?;
        let mut all = ProcessorTime::default();
        let hosts = self.hosts.iter().filter_map(|host| host.processor.as_ref());
        for time in hosts.chain([&unowned.kernel, &unowned.others]) {
            all.merge(time);
        }
        Some(all)
    }
}

impl HostCounters {
    /// The largest possible share of the trial for which a quota stopped the host's control group (0 to 1); `None` if
    /// it has no quota.
    pub fn stopped_share(&self, elapsed_s: f64) -> Option<f64> {
        stopped_share(&self.counters.values, elapsed_s)
    }
}

impl ProgramUse {
    /// The largest possible share of the trial for which a quota stopped the process's control group (0 to 1).
    pub fn stopped_share(&self, elapsed_s: f64) -> Option<f64> {
        stopped_share(&self.quota, elapsed_s)
    }
}

/// Uses the smaller of two upper limits. The stopped time is a sum over processors, which may stop at the same time. A
/// group that was stopped in a period may have run in the rest of that period.
fn stopped_share(values: &BTreeMap<String, u64>, elapsed_s: f64) -> Option<f64> {
    let of_group = |prefix: &str| {
        let of = |name: &str| values.get(&format!("{prefix}.{name}")).map(|value| *value as f64);
        let of_time = of("throttled_us")? / 1e6 / elapsed_s;
        let of_periods = of("throttled_periods").zip(of("periods"));
        Some(of_periods.map_or(of_time, |(stopped, all)| of_time.min(stopped / all.max(1.0))).min(1.0))
    };
    // The nearest group with a quota, and those above it.
    let prefixes = values.keys().filter_map(|name| name.strip_suffix(".throttled_us"));
    prefixes.filter_map(of_group).max_by(f64::total_cmp)
}

impl ProcessorTime {
    /// Adds the processor time of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.total_s += other.total_s;
        self.softirq_s += other.softirq_s;
        other.by_core_s.iter().for_each(|(core, s)| *self.by_core_s.entry(*core).or_default() += s);
    }
}

/// Counters by name. The names are those of the kernel, such as `TcpExt.ListenOverflows`, or end in their unit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counters {
    /// What changed between two readings; the value at a moment for what rises and falls.
    pub values: BTreeMap<String, u64>,
    /// Files that could not be read, with the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub missing: BTreeMap<String, String>,
    /// How they went; none at a moment, of a trial of less than a second, and in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<Series>,
}

/// How counters went, step by step. A step is a second, or in long trials several.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// When each step ended: time since the first reading, in milliseconds. The last step is shorter than the others.
    pub ends_ms: Vec<u64>,
    /// By the counter's name, what changed in each step; the value at its end for what rises and falls. Counters that did not
    /// move are left out.
    pub values: BTreeMap<String, Vec<u64>>,
}

impl Counters {
    /// The value of a counter, if the kernel has it.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.values.get(name).copied()
    }

    /// The numbers of a machine's online processors. There may be gaps between them.
    pub fn online_cpus(&self) -> BTreeSet<u32> {
        let number = |name: &String| name.strip_prefix("cpu")?.strip_suffix(".idle_ms")?.parse().ok();
        self.values.keys().filter_map(number).collect()
    }

    /// The time that these processors spent in one state, such as `idle` or `steal`, in seconds.
    pub fn processors_s(&self, cpus: &BTreeSet<u32>, way: &str) -> f64 {
        let of = |cpu: &u32| self.get(&format!("cpu{cpu}.{way}_ms"));
        cpus.iter().filter_map(of).sum::<u64>() as f64 / 1e3
    }
}

/// What the kernel counted for a host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostCounters {
    /// The host; empty for this machine.
    pub host: String,
    /// Time from its first reading to the last, in seconds; none for a host on this machine, whose readings are the trial's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elapsed_s: Option<f64>,
    /// The counters of its network namespace. Without a value if a remote host did not answer; `missing` says why.
    pub counters: Counters,
    /// What the machine of a remote host counted; none for a host on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Counters>,
    /// Its listening sockets by their address.
    pub listeners: BTreeMap<String, ListenerUse>,
    /// Whether a sample did not have all its connections, because there were too many.
    #[serde(default)]
    pub is_cut: bool,
    /// Its connections while they had bytes to send.
    pub senders: SenderUse,
    /// Its processes.
    pub programs: Vec<ProgramUse>,
    /// The processor time that it used; none if it was not asked for, or could not be booked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<ProcessorTime>,
}

/// Processor time, without what the hypervisor took away.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessorTime {
    /// Over all processors, in seconds.
    pub total_s: f64,
    /// The part of it in which softirqs received packets and sent queues, in seconds.
    pub softirq_s: f64,
    /// By the number of the processor, in seconds; processors without any are left out.
    pub by_core_s: BTreeMap<u32, f64>,
}

/// The processor time that no host used. With that of the hosts, it is the time on the clock of all processors.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UnownedTime {
    /// Time for which it was booked, in seconds.
    pub elapsed_s: f64,
    /// Without work.
    pub idle: ProcessorTime,
    /// Of threads of the kernel.
    pub kernel: ProcessorTime,
    /// Of namespaces that are no host, such as this machine's own, and those of links and segments.
    pub others: ProcessorTime,
    /// What the hypervisor took away. It counts in steps of 10 ms.
    pub stolen: ProcessorTime,
    /// What the booking itself took: a sample, extrapolated.
    pub booking: ProcessorTime,
}

/// The use of a listening socket's queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListenerUse {
    /// How many connections may wait to be accepted.
    pub backlog: u32,
    /// The largest number that was seen waiting.
    pub most_waiting: u32,
    /// Samples.
    pub samples: u32,
    /// Samples with connections that waited.
    pub samples_waiting: u32,
    /// The sum over the samples of the connections that waited.
    #[serde(default)]
    pub sum_waiting: u64,
    /// The largest number of its connections that was seen, those that waited included.
    #[serde(default)]
    pub most_connections: u32,
    /// The addresses of the host that these connections were opened to.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub reached_at: BTreeSet<String>,
}

/// Sums over the samples of a host's connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SenderUse {
    /// Samples of connections, whether they had bytes to send or not; without those that only receive.
    pub samples: u64,
    /// Samples of connections with bytes to send.
    pub samples_sending: u64,
    /// Bytes on their way in these samples.
    pub in_flight_bytes: u64,
    /// The mean of the bytes on their way in these samples, each weighted with them: samples in which a program logs in or
    /// waits weigh little.
    #[serde(default)]
    pub typical_in_flight_bytes: u64,
    /// Congestion windows in these samples, in bytes.
    pub congestion_window_bytes: u64,
    /// Memory of send buffers that was in use in these samples, in bytes.
    pub send_buffer_used_bytes: u64,
    /// Sizes of send buffers in these samples, in bytes.
    pub send_buffer_bytes: u64,
    /// Smoothed round-trip times in these samples, in microseconds.
    pub rtt_us: u64,
    /// The smallest round-trip times of these connections until then, in microseconds.
    #[serde(default)]
    pub least_rtt_us: u64,
    /// Samples of connections in which more waited to be sent for the first time than four segments.
    #[serde(default)]
    pub samples_unsent: u64,
    /// Segments sent again, over all connections.
    pub retransmits: u64,
    /// Time with something to send, in microseconds, over all connections; none if the kernel does not tell.
    pub busy_us: Option<u64>,
    /// The part of it in which the receive window of the other end stopped the sender.
    pub receive_window_limited_us: u64,
    /// The part of it in which the send buffer stopped the sender.
    pub send_buffer_limited_us: u64,
}

/// What a process used.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProgramUse {
    /// The process id.
    pub pid: u32,
    /// The name of the program.
    pub name: String,
    /// The addresses on which it listens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listens: Vec<String>,
    /// Time on a processor of the thread that ran longest, in seconds; none if its threads cannot be read, or if threads that ended
    /// unseen may have run longer.
    #[serde(default)]
    pub busiest_thread_s: Option<f64>,
    /// Time for which that thread was ready to run without a processor, in seconds.
    #[serde(default)]
    pub busiest_thread_waiting_s: Option<f64>,
    /// Share of the time just before the load for which that thread ran (0 to 1); none if it was not looked at then, as on another machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_before_share: Option<f64>,
    /// Time on processors of all threads, in seconds: also of those that ended, and of children that ended unseen.
    pub running_s: f64,
    /// The processors that it may use, such as `0-3,8`; none if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    /// What the control group that limits it counted of its quota, by the names of a host's counters; nothing if none does, or if
    /// it is not looked for: it is for processes that listen on this machine, without a lab.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub quota: BTreeMap<String, u64>,
    /// How often the process was looked at.
    #[serde(default)]
    pub samples: u32,
    /// In how many of these looks a thread waited for a device, in the state D.
    #[serde(default)]
    pub samples_blocked: u32,
    /// The threads that did its work; none if no thread that can be read has run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working: Option<WorkingThreads>,
    /// The part of `running_s` of threads and children that ended unseen, in seconds.
    #[serde(default)]
    pub ended_s: f64,
    /// For each address that it sent requests to, how many of them had no answer yet on average.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub asked: BTreeMap<String, f64>,
    /// In how many of these looks a signal had stopped it, in the state T.
    #[serde(default)]
    pub samples_stopped: u32,
    /// The largest number of descriptors that was seen open; none if this user may not see them.
    pub most_descriptors: Option<u64>,
    /// How many descriptors it may have open; none if unlimited.
    pub max_descriptors: Option<u64>,
}

/// The threads of a process that did its work: the busiest ones, which ran for 95 % of its time, without those that ran as much before the
/// load. Times are sums over them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkingThreads {
    /// How many they are.
    pub count: u32,
    /// Time on a processor, in seconds.
    pub running_s: f64,
    /// Time ready to run without a processor, in seconds.
    pub waiting_s: f64,
    /// Time for which they waited for a device (state D), in seconds, from samples.
    pub blocked_s: f64,
}

impl WorkingThreads {
    /// Whether a thread that ran for `share` of the trial does not work for the load, because it ran as much before: for `before_share` of the
    /// time then.
    pub fn ran_before(before_share: f64, share: f64) -> bool {
        /// Of a thread that ran for less than this part of the trial, nothing can be said.
        const NOTEWORTHY_SHARE: f64 = 0.1;
        /// It ran as much if it ran for this part of its share in the load.
        const BUSY_BEFORE: f64 = 0.8;
        share >= NOTEWORTHY_SHARE && before_share >= BUSY_BEFORE * share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_schema_is_the_one_of_this_code() {
        crate::testing::assert_published::<TrialCounters>("counters.schema.json");
    }

    #[test]
    fn processors_may_have_gaps_between_their_numbers() {
        let names = ["cpu0.idle_ms", "cpu2.idle_ms", "cpu10.idle_ms", "cpu3.steal_ms", "cgroup.periods"];
        let values = names.map(|name| (name.to_owned(), 1)).into();
        let counters = Counters { values, ..Counters::default() };
        assert_eq!(counters.online_cpus(), BTreeSet::from([0, 2, 10]));
    }

    #[test]
    fn times_of_processors_add_up_in_seconds() {
        let values = [("cpu0.steal_ms", 1_500), ("cpu2.steal_ms", 500), ("cpu0.idle_ms", 7)];
        let values = values.map(|(name, value)| (name.to_owned(), value)).into();
        let counters = Counters { values, ..Counters::default() };
        assert_eq!(counters.processors_s(&BTreeSet::from([0, 1, 2]), "steal"), 2.0);
        assert_eq!(counters.processors_s(&BTreeSet::from([2]), "idle"), 0.0);
    }

    #[test]
    fn a_group_is_stopped_for_no_longer_than_its_periods() {
        let share = |values: &[(&str, u64)]| {
            let values = values.iter().map(|&(name, value)| (format!("cgroup.{name}"), value)).collect();
            ProgramUse { quota: values, ..ProgramUse::default() }.stopped_share(10.0)
        };
        let four_threads = [("throttled_us", 28_000_000), ("throttled_periods", 80), ("periods", 100)];
        assert_eq!(share(&four_threads), Some(0.8));
        assert_eq!(share(&four_threads[..1]), Some(1.0), "an earlier version's record");
        let rarely = [("throttled_us", 300_000), ("throttled_periods", 10), ("periods", 10)];
        assert_eq!((share(&rarely), share(&[])), (Some(0.03), None));
    }

    #[test]
    fn counters_of_earlier_versions_are_read() {
        let counters: Counters = serde_json::from_str(r#"{"values":{"Tcp.InSegs":7}}"#).unwrap();
        assert_eq!((counters.get("Tcp.InSegs"), &counters.series), (Some(7), &None));
        assert_eq!(serde_json::to_string(&counters).unwrap(), r#"{"values":{"Tcp.InSegs":7}}"#);
    }
}
