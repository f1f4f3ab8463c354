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
    /// When traffic was sampled, in seconds of CLOCK_MONOTONIC, and the bytes until then.
    pub traffic: Vec<(f64, u64)>,
}

impl<'a> Samples<'a> {
    pub(super) fn start(flows: Flows, counters: Counters, memory: Option<&'a MemoryGroup>) -> Self {
        let (peak_memory_bytes, unsampled, sampled) = (None, Duration::ZERO, Instant::now());
        Self { flows, counters, memory, peak_memory_bytes, unsampled, sampled, traffic: Vec::new() }
    }

    /// Samples the memory, and if the counters of the links are given, all traffic.
    pub(super) fn sample(&mut self, links: Option<Vec<LinkCounter>>) -> io::Result<()> {
        self.unsampled = self.unsampled.max(self.sampled.elapsed());
        self.sampled = Instant::now();
        let used_bytes = self.memory.and_then(MemoryGroup::used_bytes);
        self.peak_memory_bytes = self.peak_memory_bytes.max(used_bytes);
        let Some(links) = links else { return Ok(()) };
        self.flows.sample()?;
        links.into_iter().for_each(|(name, bytes, packets)| self.flows.count(name, bytes, packets));
        let [sent, received] =
            [&self.counters.sent, &self.counters.received].map(|names| self.flows.bytes_of(names));
        self.traffic.push((clock::monotonic_s(), sent.max(received)));
        Ok(())
    }
}

/// How long after the end of the programs, at `ended_s`, the kernel had sent all but a hundredth of the bytes, in seconds: at
/// least, and at most.
pub(super) fn sent_after_s(traffic: &[(f64, u64)], ended_s: f64) -> (f64, f64) {
    let last_bytes = traffic.last().map_or(0, |(_, bytes)| *bytes);
    // Without hosts, nobody sees traffic.
    if last_bytes == 0 {
        return (0.0, 0.0);
    }
    let is_sent = |(_, bytes): &(f64, u64)| *bytes >= last_bytes - last_bytes / 100;
    let Some(sent) = traffic.iter().position(is_sent) else { return (0.0, 0.0) };
    let after_s = |sample: usize| (traffic[sample].0 - ended_s).max(0.0);
    (sent.checked_sub(1).map_or(0.0, after_s), after_s(sent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_after_the_end_takes_its_time() {
        let sent_s = |samples: &[(f64, u64)]| sent_after_s(samples, 0.0);
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
}
