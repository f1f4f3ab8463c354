//! The counters of a link. A packet here is a segment: one frame on a real wire, not a super-packet of the kernel.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The model's counters of one direction. Bytes are counted on the layer of the rate.
///
/// Always `offered = delivered + dropped_* + queue + flying - duplicated`, in packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipeCounters {
    /// Packets that arrived.
    pub offered_packets: u64,
    /// Bytes that arrived.
    pub offered_bytes: u64,
    /// Packets handed to the other host.
    pub delivered_packets: u64,
    /// Bytes handed to the other host.
    pub delivered_bytes: u64,
    /// Packets dropped because the queue was full.
    pub dropped_queue_packets: u64,
    /// Packets lost on the wire, as requested.
    pub dropped_loss_packets: u64,
    /// Packets dropped because the link was down.
    pub dropped_down_packets: u64,
    /// Packets delivered twice, as requested.
    pub duplicated_packets: u64,
    /// Packets delayed behind later ones, as requested.
    pub reordered_packets: u64,
    /// Packets that wait for the wire or are on it.
    pub queue_packets: u64,
    /// Bytes that wait for the wire or are on it.
    pub queue_bytes: u64,
    /// Maximum of `queue_bytes` since the link was created.
    pub peak_queue_bytes: u64,
    /// Packets in the delay line.
    pub flying_packets: u64,
    /// Super-packets and packets read from the kernel.
    pub reads: u64,
    /// Total length of the seconds in which the wire worked for at least 90 % of the time, in nanoseconds. A second
    /// ends with the first packet that leaves the wire after it.
    #[serde(default)]
    pub full_ns: u64,
}

/// One direction of a running link.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Counters of the model.
    #[serde(flatten)]
    pub pipe: PipeCounters,
    /// Packets or super-packets written to the kernel.
    pub writes: u64,
    /// Writes that the kernel refused. A number above 0 is a fault of the emulator.
    pub refused_writes: u64,
    /// Error of the last refused write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_because: Option<String>,
    /// Packets that the kernel dropped because the emulator read too slowly. A number above 0 means that this machine
    /// was too slow for the link.
    pub overrun_packets: u64,
    /// Packets dropped because all reserved memory was in use. A number above 0 means that this machine was too slow
    /// for the link.
    pub dropped_memory_packets: u64,
    /// Segments that were written more than [`LATE_NS`] after they were due, or that waited while the emulator was
    /// away.
    #[serde(default)]
    pub late_packets: u64,
    /// Absences of the emulator. They are the same for both directions, which share a thread.
    #[serde(default)]
    pub away: LinkAway,
    /// Time between a segment's due time and its write, in nanoseconds.
    pub lateness: Lateness,
    /// Processor time of the thread that moves packets, in nanoseconds: this direction's share by its number of reads
    /// and writes.
    pub cpu_ns: u64,
}

/// Lateness, in nanoseconds, above which a segment counts as late and the emulator as away. A certificate allows one
/// packet in 1,000 above it.
pub(super) const LATE_NS: u64 = 1_000_000;

/// Absences: times of more than 1 ms in which the emulator did not check for packets, because it was stopped, had no
/// processor or was busy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinkAway {
    /// Number of absences.
    pub times: u64,
    /// Total duration, in nanoseconds.
    pub total_ns: u64,
    /// Longest absence since the trial, or the link, began, in nanoseconds.
    pub longest_ns: u64,
    /// The most time of absences that ended within three successive seconds of the clock since then, with the planned sleeps
    /// before them, in nanoseconds.
    #[serde(default)]
    pub in_three_seconds_ns: u64,
}

impl LinkAway {
    /// The absences since `before`. `longest_ns` and `in_three_seconds_ns` count from the last
    /// [`Link::forget_longest_absence`](super::Link).
    pub fn since(self, before: Self) -> Self {
        Self { times: self.times - before.times, total_ns: self.total_ns - before.total_ns, ..self }
    }
}

/// Counts absences.
#[derive(Debug, Default)]
pub(super) struct AwayCounter {
    pub(super) away: LinkAway,
    /// The current second of the clock, and the times of absences that ended in it and in the two seconds before.
    second: u64,
    in_second_ns: [u64; 3],
}

impl AwayCounter {
    /// Adds an absence that ended at `now_ns`. A packet may have waited for `slept_ns` more, in the planned sleep before it.
    pub(super) fn add(&mut self, now_ns: u64, ns: u64, slept_ns: u64) {
        let second = now_ns / 1_000_000_000;
        self.in_second_ns = match second - self.second {
            0 => self.in_second_ns,
            1 => [0, self.in_second_ns[0], self.in_second_ns[1]],
            2 => [0, 0, self.in_second_ns[0]],
            _ => [0; 3],
        };
        self.second = second;
        self.in_second_ns[0] += ns + slept_ns;
        let away = &mut self.away;
        away.times += 1;
        away.total_ns += ns;
        away.longest_ns = away.longest_ns.max(ns);
        away.in_three_seconds_ns = away.in_three_seconds_ns.max(self.in_second_ns.iter().sum());
    }

    /// Begins to look for the longest absence and the worst second again.
    pub(super) fn forget_longest(&mut self) {
        (self.away.longest_ns, self.away.in_three_seconds_ns, self.in_second_ns) = (0, 0, [0; 3]);
    }
}

/// What one direction carried between two readings of its counters, in packets as on a real wire.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Carried {
    /// Packets that arrived.
    pub offered_packets: u64,
    /// Packets handed to the other host.
    pub delivered_packets: u64,
    /// Bytes handed to the other host, on the layer that the rate counts.
    pub delivered_bytes: u64,
    /// Time of the seconds in which the wire worked for 90 % of the time, in nanoseconds.
    #[serde(default)]
    pub full_ns: u64,
    /// Packets dropped because the queue was full.
    pub dropped_queue_packets: u64,
    /// Packets lost on the wire, as requested.
    pub dropped_loss_packets: u64,
    /// Packets delivered twice, as requested.
    pub duplicated_packets: u64,
    /// Packets delayed behind later ones, as requested.
    pub reordered_packets: u64,
    /// Packets handed over more than 1 ms after they were due, or that waited while the emulator was away.
    pub late_packets: u64,
    /// Packets lost because this machine was too slow for the link.
    pub not_emulated_packets: u64,
    /// Bytes that waited at the end.
    pub queue_bytes: u64,
    /// Maximum of waiting bytes since the link was created.
    pub peak_queue_bytes: u64,
    /// 99th percentile of the lateness of packets since the link was created, in nanoseconds.
    pub lateness_p99_ns: Option<u64>,
}

impl Carried {
    /// The difference between two readings of the counters.
    pub fn between(before: &Counters, after: &Counters) -> Self {
        let (old, new) = (&before.pipe, &after.pipe);
        Self {
            offered_packets: new.offered_packets - old.offered_packets,
            delivered_packets: new.delivered_packets - old.delivered_packets,
            delivered_bytes: new.delivered_bytes - old.delivered_bytes,
            full_ns: new.full_ns - old.full_ns,
            dropped_queue_packets: new.dropped_queue_packets - old.dropped_queue_packets,
            dropped_loss_packets: new.dropped_loss_packets - old.dropped_loss_packets,
            duplicated_packets: new.duplicated_packets - old.duplicated_packets,
            reordered_packets: new.reordered_packets - old.reordered_packets,
            late_packets: after.late_packets - before.late_packets,
            not_emulated_packets: after.not_emulated() - before.not_emulated(),
            queue_bytes: new.queue_bytes,
            peak_queue_bytes: new.peak_queue_bytes,
            lateness_p99_ns: after.lateness.p99_ns,
        }
    }
}

impl Counters {
    /// Packets lost because this machine was too slow for the link.
    pub fn not_emulated(&self) -> u64 {
        self.overrun_packets + self.dropped_memory_packets + self.refused_writes
    }
}

/// Lateness of writes, in nanoseconds; none before the first write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lateness {
    /// Median.
    pub p50_ns: Option<u64>,
    /// 99th percentile.
    pub p99_ns: Option<u64>,
    /// 99.9th percentile.
    pub p999_ns: Option<u64>,
    /// Largest.
    pub max_ns: Option<u64>,
}
