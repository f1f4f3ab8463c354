//! The token bucket filter that limits the rate at which an interface sends: tc-tbf(8), `net/sched/sch_tbf.c`.

use netlink_packet_core::DefaultNla;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption};

// linux/pkt_sched.h
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;
const TC_LINKLAYER_ETHERNET: u8 = 1;

/// Bytes that the kernel counts for each frame in addition to the IP packet.
pub const ETHERNET_HEADER_BYTES: u64 = 14;
/// A full bucket contains the tokens of 1/1,000 second. Timers are about 10 µs late, on virtual processors about 100
/// µs. A smaller bucket would be full before the timer fires, and the rate would not be reached. From 550 Mbit/s on,
/// the bucket is large enough for a super-packet of 64 KiB; for smaller buckets, the kernel splits super-packets.
const BURSTS_PER_S: u64 = 1_000;
/// The queue has room for the traffic of 1/200 second.
const QUEUES_PER_S: u64 = 200;
/// Minimum size of the queue in bytes: four super-packets.
const MIN_QUEUE_BYTES: u64 = 256 * 1024;

/// A token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBucket {
    /// Rate, in bits of Ethernet frames (without FCS) per second.
    pub rate_bits_per_s: u64,
    /// Size of the bucket: maximum bytes that may pass at once after a pause.
    pub burst_bytes: u64,
    /// Size of the queue, in bytes.
    pub queue_bytes: u64,
    /// Bytes counted for each packet in addition to the Ethernet frame.
    pub overhead_bytes: u16,
}

impl TokenBucket {
    /// The bucket of a segment's port.
    pub(super) fn for_port(rate_bits_per_s: u64, mtu: u32) -> Self {
        let rate_bytes_per_s = rate_bits_per_s / 8;
        let frame_bytes = u64::from(mtu) + ETHERNET_HEADER_BYTES;
        Self {
            rate_bits_per_s,
            burst_bytes: (rate_bytes_per_s / BURSTS_PER_S).max(2 * frame_bytes),
            queue_bytes: (rate_bytes_per_s / QUEUES_PER_S).max(MIN_QUEUE_BYTES),
            overhead_bytes: 0,
        }
    }

    /// The request that adds the bucket to an interface, below the queueing discipline `parent`.
    pub(super) fn message(&self, index: u32, parent: TcHandle) -> TcMessage {
        let rate_bytes_per_s = self.rate_bits_per_s / 8;
        let mut message = TcMessage::with_index(index as i32);
        message.header.parent = parent;
        let option = |kind, value| TcOption::Other(DefaultNla::new(kind, value));
        message.attributes = vec![
            TcAttribute::Kind("tbf".to_owned()),
            TcAttribute::Options(vec![
                option(TCA_TBF_PARMS, self.parameters(clamped(rate_bytes_per_s))),
                option(TCA_TBF_RATE64, rate_bytes_per_s.to_ne_bytes().to_vec()),
                option(TCA_TBF_BURST, clamped(self.burst_bytes).to_ne_bytes().to_vec()),
            ]),
        ];
        message
    }

    /// `struct tc_tbf_qopt`: two `struct tc_ratespec` (rate, peak rate), limit, buffer, mtu.
    fn parameters(&self, rate_bytes_per_s: u32) -> Vec<u8> {
        // cell_log, linklayer, overhead (2 bytes), cell_align (2), mpu (2), rate. Without a link layer, the kernel
        // would require a rate table.
        let mut bytes = vec![0, TC_LINKLAYER_ETHERNET];
        bytes.extend(self.overhead_bytes.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(rate_bytes_per_s.to_ne_bytes());
        // There is no peak rate.
        bytes.extend([0; 12]);
        bytes.extend(clamped(self.queue_bytes).to_ne_bytes());
        // The size in ticks stays 0, because TCA_TBF_BURST gives the size of the bucket in bytes.
        bytes.extend([0; 8]);
        bytes
    }
}

fn clamped(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::{Emitable, Nla};

    use super::*;

    /// The values of the options by option kind.
    fn options(rate_bits_per_s: u64) -> Vec<(u16, Vec<u8>)> {
        let message = TokenBucket::for_port(rate_bits_per_s, 1_500).message(7, TcHandle::ROOT);
        let Some(TcAttribute::Options(options)) = message.attributes.get(1) else { panic!("{message:?}") };
        let value = |option: &TcOption| {
            let mut bytes = vec![0; option.value_len()];
            option.emit_value(&mut bytes);
            (option.kind(), bytes)
        };
        assert_eq!(message.buffer_len() % 4, 0);
        options.iter().map(value).collect()
    }

    fn number(bytes: &[u8]) -> u32 {
        u32::from_ne_bytes(bytes.try_into().unwrap())
    }

    #[test]
    fn slow_and_fast_ports() {
        for (rate, burst, queue) in [
            (8_000, 3_028, 262_144),
            (100_000_000, 12_500, 262_144),
            (10_000_000_000, 1_250_000, 6_250_000),
            (1_000_000_000_000, 125_000_000, 625_000_000),
        ] {
            let options = options(rate);
            let [(TCA_TBF_PARMS, parameters), (TCA_TBF_RATE64, wide), (TCA_TBF_BURST, bytes)] = &options[..]
            else {
                panic!("{options:?}")
            };
            assert_eq!(parameters.len(), 36);
            assert_eq!((number(bytes), number(&parameters[24..28])), (burst, queue));
            assert_eq!(u64::from_ne_bytes(wide[..].try_into().unwrap()), rate / 8);
            assert_eq!(u64::from(number(&parameters[8..12])), (rate / 8).min(u64::from(u32::MAX)));
        }
    }
}
