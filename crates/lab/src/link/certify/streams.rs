//! The streams that measure a link, and their expected delays and rates.

use rand::{RngExt, SeedableRng};

use super::CertifyOptions;
use crate::link::{
    namespace::End,
    spec::{JitterOrder, Shape},
    traffic::{Arrivals, Stream},
};

/// Rate of the loss measurement on a link without a rate, in packets per second.
const UNLIMITED_PACKETS_PER_S: f64 = 200_000.0;
/// Payload of a probe in bytes: its number and its time of sending. It is small, because slow links take long for each
/// byte.
const PROBE_BYTES: usize = 16;

/// Time from the last sent datagram until all have arrived, in nanoseconds: the delay plus the time to empty the queue.
pub(super) fn drain_ns(shape: &Shape, stream: &Stream) -> u64 {
    let wire_ns = stream.packets as f64 * wire_ns(shape, stream.payload_bytes).unwrap_or(0.0);
    let queue_ns = (wire_ns as u64).saturating_sub(stream.duration_ns());
    let late_ns = shape.reorder.map_or(0, |reorder| reorder.late_ns);
    ExpectedDelay::of(shape).p999_ns + late_ns + queue_ns.min(1_000_000_000) + 100_000_000
}

/// Time of a datagram on the wire, in nanoseconds; none without a rate.
fn wire_ns(shape: &Shape, payload_bytes: usize) -> Option<f64> {
    let bytes = shape.layer.bytes(payload_bytes as u64 + IP_UDP_BYTES);
    shape.rate_bits_per_s.map(|rate| bytes as f64 * 8e9 / rate as f64)
}

/// Header bytes of IPv4 and UDP. The 20 additional bytes of IPv6 matter only to the rate.
const IP_UDP_BYTES: u64 = 28;
const IPV6_UDP_BYTES: u64 = 48;

/// The few small packets that measure the delay.
pub(super) fn probe_stream(shape: &Shape, options: &CertifyOptions) -> Option<Stream> {
    // The interval is so long that no probe waits for another, and it is not a multiple of the kernel's 4 ms ticks.
    let interval_ns = probe_interval_ns(shape);
    let packets = ((options.delay_ms as f64 * 1e6 / interval_ns) as u64).clamp(20, 1_000_000);
    Some(Stream { payload_bytes: PROBE_BYTES, burst: 1, interval_ns, packets, is_probe: true })
}

/// Time of a probe on the wire, in nanoseconds.
pub(super) fn probe_wire_ns(shape: &Shape) -> f64 {
    wire_ns(shape, PROBE_BYTES).unwrap_or(0.0)
}

fn probe_interval_ns(shape: &Shape) -> f64 {
    let wire_ns = probe_wire_ns(shape);
    // The upper bound keeps slow links from taking half a minute.
    (10.0 * wire_ns).min((2.0 * wire_ns).max(120e6)).max(2_037_000.0)
}

/// Maximum payload of the datagrams that measure the rate, in bytes.
pub(super) const RATE_PAYLOAD_BYTES: usize = 1_400;
/// Number of packets that a measurement of the rate needs.
const RATE_PACKETS: f64 = 50.0;
/// Ratio of the sent rate to the link's rate. The excess fills the queue, so that a delayed sender leaves no gap on the
/// wire.
const OVERLOAD: f64 = 1.15;

/// A stream above the link's rate, which measures that rate; none if the link has no rate. `max_bytes` is the maximum
/// payload.
pub(super) fn rate_stream(shape: &Shape, options: &CertifyOptions, max_bytes: usize) -> Option<Stream> {
    // On slow links, datagrams are smaller, so that enough of them fit into the phase.
    let fitting_bytes = shape.rate_bits_per_s? as f64 / 8.0 * options.phase().as_secs_f64() / RATE_PACKETS;
    let head_bytes =
        shape.layer.bytes(RATE_PAYLOAD_BYTES as u64 + IP_UDP_BYTES) as usize - RATE_PAYLOAD_BYTES;
    let payload_bytes = (fitting_bytes as usize)
        .saturating_sub(head_bytes)
        .min(max_bytes)
        .clamp(PROBE_BYTES, RATE_PAYLOAD_BYTES);
    let each_ns = wire_ns(shape, payload_bytes)?;
    // Enough packets for the rate, plus a fifth for the beginning and the end.
    let min_ns = 500.0 * each_ns;
    let phase_ns = (options.rate_ms as f64 * 1e6).max(min_ns).min(options.phase().as_nanos() as f64) * 1.2;
    // A burst takes half a millisecond on the wire.
    let burst = Stream::burst_of(payload_bytes, (500_000.0 / each_ns) as usize);
    let interval_ns = burst as f64 * each_ns / OVERLOAD;
    let packets = (phase_ns / interval_ns * burst as f64).max(20.0) as u64;
    Some(Stream { payload_bytes, burst, interval_ns, packets, is_probe: false })
}

/// Many small packets at half the link's rate, which measure the loss.
pub(super) fn loss_stream(shape: &Shape, options: &CertifyOptions) -> Stream {
    let each_ns = wire_ns(shape, PROBE_BYTES).map_or(1e9 / UNLIMITED_PACKETS_PER_S, |ns| 2.0 * ns);
    // The receiver cannot process single packets faster.
    let each_ns = each_ns.max(2_000.0);
    let queued = shape.queue_bytes(0).map_or(usize::MAX, |bytes| (bytes / 200) as usize);
    let burst = Stream::burst_of(PROBE_BYTES, queued.min((1e6 / each_ns) as usize));
    let packets = options.loss_packets.min((options.phase().as_nanos() as f64 / each_ns) as u64).max(1);
    Stream {
        payload_bytes: PROBE_BYTES,
        burst,
        interval_ns: burst as f64 * each_ns,
        packets,
        is_probe: false,
    }
}

/// The expected delay of probes: time on the wire, delay, jitter and reordering.
#[derive(Debug)]
pub(super) struct ExpectedDelay {
    fixed_ns: u64,
    /// Samples of jitter and reordering, in ascending order.
    added_ns: Vec<u64>,
    /// Interquartile range of the jitter, in nanoseconds.
    pub jitter_spread_ns: u64,
    /// 99.9th percentile, in nanoseconds.
    pub p999_ns: u64,
}

impl ExpectedDelay {
    /// Computes the expected delay. If the link keeps the order, no probe arrives before an earlier one.
    pub(super) fn of(shape: &Shape) -> Self {
        let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(1);
        let interval_ns = match shape.jitter_order {
            JitterOrder::Keep => probe_interval_ns(shape) as u64,
            JitterOrder::Free => u64::MAX,
        };
        let mut ahead_ns = 0_u64;
        let draw = |_| {
            let jitter_ns = if shape.jitter.is_zero() { 0 } else { shape.jitter.sample_ns(&mut rng) };
            ahead_ns = jitter_ns.max(ahead_ns.saturating_sub(interval_ns));
            ahead_ns
        };
        let mut added_ns: Vec<u64> = (0..20_000).map(draw).collect();
        let mut jitter_ns = added_ns.clone();
        jitter_ns.sort_unstable();
        let late_ns = shape.reorder.map_or(0, |reorder| reorder.late_ns);
        let late_ratio = shape.reorder.map_or(0.0, |reorder| reorder.ratio);
        added_ns.iter_mut().filter(|_| rng.random::<f64>() < late_ratio).for_each(|ns| *ns += late_ns);
        added_ns.sort_unstable();
        let fixed_ns = shape.delay_ns + probe_wire_ns(shape) as u64;
        Self {
            fixed_ns,
            jitter_spread_ns: jitter_ns[15_000] - jitter_ns[5_000],
            p999_ns: fixed_ns + jitter_ns[19_980] + if late_ratio > 0.0005 { late_ns } else { 0 },
            added_ns,
        }
    }

    /// The quantile of the delay, in nanoseconds.
    pub(super) fn at(&self, quantile: f64) -> u64 {
        let last = self.added_ns.len() - 1;
        self.fixed_ns + self.added_ns[(quantile.clamp(0.0, 1.0) * last as f64).round() as usize]
    }
}

/// Maximum payload of a datagram between these ends that needs no IP fragmentation, in bytes.
pub(super) fn max_payload_bytes([from, to]: [&End; 2]) -> usize {
    (u64::from(from.mtu.min(to.mtu)).saturating_sub(header_bytes(to))) as usize
}

/// Header bytes of datagrams to the first address of this end: IP and UDP.
pub(super) fn header_bytes(to: &End) -> u64 {
    let is_v6 = to.addresses.first().is_some_and(|address| address.ip.is_ipv6());
    if is_v6 { IPV6_UDP_BYTES } else { IP_UDP_BYTES }
}

/// The arrival rate in bits of the layer per second, and the number of packets, each of `ip_bytes` bytes, that it was
/// computed from. The first tenth of the phase is left out.
pub(super) fn arrival_rate(
    shape: &Shape,
    arrivals: &Arrivals,
    options: &CertifyOptions,
    ip_bytes: u64,
) -> (f64, u64) {
    let Some(&(first_ns, _)) = arrivals.batches.first() else { return (0.0, 0) };
    let last_ns = arrivals.batches.last().map_or(first_ns, |&(at_ns, _)| at_ns);
    let lead_ns = (options.rate_ms * 100_000).min((last_ns - first_ns) / 10);
    // The overload ends when the last datagram is sent; later arrivals come from the queue.
    let mut within = arrivals.batches.iter().skip_while(|(at_ns, _)| *at_ns < first_ns + lead_ns).copied();
    let Some((from_ns, _)) = within.next() else { return (0.0, 0) };
    let (packets, to_ns) =
        within.fold((0_u64, from_ns), |(packets, _), (at_ns, count)| (packets + u64::from(count), at_ns));
    let bits = packets * shape.layer.bytes(ip_bytes) * 8;
    (if to_ns > from_ns { bits as f64 * 1e9 / (to_ns - from_ns) as f64 } else { 0.0 }, packets)
}

#[cfg(test)]
mod tests {
    use record::Distribution;

    use super::*;
    use crate::link::{LinkSpec, Queue};

    fn shape(rate: u64) -> Shape {
        Shape { rate_bits_per_s: Some(rate), delay_ns: 1_000_000, ..Shape::default() }
    }

    /// The sent rate of a stream, in bits of the shape's layer per second.
    fn requested(shape: &Shape, stream: &Stream) -> f64 {
        let bytes = shape.layer.bytes(stream.payload_bytes as u64 + IP_UDP_BYTES);
        (bytes * 8 * stream.burst as u64) as f64 * 1e9 / stream.interval_ns
    }

    #[test]
    fn streams_fit_every_rate_and_end_in_time() {
        for rate in [64_000, 20_000_000, 1_000_000_000, 10_000_000_000] {
            let (shape, options) = (shape(rate), CertifyOptions::default());
            let rated = rate_stream(&shape, &options, RATE_PAYLOAD_BYTES).unwrap();
            assert!((requested(&shape, &rated) / rate as f64 - OVERLOAD).abs() < 0.001, "{rate}");
            let counted = loss_stream(&shape, &options);
            assert!(requested(&shape, &counted) <= rate as f64 * 0.501, "{rate}");
            let probes = probe_stream(&shape, &options).unwrap();
            assert!(requested(&shape, &probes) <= rate as f64 * 0.101 && probes.packets >= 10, "{rate}");
            for stream in [rated, counted, probes] {
                assert!(stream.duration_ns() <= 18_000_000_000, "{rate}: {stream:?}");
            }
        }
        assert!(rate_stream(&Shape::default(), &CertifyOptions::default(), RATE_PAYLOAD_BYTES).is_none());
    }

    #[test]
    fn slow_links_are_measured_by_small_packets_within_seconds() {
        for rate in [8_000, 20_000, 100_000, 1_000_000] {
            let (shape, options) = (shape(rate), CertifyOptions::short());
            let rated = rate_stream(&shape, &options, RATE_PAYLOAD_BYTES).unwrap();
            let probes = probe_stream(&shape, &options).unwrap();
            let counted = loss_stream(&shape, &options);
            assert!((requested(&shape, &rated) / rate as f64 - OVERLOAD).abs() < 0.001, "{rate}: {rated:?}");
            assert!(
                requested(&shape, &probes) <= rate as f64 * 0.501 && probes.packets >= 20,
                "{rate}: {probes:?}"
            );
            let streams = [probes, rated, counted];
            let taken_ns =
                streams.iter().map(|stream| stream.duration_ns() + drain_ns(&shape, stream)).sum::<u64>();
            assert!(taken_ns < 8_000_000_000, "{rate}: {taken_ns} ns, {streams:?}");
            let most = options.max_duration(&LinkSpec::symmetric(shape.clone())).as_nanos() as u64;
            let most_sent_ns = streams.iter().map(|stream| 2 * stream.duration_ns()).sum::<u64>();
            assert!(most > most_sent_ns + 3_000_000_000, "{rate}: {most} ns");
        }
    }

    #[test]
    fn datagrams_fit_the_mtu() {
        let end = |address: &str, mtu| End {
            namespace: crate::link::Namespace::Pid(1),
            device: "link0".to_owned(),
            addresses: vec![address.parse().unwrap()],
            mtu,
        };
        let [large, small] = [end("10.0.0.1/30", 1_500), end("10.0.0.2/30", 1_280)];
        assert_eq!(max_payload_bytes([&large, &small]), 1_252);
        let shape = shape(1_000_000_000);
        let stream =
            rate_stream(&shape, &CertifyOptions::short(), max_payload_bytes([&small, &large])).unwrap();
        assert_eq!(stream.payload_bytes, 1_252);
        assert!((requested(&shape, &stream) / 1e9 - OVERLOAD).abs() < 0.001, "{stream:?}");
        let v6 = end("fd00::1/64", 1_420);
        assert_eq!(max_payload_bytes([&v6, &v6]), 1_372);
    }

    #[test]
    fn bursts_fit_a_short_queue() {
        let shape = Shape { queue: Queue::Bytes { bytes: 3_000 }, ..shape(1_000_000_000) };
        let stream = loss_stream(&shape, &CertifyOptions::default());
        assert!(stream.burst * 130 < 3_000, "{stream:?}");
    }

    #[test]
    fn jitter_is_expected() {
        let jitter = Distribution::Uniform { min_ns: 0, max_ns: 10_000_000 };
        let free = Shape { jitter, jitter_order: JitterOrder::Free, ..shape(1_000_000_000) };
        let expected = ExpectedDelay::of(&free);
        let p50_ns = expected.at(0.5);
        assert!((5_800_000..6_200_000).contains(&p50_ns) && expected.p999_ns > 10_900_000, "{expected:?}");
        let kept_ns = ExpectedDelay::of(&Shape { jitter_order: JitterOrder::Keep, ..free }).at(0.5);
        assert!((6_500_000..8_500_000).contains(&kept_ns), "{kept_ns}: those ahead hold up");
    }

    #[test]
    fn the_rate_is_counted_after_its_beginning() {
        // After a slow start of 50 ms, 85 packets of 1,466 bytes on the wire arrive in each millisecond.
        let batches = (0..1_200_u64).map(|ms| (ms * 1_000_000, if ms < 50 { 1 } else { 85 })).collect();
        let arrivals = Arrivals { batches, ..Arrivals::default() };
        let shape = shape(1_000_000_000);
        let (rate, _) = arrival_rate(&shape, &arrivals, &CertifyOptions::default(), 1_400 + IP_UDP_BYTES);
        assert!((rate / (85_000.0 * 1_466.0 * 8.0) - 1.0).abs() < 1e-6, "{rate}");
    }
}
