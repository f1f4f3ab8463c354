//! What a link counts. Packets are segments: what would be a frame on a wire of its own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One direction, as the model counts it. Bytes are those of the layer that the rate is meant on.
///
/// At every moment `offered = delivered + dropped_* + queue + flying - duplicated`, in packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipeCounters {
    /// What came.
    pub offered_packets: u64,
    /// What came.
    pub offered_bytes: u64,
    /// What was handed to the other side.
    pub delivered_packets: u64,
    /// What was handed to the other side.
    pub delivered_bytes: u64,
    /// The queue was full.
    pub dropped_queue_packets: u64,
    /// Lost on the wire, as asked.
    pub dropped_loss_packets: u64,
    /// The link was down.
    pub dropped_down_packets: u64,
    /// Came twice, as asked.
    pub duplicated_packets: u64,
    /// Came late, as asked.
    pub reordered_packets: u64,
    /// Waits for the wire or is on it.
    pub queue_packets: u64,
    /// Waits for the wire or is on it.
    pub queue_bytes: u64,
    /// Most that ever did.
    pub peak_queue_bytes: u64,
    /// In the delay line.
    pub flying_packets: u64,
    /// Super-packets and packets read from the kernel.
    pub reads: u64,
}

/// One direction of a running link.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// The model's.
    #[serde(flatten)]
    pub pipe: PipeCounters,
    /// Packets or super-packets written to the kernel.
    pub writes: u64,
    /// Writes that the kernel refused. Anything but 0 is a fault of the emulator.
    pub refused_writes: u64,
    /// Why the last one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_because: Option<String>,
    /// Dropped unseen by the kernel because the emulator read too slowly. Anything but 0 means that
    /// this machine could not carry the link.
    pub overrun_packets: u64,
    /// Dropped because all memory set aside was in use; the same.
    pub dropped_memory_packets: u64,
    /// Segments written more than [`LATE_NS`] after they were due, and those that waited while the emulator was away.
    #[serde(default)]
    pub late_packets: u64,
    /// When the emulator was away. One thread moves both directions: both tell the same.
    #[serde(default)]
    pub away: LinkAway,
    /// How late segments were written, against when they were due, in nanoseconds.
    pub lateness: Lateness,
    /// Processor time of the thread that moves both directions, in nanoseconds: this one's share by reads and writes.
    pub cpu_ns: u64,
}

/// What is written so much later than it was due is late, in nanoseconds: as much as a certificate allows one packet in
/// 1,000. An emulator that looks for packets so much later than it was to was away.
pub(super) const LATE_NS: u64 = 1_000_000;

/// Times of more than 1 ms in which the emulator looked for no packet: it was stopped, had no processor, or was busy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinkAway {
    /// How often.
    pub times: u64,
    /// For how long in all, in nanoseconds.
    pub total_ns: u64,
    /// The longest since the counters were asked for before, in nanoseconds.
    pub longest_ns: u64,
}

impl LinkAway {
    /// It was away once more.
    pub fn add(&mut self, ns: u64) {
        self.times += 1;
        self.total_ns += ns;
        self.longest_ns = self.longest_ns.max(ns);
    }

    /// What was counted since an earlier look, which was the last before this one.
    pub fn since(self, before: Self) -> Self {
        Self { times: self.times - before.times, total_ns: self.total_ns - before.total_ns, ..self }
    }
}

/// What one direction did within a time, in packets as a wire of its own would have carried them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Carried {
    /// What came.
    pub offered_packets: u64,
    /// What was handed to the other side.
    pub delivered_packets: u64,
    /// The same, on the layer that the rate is meant on.
    pub delivered_bytes: u64,
    /// The queue was full.
    pub dropped_queue_packets: u64,
    /// Lost on the wire, as asked.
    pub dropped_loss_packets: u64,
    /// Came twice, as asked.
    pub duplicated_packets: u64,
    /// Came late, as asked.
    pub reordered_packets: u64,
    /// Handed over more than 1 ms after they were due, or not looked for while the emulator was away.
    pub late_packets: u64,
    /// Lost because this machine was too slow for the link.
    pub not_emulated_packets: u64,
    /// What waited at the end.
    pub queue_bytes: u64,
    /// Most that ever waited since the link was made.
    pub peak_queue_bytes: u64,
    /// 99th percentile of how late packets were handed over since the link was made, in nanoseconds.
    pub lateness_p99_ns: Option<u64>,
}

impl Carried {
    /// What was counted between two looks.
    pub fn between(before: &Counters, after: &Counters) -> Self {
        let (old, new) = (&before.pipe, &after.pipe);
        Self {
            offered_packets: new.offered_packets - old.offered_packets,
            delivered_packets: new.delivered_packets - old.delivered_packets,
            delivered_bytes: new.delivered_bytes - old.delivered_bytes,
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
    /// Packets that were lost because this machine was too slow for the link.
    pub fn not_emulated(&self) -> u64 {
        self.overrun_packets + self.dropped_memory_packets + self.refused_writes
    }
}

/// Lateness of writes.
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
