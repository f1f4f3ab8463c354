//! Samples what programs use while they run, and what the kernel still sends for them afterwards.

use std::{
    io,
    time::{Duration, Instant},
};

use command::{Flows, MemoryGroup};

use super::{moved::Counters, supervisors::LinkCounter};

/// Samples the memory of programs and their traffic.
pub(super) struct Samples<'a> {
    pub flows: Flows,
    pub counters: Counters,
    pub memory: Option<&'a MemoryGroup>,
    pub peak_memory_bytes: Option<u64>,
    /// The longest time without a sample.
    pub unsampled: Duration,
    sampled: Instant,
    pub traffic: Vec<TrafficSample>,
}

/// When traffic was sampled, in seconds of CLOCK_MONOTONIC, and the bytes until then: of each of [`Counters::lines`], in both
/// directions.
pub(super) type TrafficSample = (f64, Vec<[u64; 2]>);

/// A line that has carried a smaller share of the bytes of the busiest has carried none of the programs' data.
const LEAST_SHARE: f64 = 0.01;

impl<'a> Samples<'a> {
    pub(super) fn start(flows: Flows, counters: Counters, memory: Option<&'a MemoryGroup>) -> Self {
        let (peak_memory_bytes, unsampled, sampled) = (None, Duration::ZERO, Instant::now());
        Self { flows, counters, memory, peak_memory_bytes, unsampled, sampled, traffic: Vec::new() }
    }

    /// Samples the memory, and if the counters of the links are given, all traffic.
    pub(super) fn sample(&mut self, links: Option<&[LinkCounter]>) -> io::Result<()> {
        self.unsampled = self.unsampled.max(self.sampled.elapsed());
        self.sampled = Instant::now();
        let used_bytes = self.memory.and_then(MemoryGroup::used_bytes);
        self.peak_memory_bytes = self.peak_memory_bytes.max(used_bytes);
        let Some(links) = links else { return Ok(()) };
        self.flows.sample()?;
        links.iter().for_each(|link| self.flows.count(link.flow.clone(), link.delivered.0, link.delivered.1));
        let bytes_of = |flows: &[String; 2]| flows.each_ref().map(|flow| self.flows.bytes_of(flow));
        self.traffic.push((clock::monotonic_s(), self.counters.lines.iter().map(bytes_of).collect()));
        Ok(())
    }
}

/// How long after the end of the programs, at `ended_s`, each line had carried all but a hundredth of its bytes, in seconds:
/// at least, and at most. Of a line, the direction that carried more counts.
pub(super) fn sent_after_s(traffic: &[TrafficSample], ended_s: f64) -> (f64, f64) {
    // Without hosts, nobody sees traffic.
    let Some((_, last)) = traffic.last() else { return (0.0, 0.0) };
    let larger = |bytes: &[u64; 2]| usize::from(bytes[1] > bytes[0]);
    let busiest_bytes = last.iter().flatten().copied().max().unwrap_or(0);
    let mut bounds_s = (0.0_f64, 0.0_f64);
    for (line, bytes) in last.iter().enumerate() {
        let direction = larger(bytes);
        let last_bytes = bytes[direction];
        if last_bytes == 0 || (last_bytes as f64) < LEAST_SHARE * busiest_bytes as f64 {
            continue;
        }
        let is_sent = |(_, of): &TrafficSample| of[line][direction] >= last_bytes - last_bytes / 100;
        let sent = traffic.iter().position(is_sent).expect("the last sample has all bytes");
        let after_s = |sample: usize| (traffic[sample].0 - ended_s).max(0.0);
        bounds_s.0 = bounds_s.0.max(sent.checked_sub(1).map_or(0.0, after_s));
        bounds_s.1 = bounds_s.1.max(after_s(sent));
    }
    bounds_s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_after_the_end_takes_its_time() {
        let of_line = |&(at_s, bytes): &(f64, u64)| (at_s, vec![[bytes / 50, bytes]]);
        let sent_s =
            |samples: &[(f64, u64)]| sent_after_s(&samples.iter().map(of_line).collect::<Vec<_>>(), 0.0);
        assert_eq!(sent_s(&[(0.1, 0), (0.2, 0)]), (0.0, 0.0), "nothing");
        assert_eq!(sent_s(&[(-0.1, 9_950), (0.01, 10_000), (0.2, 10_040)]), (0.0, 0.0), "farewells");
        assert_eq!(sent_s(&[(-0.1, 5_000), (0.01, 10_000)]), (0.0, 0.01), "at the end or just after it");
        assert_eq!(
            sent_s(&[(-0.1, 0), (0.0, 10_000), (0.1, 15_000), (0.2, 20_000), (0.4, 20_050)]),
            (0.1, 0.2)
        );
        assert_eq!(sent_s(&[(-0.1, 100), (2.0, 20_000)]), (0.0, 2.0), "nobody looked");
        assert_eq!(sent_s(&[(0.5, 100), (2.0, 20_000)]), (0.5, 2.0));
    }

    #[test]
    fn bytes_wait_before_the_slowest_of_several_lines() {
        let samples = [
            (-0.1, vec![[10_000, 100], [4_000, 40], [0, 0]]),
            (0.1, vec![[10_000, 100], [5_000, 50], [0, 0]]),
            (0.5, vec![[10_000, 100], [10_000, 100], [0, 50]]),
            (0.7, vec![[10_040, 150], [10_040, 150], [0, 60]]),
        ];
        assert_eq!(sent_after_s(&samples, 0.0), (0.1, 0.5));
    }
}
