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
    /// When traffic was sampled, in seconds of CLOCK_MONOTONIC, and the bytes until then: the last time and the time before.
    traffic: [(f64, u64); 2],
}

impl<'a> Samples<'a> {
    pub(super) fn start(flows: Flows, counters: Counters, memory: Option<&'a MemoryGroup>) -> Self {
        let traffic = [(clock::monotonic_s(), 0); 2];
        let (peak_memory_bytes, unsampled, sampled) = (None, Duration::ZERO, Instant::now());
        Self { flows, counters, memory, peak_memory_bytes, unsampled, sampled, traffic }
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
        self.traffic = [self.traffic[1], (clock::monotonic_s(), sent.max(received))];
        Ok(())
    }

    /// What is sent after the programs have ended, at `ended_s`. Called after a sample.
    pub(super) fn drain_since(&self, ended_s: f64) -> Drain {
        Drain(self.traffic.map(|(at_s, bytes)| (at_s - ended_s, bytes)).to_vec())
    }

    /// Adds the last sample.
    pub(super) fn extend(&self, drain: &mut Drain, ended_s: f64) {
        drain.0.push((self.traffic[1].0 - ended_s, self.traffic[1].1));
    }
}

/// Samples of the traffic around and after the end of the programs: seconds since their end, and the bytes until then.
#[derive(Debug)]
pub(super) struct Drain(Vec<(f64, u64)>);

impl Drain {
    #[cfg(test)]
    pub(super) fn of(samples: &[(f64, u64)]) -> Self {
        Self(samples.to_vec())
    }

    /// How long after the end of the programs the kernel had sent all but a hundredth of the bytes, in seconds: at least, and
    /// at most.
    pub(super) fn sent_s(&self) -> (f64, f64) {
        let last_bytes = self.0.last().map_or(0, |(_, bytes)| *bytes);
        // Without hosts, nobody sees traffic.
        if last_bytes == 0 {
            return (0.0, 0.0);
        }
        let is_sent = |(_, bytes): &(f64, u64)| *bytes >= last_bytes - last_bytes / 100;
        let Some(sent) = self.0.iter().position(is_sent) else { return (0.0, 0.0) };
        let at_s = |sample: usize| self.0[sample].0.max(0.0);
        (sent.checked_sub(1).map_or(0.0, at_s), at_s(sent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_after_the_end_takes_its_time() {
        let sent_s = |samples: &[(f64, u64)]| Drain::of(samples).sent_s();
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
