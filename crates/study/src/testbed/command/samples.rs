//! Samples what programs use while they run, and what the kernel still sends for them afterwards.

use std::{
    io,
    time::{Duration, Instant},
};

use command::{Flows, MemoryGroup};

use super::supervisors::LinkCounter;

/// Samples the memory of programs and their traffic.
pub(super) struct Samples<'a> {
    pub flows: Flows,
    pub memory: Option<&'a MemoryGroup>,
    pub peak_memory_bytes: Option<u64>,
    /// The longest time without a sample.
    pub unsampled: Duration,
    sampled: Instant,
}

impl<'a> Samples<'a> {
    pub(super) fn start(flows: Flows, memory: Option<&'a MemoryGroup>) -> Self {
        let (peak_memory_bytes, unsampled) = (None, Duration::ZERO);
        Self { flows, memory, peak_memory_bytes, unsampled, sampled: Instant::now() }
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
        Ok(())
    }
}

/// The traffic after the programs have ended: times since their end, in seconds, with all bytes until then.
#[derive(Debug, Default)]
pub(super) struct Drain(pub Vec<(f64, u64)>);

impl Drain {
    /// How long after the end of the programs the kernel had sent what they wrote, in seconds: but for a hundredth of what it
    /// sent after their end. 0 if it sent less than a hundredth of all bytes after their end.
    pub(super) fn seconds(&self) -> f64 {
        let (Some(&(_, first)), Some(&(_, last))) = (self.0.first(), self.0.last()) else { return 0.0 };
        let late = last - first;
        if late <= last / 100 {
            return 0.0;
        }
        let is_sent = |(_, bytes): &&(f64, u64)| *bytes >= last - late / 100;
        self.0.iter().find(is_sent).map_or(0.0, |(after_s, _)| *after_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_after_the_end_takes_its_time() {
        let seconds = |samples: &[(f64, u64)]| Drain(samples.to_vec()).seconds();
        assert_eq!(seconds(&[]), 0.0);
        assert_eq!(seconds(&[(0.0, 10_000), (0.1, 10_050), (0.2, 10_100)]), 0.0, "farewells");
        assert_eq!(seconds(&[(0.0, 10_000), (0.1, 15_000), (0.2, 20_000), (0.4, 20_050)]), 0.2);
        assert_eq!(seconds(&[(0.0, 0), (0.1, 5)]), 0.1);
    }
}
