//! What a link counts. Packets are segments: what would be a frame on a wire of its own.

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

impl PipeCounters {
    /// Whether nothing came or went that is not accounted for.
    pub fn add_up(&self) -> bool {
        let gone = self.dropped_queue_packets + self.dropped_loss_packets + self.dropped_down_packets;
        self.offered_packets + self.duplicated_packets
            == self.delivered_packets + gone + self.queue_packets + self.flying_packets
    }
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
    /// How late segments were written, against when they were due, in nanoseconds.
    pub lateness: Lateness,
    /// Processor time of the thread, in nanoseconds.
    pub cpu_ns: u64,
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
